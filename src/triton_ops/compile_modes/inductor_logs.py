"""Reader of the logs of torch's compiler.

Facts used, of torch 2.11 to 2.15: with autotuning, Inductor writes to stderr, for each operation, a line `Autotune
Choices Stats:` with JSON below it, and a table that begins with `AUTOTUNE op(sizes)` and ends with `… AUTOTUNE
benchmarking takes … seconds`. The log artefacts `cudagraphs`, `perf_hints` and `recompiles` write lines in which a
bracketed head names the artefact.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

_TABLE = re.compile(r"AUTOTUNE (?P<op>[\w:.]+)\((?P<sizes>[^)]*)\)\s*$")
_CHOICE = re.compile(r"^\s+(?P<name>\S+) (?P<ms>[\d.]+|inf|nan) ms (?P<share>[\d.]+%|<.*?>)\s?(?P<what>.*)$")
_ENDED = re.compile(
    r"AUTOTUNE benchmarking takes (?P<bench>[\d.]+) seconds and (?P<compile>[\d.]+) seconds precompiling"
    r"(?: for (?P<count>\d+) choices)?"
)
_TORCHS = re.compile(r"^(\[rank\d+\]: ?)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\.py:\d+\]")  # of any log of torch
_STATS = "Autotune Choices Stats:"
_HEAD = re.compile(r"^.*?\[__(?P<artefact>\w+)\]\s?(?:\[[^\]\s]*\]\s?)*(?P<text>.*)$")
_RECORDING = re.compile(r"(?<!Re-)\bRecording function=")
_RERECORDING = re.compile(r"Re-recording function=.*?reason=(?P<why>.*)$")
_SKIP = re.compile(r"\bskipping cudagraphs? due to (?P<why>.*)$")
_RECOMPILING = re.compile(r"Recompiling function (?P<what>.+)$")

_PRODUCTS = ("mm", "addmm")
_SHAPE = re.compile(r"\d+(?:x\d+)+")


@dataclass(frozen=True)
class AutotuneChoice:
    """One candidate of an operation: its name, its milliseconds, None where it failed, and what it is."""

    name: str
    ms: float | None
    what: str = ""

    @property
    def source(self) -> str:
        """Its origin: `aten`, `triton`, `cpp`, `cutlass`, `ck`, or `other`."""
        name = self.name.lower()
        prefixes = {"triton": "triton", "cpp": "cpp", "cutlass": "cutlass", "ck": "ck", "decompose": "aten"}
        origin = next((source for start, source in prefixes.items() if name.startswith(start)), "other")
        plain = {"mm", "addmm", "bmm", "baddbmm", "bias_addmm", "convolution", "_scaled_mm", "_int_mm", "linear"}
        return "aten" if name in plain or name.startswith(("mkl", "_mkl", "_linear", "onednn")) else origin


class ProductShape(NamedTuple):
    """A product of an (m, k) and a (k, n) matrix of one dtype."""

    m: int
    n: int
    k: int
    dtype: str


@dataclass(frozen=True, kw_only=True)
class AutotuneTable:
    """Times that Inductor measured for one operation.

    Attributes:
        op: The operation, such as `addmm`.
        sizes: The sizes of its inputs, such as `256x1024, 1024x1024`.
        dtypes: The dtypes of its inputs.
        choices: The candidates that were shown, in the order shown.
        benchmark_s: Seconds that measuring took; None if the table was cut off.
        precompile_s: Seconds that compiling took; None if the table was cut off.
        count: How many candidates there were; None if that was not said.
        stats: The JSON object of `Autotune Choices Stats`, if there was one.
    """

    op: str
    sizes: str
    dtypes: str = ""
    choices: tuple[AutotuneChoice, ...] = ()
    benchmark_s: float | None = None
    precompile_s: float | None = None
    count: int | None = None
    stats: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def winner(self) -> AutotuneChoice | None:
        """The fastest candidate that worked."""
        timed = [(choice.ms, place) for place, choice in enumerate(self.choices) if choice.ms is not None]
        return self.choices[min(timed)[1]] if timed else None

    @property
    def product(self) -> ProductShape | None:
        """The product that it is about; None if it is about another operation, or sizes or dtypes do not tell."""
        shapes = [tuple(map(int, text.split("x"))) for text in _SHAPE.findall(self.sizes)]
        dtypes = {each.strip().removeprefix("torch.") for each in self.dtypes.split(",")}
        if self.op not in _PRODUCTS or len(shapes) < 2 or len(dtypes) != 1:
            return None
        a, b = shapes[-2:]
        if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
            return None
        return ProductShape(a[0], b[1], a[1], dtypes.pop())

    def with_choice(self, name: str, ms: float, what: str) -> AutotuneTable:
        """The table with one more candidate, the fastest first."""
        choices = [*self.choices, AutotuneChoice(name, ms, what)]
        choices.sort(key=lambda choice: math.inf if choice.ms is None else choice.ms)
        return replace(self, choices=tuple(choices))


@dataclass(frozen=True, kw_only=True)
class CompilerLog:
    """Content of a compiler's log.

    Attributes:
        tables: The autotune tables.
        recordings: How many CUDA graphs were recorded.
        rerecorded: Why a graph was recorded again, once for each time.
        skipped: Why CUDA graphs were not used, once for each time.
        recompiled: What was compiled again.
        hints: The lines of `perf_hints`.
        lines: How many lines are torch's; without any the file is another, or torch had nothing to say.
    """

    tables: tuple[AutotuneTable, ...] = ()
    recordings: int = 0
    rerecorded: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    recompiled: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    lines: int = 0

    @classmethod
    def read(cls, lines: Iterable[str]) -> CompilerLog:
        """Read the lines of a log; lines of other programs between them do no harm."""
        log_lines = [line.rstrip("\n") for line in lines]
        heads = [_head_and_text(line) for line in log_lines]
        texts = [text for _, text in heads]
        return cls(
            tables=tuple(_tables(log_lines)),
            recordings=sum(bool(_RECORDING.search(text)) for text in texts),
            rerecorded=_matches(_RERECORDING, texts, "why"),
            skipped=_matches(_SKIP, texts, "why"),
            recompiled=_matches(_RECOMPILING, texts, "what"),
            hints=tuple(text for artefact, text in heads if artefact == "perf_hints" and text.strip()),
            lines=sum(map(_is_torchs, log_lines)),
        )


def _is_torchs(line: str) -> bool:
    patterns = (_TORCHS, _HEAD, _TABLE, _ENDED, _RECORDING, _RERECORDING, _SKIP, _RECOMPILING)
    return _STATS in line or any(pattern.search(line) for pattern in patterns)


def _head_and_text(line: str) -> tuple[str, str]:
    """The artefact of a log line, empty if it names none, and its text."""
    match = _HEAD.match(line)
    return (match["artefact"], match["text"]) if match else ("", line)


def _matches(pattern: re.Pattern[str], texts: Iterable[str], group: str) -> tuple[str, ...]:
    return tuple(match[group].strip() for text in texts if (match := pattern.search(text)))


def _tables(lines: Sequence[str]) -> Iterator[AutotuneTable]:
    stats: dict[str, Any] = {}
    for place, line in enumerate(lines):
        if _STATS in line:
            stats = _stats(lines[place : place + 2])
        elif (head := _TABLE.search(line)) is not None:
            yield _table(head, lines[place + 1 :], stats)
            stats = {}


def _table(head: re.Match[str], below: Sequence[str], stats: dict[str, Any]) -> AutotuneTable:
    choices: list[AutotuneChoice] = []
    dtypes, end = "", None
    for line in below:
        if line.startswith("dtypes:"):
            dtypes = line.partition(":")[2].strip()
        elif (match := _CHOICE.match(line)) is not None:
            choices.append(AutotuneChoice(match["name"], _ms(match["ms"]), match["what"].strip()))
        elif (end := _ENDED.search(line)) is not None or _TABLE.search(line):
            break
    return AutotuneTable(
        op=head["op"],
        sizes=head["sizes"],
        dtypes=dtypes,
        choices=tuple(choices),
        benchmark_s=float(end["bench"]) if end else None,
        precompile_s=float(end["compile"]) if end else None,
        count=int(end["count"]) if end and end["count"] else None,
        stats=stats,
    )


def _ms(text: str) -> float | None:
    return None if text in ("inf", "nan") else float(text)


def _stats(lines: Sequence[str]) -> dict[str, Any]:
    """The JSON object in the same line as the heading, or in the next."""
    text = " ".join(lines).partition(_STATS)[2].strip()
    try:
        stats, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:  # the log was cut off
        return {}
    return stats if isinstance(stats, dict) else {}
