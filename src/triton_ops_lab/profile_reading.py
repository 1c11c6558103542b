"""Profiles in files of Nsight Compute, rocprof and Proton: the launches with their metrics, as they were printed.

Nsight Compute's page `raw` has one row for each launch, and a row with the units. `details` has one row for each metric
of each launch; without `--csv` it is printed in columns below dashes. With `--print-summary` a row has minimum, maximum
and average over the invocations of one kernel with one shape. rocprof (1 to 3) has a row for each dispatch, for each
counter of each dispatch, or for all calls of a kernel; its times are nanoseconds. Proton's file is a tree of JSON whose
leaves are kernels. Columns are found by name, since versions add and move them. The program's own output may stand in
between.

Forms: the documentation of the Nsight Compute CLI, 2019.5 to 2025.3, and public files; ROCm's documentation of
rocprof, rocprofv2 and rocprofv3; the examples in Triton's own tests of Proton. docs/guides/report.md says which of
them were read from a live profiler.

Numbers are printed by the locale: `1,234.50`, `1.234,50` or `1 234,50`. Units are scaled by default, as in `Gbyte/s`,
`usecond` or `us`, whose names changed with versions. Values become seconds, bytes, bytes per second, Hz, percent or
plain counts. Rows that are not understood are counted.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from triton_ops.base import NamedFile
from triton_ops.exceptions import ProfileError

_GROUPS = re.compile("['\u2019\u066c\u00a0\u202f\u2009 ]")  # marks that only group digits
_NUMBER = re.compile(
    "[-+]?\\d+(?:[.,'\u2019\u066b\u066c]\\d+|[\u00a0\u202f\u2009 ]\\d{3}(?!\\d))*(?:[eE][-+]?\\d+)?(?![^\\s(%;])"
)
_WORD = re.compile(r"[^\W\d]")
_UNMEASURED = frozenset({"", "n/a", "na", "nan", "inf", "-inf", "none", "-"})
_TIMES = {
    "second": 1.0, "sec": 1.0, "s": 1.0, "msecond": 1e-3, "ms": 1e-3, "usecond": 1e-6, "us": 1e-6, "\u00b5s": 1e-6,
    "\u03bcs": 1e-6, "nsecond": 1e-9, "ns": 1e-9,
}  # fmt: skip
_SCALES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_WORDS = ("byte", "hz", "cycle", "inst", "sector", "request", "flop", "op", "warp", "thread", "block")


@dataclass(frozen=True)
class Quantity:
    """One value of a metric."""

    value: float | None  # in base units; None for `n/a`, `inf` and texts
    unit: str  # `s`, `byte`, `byte/s`, `hz`, `%`, or what was printed
    text: str

    @property
    def measured(self) -> bool:
        """True unless the profiler says that it has no value."""
        return self.text.lower() not in _UNMEASURED


def quantity(text: str, unit: str, decimal_comma: bool = False) -> Quantity:
    """The value of a printed number with its unit; of a number with further ones in brackets the first counts.

    `decimal_comma` decides only where the number itself does not show which mark is the decimal one.
    """
    scale, base = _base_unit(unit.strip())
    text, value = text.strip(), math.nan
    if (match := _NUMBER.match(text)) is not None:
        mark = _decimal_mark(match[0]) or ("," if decimal_comma else ".")
        digits = _GROUPS.sub("", match[0]).replace("." if mark == "," else ",", "")
        with suppress(ValueError):
            value = float(digits.replace(mark, ".")) * scale
    return Quantity(value if math.isfinite(value) else None, base, text)


def _decimal_mark(number: str) -> str:
    """The decimal mark that a number shows by itself; empty if it has none, or one that may also group thousands."""
    digits, exponent, _ = _GROUPS.sub("", number.lstrip("+-")).lower().partition("e")
    if not (marks := re.findall("[.,\u066b]", digits)):
        return ""
    head, last, tail = digits.rpartition(marks[-1])
    if marks.count(last) > 1:  # a mark that stands twice groups; a version number such as 570.86.10 is no number
        return {",": ".", ".": ","}.get(last, last) if len(tail) == 3 else last
    doubtful = len(marks) == 1 and len(tail) == 3 and len(head) <= 3 and head.strip("0") and last != "\u066b"
    return "" if doubtful and not exponent and not _GROUPS.search(number) else last


def _base_unit(unit: str) -> tuple[float, str]:
    if unit in _TIMES:
        return _TIMES[unit], "s"
    over, slash, under = unit.partition("/")
    scale, word = _prefix(over)
    if slash and under in _TIMES:
        return scale / _TIMES[under], "hz" if word == "cycle" else f"{word}/s"
    return scale, f"{word}/{under}" if slash else word


def _prefix(word: str) -> tuple[float, str]:
    lowered = word.lower()
    if word[:1] in _SCALES and lowered[1:] in _WORDS:
        return _SCALES[word[0]], lowered[1:]
    return 1.0, lowered if lowered in _WORDS else word


_LARGEST_BYTES = 256 << 20
_TREE = re.compile(r"\s*(?:(?:\[\s*)?\{|\[\s*\])")  # not the `[rank0]:` of a launcher
_KERNEL, _METRIC, _UNIT = "Kernel Name", "Metric Name", "Metric Unit"
_VALUES = ("Metric Value", "Average")  # the second in summaries
_SHAPE = ("Block Size", "Grid Size")
_IDENTITY = ("ID", "Process ID", _KERNEL, "Context", "Stream", *_SHAPE, "Device", "CC")
_FACTS = (
    *_IDENTITY, "Process Name", "Host Name", "Kernel Time", "Section Name", "Invocations", "Rule Name", "Rule Type",
    "Rule Description", "Estimated Speedup Type", "Estimated Speedup", "Minimum", "Maximum", "Body Item Label",
)  # fmt: skip
_LAUNCH = re.compile(
    r"(?:\d+[:-])?[\s/#>|*]*(\S.*?)(?:, \d{4}-\S+ \S+(?=, C)| (\(\d+, \d+, \d+\))x(\(\d+, \d+, \d+\))|(?=, Context \d))"
    r"(?:, Context \d+, Stream \d+)?(?:, Device (\d+), CC (\S+?))?(?:, Invocations (\d+))?\s*"
)
_HINT = "make one: ncu --import REPORT.ncu-rep --csv --page raw > FILE.csv, rocprofv3 --kernel-trace, or Proton"
NSIGHT, ROCPROF, PROTON = "Nsight Compute", "rocprof", "Proton"


@dataclass(frozen=True)
class ProfiledLaunch:
    """One launch of a kernel, or the average over the launches of a summary."""

    kernel: str
    facts: dict[str, str]  # that identify it, such as `ID`, `Grid Size`, `Device` and `CC`, as printed
    metrics: dict[str, Quantity]  # on the page `details`, where some have two units, by name and unit too
    count: int = 1  # launches
    source: str = NSIGHT


@dataclass(frozen=True)
class ProfileTable:
    """The launches of one file."""

    launches: tuple[ProfiledLaunch, ...]
    notes: tuple[str, ...] = ()  # what a reader should know, such as that the file is cut


def read_launches(path: str | Path) -> ProfileTable:
    """The launches in a profiler's file; `ProfileError` as of `parse_profile`, or if it is unreadable."""
    with ProfileError.when(f"{path} cannot be read", hint=_HINT):
        return parse_profile(NamedFile(Path(path)).text(_LARGEST_BYTES), str(path))


def parse_profile(text: str, name: str = "the text") -> ProfileTable:
    """The launches in a profiler's text, whatever stands in between; errors call it `name`."""
    launches, notes = (_of_tree if _TREE.match(text) else _of_tables)(text, name)
    if not launches:
        raise ProfileError(f"{name} holds no profiled kernel{': ' + notes[0] if notes else ''}", hint=_HINT)
    return ProfileTable(tuple(launches), tuple(notes))


def _of_tables(text: str, name: str) -> tuple[list[ProfiledLaunch], list[str]]:
    lines = text.splitlines()
    notes: list[str] = []
    if cut := bool(lines) and _is_cut(lines, text):
        notes.append(f"{name} ends within line {len(lines)}, which is left out: the file is cut")
        lines.pop()
    tables = _tables(lines) or _printed(lines)
    if not tables:
        raise ProfileError(f"{name} is no profile that can be read: {_what_it_is(text)}", hint=_HINT)
    launches: list[ProfiledLaunch] = []
    strange = 0
    for header, rows in tables:
        # A row of a metric may end before the columns of rules.
        length = max((header.index(name) + 1 for name in _VALUES if name in header), default=len(header))
        at = header.index("ID") if "ID" in header else len(header)  # a number, unlike a word of prose
        fitting = [row for row in rows if length <= len(row) <= len(header) and not _WORD.search("".join(row[at:][:1]))]
        whole = [dict(zip_longest(header, row, fillvalue="")) for row in fitting]
        strange += len(rows) - len(whole)
        if _KERNEL not in header:
            table_launches, left_out = _of_rocprof(whole)
            strange += left_out
        else:
            table_launches, remarks = (_by_metric if _METRIC in header else _by_launch)(whole)
            notes += remarks
        launches += table_launches
    if strange:
        notes.append(f"{strange} lines between the rows are no rows of the table, and left out")
    if cut and launches:
        notes.append(f"the last kernel, {launches[-1].kernel}, may lack metrics")
    return launches, notes


def _is_cut(lines: Sequence[str], text: str) -> bool:
    """Return True if the last line ends early: within a field, before one, or with fewer than the line before it."""
    last = lines[-1]
    if text.endswith("\n") or not last.startswith('"') or len(lines) == 1:
        return False
    is_within = not last.endswith('"') or last.count('"') % 2 == 1
    return is_within or len(_split(last, ",")) < len(_split(lines[-2], ","))


def _what_it_is(text: str) -> str:
    what_it_is = {
        "ERR_NVGPUCTRPERM": "ncu had no permission to read counters: see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        "LibraryNotLoaded": "the profiler's library could not be loaded, as in some sandboxes",
        "No kernels were profiled": "no kernel was profiled: check --kernel, --skip, and that the program launches it",
        "Total Time (ns)": "it is a table of Nsight Systems",
        **{line: line for line in text.splitlines() if line.startswith("==ERROR==")},
        "==PROF==": "it has the profiler's messages and no table",
    }
    other = f"no line names the column {_KERNEL!r}" if text.strip() else "it is empty"
    return next((what for mark, what in what_it_is.items() if mark in text), other)


def _tables(lines: Sequence[str]) -> list[tuple[Sequence[str], list[list[str]]]]:
    """Every table of a file: its header, and all further rows up to the next header."""
    tables: list[tuple[Sequence[str], list[list[str]]]] = []
    mark = ","
    for line in lines:
        if not line.strip() or line.startswith("=="):  # the profiler's own messages
            continue
        if separator := next((each for each in ",;\t" if each in line and _is_header(_split(line, each))), ""):
            mark = separator
            tables.append((_split(line, mark), []))
        elif tables:
            tables[-1][1].append(_split(line, mark))
    return tables


def _printed(lines: Sequence[str]) -> list[tuple[Sequence[str], list[list[str]]]]:
    """What Nsight Compute prints without `--csv` as the table of its page `details`, in columns below dashes."""
    rows: list[list[str]] = []
    launch: list[str] = []
    columns: list[tuple[int, int]] = []
    before = 0  # rows above the last line of dashes: what follows a line that closes a table is no row
    for line in lines:
        if match := _LAUNCH.fullmatch(line):
            launch = [str(len(rows)), *match.groups("")]
        elif launch and ("-----" in line or not line.strip()):
            columns = [part.span() for part in re.finditer("-{5,}", line) if len(rows) == before or not columns]
            before = len(rows)
        elif launch and len(columns) > 1 and _METRIC not in line:
            metric, *between, number = (line[begin:end].strip() for begin, end in columns)
            is_cut = any(line[at - 1 : at].strip() or line[end : end + 1].strip() for at, end in columns)
            rows.append([] if is_cut or not number else [*launch, metric, between[0] if between else "", number])
    facts = ("ID", _KERNEL, *reversed(_SHAPE), "Device", "CC", "Invocations")
    return [((*facts, _METRIC, _UNIT, _VALUES[0]), rows)] if rows else []


def _split(line: str, mark: str) -> list[str]:
    return next(csv.reader([line], delimiter=mark))


def _is_header(fields: Sequence[str]) -> bool:
    names = {_plain(field) for field in fields}
    calls = {"name", "calls", "averagens"} <= names
    return calls or _KERNEL in fields or ("kernelname" in names and not names.isdisjoint(_OF_ROCPROF))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _by_launch(rows: Sequence[Mapping[str, str]]) -> tuple[list[ProfiledLaunch], list[str]]:
    """The launches of the page `raw`: a row with units and no kernel, wherever it is, and a row for each launch."""
    units = next((row for row in rows if not row[_KERNEL]), {})
    launched = [row for row in rows if row[_KERNEL]]  # numbers are printed by the locale, unlike `CC`
    comma, notes = _read_marks(text for row in launched for name, text in row.items() if name not in _FACTS)
    launches = []
    for row in launched:
        metrics = {
            name: quantity(text, units.get(name, ""), comma)
            for name, text in row.items()
            if name not in _FACTS or (units.get(name) and name not in _IDENTITY)
        }
        launches.append(ProfiledLaunch(row[_KERNEL], _facts(row), metrics, _count(row)))
    return launches, notes


def _by_metric(rows: Sequence[Mapping[str, str]]) -> tuple[list[ProfiledLaunch], list[str]]:
    """The launches of the page `details` and of summaries: a row for each metric."""
    value = next((name for name in _VALUES if rows and name in rows[0]), None)
    if value is None:
        return [], []
    comma, notes = _read_marks(row[value] for row in rows)
    launches: dict[tuple[str, ...], ProfiledLaunch] = {}
    turns: Counter[tuple[str, ...]] = Counter()  # without an `ID`, a metric that comes again is of the next launch
    for row in rows:
        own, metric = tuple(row.get(name, "") for name in _IDENTITY), row[_METRIC]
        number = quantity(row[value], row.get(_UNIT, ""), comma)
        again = (*own, row.get("Section Name", ""), metric, number.unit)
        key = (*own, "" if "ID" in row or not metric else str(turns[again]))
        turns[again] += 1
        if key not in launches:
            launches[key] = ProfiledLaunch(row[_KERNEL], _facts(row), {}, _count(row))
        if metric:  # rows of rules have none
            launches[key].metrics.setdefault(metric, number)
            launches[key].metrics.setdefault(f"{metric} [{number.unit}]", number)
    return [launch for launch in launches.values() if launch.metrics], notes


def _read_marks(texts: Iterable[str]) -> tuple[bool, list[str]]:
    """Return whether doubtful numbers have a decimal comma, and a note if nothing in the file tells."""
    numbers = [text.strip() for text in texts if _NUMBER.fullmatch(text.strip())]
    marks = Counter(_decimal_mark(number) for number in numbers if re.search("[.,]", number))  # "" could be either
    unknown = marks[""] and not marks["."] and not marks[","]
    doubt = "nothing shows whether 1,234 means a thousand: a point is taken for the decimal mark"
    return marks[","] > marks["."], [doubt] if unknown else []


def _facts(row: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in row.items() if name in _FACTS and text}


def _count(row: Mapping[str, str]) -> int:
    number = quantity(row.get("Invocations", ""), "").value
    return int(number) if number and number >= 1 else 1


_OF_ROCPROF = frozenset({"gpuid", "dispatchid", "agentid", "durationns", "endns", "endtimestamp"})
_KIB_COUNTERS = {"fetchsize": "dram__bytes_read.sum", "writesize": "dram__bytes_write.sum"}
_NO_KERNELS = re.compile(  # calls of the host, and what a table of domains or of copies has for names
    r"(?:(?:__)?hip[A-Z]|hsa_|nccl(?!Dev|Kernel)[A-Z])\w*$"
    r"|(?:HIP|HSA|MARKER|RCCL|ROC\w+|OMPT|KERNEL|MEMORY|SCRATCH)_[A-Z_]+$"
)


def _of_rocprof(rows: Sequence[Mapping[str, str]]) -> tuple[list[ProfiledLaunch], int]:
    """The dispatches of rocprof, with the counters of each, and the number of rows that are of none."""
    launches: dict[tuple[str, ...], ProfiledLaunch] = {}
    left_out = 0
    for at, row in enumerate(rows):
        cells = {_plain(name): text for name, text in row.items()}
        kernel = re.sub(r"( \[clone)?\s*[( ]?\.kd[\])]?$", "", cells.get("kernelname") or cells.get("name", ""))
        numbers = {quantity(cells.get(name, ""), "").value for name in ("calls", *_OF_ROCPROF)}  # prose has none there
        if not kernel or numbers == {None} or ("calls" in cells and _NO_KERNELS.match(kernel)):
            left_out += 1
            continue
        dispatch = cells.get("dispatchid") if "countername" in cells else None
        key = (kernel, cells.get("processid", ""), dispatch or str(at))
        if key not in launches:
            calls = quantity(cells.get("calls", ""), "").value
            launches[key] = ProfiledLaunch(kernel, _shape(cells), _dispatch(cells), int(calls or 1), ROCPROF)
        if counter := cells.get("countername"):
            number = quantity(cells.get("countervalue", ""), "")
            launches[key].metrics[counter] = number
            _add_counter(launches[key].metrics, _plain(counter), number)
    return list(launches.values()), left_out


def _dispatch(cells: Mapping[str, str]) -> dict[str, Quantity]:
    """The metrics of a row, under the names that other profiles have for them."""
    numbers = {name: quantity(text, "") for name, text in cells.items()}

    def first(*columns: str) -> Quantity | None:
        return next((numbers[name] for name in columns if name in numbers and numbers[name].measured), None)

    took = first("durationns", "averagens")
    begun, ended = first("beginns", "starttimestamp"), first("endns", "endtimestamp")
    if took is None and begun and ended and begun.value != 0:  # a begin of 0 was not taken
        whole = None if begun.value is None or ended.value is None else ended.value - begun.value
        took = Quantity(whole, "", f"{ended.text} - {begun.text}")
    metrics: dict[str, Quantity] = {}
    if took is not None:
        metrics["Duration"] = Quantity(took.value * 1e-9 if took.value and took.value > 0 else None, "s", took.text)
    registers, more = first("archvgpr", "vgprcount", "vgpr"), first("accumvgpr", "accumvgprcount")
    if registers is not None:
        whole = None if registers.value is None else registers.value + ((more.value if more else None) or 0.0)
        metrics["Registers Per Thread"] = replace(registers, value=whole)
    if (scratch := first("scr", "scratchsize", "scratchperworkitem", "privatesegmentsize")) is not None:
        metrics["scratch"] = scratch
    for name, number in numbers.items():
        _add_counter(metrics, name, number)
    return metrics


def _add_counter(metrics: dict[str, Quantity], name: str, number: Quantity) -> None:
    if name in _KIB_COUNTERS:
        before = metrics.get(_KIB_COUNTERS[name])
        value = None if number.value is None else 1024 * number.value + ((before.value if before else None) or 0.0)
        metrics[_KIB_COUNTERS[name]] = Quantity(value, "byte", number.text)
    elif name in ("occupancypercent", "mfmautil"):
        metrics[name] = replace(number, unit="%")


def _shape(cells: Mapping[str, str]) -> dict[str, str]:
    """Threads of a block, and blocks: rocprof counts the threads of the grid along each axis."""

    def size(*columns: str) -> list[float]:
        axes = [quantity(cells.get(f"{columns[-1]}{axis}", ""), "").value for axis in "xyz"]
        whole = next((quantity(cells[name], "").value for name in columns if name in cells), None)
        return [one for one in axes if one] or [one for one in [whole] if one]

    threads, grid = size("wgr", "workgroupsize"), size("grd", "gridsize")
    if not threads or len(grid) != len(threads):
        return {}
    blocks = [math.ceil(whole / each) for whole, each in zip(grid, threads, strict=True)]
    texts = (f"({', '.join(f'{one:.0f}' for one in sizes)})" for sizes in (threads, blocks))
    return dict(zip(_SHAPE, texts, strict=True))


def _of_tree(text: str, name: str) -> tuple[list[ProfiledLaunch], list[str]]:
    """The kernels of Proton's tree; its counts of operations and bytes are what the program itself has declared."""
    wrong = ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError
    with ProfileError.when(f"{name} is no profile of Proton", _HINT, *wrong):
        if not isinstance(content := json.loads(text), list):
            raise TypeError("it has no list of trees")
        *trees, devices = content
        launches: list[ProfiledLaunch] = []
        left_out: Counter[str] = Counter()
        nodes = list(trees)
        while nodes:
            node = nodes.pop(0)
            nodes[:0] = node["children"]
            metrics, frame = node.get("metrics", {}), node["frame"]["name"]
            if metrics.get("count", 0) and "time (ns)" in metrics:
                launches.append(_proton_kernel(frame, metrics, devices))
            elif metrics.get("count", 0):
                left_out["{} entries have no time in nanoseconds, and are left out"] += 1
            elif any(isinstance(value, (int, float)) and value for value in metrics.values()):
                left_out["the metrics of {} scopes are of no single kernel, and are left out"] += 1
    return launches, [text.format(number) for text, number in left_out.items()]


def _proton_kernel(kernel: str, metrics: Mapping[str, Any], devices: Mapping[str, Any]) -> ProfiledLaunch:
    count = int(float(metrics["count"]))  # an error past the largest float
    kind, number = str(metrics.get("device_type", "")), str(metrics.get("device_id", ""))
    units = {"time (ns)": ("Duration", 1e-9, "s"), "bytes": ("dram__bytes.sum", 1.0, "byte")}
    each = {}
    for metric, value in metrics.items():
        if isinstance(value, (int, float)) and 0 <= value < math.inf and metric != "count":
            own, scale, unit = units.get(metric, (metric, 1.0, ""))
            each[own] = Quantity(value * scale / count, unit, str(value))
    arch = str(devices.get(kind, {}).get(number, {}).get("arch", ""))
    return ProfiledLaunch(kernel, {"Device": number, "CC": arch}, each, count, PROTON)
