"""What compilers write into logs: Inductor's autotune tables and events, and what Triton prints of its tunes.

Facts used, of torch 2.0 to 2.15: with autotuning, Inductor writes to stderr, for each operation, `Autotune Choices
Stats:` with JSON below it (since 2.9), and a table that begins with `AUTOTUNE op(sizes)`, has its choices in the order
of their times, each with its share of the first one's, and ends with `… AUTOTUNE takes … seconds` in several wordings.
In 2.0 the times have the unit `s`, and are milliseconds all the same. The log artefacts `cudagraphs`, `perf_hints` and
`recompiles` write lines with a head that names the artefact: `[__cudagraphs]`, before 2.2 `torch.….__cudagraphs:
[DEBUG]`. Of a limit Dynamo tells in a line `torch._dynamo hit config.…`, with function and last reason below.

Facts used, of Triton 2.1 to 3.9: a tune ends with one line, in 3.6 with four, of which only the first names the
kernel. No line says which process has written it: what a launcher puts before it may.
"""

from __future__ import annotations

import ast
import json
import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.base import counted
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops_torch.log_lines import CHANGING, LogLine, read_lines

_log = logging.getLogger("triton_ops")

_MS_PER_UNIT = {"ms": 1.0, "s": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}  # `s` is a slip of torch 2.0
_PATTERNS = {
    "head": r"\bAUTOTUNE (?P<op>[\w:.]+)\((?P<sizes>(?:(?!AUTOTUNE |\w \w|\d[a-wyz])[^\[\]=:%])*)\)[\s\"',]*$",
    "stats": r"(?P<document>\{\"num_choices\".*)",
    "title": r"Autotune Choices Stats:",
    "strides": r"\bstrides: \[",
    "dtypes": r"\bdtypes: (?P<names>torch\..*)$",
    "choice": (
        r"(?<![\w.])(?P<name>[A-Za-z_]\w*(?:(?:::|\.)\w+)*(?:\([^()]*\))?) +"
        r"(?P<time>\d+(?:\.\d+)?|inf|nan) ?(?P<unit>ms|[uµn]?s) +"
        r"(?P<share>(?:\d+(?:\.\d+)?|inf|nan)%|<[A-Z ]+>)(?:\s(?P<what>.*))?$"
    ),
    "end": (
        r"\b\w+Process AUTOTUNE (?:benchmarking )?takes (?P<bench>\d+(?:\.\d+)?) seconds"
        r"(?: and (?P<compile>\d+(?:\.\d+)?) seconds precompiling)?(?: for (?P<count>\d+) choices)?"
    ),
    "hints": (
        r"(?:\[__perf_hints\]\s?(?:\[[^\]\s]*\]\s?)*|(?=CUDAGraph supports dynamic shapes by ))(?P<hints_text>.*)$"
    ),
    "recordings": r"(?<!Re-)\bRecording function(?=[= ])(?P<recordings_text>)",
    "rerecorded": r"Re-recording function=.*?reason=(?P<rerecorded_text>.*)$",
    "skipped": r"\bskipping cudagraphs? due to (?P<skipped_text>.*)$",
    "recompiled": r"Recompiling function (?P<recompiled_text>.+)$",
    "limits": (
        r"(?:(?:torch\._dynamo|torchdynamo) hit (?:config\.)?|(?:FailOnRecompileLimitHit|LimitExceeded): )"
        r"(?P<limits_text>.+)$"
    ),
    "guard": (
        r"(?:triggered by the following guard failure(?:\(s\))?:|__recompiles\w*(?:\]|: \[\w+\]) {4,}- "
        r"|^ {4,}- (?=\d+/\d+: ))(?P<guard_text>.*)$"
    ),
    "failures": (
        r"(?P<failures_text>\w+(?: compilation)? error (?:during|for) autotuning\b.*?"
        r"|Exception .+ for benchmark choice .+|Marking choice as failed .+|(?:CUTLASS c|\bC)hoice \S+ failed .+"
        r"|(?:Not enough SMs|GPU arch) .*max_autotune.+)(?:\s*Ignoring this choice\.?)?$"
    ),
    "limit": r"(?P<limit_text>\b(?:function: '|last reason: |reasons: ).*)$",
}
_WORDS = (  # each line of these kinds has one
    "AUTOTUNE", "Choices Stats", '{"num_choices"', "strides: [", "dtypes: ", "%", "ERROR>", "perf_hints", "cudagraph",
    "CUDAGraph supports", "ecording function", "ecompil", "guard failure", "- ", " hit ", "LimitHit: ", "Exceeded: ",
    "function: ", "reason", " autotuning", " choice ", "hoice ", "max_autotune",
)  # fmt: skip
# Of patterns that match at one place the first one names the kind.
_KINDS = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS.items()))
_ABOUT = {"guard": "recompiled", "limit": "limits"}  # the event below which such lines stand
_EVENTS = ("rerecorded", "skipped", "recompiled", "limits", "hints", "failures")
_OF_TABLES = ("stats", "strides", "dtypes", "choice", *_ABOUT)  # lines that show whose they are by those around them
_TORCHS = re.compile(  # any line of torch's own log
    r"[VDIWEC](?:\d{4} |\d{4}-\S+T)\d\d:\d\d:\d\d\S* \d+ \S+\.py:\d+\]|\[__\w+\]|\] torch\.[\w.]+: \[[A-Z]+\]"
    r"|\b[A-Z]+:torch\.[\w.]+:"  # by `logging.basicConfig`
)
_TORCHS_HEAD = re.compile(r"^.*\.py:\d+\](?: \[[^\]]*\])*")
_LIKE_A_CHOICE = re.compile(r"(?:[\d.]|inf|nan) ?\w{0,9}\s{1,80}(?:[\d.]{1,20}|inf|nan) ?%")
_LIKE_OPTIONS = re.compile(  # the rest of a row that was wrapped
    r"(?=.*=|\d+$)\W*(?!\W)\S*(?:\s+\w+=\S*)*(?:\s+\w+)?\s*$"
)
_LIKE_A_TABLE = re.compile(r"\bAUTOTUNE\b|\bAUTOTUNING\] ")
_IGNORED = "Ignoring this choice"  # the last line of a failure, whose reason stands above it
_NEAR = 16  # lines of other programs between two of a table
_MOST_DETAILS = 3  # guards of an event that are named

_SOURCE = re.compile(  # names of templates end with a number, those of calls of a library do not
    r"(?P<triton>triton)|(?P<cpp>cpp_)|(?P<subgraph>decompose_k|contiguous_)|(?P<nvgemm>nv_?(?:universal_)?gemm)"
    r"|(?P<cutedsl>\w*cutedsl)|(?P<flydsl>\w*flydsl)|(?P<cutlass>\w*cutlass)|(?P<ck>rocm|ck_?(?:tile)?\w*_)"
    r"|(?P<aten>(?:externkernelcaller\(extern_kernels\.)?"
    r"(?:\w*(?:mm|linear)(?:_dtype|_v\d|_pointwise|_packed_weight_cpu|_for_cpu|_with_\w+)?"
    r"|\w*convolution\w*|conv1x1_via_mm|call_aten_\w+)\)?$)"
)
_PRODUCTS = ("mm", "addmm")
_SHAPE = re.compile(r"\d+(?:x\d+)+")


@dataclass(frozen=True)
class AutotuneChoice:
    """One candidate of an operation; its milliseconds are None where it failed."""

    name: str
    ms: float | None
    what: str = ""

    @property
    def source(self) -> str:
        """Its origin: a backend such as `aten`, `triton`, `cutlass`; `subgraph` of several operations; or `other`."""
        match = _SOURCE.match(self.name.lower())
        return (match and match.lastgroup) or "other"


@dataclass(frozen=True, kw_only=True)
class AutotuneTable:
    """Times that Inductor measured for one operation."""

    op: str
    sizes: str  # the sizes of its inputs, such as `256x1024, 1024x1024`
    dtypes: str = ""
    choices: tuple[AutotuneChoice, ...] = ()  # the candidates that were shown, in the order shown
    benchmark_s: float | None = None  # that measuring took; None if the table was cut off, as for the next
    precompile_s: float | None = None
    count: int | None = None  # how many candidates there were; None if that was not said
    stats: dict[str, Any] = field(default_factory=dict, hash=False)  # the object of `Autotune Choices Stats`
    writer: str = ""  # the process that wrote it, such as `rank0`, as far as its lines tell
    doubt: str = ""  # why there is no winner although there are choices

    @property
    def winner(self) -> AutotuneChoice | None:
        """The fastest choice; None if none has a time, or the lines of the table may not belong together."""
        return None if self.doubt else next((choice for choice in self.choices if choice.ms is not None), None)

    @property
    def product(self) -> tuple[int, int, int, str] | None:
        """M, N, K and the dtype of the product that it is about; None for other operations, or if they do not tell."""
        shapes = [tuple(map(int, text.split("x"))) for text in _SHAPE.findall(self.sizes)][-2:]
        dtypes = {each.strip().removeprefix("torch.") for each in self.dtypes.split(",")}
        if self.op not in _PRODUCTS or len(dtypes) != 1 or [*map(len, shapes)] != [2, 2]:
            return None
        (m, k), (rows, n) = shapes
        return (m, n, k, dtypes.pop()) if k == rows else None

    def with_choice(self, name: str, ms: float, what: str) -> AutotuneTable:
        """The table with one more candidate, the fastest first."""
        choices = [*self.choices, AutotuneChoice(name, ms, what)]
        choices.sort(key=lambda choice: math.inf if choice.ms is None else choice.ms)
        return replace(self, choices=tuple(choices))


@dataclass
class _OpenTable:
    """The lines of a table so far; it is `mixed` if lines of another one may be among them."""

    head: re.Match[str]
    writer: str
    stats: dict[str, Any]
    beside: dict[str, str] = field(default_factory=dict)  # its lines of strides and of dtypes, which stand above rows
    rows: list[re.Match[str]] = field(default_factory=list)
    writers: set[str] = field(default_factory=set)  # of its rows
    end: re.Match[str] | None = None
    mixed: bool = False
    overlaps: bool = False  # with another one of which no end came before: mixed, unless all ends were left out

    def closed(self, shown: int, alone: bool) -> AutotuneTable:
        """The finished table; a log shows `shown` choices of one at most, and is by one process if `alone`."""
        bench, compiling, count = self.end.group("bench", "compile", "count") if self.end else (None, None, None)
        choices = tuple(AutotuneChoice(row["name"], _ms(row), (row["what"] or "").strip()) for row in self.rows)
        own, times_ms = {(it.name, it.what) for it in choices}, [math.inf if it.ms is None else it.ms for it in choices]
        best, doubt, number = self.stats.get("best_kernel"), "", int(count or len(choices))
        before = [row.string[: row.start()] for row in self.rows]
        indents = {len(text) - len(text.rstrip()) for text in before}  # a row that was cut may begin within its name
        whole = min(number, shown) <= len(own) == len(choices) <= number and times_ms == sorted(times_ms)
        whole = whole and max(len(indents), len(self.writers)) <= 1 and (alone or self.writers <= {self.writer})
        if choices and (self.mixed or not whole or not all(_agree(self.rows[0], row) for row in self.rows)):
            doubt = "lines of several tables are mixed in it, or some are missing"
        elif choices and best not in (None, choices[0].name):
            doubt = f"its statistics name {best} the fastest"
        elif 0.0 in times_ms:
            doubt = f"{choices[0].name} has a time of 0"
        return AutotuneTable(
            op=self.head["op"], sizes=self.head["sizes"], dtypes=self.beside.get("dtypes", ""), choices=choices,
            benchmark_s=float(bench) if bench else None, precompile_s=float(compiling) if compiling else None,
            count=int(count) if count else None, stats=self.stats, writer=self.writer, doubt=doubt,
        )  # fmt: skip


def _ms(row: re.Match[str]) -> float | None:
    return None if row["time"] in ("inf", "nan") else float(row["time"]) * _MS_PER_UNIT[row["unit"]]


def _agree(first: re.Match[str], row: re.Match[str]) -> bool:
    """Tell whether a row's share is the first row's time over its own, as far as the printed digits tell."""
    best_ms, ms, share = _ms(first), _ms(row), row["share"][:-1]
    if not best_ms or not ms or not share.replace(".", "", 1).isdigit():
        return True
    if row is first:
        return float(share) == 100
    half_ms = max(_MS_PER_UNIT[it["unit"]] * 0.5 * 10.0 ** -len(it["time"].partition(".")[2]) for it in (first, row))
    low, high = (best_ms - half_ms) / (ms + half_ms), (best_ms + half_ms) / max(ms - half_ms, 1e-9)
    # Shares are printed in tenths of a percent.
    return low - 1e-3 <= float(share) / 100 <= high + 1e-3


@dataclass(frozen=True, kw_only=True)
class CompilerLog:
    """Content of a compiler's log.

    `rerecorded` and `skipped` say why a CUDA graph was recorded again or not used, once for each time, `recompiled`
    which function was compiled again and what guards failed, `limits` which one is compiled no more, `failures` why
    choices have no time or are not tried. `lines` counts those of torch: without any the file is another, or torch had
    nothing to say. `unread` are lines that look like a part of a table, and are part of none.
    """

    tables: tuple[AutotuneTable, ...] = ()
    recordings: int = 0
    rerecorded: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    recompiled: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    lines: int = 0
    unread: tuple[str, ...] = ()

    @classmethod
    def read(cls, lines: Iterable[str]) -> CompilerLog:
        """Read the lines of a log; lines of other programs between them do no harm."""
        reader = _LogReader()
        for line in read_lines(lines, _KINDS, _WORDS, "head", ("strides", "dtypes", "choice")):
            reader.read(line)
        pasted = all(table.rows and not table.end for table in reader.tables)  # without the ends
        for table in reader.tables:
            table.mixed = table.mixed or (table.overlaps and not pasted)
        alone = len({table.writer for table in reader.tables}) == 1
        shown = 0 if alone and not reader.unread else max((len(table.rows) for table in reader.tables), default=0)
        return cls(
            tables=tuple(table.closed(shown, alone) for table in reader.tables),
            recordings=len(reader.events["recordings"]),
            lines=reader.lines,
            unread=tuple(reader.unread),
            **{kind: reader.texts(kind) for kind in _EVENTS},
        )

    @property
    def useful(self) -> bool:
        """Tell whether something was read, or torch had nothing to say; a table without a choice says nothing."""
        events = self.recordings or any(getattr(self, kind) for kind in _EVENTS)
        silence = self.lines and not self.tables and not self.unread
        return bool(events or silence) or any(table.choices for table in self.tables)


class _LogReader:
    """Lines put together to tables and events, those of each writer by themselves."""

    def __init__(self) -> None:
        self.tables: list[_OpenTable] = []
        self.events: dict[str, list[list[str]]] = defaultdict(list)  # each a text with its details
        self.unread: list[str] = []
        self.lines = 0
        self._open: dict[str, _OpenTable] = {}
        self._since = 0  # lines since one that is or looks like a part of a table
        self._stats: dict[str, dict[str, Any]] = {}
        self._last: dict[tuple[str, str], list[str]] = {}
        self._failure: list[str] | None = None  # the last one, as long as its reason may follow

    def read(self, line: LogLine) -> None:
        """Take in one line."""
        kind, match = line.kind, line.match
        self.lines += (kind != "" and kind not in _OF_TABLES) or _TORCHS.search(line.text) is not None
        unread = self._is_unread(line)
        self._since = 0 if unread or kind in ("head", "strides", "dtypes", "choice") else self._since + 1
        if unread:
            self._leave(line)
        elif match is None:
            self._add_reason(line.text)
        elif kind == "head":
            self._begin(line, match)
        elif kind in ("stats", "strides", "dtypes", "choice", "end"):
            self._add(line, match)
        elif about := _ABOUT.get(kind):
            own = self._last.get((line.writer, about))
            events = [own] if own or line.writer else self.events[about][-1:]  # without a prefix it may be anybody's
            for event in filter(None, events):
                event += filter(None, [match[f"{kind}_text"].strip()])
        elif kind != "title":
            self._last[line.writer, kind] = [match[f"{kind}_text"].strip(" :")]
            self.events[kind].append(self._last[line.writer, kind])
            self._failure = self.events[kind][-1] if kind == "failures" and line.text.rstrip().endswith(":") else None

    def _add_reason(self, text: str) -> None:
        """Add a line to the reason of the last failure."""
        if self._failure is not None and (reason := _TORCHS_HEAD.sub("", text.partition(_IGNORED)[0]).strip(" .")):
            self._failure.append(reason)
        if _IGNORED in text:
            self._failure = None

    def _is_unread(self, line: LogLine) -> bool:
        """Tell whether more of it looks like a part of a table than was matched, as where two stand side by side."""
        match, rest = line.match, line.text
        if match is not None:
            rest = CHANGING.sub(" ", rest[: match.start()]) + (match["what"] or match["names"] or rest[match.end() :])
        near = match is not None or (self._open != {} and self._since < _NEAR)
        is_rest = match is None and near and self._since == 0 and _LIKE_OPTIONS.match(rest)
        return bool(is_rest or _LIKE_A_TABLE.search(rest) or (near and _LIKE_A_CHOICE.search(rest)))

    def _leave(self, line: LogLine) -> None:
        """Count a line as not read.

        An open table without rows may lack it as its first one. Where it is a row or an end that belongs to no table,
        tables that have ended may have rows of others.
        """
        self.unread.append(line.text.strip())
        for table in self.tables:
            orphaned = line.kind in ("choice", "end") and len({"", line.writer, table.writer}) < 3
            table.mixed = table.mixed or (orphaned if table.end else not table.rows)

    def texts(self, kind: str) -> tuple[str, ...]:
        """The events of a kind, each with the first of its details."""
        texts = []
        for text, *details in (event for event in self.events[kind] if event[0]):
            reasons = "; ".join(details[:_MOST_DETAILS])
            reasons += f"; and {len(details) - _MOST_DETAILS} more" if len(details) > _MOST_DETAILS else ""
            texts.append(f"{text}: {reasons}" if reasons else text)
        return tuple(texts)

    def _begin(self, line: LogLine, head: re.Match[str]) -> None:
        table = _OpenTable(head, line.writer, self._stats.pop(line.writer, {}))
        for other in self._open.values():
            if line.writer == other.writer or "" in (line.writer, other.writer):  # the next rows may be of either
                other.overlaps = table.overlaps = True
        self._open[line.writer] = table
        self.tables.append(table)

    def _add(self, line: LogLine, match: re.Match[str]) -> None:
        """Add a line to the open table of its writer, or to the only one if either of the two has no prefix."""
        writer = line.writer
        if writer not in self._open and len(self._open) == 1 and "" in (writer, *self._open):
            writer = next(iter(self._open))
        table = self._open.get(writer)
        if line.kind == "stats":
            try:
                # More may stand behind the object, as what a collector adds.
                self._stats[line.writer], _ = json.JSONDecoder().raw_decode(match["document"])
            except ValueError:  # it was cut off
                self._leave(line)
        elif table is None:
            self._leave(line)
        elif line.kind == "choice":
            table.rows.append(match)
            table.writers.add(line.writer)
        elif line.kind == "end":
            table.end = match
            del self._open[writer]
        else:
            table.mixed = table.mixed or table.rows != [] or line.kind in table.beside
            table.beside[line.kind] = (match["names"] or "").strip()


@dataclass(frozen=True, kw_only=True)
class PrintedTune:
    """One tune in what Triton or this package has printed.

    Attributes:
        kernel: The kernel's name.
        tried: The values of each config that was tried, in order, `None` as None. Where tunes of one kernel are
            mixed, the first one has those of all.
        best: Those of the winner; None if the text ends before it, or it does not tell whose winner it is.
        seconds: How long the tune took; None likewise.
        key: The key as it was printed; None where it was not, as in older versions of Triton.
        writer: The process that printed it, such as `rank0`, as far as its lines tell.
        mixed: Whether its lines stand between those of another tune, so that its key and seconds are not known.
    """

    kernel: str
    tried: tuple[dict[str, Any], ...]
    best: dict[str, Any] | None = None
    seconds: float | None = None
    key: str | None = None
    writer: str = ""
    mixed: bool = False


_OWN = r"(?:(?!utotuning ).)*?"  # a text in which no other tune begins
_PIECES = (  # of a tune, each on a line of its own or all on one
    r"(?P<key>(?:with key as|key info:|config key:) (?P<key_text>\(.*?\)|[^(].*?),(?=\s*$| (?:finish|best|bench)))"
    r"|(?P<seconds>finished after (?P<seconds_text>\d+(?:\.\d+)?)s[;,])"
    rf"|(?P<best>best config selected: (?P<best_text>{_OWN})(?: with benchmark time [^;]*)?;)"
)
_PIECE = re.compile(_PIECES)
_PRINTED = re.compile(
    rf"(?P<tried>Autotuning kernel (?P<tried_kernel>\S+) with config (?:\[\d+/\d+\] )?(?P<config>{_OWN})"
    r"(?: \(median = .*\))?\s*$)"
    r"|(?P<kernel>(?:\w+ autotuning|Autotuner) for function (?:JITFunction\((?:[\w.]+:)?)?(?P<name>[^\s,()]+)\)?"
    rf"(?:,\s*$|,?(?= (?:with key as|finished after) )(?!.*best config selected: [^;]*$)))|{_PIECES}"
)
_PRINTED_WORDS = ("utotun", "for function", "with key as", "finished after", "config selected")
_LIKE_PRINTED = re.compile(r"Autotuning kernel|utotun(\w+ .*for function|e config:)|best config selected|key as \(")
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg")
_CUT = re.compile(r"(?:,\s*\w*|:\s*)$")  # as a terminal leaves a config whose line it wraps
_REST = re.compile(rf"\b(?:{'|'.join(_OPTIONS)}): |^\d+;?$")  # of such a one
_LONGEST = 80  # characters of a line that was not read, as an example


def parse_printed(text: str) -> list[PrintedTune]:
    """The tunes in what `TRITON_PRINT_AUTOTUNING=1` has printed, in its old form of one line and its new one of four.

    Lines that are something else are passed over, and so is what a launcher or a collector of logs puts before a line;
    it tells tunes of several processes apart. Fields of other versions, such as `num_consumer_groups`, are kept. A
    warning is logged of lines that look like Triton's and were not read.

    Args:
        text: What was printed, such as a whole log.

    Returns:
        The tunes in the order of the text; empty if there is none.

    Raises:
        SettingsError: `text` is no text.
        TargetError: Lines look like Triton's, and none of them could be read.
    """
    if not isinstance(text, str):
        raise SettingsError(
            f"text is {text!r}; it must be what was printed, as a str", hint="read the file: path.read_text()"
        )
    reader = _PrintedReader()
    for line in read_lines([text], _PRINTED, _PRINTED_WORDS, "kernel", ("key", "seconds", "best")):
        reader.read(line)
    tunes = reader.tunes()
    if reader.unread:
        number, example = counted(len(reader.unread), "line"), reader.unread[0][:_LONGEST]
        message = f"{number} that look like Triton's print of a tune were not read, such as {example!r}"
        if not tunes:
            raise TargetError(message, hint="give the text as it was printed, with its whole lines")
        _log.warning("%s", message)
    return tunes


class _PrintedReader:
    """Lines put together to tunes, those of each writer by themselves."""

    def __init__(self) -> None:
        self.unread: list[str] = []
        self._tunes: list[dict[str, Any]] = []
        self._tried: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self._open: dict[str, list[dict[str, Any]]] = defaultdict(list)  # until all of them have a winner
        self._above: list[dict[str, Any]] | None = None  # of Triton's line before: configs whose last may go on

    def read(self, line: LogLine) -> None:
        """Take in one line."""
        kind, match, writer, above = line.kind, line.match, line.writer, self._above
        self._above = None
        if match is None:
            is_rest = above is not None and _REST.search(line.text) is not None
            understood = not (is_rest or _LIKE_PRINTED.search(line.text))
            if is_rest and above:
                above.pop()
        elif kind == "tried":
            config, self._above = _values(match["config"]), self._tried[writer, match["tried_kernel"]]
            understood = config is not None and "num_warps" in config  # which every version prints
            self._above += [config] if config and understood else []
        elif kind == "kernel":
            tune = self._begin(writer, match["name"])
            pieces = list(_PIECE.finditer(line.text, match.end()))
            open_tunes = [] if any(piece.lastgroup == "best" for piece in pieces) else self._open[writer]
            self._join(open_tunes, tune)
            understood = [self._add(open_tunes, piece) for piece in pieces].count(False) == 0
            match = pieces[-1] if pieces else match
        else:
            understood = self._add(self._open[writer], match)
        if not understood or (match and _LIKE_PRINTED.search(line.text[match.end() :])):
            self.unread.append(line.text.strip())
            self._above = []

    def tunes(self) -> list[PrintedTune]:
        """The tunes so far; those of which only configs were printed come last."""
        for writer, kernel in [key for key, configs in self._tried.items() if configs]:
            self._begin(writer, kernel)
        return [PrintedTune(**tune) for tune in self._tunes]

    def _begin(self, writer: str, kernel: str) -> dict[str, Any]:
        tune = {"kernel": kernel, "writer": writer, "tried": tuple(self._tried.pop((writer, kernel), ()))}
        self._tunes.append(tune)
        return tune

    @staticmethod
    def _join(tunes: list[dict[str, Any]], tune: dict[str, Any]) -> None:
        """Add a tune to those that have no winner yet; of several at once nobody knows whose key is whose."""
        tunes.append(tune)
        for each in tunes if len(tunes) > 1 else ():
            each.update(mixed=True, key=None, seconds=None)

    @staticmethod
    def _add(tunes: list[dict[str, Any]], piece: re.Match[str]) -> bool:
        """Add a piece to the tune that it belongs to; returns whether it is known which one that is."""
        kind = piece.lastgroup or ""
        text = piece[f"{kind}_text"]
        value: Any = _values(text) if kind == "best" else float(text) if kind == "seconds" else text
        if not tunes or value is None:
            return False
        if kind != "best":
            tunes[0].update({kind: value} if len(tunes) == 1 else {})
            return True
        owners = [tune for tune in tunes if value in tune["tried"]] or tunes
        candidates = [tune for tune in owners if "best" not in tune]
        is_known = bool(candidates) and len({tune["kernel"] for tune in owners}) == 1
        (candidates or [tune for tune in tunes if "best" not in tune])[0]["best"] = value if is_known else None
        if all("best" in tune for tune in tunes):
            tunes.clear()
        return is_known


def _values(text: str) -> dict[str, Any] | None:
    """The values of a config as Triton prints them: `BLOCK: 128, num_warps: 4, maxnreg: None`; None if it is none.

    A comma ends a value only where a name follows; others are part of one, as in `TILE: (64, 32)`.
    """
    pairs = [part.partition(":") for part in re.split(r", (?=[^\W\d]\w*:)", text)]
    if _CUT.search(text) or not all(colon and name.strip().isidentifier() for name, colon, _ in pairs):
        return None
    values = {name.strip(): _value(value.strip()) for name, _, value in pairs}
    return None if any(isinstance(values.get(option), str) for option in _OPTIONS) else values


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
