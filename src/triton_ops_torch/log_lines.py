"""Lines of logs, without what launchers, containers and collectors put around them, each with its writer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from triton_ops.base import NamedFile
from triton_ops.exceptions import TargetError

_ESCAPE = re.compile(
    r"(?:\x1b|\^\[|#033|\\(?:x1b|033|u001b))(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)|\ufeff"
)
_END = re.compile(r"[\r\n]+")
_ENTITY = re.compile(r"&#?\w+;")  # of a text that was copied out of a page's source
_WRITTEN_END = re.compile(  # only where a compiler's line may follow: paths of Windows have such a `\n` too
    r"\\n(?=\s|[\"']?,?$|A[Uu][Tt][Oo]|strides: |dtypes: |\w+Process |\{\"num|Triton auto|with key |finished |best )"
)
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\].*$")  # what Ray adds
_TEXTS = ("log", "message", "msg", "textPayload", "MESSAGE")  # of an object of JSON into which a line was put
CHANGING = re.compile(  # what stands before a line, and is another before the next one of the same process
    r"(?:[\w ()./-]{1,80}:)?\s{0,9}\d{1,3}%\|[^|]*\|[^\[]*(?:\[[^\]]*\])?"  # a progress bar
    r"|(?:\b[VDIWEC]?(?:\d{4}[-/.])?\d\d[-/.]?\d\d(?:[-/.]\d{2,4})?[T ,]+|\b[A-Z][a-z]{2} +\d+ +"
    r"|\b\d+/[A-Z][a-z]+/\d{4}:)?"
    r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d| [AP]M)?"
    r"|(?<![\w.=])(?:1\d{9}|\d+\.\d+s?|\d+ms)(?![\w.])"  # seconds since 1970, or since a start
    r"|\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|debug|info|warn(?:ing)?|error)\b"
    r"|\S{1,400}\.(?:py|cpp|cc|cu):\d+\]?|\[\d+/\d+\w*\]|\[?__\w+\b"
)
_NAME = re.compile(r"(?<![\w.@=/<>#-])[.@=/<>#-]*\w[\w.@=/<>#-]*")


def text_of(file: Path) -> str:
    """The text of a file that a command names; a `TargetError` if it cannot be read, or is no text."""
    with TargetError.when(f"{file} cannot be read", hint="name a file with what a program that compiles wrote"):
        return NamedFile(file).text()


class LogLine(NamedTuple):
    """A line of a log, with its match of a pattern, and who wrote it as far as what stands before the match tells."""

    writer: str
    text: str
    match: re.Match[str] | None

    @property
    def kind(self) -> str:
        """The name of the outermost group that matched; empty if none did."""
        return (self.match and self.match.lastgroup) or ""


def clean_lines(texts: Iterable[str]) -> Iterator[str]:
    """The lines of texts without colours and line ends, taken out of the JSON into which a collector has put them."""
    plain = (_ENTITY.sub(lambda entity: unescape(entity[0]), _ESCAPE.sub("", text)) for text in texts)
    # Pages from which logs are copied have no-break spaces.
    for line in filter(None, (line for text in plain for line in _END.split(text.replace("\u00a0", " ")))):
        try:
            document = json.loads(line) if line.lstrip().startswith("{") else None
        except ValueError:  # it only begins like JSON
            document = None
        name = next((name for name in _TEXTS if isinstance((document or {}).get(name), str)), None)
        if document is None or name is None:
            yield from filter(None, _WRITTEN_END.split(_REPEATED.sub("", line)))
        else:
            before = " ".join(str(value) for key, value in document.items() if key != name)
            yield from (f"{before} {inner}" for inner in clean_lines([document[name]]))


def read_lines(
    texts: Iterable[str], pattern: re.Pattern[str], words: Sequence[str], first: str, later: Sequence[str] = ()
) -> list[LogLine]:
    """The lines of a log, each with its match of a pattern, if it has one of the words; a match may begin anywhere.

    The prefix of a line names its writer. One that a single line has, such as the rest of a progress bar, names none.
    Lines of the kinds `later` belong to one of the kind `first`: where their prefixes seldom agree, the numbers in them
    count something, and are left out. Where `later` lines stand above `first` ones, the log has its newest line first,
    and is turned round.
    """
    lines = []
    for text in clean_lines(texts):
        match = pattern.search(text) if any(word in text for word in words) else None
        before = text[: match.start()] if match else ""
        lines.append(LogLine(" ".join(_NAME.findall(CHANGING.sub(" ", before))) if before else "", text, match))
    number = Counter(line.writer for line in lines if line.match)
    lines = [line if number[line.writer] > 1 else line._replace(writer="") for line in lines]
    owners = {line.writer for line in lines if line.kind == first}
    parts = [line.writer in owners for line in lines if line.kind in later]
    if owners and 2 * sum(parts) < len(parts):  # a number in the prefix counts something
        lines = [line._replace(writer=re.sub(r"\d+", "", line.writer)) for line in lines]
    pairs = Counter(pairwise(line.kind for line in lines if line.match))
    newest_first = any(pairs[kind, first] for kind in later) and not any(pairs[first, kind] for kind in later)
    return lines[::-1] if newest_first else lines
