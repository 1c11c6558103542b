"""The figures of a profile that decide, under one name each, whichever page and version has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from triton_ops.profiles.ncu_csv import ProfiledLaunch
from triton_ops.profiles.quantities import Quantity

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
_OPERANDS = {
    "bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp8": "float8_e4m3fn", "fp64": "float64",
}  # fmt: skip
_DEVICE_NAME = "device__attribute_display_name"


@dataclass(frozen=True, kw_only=True)
class KernelProfile:
    """One profiled launch; shares are percent, and a figure that the profile does not have is None.

    Attributes:
        kernel: The kernel's name.
        duration_s: Seconds of the launch.
        compute: Throughput of the multiprocessors, of their peak: `Compute (SM) Throughput`.
        memory: The same of the busiest part of the memory system: `Memory Throughput`.
        dram: The same of device memory.
        l2: The same of L2.
        l1: The same of L1 and shared memory.
        tensor: The same of the matrix units.
        occupancy: Warps at a time of the most that fit, as achieved.
        most_occupancy: The same as the launch allows.
        no_eligible: Cycles in which a scheduler had no warp to issue.
        registers: Registers per thread.
        waves: Waves of blocks.
        blocks: Blocks of the launch.
        threads: Threads of a block.
        by_registers: Blocks per multiprocessor that registers allow.
        by_shared: The same by shared memory.
        by_warps: The same by warps.
        by_blocks: The same by the number of blocks.
        dram_bytes_per_s: Bytes per second of device memory.
        dram_bytes: Bytes of device memory.
        clock_hz: The clock of the multiprocessors.
        units: Multiprocessors.
        products: Operations of products of tiles, by the dtype of their operands, as counted.
        products_peak: The most of these operations per second at the clock that ran; None if none were counted.
        conflicts: Accesses to shared memory that waited for a bank, percent of all its accesses.
        local: The largest figure of the metrics for local memory, in bytes, instructions or requests.
        stall: What warps waited for most, and for how many cycles of each instruction.
        device: The device's name; empty if the profile has none.
        capability: Its compute capability, such as 9.0; empty if the profile has none.
    """

    kernel: str
    duration_s: float | None = None
    compute: float | None = None
    memory: float | None = None
    dram: float | None = None
    l2: float | None = None
    l1: float | None = None
    tensor: float | None = None
    occupancy: float | None = None
    most_occupancy: float | None = None
    no_eligible: float | None = None
    registers: float | None = None
    waves: float | None = None
    blocks: float | None = None
    threads: float | None = None
    by_registers: float | None = None
    by_shared: float | None = None
    by_warps: float | None = None
    by_blocks: float | None = None
    dram_bytes_per_s: float | None = None
    dram_bytes: float | None = None
    clock_hz: float | None = None
    units: float | None = None
    products: tuple[tuple[str, float], ...] = ()
    products_peak: float | None = None
    conflicts: float | None = None
    local: float | None = None
    stall: tuple[str, float] | None = None
    device: str = ""
    capability: str = ""

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


def figures_of(launch: ProfiledLaunch) -> KernelProfile:
    """The figures of a launch."""
    metrics = launch.metrics
    known = {name: _first(metrics, names) for name, names in _NAMES.items()}
    if known["dram_bytes"] is None:
        parts = [_first(metrics, (f"dram__bytes_{way}.sum",)) for way in ("read", "write")]
        known["dram_bytes"] = sum(part for part in parts if part is not None) if any(parts) else None
    known["blocks"] = known["blocks"] or _product(launch.facts.get("Grid Size", ""))
    known["threads"] = known["threads"] or _product(launch.facts.get("Block Size", ""))
    products, peak, busiest = _products(metrics)
    waited, accesses = (_first(metrics, (name,)) for name in _SHARED_ACCESSES)
    known["conflicts"] = 100 * waited / accesses if waited is not None and accesses else None
    known["tensor"] = busiest if busiest is not None else known["tensor"]
    local = [seen.value for name, seen in metrics.items() if _LOCAL.fullmatch(name) and seen.value is not None]
    device = metrics.get(_DEVICE_NAME)
    assert set(known) <= {each.name for each in fields(KernelProfile)}
    return KernelProfile(
        kernel=launch.kernel, local=max(local, default=None), stall=_stall(metrics), products=products,
        products_peak=peak,
        device=device.text if device is not None else "", capability=launch.facts.get("CC", ""), **known,
    )  # fmt: skip


def _first(metrics: Mapping[str, Quantity], names: Sequence[str]) -> float | None:
    """The value of the first name that has one; a name may end with the unit that is meant."""
    for name in names:
        seen = metrics.get(name)
        if seen is not None and seen.value is not None:
            return seen.value
    return None


def _products(
    metrics: Mapping[str, Quantity],
) -> tuple[tuple[tuple[str, float], ...], float | None, float | None]:
    """Operations by dtype, the most per second, and the share of the peak in percent, of counted products of tiles.

    A profile counts the same operations for all instructions together and for each kind of them, and with and without
    sparse operands; only the peak of what is named dense, and did the most, is the peak that holds.
    """
    found = [
        (match, seen.value)
        for name, seen in metrics.items()
        if (match := _OPERATIONS.fullmatch(name)) is not None and seen.value
    ]
    counts: dict[str, float] = {}
    for match, count in found:
        dtype = _OPERANDS.get(match["element"], match["element"])
        counts[dtype] = max(counts.get(dtype, 0.0), count)
    if not found:
        return (), None, None
    most, _ = max(found, key=lambda pair: (bool(pair[0]["dense"]), pair[1]))
    peak, share = (metrics.get(f"{most[0]}.{what}") for what in _OF_PEAK)
    return tuple(counts.items()), peak.value if peak else None, share.value if share else None


def _stall(metrics: Mapping[str, Quantity]) -> tuple[str, float] | None:
    found = [
        (match[1].replace("_", " "), seen.value)
        for name, seen in metrics.items()
        if (match := _STALL.fullmatch(name)) is not None and seen.value is not None
    ]
    return max(found, key=lambda pair: pair[1], default=None)


def _product(text: str) -> float | None:
    """The number of blocks or threads in a text such as `(128, 1, 1)` or `512`."""
    sizes = [int(part) for part in re.findall(r"\d+", text)]
    if not sizes:
        return None
    found = 1
    for size in sizes:
        found *= size
    return float(found)
