"""What a command says, as one value with three writers: lines of a terminal, Markdown, and a JSON document."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from triton_ops import settings
from triton_ops.base import NamedFile, escaped, storable
from triton_ops.exceptions import SettingsError
from triton_ops.terminal.console import (
    LEAST,
    State,
    data_on_stdout,
    paragraph,
    say,
    tell,
    tell_failures,
    unstyled,
    width,
)

SCHEMA_VERSION = 1
_GAP = "  "
_PLAIN = re.compile(r"[A-Za-z0-9 =%,.+()/'-]*")
_CODE = re.compile(r"[A-Za-z0-9_:=%,.+()/' -]*")
_LINK = re.compile(r"//|www\.", re.IGNORECASE)  # what a reader of Markdown makes a link of by itself
_OTHER = re.compile(r"[^A-Za-z0-9 ]")
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")  # of a shell


class Facts:
    """Facts, tables and texts in their order for people, and the data of a JSON document for scripts.

    A command returns one. `kind` names the document; data that is no mapping becomes its `items`, and a function is
    called for it only where a document is written. `code` is the exit code of the command.
    """

    def __init__(self, kind: str, data: Any = ()) -> None:
        self.kind = kind
        self.code = 0
        self.messages: list[tuple[str, str, str]] = []
        self.failed: list[tuple[str, str, str]] = []
        self._data = data
        self._parts: list[_Table | _Text | _Lines | _Heading] = []

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = (), *, title: str = "",
        note: str = "", narrow: Callable[[], Facts] | None = None,
    ) -> Facts:  # fmt: skip
        """Add a table; `right` names columns of numbers, and `narrow` makes what stands for one that does not fit."""
        self._parts.append(_Table(header, rows, right, title, note, narrow))
        return self

    def listing(self, facts: Mapping[str, str], title: str = "") -> Facts:
        """Add names on the left with facts on the right."""
        return self.table(("", ""), list(facts.items()), title=title)

    def text(self, text: str, head: str = "", *, bold: bool = False) -> Facts:
        """Add a text that goes on below its first line, after a head; the head is bold, and all of it if asked."""
        self._parts.append(_Text(text, head, bold))
        return self

    def lines(self, *lines: str, end: str | None = "") -> Facts:
        """Add lines; a long one goes on below after `end`, a backslash for a shell, or stays whole if that is None."""
        self._parts.append(_Lines(lines, end))
        return self

    def heading(self, text: str) -> Facts:
        """Begin what is said of one of several subjects."""
        self._parts.append(_Heading(text, first=not self._parts))
        return self

    def paste(self, title: str, text: str) -> Facts:
        """Add a text of Python to paste."""
        self._parts.append(_Lines(text.splitlines(), "", title))
        return self

    def tell(self, message: str, head: str = "", colour: str = "") -> Facts:
        """Add a message for stderr, which follows the data."""
        self.messages.append((message, head, colour))
        return self

    def tell_most(self, messages: Sequence[str], most: int, what: str) -> Facts:
        """Add messages for stderr; without `-v` at most so many, and the number of the others."""
        front = messages if State.verbose else messages[:most]
        for message in front:
            self.tell(message)
        more = len(messages) - len(front)
        return self.tell(f"{more} more {what}; -v shows them") if more else self

    @property
    def hint_of_failures(self) -> str:
        """The end of a line on configs that failed, which says how to see why; empty where that is told."""
        return "; -v says why configs failed" if self.failed and not State.verbose else ""

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document: its kind, the version of its form, and the data."""
        data = self._data() if callable(self._data) else self._data
        body = data if isinstance(data, Mapping) else {"items": data}
        return {"kind": f"triton-ops {self.kind}", "schema_version": SCHEMA_VERSION, **body}

    def printed(self, columns: int | None) -> list[str]:
        """The lines for a terminal of so many columns; None is no limit."""
        return [line for part in self._parts for line in part.printed(columns)]

    def markdown(self) -> str:
        """The same as Markdown, in which no text of somebody is a link, a mention or markup."""
        return "\n".join(line for part in self._parts for line in part.markdown())

    @property
    def as_markdown(self) -> Facts:
        """The same, whose lines are Markdown from now on."""
        lines, self._parts = self.markdown().splitlines(), []
        return self.lines(*lines, end=None)

    def written(self) -> int:
        """Write it for the command that ends, and return its exit code.

        A reader of stdout that has gone away changes no code.
        """
        tell_failures(self.failed)
        with contextlib.suppress(typer.Exit):
            if State.as_json:
                # A number that JSON does not have becomes null.
                say(*json.dumps(storable(self.document), indent=2, allow_nan=False).splitlines())
            else:
                say(*self.printed(width(sys.stdout)))
        for message in self.messages:
            tell(*message)
        return self.code

    def show_ahead(self, *, as_line: bool = False) -> None:
        """Write it while the command goes on: as a line of JSON, or where lines and no JSON document are asked for."""
        if as_line:
            say(json.dumps(storable(self.document), allow_nan=False))
        elif not State.as_json:
            say(*self.printed(width(sys.stdout)))
            for message in self.messages:
                tell(*message)

    @staticmethod
    def members(value: Any, *names: str, **renamed: str) -> Any:
        """Attributes of a value as members of a document, of the same name or renamed; None without a value."""
        every = {**{name: name for name in names}, **renamed}
        return None if value is None else {name: getattr(value, attribute) for name, attribute in every.items()}

    @staticmethod
    def cell(number: float | None, form: str, unit: str = "") -> str:
        """A number in a table; `-` where it is not known."""
        return "-" if number is None else f"{number:{form}}{unit}"

    @staticmethod
    def save(path: Path, content: str | Sequence[str], hint: str) -> None:
        """Write a file that an option names, lines as stdout gets them; `SettingsError` if it cannot be written."""
        text = content if isinstance(content, str) else "".join(f"{escaped(unstyled(line))}\n" for line in content)
        with data_on_stdout(), SettingsError.when(f"{path} cannot be written", hint):
            NamedFile(path).write(text)


@dataclass(frozen=True)
class _Table:
    header: Sequence[str]  # empty strings for a list of names and facts
    rows: Sequence[Sequence[str]]
    right: Collection[str]
    title: str
    note: str
    narrow: Callable[[], Facts] | None

    def printed(self, columns: int | None) -> Iterator[str]:
        if self.title:
            yield from ("", bold(self.title))
        if self.rows:
            wide = (len(unstyled(line)) for line in self._lines(None))
            if self.narrow is None or columns is None or max(wide) <= columns:
                yield from self._lines(columns)
            else:
                yield from self.narrow().printed(columns)
        if self.note:
            yield from paragraph("", self.note, columns)

    def _lines(self, columns: int | None) -> list[str]:
        """The lines of the table, of which only the last column is wrapped; where that has no room, cells in lines.

        Bold is the header; where cells are in lines, the first one of each row.
        """
        head_line = bold if any(self.header) else str
        sizes = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines: list[str] = []
        if columns is not None and sum(sizes[:-1]) + len(_GAP) * len(sizes[1:]) + min(sizes[-1], LEAST) > columns:
            head = max(map(len, self.header))
            for first, *cells in self.rows:
                lines += map(head_line, paragraph("", first, columns))
                for name, cell in zip(self.header[1:], cells, strict=True):
                    lines += paragraph(f"{_GAP}{name.ljust(head)}{_GAP}", cell, columns)
            return lines
        for row in [self.header, *self.rows] if any(self.header) else self.rows:
            cells = [
                cell.rjust(size) if name in self.right else cell.ljust(size)
                for cell, size, name in zip(row[:-1], sizes, self.header, strict=False)
            ]
            text = paragraph("".join(cell + _GAP for cell in cells), row[-1], columns)
            lines += map(head_line, text) if row is self.header else text
        return lines

    def markdown(self) -> Iterator[str]:
        if self.title:
            yield from (f"## {self.title}", "")
        if self.rows:
            header = self.header if any(self.header) else ("what", "value")
            yield self._row(header)
            yield "|" + "|".join(" ---: " if name in self.right else " --- " for name in header) + "|"
            yield from map(self._row, self.rows)
            yield ""
        if self.note:
            yield from (escape(self.note), "")

    @staticmethod
    def _row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(escape, cells))} |"


@dataclass(frozen=True)
class _Text:
    text: str
    head: str
    bold: bool

    def printed(self, columns: int | None) -> Iterator[str]:
        first, *rest = paragraph(self.head, self.text, columns)
        if self.bold:
            yield from map(bold, (first, *rest))
        else:
            yield from [bold(self.head) + first[len(self.head) :] if self.head.strip() else first, *rest]

    def markdown(self) -> Iterator[str]:
        yield from (escape(self.head + self.text), "")


@dataclass(frozen=True)
class _Lines:
    lines: Sequence[str]
    end: str | None = ""
    title: str = ""  # of Python to paste

    def printed(self, columns: int | None) -> Iterator[str]:
        room = None if columns is None or self.end is None else columns - len(self.end)
        for line in self.lines:
            # A command is not wrapped at a blank within quotes, which would change it.
            whole = _WORD.sub(lambda word: word[0].replace(" ", "\0"), line) if self.end else line
            words = whole.lstrip(" ")
            head = (f"{self.title}: " if self.title else "") + whole[: len(whole) - len(words)]
            *first, last = (text.replace("\0", " ") for text in paragraph(head, words, room))
            yield from (f"{text}{self.end}" for text in first)
            yield last

    def markdown(self) -> Iterator[str]:
        if self.title:
            yield from (f"{self.title}:", "")
        language = "python" if self.title else "text"
        # A fence as long as one in the text would end there.
        longest = max((len(run) for line in self.lines for run in re.findall("`+", line)), default=0)
        fence = "`" * max(3, longest + 1)
        yield from [f"{fence}{language}", *self.lines, fence, ""]


@dataclass(frozen=True)
class _Heading:
    text: str
    first: bool

    def printed(self, columns: int | None) -> Iterator[str]:  # noqa: ARG002 - a part's signature
        if not self.first:
            yield ""

    def markdown(self) -> Iterator[str]:
        yield from (f"# {escape(self.text)}", "")


def escape(text: str) -> str:
    """A text of somebody as Markdown that shows it as it is: never a link, a mention, another cell or a line's end."""
    text = " ".join(text.split())
    if _LINK.search(text) is None:
        if _PLAIN.fullmatch(text):
            return text
        if _CODE.fullmatch(text):
            return f"`{text}`"
    return f"<code>{_OTHER.sub(lambda match: f'&#{ord(match[0])};', text)}</code>"


def bold(text: str) -> str:
    """`text` for stdout: bold on a terminal, plain in files and pipes and if `NO_COLOR` is set."""
    return typer.style(text, bold=True) if sys.stdout.isatty() and settings.colours() else text
