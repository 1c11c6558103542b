"""Reading the CSV of Nsight Compute: `--page raw`, `--page details`, and summaries of either, of any version.

`raw` has one row for each launch and a second row with the units. `details` has one row for each metric of each launch.
With `--print-summary` a row has the minimum, the maximum and the average over launches. Columns are found by their
names, since versions add and move them. The program's own output and lines of the profiler may stand in between.

Forms: the documentation of the Nsight Compute CLI, "Command Line Options" and "Output pages", 2019.5 to 2025.3. Which
of them were read from a live profiler is in docs/guides/profiles.md.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_ops._files import read_file
from triton_ops.exceptions import ProfileError
from triton_ops.profiles.quantities import Quantity, has_decimal_comma, quantity

_LARGEST_BYTES = 256 << 20
_KERNEL, _METRIC, _UNIT = "Kernel Name", "Metric Name", "Metric Unit"
_VALUES = ("Metric Value", "Average")  # the second in summaries
_FACTS = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name", "Invocations", "Rule Name", "Rule Type", "Rule Description",
    "Estimated Speedup Type", "Estimated Speedup", "Minimum", "Maximum", "Body Item Label",
)  # fmt: skip
_HINT = "make one: ncu --import REPORT.ncu-rep --csv --page raw > FILE.csv"


@dataclass(frozen=True)
class ProfiledLaunch:
    """One launch of a kernel, or the average over the launches of a summary.

    Attributes:
        kernel: The kernel's name.
        facts: What identifies it: `ID`, `Block Size`, `Grid Size`, `Device`, `CC` and the like, as printed.
        metrics: Every metric by its name; on the page `details`, where `Memory Throughput` has two units, each by name
            and unit too.
    """

    kernel: str
    facts: dict[str, str]
    metrics: dict[str, Quantity]


@dataclass(frozen=True)
class ProfileTable:
    """The launches of one file.

    Attributes:
        launches: The launches, in the order of the file.
        notes: What a reader should know, such as that the file is cut.
    """

    launches: tuple[ProfiledLaunch, ...]
    notes: tuple[str, ...] = ()


def read_ncu(path: str | Path) -> ProfileTable:
    """The launches in a file that `ncu --csv` has printed.

    Raises:
        ProfileError: The file cannot be read, is none of Nsight Compute's, or holds no launch.
    """
    try:
        data = read_file(path, _LARGEST_BYTES)
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}", hint="name another file") from error
    return parse_ncu(_decoded(data, str(path)), str(path))


def parse_ncu(text: str, name: str = "the text") -> ProfileTable:
    """The launches in the text that `ncu --csv` has printed.

    Args:
        text: The text, whatever a program has printed in between.
        name: What errors call it.

    Raises:
        ProfileError: The text is none of Nsight Compute's, or holds no launch.
    """
    lines = text.splitlines()
    notes: list[str] = []
    if lines and _is_cut(lines, text):
        notes.append(f"{name} ends within line {len(lines)}, which is left out: the file is cut")
        lines.pop()
    tables = list(_tables(lines))
    if not tables:
        raise ProfileError(f"{name} is no CSV of Nsight Compute: {_what_it_is(text)}", hint=_HINT)
    launches = [launch for header, rows in tables for launch in _launches(header, rows)]
    strange = sum(len(rows) - len(_whole(header, rows)) for header, rows in tables)
    if strange:
        notes.append(f"{strange} lines between the rows are no rows of the table, and left out")
    if not launches:
        raise ProfileError(f"{name} holds no profiled kernel{': ' + notes[0] if notes else ''}", hint=_HINT)
    if notes and notes[0].endswith("is cut"):
        notes.append(f"the last kernel, {launches[-1].kernel}, may lack metrics")
    return ProfileTable(tuple(launches), tuple(notes))


def _decoded(data: bytes, name: str) -> str:
    """The text of a file; a shell of Windows writes UTF-16."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise ProfileError(f"{name} is no text, so no CSV of Nsight Compute", hint=_HINT) from None


def _is_cut(lines: Sequence[str], text: str) -> bool:
    """Whether the last line ends early: within a quoted field, before one, or with fewer than the line before it."""
    last = lines[-1]
    if text.endswith("\n") or not last.startswith('"') or len(lines) == 1:
        return False
    if not last.endswith('"') or last.count('"') % 2 == 1:
        return True
    return len(next(csv.reader([last]))) < len(next(csv.reader([lines[-2]])))


def _what_it_is(text: str) -> str:
    for mark, said in (
        ("ERR_NVGPUCTRPERM", "the profiler had no permission to read the GPU's counters"),
        ("No kernels were profiled", "no kernel was profiled"),
        ("Total Time (ns)", "it is a table of Nsight Systems"),
        ("==PROF==", "it has the profiler's messages and no table"),
    ):
        if mark in text:
            return said
    return f"no line names the column {_KERNEL!r}" if text.strip() else "it is empty"


def _tables(lines: Sequence[str]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Every table of a file: its header, and all further rows up to the next header."""
    header: list[str] | None = None
    rows: list[list[str]] = []
    for line in lines:
        if not line.strip() or line.startswith("=="):  # the profiler's own messages
            continue
        fields = next(csv.reader([line]))
        if _KERNEL in fields:
            if header is not None:
                yield header, rows
            header, rows = fields, []
        elif header is not None:
            rows.append(fields)
    if header is not None:
        yield header, rows


def _whole(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """The rows that are whole, as long as the header: a row of a metric may end before the columns of rules."""
    needed = max((header.index(name) + 1 for name in _VALUES if name in header), default=len(header))
    return [[*row, *[""] * (len(header) - len(row))] for row in rows if needed <= len(row) <= len(header)]


def _launches(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[ProfiledLaunch]:
    whole = _whole(header, rows)
    return _by_metric(header, whole) if _METRIC in header else _by_launch(header, whole)


def _by_launch(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[ProfiledLaunch]:
    """The launches of the page `raw`: below the header a row with units and no kernel, then a row for each launch."""
    at = header.index(_KERNEL)
    units = list(rows[0]) if rows and not rows[0][at] else [""] * len(header)
    named = [row for row in rows if row[at]]
    comma = has_decimal_comma(text for row in named for text in row)
    found = []
    for row in named:
        metrics = {
            name: quantity(text, unit, comma)
            for name, unit, text in zip(header, units, row, strict=True)
            if name not in _FACTS or unit
        }
        found.append(ProfiledLaunch(row[at], _facts(header, row), metrics))
    return found


def _by_metric(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[ProfiledLaunch]:
    """The launches of the page `details` and of summaries: a row for each metric."""
    value = next((header.index(name) for name in _VALUES if name in header), None)
    if value is None:
        return []
    kernel, metric, unit = header.index(_KERNEL), header.index(_METRIC), _place(header, _UNIT)
    identity = [header.index(name) for name in ("ID", "Process ID", _KERNEL) if name in header]
    comma = has_decimal_comma(row[value] for row in rows)
    found: dict[tuple[str, ...], ProfiledLaunch] = {}
    for row in rows:
        key = tuple(row[at] for at in identity)
        launch = found.setdefault(key, ProfiledLaunch(row[kernel], _facts(header, row), {}))
        if row[metric]:  # rows of rules have none
            seen = quantity(row[value], row[unit] if unit is not None else "", comma)
            launch.metrics.setdefault(row[metric], seen)
            launch.metrics.setdefault(f"{row[metric]} [{seen.unit}]", seen)
    return [launch for launch in found.values() if launch.metrics]


def _place(header: Sequence[str], name: str) -> int | None:
    return header.index(name) if name in header else None


def _facts(header: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    return {name: text for name, text in zip(header, row, strict=True) if name in _FACTS and text}
