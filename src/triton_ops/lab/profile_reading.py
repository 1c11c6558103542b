"""The figures of a profile that decide, under one name each, whichever page and version has them.

`raw` has one row for each launch and a second row with the units. `details` has one row for each metric of each launch.
With `--print-summary` a row has the minimum, the maximum and the average over launches. Columns are found by their
names, since versions add and move them. The program's own output and lines of the profiler may stand in between.

Forms: the documentation of the Nsight Compute CLI, "Command Line Options" and "Output pages", 2019.5 to 2025.3. Which
of them were read from a live profiler is in docs/guides/profiles.md.

Numbers are printed by the locale: `1,234.50`, or `1.234,50`. Units are scaled by default, as in `Gbyte/s`, `usecond` or
`us`, whose names changed with versions. Values become seconds, bytes, bytes per second, Hz, percent or plain counts.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from triton_ops.base import StoredFile
from triton_ops.device import DeviceSpec, Placed, Roofline
from triton_ops.exceptions import ProfileError

_NUMBER = re.compile(r"[-+]?\d[\d.,'\u00a0\u202f]*(?:[eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d{1,3}(?:\.\d{3})*,(?!\d{3}$)\d+|[-+]?\d{1,3}(?:\.\d{3})+,\d+|[-+]?0,\d+")
_TIMES = {
    "second": 1.0, "sec": 1.0, "s": 1.0, "msecond": 1e-3, "ms": 1e-3, "usecond": 1e-6, "us": 1e-6, "nsecond": 1e-9,
    "ns": 1e-9,
}  # fmt: skip
_SCALES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_WORDS = ("byte", "hz", "cycle", "inst", "sector", "request", "flop", "op", "warp", "thread", "block")


@dataclass(frozen=True)
class Quantity:
    """One value of a metric."""

    value: float | None  # in base units; None for `n/a`, `inf` and texts
    unit: str  # `s`, `byte`, `byte/s`, `hz`, `%`, or what was printed
    text: str


def quantity(text: str, unit: str, decimal_comma: bool = False) -> Quantity:
    """The value of a printed number with its unit; of a number with further ones in brackets the first counts."""
    scale, base = _base_unit(unit.strip())
    text, value = text.strip(), math.nan
    match = _NUMBER.match(text)
    if match is not None and not text[match.end() : match.end() + 1].isalpha():
        digits = re.sub(r"['\u00a0\u202f]", "", match[0])
        digits = digits.replace(".", "").replace(",", ".") if decimal_comma else digits.replace(",", "")
        with suppress(ValueError):
            value = float(digits) * scale
    return Quantity(value if math.isfinite(value) else None, base, text)


def has_decimal_comma(texts: Iterable[str]) -> bool:
    """Return True for numbers with a decimal comma: one that cannot be a separator of thousands shows it."""
    return any(_DECIMAL_COMMA.fullmatch(text.strip()) for text in texts)


def _base_unit(unit: str) -> tuple[float, str]:
    if unit in _TIMES:
        return _TIMES[unit], "s"
    over, slash, under = unit.partition("/")
    scale, word = _prefix(over)
    if slash and under in _TIMES:
        scale, word = scale / _TIMES[under], "hz" if word == "cycle" else f"{word}/s"
        return scale, word
    return scale, f"{word}/{under}" if slash else word


def _prefix(word: str) -> tuple[float, str]:
    lowered = word.lower()
    for prefix, factor in _SCALES.items():
        if word.startswith(prefix) and lowered[1:] in _WORDS:
            return factor, lowered[1:]
    return 1.0, lowered if lowered in _WORDS else word


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
    """One launch of a kernel, or the average over the launches of a summary."""

    kernel: str
    facts: dict[str, str]  # that identify it, such as `ID`, `Grid Size`, `Device` and `CC`, as printed
    metrics: dict[str, Quantity]  # on the page `details`, where some have two units, by name and unit too


@dataclass(frozen=True)
class ProfileTable:
    """The launches of one file."""

    launches: tuple[ProfiledLaunch, ...]
    notes: tuple[str, ...] = ()  # what a reader should know, such as that the file is cut


def read_ncu(path: str | Path) -> ProfileTable:
    """The launches in a file that `ncu --csv` has printed; `ProfileError` as of `parse_ncu`, or if it is unreadable."""
    try:
        data = StoredFile(path).read(_LARGEST_BYTES)
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}", hint="name another file") from error
    return parse_ncu(_text_of(data, str(path)), str(path))


def parse_ncu(text: str, name: str = "the text") -> ProfileTable:
    """The launches in the text that `ncu --csv` has printed, whatever stands in between; errors call it `name`."""
    lines = text.splitlines()
    notes: list[str] = []
    if lines and _is_cut(lines, text):
        notes.append(f"{name} ends within line {len(lines)}, which is left out: the file is cut")
        lines.pop()
    tables = list(_tables(lines))
    if not tables:
        raise ProfileError(f"{name} is no CSV of Nsight Compute: {_what_it_is(text)}", hint=_HINT)
    launches = [launch for header, rows in tables for launch in _launches(header, rows)]
    strange = sum(len(rows) - len(_whole_rows(header, rows)) for header, rows in tables)
    if strange:
        notes.append(f"{strange} lines between the rows are no rows of the table, and left out")
    if not launches:
        raise ProfileError(f"{name} holds no profiled kernel{': ' + notes[0] if notes else ''}", hint=_HINT)
    if notes and notes[0].endswith("is cut"):
        notes.append(f"the last kernel, {launches[-1].kernel}, may lack metrics")
    return ProfileTable(tuple(launches), tuple(notes))


def _text_of(data: bytes, name: str) -> str:
    """The text of a file; a shell of Windows writes UTF-16."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise ProfileError(f"{name} is no text, so no CSV of Nsight Compute", hint=_HINT) from None


def _is_cut(lines: Sequence[str], text: str) -> bool:
    """Return True if the last line ends early: within a field, before one, or with fewer than the line before it."""
    last = lines[-1]
    if text.endswith("\n") or not last.startswith('"') or len(lines) == 1:
        return False
    if not last.endswith('"') or last.count('"') % 2 == 1:
        return True
    return len(next(csv.reader([last]))) < len(next(csv.reader([lines[-2]])))


def _what_it_is(text: str) -> str:
    for mark, description in (
        ("ERR_NVGPUCTRPERM", "the profiler had no permission to read the GPU's counters"),
        ("No kernels were profiled", "no kernel was profiled"),
        ("Total Time (ns)", "it is a table of Nsight Systems"),
        ("==PROF==", "it has the profiler's messages and no table"),
    ):
        if mark in text:
            return description
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


def _whole_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """The rows that are whole, as long as the header: a row of a metric may end before the columns of rules."""
    length = max((header.index(name) + 1 for name in _VALUES if name in header), default=len(header))
    return [[*row, *[""] * (len(header) - len(row))] for row in rows if length <= len(row) <= len(header)]


def _launches(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[ProfiledLaunch]:
    whole = _whole_rows(header, rows)
    return _by_metric(header, whole) if _METRIC in header else _by_launch(header, whole)


def _by_launch(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[ProfiledLaunch]:
    """The launches of the page `raw`: below the header a row with units and no kernel, then a row for each launch."""
    at = header.index(_KERNEL)
    units = list(rows[0]) if rows and not rows[0][at] else [""] * len(header)
    launched = [row for row in rows if row[at]]
    comma = has_decimal_comma(text for row in launched for text in row)
    launches = []
    for row in launched:
        metrics = {
            name: quantity(text, unit, comma)
            for name, unit, text in zip(header, units, row, strict=True)
            if name not in _FACTS or unit
        }
        launches.append(ProfiledLaunch(row[at], _facts(header, row), metrics))
    return launches


def _by_metric(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[ProfiledLaunch]:
    """The launches of the page `details` and of summaries: a row for each metric."""
    value = next((header.index(name) for name in _VALUES if name in header), None)
    if value is None:
        return []
    kernel, metric = header.index(_KERNEL), header.index(_METRIC)
    unit = header.index(_UNIT) if _UNIT in header else None
    identity = [header.index(name) for name in ("ID", "Process ID", _KERNEL) if name in header]
    comma = has_decimal_comma(row[value] for row in rows)
    launches: dict[tuple[str, ...], ProfiledLaunch] = {}
    for row in rows:
        key = tuple(row[at] for at in identity)
        launch = launches.setdefault(key, ProfiledLaunch(row[kernel], _facts(header, row), {}))
        if row[metric]:  # rows of rules have none
            number = quantity(row[value], row[unit] if unit is not None else "", comma)
            launch.metrics.setdefault(row[metric], number)
            launch.metrics.setdefault(f"{row[metric]} [{number.unit}]", number)
    return [launch for launch in launches.values() if launch.metrics]


def _facts(header: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    return {name: text for name, text in zip(header, row, strict=True) if name in _FACTS and text}


_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_NAMES: dict[str, tuple[str, ...]] = {
    "duration_s": ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max", "Duration"),
    "compute": (
        f"sm__throughput.{_ELAPSED}", "Compute (SM) Throughput", "Compute (SM) [%]", "SM Compute Throughput", "SOL SM",
        "SM Throughput", "SM [%]",
    ),
    "memory": (
        f"gpu__compute_memory_throughput.{_ELAPSED}", "Memory Throughput [%]", "Memory [%]", "SOL Memory",
    ),
    "dram": (
        f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}", "DRAM Throughput [%]", "SOL DRAM",
    ),
    "l2": (f"lts__throughput.{_ELAPSED}", "L2 Cache Throughput", "SOL L2 Cache", "L2 [%]"),
    "l1": (
        "l1tex__throughput.avg.pct_of_peak_sustained_active", f"l1tex__throughput.{_ELAPSED}",
        "L1/TEX Cache Throughput", "SOL L1/TEX Cache", "L1/TEX [%]",
    ),
    "tensor": (
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        f"sm__pipe_tensor_cycles_active.{_ELAPSED}", f"sm__inst_executed_pipe_tensor.{_ELAPSED}",
    ),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
    "most_occupancy": ("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"),
    "no_eligible": ("smsp__issue_inst0.avg.pct_of_peak_sustained_active", "No Eligible"),
    "registers": ("launch__registers_per_thread", "Registers Per Thread"),
    "waves": ("launch__waves_per_multiprocessor", "Waves Per SM"),
    "blocks": ("launch__grid_size", "Grid Size"),
    "threads": ("launch__block_size", "Block Size"),
    "by_registers": ("launch__occupancy_limit_registers", "Block Limit Registers"),
    "by_shared": ("launch__occupancy_limit_shared_mem", "Block Limit Shared Mem"),
    "by_warps": ("launch__occupancy_limit_warps", "Block Limit Warps"),
    "by_blocks": ("launch__occupancy_limit_blocks", "Block Limit SM"),
    "dram_bytes_per_s": ("dram__bytes.sum.per_second", "Memory Throughput [byte/s]"),
    "dram_bytes": ("dram__bytes.sum",),
    "clock_hz": ("gpc__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second", "SM Frequency"),
    "units": ("device__attribute_multiprocessor_count", "# SMs"),
}  # fmt: skip
_LOCAL = re.compile(
    r"l1tex__t_bytes_pipe_lsu_mem_local(?:_op_(?:ld|st))?\.sum|smsp__(?:sass_)?inst_executed_op_local_(?:ld|st)\.sum|"
    r"(?:sass__inst_executed|smsp__sass_inst_executed)_(?:register_spilling|local_\w+)(?:\.sum)?|"
    r"Local Memory Spilling Requests"
)
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(?!not_selected|selected)(\w+?)_per_issue_active\.ratio")
_OPERATIONS = re.compile(
    r"sm__ops_path_tensor(?:_op_[a-z]+)?_src_(?P<element>[a-z]+\d+)(?:_dst_[a-z]+\d+)?(?P<dense>_sparsity_off)?\.sum"
)
_SHARED_ACCESSES = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
)  # fmt: skip
_OF_PEAK = ("peak_sustained_elapsed.per_second", "pct_of_peak_sustained_elapsed")
_OPERANDS = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp8": "float8_e4m3fn", "fp64": "float64"}
_DEVICE_NAME = "device__attribute_display_name"


@dataclass(frozen=True, kw_only=True)
class KernelProfile:
    """One profiled launch; shares are percent of a peak, and a figure that the profile does not have is None."""

    kernel: str
    duration_s: float | None = None
    compute: float | None = None  # `Compute (SM) Throughput`
    memory: float | None = None  # of the busiest part of the memory system: `Memory Throughput`
    dram: float | None = None
    l2: float | None = None
    l1: float | None = None  # with shared memory
    tensor: float | None = None  # of the matrix units
    occupancy: float | None = None  # as achieved: warps at a time of the most that fit
    most_occupancy: float | None = None  # as the launch allows
    no_eligible: float | None = None  # cycles in which a scheduler had no warp to issue
    registers: float | None = None
    waves: float | None = None
    blocks: float | None = None
    threads: float | None = None
    by_registers: float | None = None  # this and the next: blocks per multiprocessor that it allows
    by_shared: float | None = None
    by_warps: float | None = None
    by_blocks: float | None = None
    dram_bytes_per_s: float | None = None
    dram_bytes: float | None = None
    clock_hz: float | None = None
    units: float | None = None  # multiprocessors
    products: tuple[tuple[str, float], ...] = ()  # operations, as counted, by the dtype of the operands
    products_peak: float | None = None  # the most of them per second at the clock that ran
    conflicts: float | None = None  # percent of the accesses to shared memory, which waited for a bank
    local: float | None = None  # the largest metric of local memory: bytes, instructions or requests
    stall: tuple[str, float] | None = None  # what warps waited for most, and for how many cycles of each instruction
    device: str = ""
    capability: str = ""  # such as 9.0; empty, as the device, if the profile has none

    @property
    def arch(self) -> str:
        """The architecture, such as `sm_90`; empty if the profile has none."""
        digits = self.capability.replace(".", "")
        return f"sm_{digits}" if digits.isdigit() else ""

    @property
    def flops(self) -> float:
        """Operations of all products of tiles, as counted; 0 if none were counted."""
        return sum(count for _, count in self.products)

    @property
    def dtype(self) -> str:
        """The dtype of the operands of most of these operations; empty if none were counted."""
        return max(self.products, key=lambda pair: pair[1])[0] if self.products else ""

    @property
    def moved_bytes(self) -> float | None:
        """Bytes of device memory, counted or by rate and time; None if the profile has neither."""
        if self.dram_bytes is not None:
            return self.dram_bytes
        if self.dram_bytes_per_s is None or self.duration_s is None:
            return None
        return self.dram_bytes_per_s * self.duration_s

    def device_spec(self, gpu: str | None = None) -> DeviceSpec | None:
        """The device from the table, or the one that is named; None if it is not known. A wrong name raises."""
        if gpu is None:
            return DeviceSpec.called(self.device) if self.device else None
        spec = DeviceSpec.called(gpu)
        if spec is None:
            raise ProfileError(f"no device {gpu!r} is in the table", hint="for example --gpu 'NVIDIA H200'")
        return spec

    def below_roof(
        self, spec: DeviceSpec | None, flops: float = 0.0, dtype: str = ""
    ) -> tuple[Roofline, Placed] | None:
        """The roofline and the place of the launch below it, by the time and the bytes that the profiler counted.

        Without `flops` they are those of the products that it counted. None if the profile has no time, neither bytes
        nor operations are known, or no peak of the device is.
        """
        if spec is None or self.duration_s is None:
            return None
        roof = Roofline.of(
            spec, flops=flops or self.flops, bytes_=self.moved_bytes or 0.0, dtype=dtype or self.dtype, products=True
        )
        place = roof.placed(1e3 * self.duration_s)
        return None if place is None else (roof, place)


def figures_of(launch: ProfiledLaunch) -> KernelProfile:
    """The figures of a launch."""
    metrics = launch.metrics
    figures = {name: _first(metrics, names) for name, names in _NAMES.items()}
    if figures["dram_bytes"] is None:
        parts = [_first(metrics, (f"dram__bytes_{way}.sum",)) for way in ("read", "write")]
        figures["dram_bytes"] = sum(part for part in parts if part is not None) if any(parts) else None
    figures["blocks"] = figures["blocks"] or _product(launch.facts.get("Grid Size", ""))
    figures["threads"] = figures["threads"] or _product(launch.facts.get("Block Size", ""))
    products, peak, busiest = _products(metrics)
    conflicts, accesses = (_first(metrics, (name,)) for name in _SHARED_ACCESSES)
    figures["conflicts"] = 100 * conflicts / accesses if conflicts is not None and accesses else None
    figures["tensor"] = busiest if busiest is not None else figures["tensor"]
    local = [number.value for name, number in metrics.items() if _LOCAL.fullmatch(name) and number.value is not None]
    device = metrics.get(_DEVICE_NAME)
    assert set(figures) <= {each.name for each in fields(KernelProfile)}
    return KernelProfile(
        kernel=launch.kernel, local=max(local, default=None), stall=_stall(metrics), products=products,
        products_peak=peak,
        device=device.text if device is not None else "", capability=launch.facts.get("CC", ""), **figures,
    )  # fmt: skip


def _first(metrics: Mapping[str, Quantity], names: Sequence[str]) -> float | None:
    """The value of the first name that has one; a name may end with the unit that is meant."""
    for name in names:
        number = metrics.get(name)
        if number is not None and number.value is not None:
            return number.value
    return None


def _products(metrics: Mapping[str, Quantity]) -> tuple[tuple[tuple[str, float], ...], float | None, float | None]:
    """Operations by dtype, the most per second, and the share of the peak in percent, of counted products of tiles.

    A profile counts the same operations for all instructions together and for each kind of them, and with and without
    sparse operands; only the peak of what is named dense, and did the most, is the peak that holds.
    """
    counters = [
        (match, number.value)
        for name, number in metrics.items()
        if (match := _OPERATIONS.fullmatch(name)) is not None and number.value
    ]
    counts: dict[str, float] = {}
    for match, count in counters:
        dtype = _OPERANDS.get(match["element"], match["element"])
        counts[dtype] = max(counts.get(dtype, 0.0), count)
    if not counters:
        return (), None, None
    most, _ = max(counters, key=lambda pair: (bool(pair[0]["dense"]), pair[1]))
    peak, share = (metrics.get(f"{most[0]}.{what}") for what in _OF_PEAK)
    return tuple(counts.items()), peak.value if peak else None, share.value if share else None


def _stall(metrics: Mapping[str, Quantity]) -> tuple[str, float] | None:
    stalls = [
        (match[1].replace("_", " "), number.value)
        for name, number in metrics.items()
        if (match := _STALL.fullmatch(name)) is not None and number.value is not None
    ]
    return max(stalls, key=lambda pair: pair[1], default=None)


def _product(text: str) -> float | None:
    """The number of blocks or threads in a text such as `(128, 1, 1)` or `512`."""
    sizes = [int(part) for part in re.findall(r"\d+", text)]
    return float(math.prod(sizes)) if sizes else None
