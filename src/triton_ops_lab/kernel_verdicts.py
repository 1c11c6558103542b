"""Verdicts on the kernels of a profile, by the figures that decide, under one name each.

The rules are those of Nsight Compute's own guide: a part that runs at 60 % of its peak limits the kernel, and at 80 %
it is near what can be had; if neither multiprocessors nor memory reach 60 %, the kernel waits. A kernel that waits with
both below 30 %, and is over in microseconds, is limited by its launch.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from triton_ops.benchmark import Advice
from triton_ops.device import DeviceSpec, Placed, Roofline, device_spec
from triton_ops.exceptions import ProfileError
from triton_ops_lab.profile_reading import NSIGHT, ProfiledLaunch, Quantity, read_launches

_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE = "avg.pct_of_peak_sustained_active"
_BYTES = ("byte",)


def _figure(*names: str, units: Sequence[str] = ()) -> Any:
    """A figure with the names in the order in which they are looked for, and the units that it may have, or any."""
    return field(default=None, metadata={"figure": (units, names)})


_percent = partial(_figure, units=("%", ""))  # the names say that they are percent
_LOCAL = re.compile(
    r"l1tex__t_bytes_pipe_lsu_mem_local(?:_op_(?:ld|st))?\.sum|smsp__(?:sass_)?inst_executed_op_local_(?:ld|st)\.sum|"
    r"(?:sass__inst_executed|smsp__sass_inst_executed)_(?:register_spilling|local_\w+)(?:\.sum)?|"
    r"Local Memory Spilling Requests|scratch"
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
    "fp4": "float4",
}  # fmt: skip
_DECLARED = {"flops64": "float64", "flops32": "float32", "flops16": "float16", "flops8": "float8_e4m3fn"}
"""Operations that a program has told Proton, by the width of the operands, with a dtype whose rate they have."""
_DEVICE_NAME = "device__attribute_display_name"


@dataclass(frozen=True, kw_only=True)
class KernelProfile:
    """One profiled launch; shares are percent of a peak, and a figure that the profile does not have is None."""

    kernel: str
    duration_s: float | None = _figure(
        "gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max", "Duration", units=("s",)
    )
    compute: float | None = _percent(
        f"sm__throughput.{_ELAPSED}", "Compute (SM) Throughput", "Compute (SM) [%]", "SM Compute Throughput", "SOL SM",
        "SM Throughput", "SM [%]",
    )  # fmt: skip
    memory: float | None = _percent(  # of the busiest part of the memory system
        f"gpu__compute_memory_throughput.{_ELAPSED}", "Memory Throughput [%]", "Memory [%]", "SOL Memory"
    )
    dram: float | None = _percent(
        f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}", "DRAM Throughput", "SOL DRAM", "SOL FB"
    )
    l2: float | None = _percent(
        f"lts__throughput.{_ELAPSED}", "L2 Cache Throughput", "SOL L2 Cache", "SOL L2", "L2 [%]"
    )
    l1: float | None = _percent(  # with shared memory
        f"l1tex__throughput.{_ACTIVE}", f"l1tex__throughput.{_ELAPSED}", "L1/TEX Cache Throughput", "SOL L1/TEX Cache",
        "SOL TEX", "L1/TEX [%]",
    )  # fmt: skip
    tensor: float | None = _percent(  # of the matrix units
        f"sm__inst_executed_pipe_tensor.{_ACTIVE}", f"sm__pipe_tensor_cycles_active.{_ACTIVE}",
        f"sm__pipe_tensor_op_hmma_cycles_active.{_ACTIVE}", f"sm__pipe_tensor_cycles_active.{_ELAPSED}",
        f"sm__inst_executed_pipe_tensor.{_ELAPSED}", "mfmautil",
    )  # fmt: skip
    # As achieved, warps at a time of the most that fit; and as the launch allows.
    occupancy: float | None = _percent(f"sm__warps_active.{_ACTIVE}", "Achieved Occupancy", "occupancypercent")
    most_occupancy: float | None = _percent("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy")
    # Cycles in which a scheduler had no warp to issue.
    no_eligible: float | None = _percent(f"smsp__issue_inst0.{_ACTIVE}", "No Eligible")
    registers: float | None = _figure("launch__registers_per_thread", "Registers Per Thread")
    waves: float | None = _figure("launch__waves_per_multiprocessor", "Waves Per SM")
    blocks: float | None = _figure("launch__grid_size", "Grid Size")
    threads: float | None = _figure("launch__block_size", "Block Size")
    # Blocks per multiprocessor that each limit allows.
    by_registers: float | None = _figure("launch__occupancy_limit_registers", "Block Limit Registers")
    by_shared: float | None = _figure("launch__occupancy_limit_shared_mem", "Block Limit Shared Mem")
    by_warps: float | None = _figure("launch__occupancy_limit_warps", "Block Limit Warps")
    by_blocks: float | None = _figure("launch__occupancy_limit_blocks", "Block Limit SM")
    dram_bytes_per_s: float | None = _figure(
        "dram__bytes.sum.per_second", "Memory Throughput [byte/s]", units=("byte/s",)
    )
    dram_bytes: float | None = _figure("dram__bytes.sum", units=_BYTES)
    clock_hz: float | None = _figure(
        "gpc__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second", "SM Frequency", units=("hz",)
    )
    units: float | None = _figure("device__attribute_multiprocessor_count", "# SMs")  # multiprocessors
    products: tuple[tuple[str, float], ...] = ()  # operations, as counted, by the dtype of the operands
    products_peak: float | None = None  # the most of them per second at the clock that ran
    conflicts: float | None = None  # percent of the accesses to shared memory, which waited for a bank
    local: float | None = None  # the largest metric of local memory: bytes, instructions or requests
    stall: tuple[str, float] | None = None  # what warps waited for most, and for how many cycles of each instruction
    device: str = ""
    capability: str = ""  # such as 9.0; empty, as the device, if the profile has none
    count: int = 1  # launches of which these figures are the average
    source: str = NSIGHT

    @property
    def arch(self) -> str:
        """The architecture, such as `sm_90`; empty if the profile has none."""
        digits = self.capability.replace(".", "")
        return f"sm_{digits}" if digits.isdigit() else digits if digits.startswith("gfx") else ""

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

    def below_roof(
        self, gpu: str | None = None, flops: float = 0.0, dtype: str = ""
    ) -> tuple[DeviceSpec, Roofline, Placed] | None:
        """The device, the roofline and the place of the launch below it, by the time and the bytes that were counted.

        Without `flops` they are those of the products that the profiler counted. None if the profile has no time,
        neither bytes nor operations are known, or no peak of the device is. `gpu` None takes the device of the profile;
        a name that is not in the table raises.
        """
        name = self.device
        spec = device_spec(gpu) if gpu is not None else DeviceSpec.called(name) if name else None
        if spec is None or self.duration_s is None:
            return None
        by_dtype = {dtype or self.dtype: flops or self.flops} if flops or dtype else dict(self.products)
        roof = Roofline.of(spec, flops=by_dtype, bytes_=self.moved_bytes or 0.0)
        place = roof.placed(1e3 * self.duration_s)
        return None if place is None else (spec, roof, place)


_FIGURES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    **{one.name: one.metadata["figure"] for one in fields(KernelProfile) if one.metadata},
    "read_bytes": (_BYTES, ("dram__bytes_read.sum", "dram__bytes_op_read.sum")),
    "written_bytes": (_BYTES, ("dram__bytes_write.sum", "dram__bytes_op_write.sum")),
}
"""Each figure with its units and names, and the two that the bytes of device memory are added up of."""


def figures_of(launch: ProfiledLaunch) -> KernelProfile:
    """The figures of a launch."""
    metrics = launch.metrics
    figures = {name: _first(metrics, *row) for name, row in _FIGURES.items()}
    parts = [figures.pop(name) for name in ("read_bytes", "written_bytes")]
    if figures["dram_bytes"] is None and None not in parts:
        figures["dram_bytes"] = sum(part or 0.0 for part in parts)
    figures["blocks"] = figures["blocks"] or _product(launch.facts.get("Grid Size", ""))
    figures["threads"] = figures["threads"] or _product(launch.facts.get("Block Size", ""))
    products, peak, busiest = _products(metrics)
    conflicts, accesses = (_first(metrics, (), (name,)) for name in _SHARED_ACCESSES)
    figures["conflicts"] = 100 * conflicts / accesses if conflicts is not None and accesses else None
    figures["tensor"] = busiest if busiest is not None else figures["tensor"]
    local = [number.value for name, number in metrics.items() if _LOCAL.fullmatch(name) and number.value is not None]
    device = metrics.get(_DEVICE_NAME)
    return KernelProfile(
        kernel=launch.kernel, local=max(local, default=None), stall=_stall(metrics), products=products,
        products_peak=peak, device=device.text if device is not None else "", capability=launch.facts.get("CC", ""),
        count=launch.count, source=launch.source, **figures,
    )  # fmt: skip


def _first(metrics: Mapping[str, Quantity], units: Sequence[str], names: Sequence[str]) -> float | None:
    """The value of the first name that has one in a unit that fits; a name may end with the unit that is meant."""
    numbers = (metrics[name] for name in names if name in metrics)
    return next((one.value for one in numbers if one.value is not None and (not units or one.unit in units)), None)


def _not_understood(launch: ProfiledLaunch) -> Iterator[str]:
    """Each value of a known name that is no number, or has another unit, in words."""
    for units, names in _FIGURES.values():
        for name, number in ((name, launch.metrics[name]) for name in names if name in launch.metrics):
            if number.measured and (number.value is None or (units and number.unit not in units)):
                yield f"{name} {number.text} {number.unit}".rstrip()


def _products(metrics: Mapping[str, Quantity]) -> tuple[tuple[tuple[str, float], ...], float | None, float | None]:
    """Operations by dtype, the most per second, and the share of the peak in percent, of counted products of tiles.

    A profile counts the same operations for all instructions together and for each kind of them, and with and without
    sparse operands; only the peak of what is named dense, and did the most, is the peak that holds.
    """
    declared = {dtype: metrics[name].value for name, dtype in _DECLARED.items() if name in metrics}
    if any(declared.values()):
        return tuple((dtype, count) for dtype, count in declared.items() if count), None, None
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
    product = math.prod(map(float, re.findall(r"\d+", text) or ["inf"]))
    return product if product < math.inf else None


COMPUTE, MEMORY, LATENCY, LAUNCH, UNDECIDED = (
    "compute-bound", "memory-bound", "latency-bound", "launch-bound", "undecided",
)  # fmt: skip

BUSY, NEAR_PEAK = 60.0, 80.0  # percent of a peak
_IDLE = 30.0  # percent of both peaks below which a short kernel is limited by its launch
_ALIKE = 10.0  # percent between compute and memory that count as equal
_SHORT_S = 10e-6
_DRAM, _L2, _L1 = "device memory", "L2", "L1 and shared memory"
_FEW_WARPS = 25.0  # percent of occupancy
_MOST_REGISTERS = 255
_MANY_CONFLICTS = 10.0  # percent of the accesses to shared memory
_NO_TENSOR = 5.0  # percent of the matrix units' peak


@dataclass(frozen=True)
class NextStep:
    """One thing to try next, and the figure that speaks for it."""

    what: str
    why: str


@dataclass(frozen=True)
class Judgement:
    """The limit of a kernel, with the numbers behind it in words, and what to try, the most promising first."""

    profile: KernelProfile
    verdict: str  # such as `compute-bound`
    reasons: tuple[str, ...]
    steps: tuple[NextStep, ...]


def judgement_of(profile: KernelProfile) -> Judgement:
    """The limit of a profiled kernel, and the next steps."""
    verdict, reasons = _verdict(profile)
    signs = _signs(profile)
    steps = signs if profile.local and verdict == MEMORY else [*signs, *_NEXT[verdict](profile)]
    return Judgement(profile, verdict, tuple(reasons), tuple(steps))


def _verdict(profile: KernelProfile) -> tuple[str, list[str]]:
    compute, memory, (part, share) = profile.compute, profile.memory, _busiest(profile)
    if memory is None and share >= max(BUSY, compute or 0.0):  # the memory is as busy as each of its parts, or more
        memory = share
    if compute is None or memory is None:
        names = [name for name, share in (("compute", compute), ("memory", memory)) if share is None]
        lack = f"the profile has no throughput of {' and '.join(names)}"
        return UNDECIDED, [f"{lack}: profile the section SpeedOfLight" if profile.source == NSIGHT else lack]
    shares = f"multiprocessors at {compute:.0f}% and memory at {memory:.0f}% of their peaks"
    if max(compute, memory) >= BUSY:
        near = "near the peak" if max(compute, memory) >= NEAR_PEAK else f"over {BUSY:.0f}%"
        both = abs(compute - memory) < _ALIKE and min(compute, memory) >= BUSY
        reasons = [f"{shares}: {near}" + (", and both limit it" if both else "")]
        if compute >= memory:
            return COMPUTE, reasons
        return MEMORY, reasons + ([f"the part that limits is {part}, at {share:.0f}%"] if part else [])
    reasons = [f"{shares}: both below {BUSY:.0f}%, so it waits"]
    if profile.duration_s is not None and profile.duration_s <= _SHORT_S and max(compute, memory) < _IDLE:
        return LAUNCH, [*reasons, f"it is over in {profile.duration_s * 1e6:.1f} us, about what launching takes"]
    return LATENCY, [*reasons, *_waits(profile)]


def _busiest(profile: KernelProfile) -> tuple[str, float]:
    """The part of the memory that limits, and its share; no name and 0 if no part was measured.

    What streams through device memory keeps L2 as busy, and is not limited by it.
    """
    parts = {_DRAM: profile.dram, _L2: profile.l2, _L1: profile.l1}
    shares = {name: share for name, share in parts.items() if share is not None}
    name = _DRAM if shares.get(_DRAM, 0.0) >= BUSY else max(shares, key=lambda part: shares[part], default="")
    return name, shares.get(name, 0.0)


def _waits(profile: KernelProfile) -> list[str]:
    reasons = []
    if profile.no_eligible is not None:
        reasons.append(f"schedulers have no warp to issue in {profile.no_eligible:.0f}% of the cycles")
    if profile.occupancy is not None:
        reasons.append(f"achieved occupancy {profile.occupancy:.0f}%")
    if profile.waves is not None and profile.waves < 1:
        reasons.append(f"its blocks fill {profile.waves:.0%} of the device")
    if profile.stall is not None:
        name, cycles = profile.stall
        reasons.append(f"warps wait longest for: {name} ({cycles:.1f} cycles of each instruction)")
    return reasons


def _signs(profile: KernelProfile) -> list[NextStep]:
    """Steps that hold whatever the verdict; spilled registers load the memory, if it is loaded."""
    steps = []
    if profile.local:
        full = profile.registers is not None and profile.registers >= _MOST_REGISTERS
        low = profile.occupancy is not None and profile.occupancy < _FEW_WARPS
        also = f", with {profile.registers:.0f} registers per thread" if full and profile.registers else ""
        also += f" and occupancy of {profile.occupancy:.0f}%" if low else ""
        what = "look for spilled registers: triton-ops explain spills TARGET --config …"
        steps.append(NextStep(what, f"it uses local memory{also}"))
    if profile.conflicts is not None and profile.conflicts >= _MANY_CONFLICTS:
        what = "another tile or layout, so that lanes of a warp read different banks of shared memory"
        steps.append(NextStep(what, f"{profile.conflicts:.0f}% of the accesses to shared memory wait for a bank"))
    return steps


def _compute_steps(profile: KernelProfile) -> list[NextStep]:
    if profile.tensor is not None and profile.tensor < _NO_TENSOR:
        return [
            NextStep("let matrix units do the products: tl.dot on bf16, fp16 or fp8 tiles of 16 and more",
                 f"matrix units run at {profile.tensor:.0f}%"),
            NextStep("do less arithmetic for each element", "single-element operations fill the multiprocessors"),
        ]  # fmt: skip
    fewer = "try fewer bits: fp8 in place of bf16, bf16 in place of fp32"
    steps = [NextStep(fewer, "the units are busy, not the memory")]
    if profile.compute is not None and profile.compute < NEAR_PEAK:
        why = f"{profile.compute:.0f}% leave room below the peak"
        steps.insert(0, NextStep("tune tiles, warps and stages: triton-ops tune", why))
    return steps


def _memory_steps(profile: KernelProfile) -> list[NextStep]:
    level, share = _busiest(profile)
    if level == _L1:
        return [
            NextStep("load wider and in order: 16 bytes per thread, neighbouring threads at neighbouring addresses",
                 f"L1 and shared memory run at {share:.0f}%"),
            NextStep("give every thread more of a tile, so that operands are read less often",
                 "operands pass through L1"),
        ]  # fmt: skip
    if level == _L2:
        what = "larger tiles, or programs in groups that share operands (GROUP_M)"
        return [NextStep(what, f"L2 runs at {share:.0f}%")]
    why = f"device memory runs at {share:.0f}%" if level else "which part of the memory limits is not measured"
    steps = [NextStep("move fewer bytes: fuse with what runs before or after, or store in fewer bits", why)]
    if level and share < NEAR_PEAK:
        more = "more bytes in flight: larger blocks, or more blocks per multiprocessor"
        steps.append(NextStep(more, "it leaves room"))
    return steps


def _latency_steps(profile: KernelProfile) -> list[NextStep]:
    steps = []
    if profile.waves is not None and profile.waves < 1:
        steps.append(NextStep("more blocks: smaller tiles, or split the reduction (split-K)",
                          f"blocks fill {profile.waves:.0%} of the device"))  # fmt: skip
    limits = {"registers": profile.by_registers, "shared memory": profile.by_shared}
    blocks_by = {name: blocks for name, blocks in limits.items() if blocks is not None}
    others = [blocks for blocks in (profile.by_warps, profile.by_blocks) if blocks is not None]
    if blocks_by and others:
        name = min(blocks_by, key=lambda limit: blocks_by[limit])
        if blocks_by[name] < min(others):
            cure = "smaller tiles or more warps" if name == "registers" else "fewer stages or smaller tiles"
            steps.append(NextStep(cure, f"{name} allow {blocks_by[name]:.0f} blocks per multiprocessor"))
    if profile.stall is not None and "barrier" in profile.stall[0]:
        steps.append(NextStep("fewer warps, so that fewer wait for each other", f"warps wait for: {profile.stall[0]}"))
    steps.append(NextStep("more stages, so that loads run ahead (num_stages)", "neither units nor memory are busy"))
    return steps


def _launch_steps(profile: KernelProfile) -> list[NextStep]:
    duration = f"it is over in {1e6 * (profile.duration_s or 0.0):.1f} us"  # such a verdict is by the time
    return [
        NextStep("launch less often: fuse it with its neighbours (torch.compile, or one kernel)", duration),
        NextStep("capture the launches in a CUDA graph", duration),
    ]


def _undecided_steps(profile: KernelProfile) -> list[NextStep]:
    again, rates = "profile again: triton-ops explain profile command -- PROGRAM", "give --gpu for the device's rates"
    return [NextStep(again if profile.source == NSIGHT else rates, "what decides is not in this profile")]


_NEXT = {
    COMPUTE: _compute_steps, MEMORY: _memory_steps, LATENCY: _latency_steps, LAUNCH: _launch_steps,
    UNDECIDED: _undecided_steps,
}  # fmt: skip


_PRODUCT = re.compile(
    r"gemm|cutlass|xmma|cublas|nvjet|matmul|product|conv|attention|attn|flash|fmha|(?:^|_)(?:add|b|baddb)?mm(?:_|$)",
    re.IGNORECASE,
)
_MATRIX_UNITS = 5.0  # percent of their peak at which a kernel multiplies matrices, whatever its name
_COMPUTES = 60.0  # percent of the peak of its units: fusion saves traffic, of which such a kernel has little
_SCATTERED = re.compile(r"sort|scatter|gather|index|radix|topk|cumsum|scan|unique|histogram|embedding", re.IGNORECASE)
_FUSABLE = re.compile(
    r"elementwise|reduce_kernel|softmax|norm|triton_(poi|red|per)_|memcpy|memset|copy|fill|CatArray|dropout|activation|"
    r"silu|gelu|relu|sigmoid|tanh|(^|\W|_)(add|mul|sub|div|cast|where|clamp)(_|\W|$)",
    re.IGNORECASE,
)
_NAMED = 3  # values that are not understood and are named; the others are counted
_LEAST_SHARE = 0.005  # of the time, to be worth a word
_LAUNCH_S = 3.5e-6  # of an empty kernel between two events, as measured on an H200 (docs/concepts/model.md)


@dataclass(frozen=True)
class ProfiledKernel:
    """All launches of one kernel with one shape in a profile."""

    judgement: Judgement  # on its launch of median length
    launches: int
    share: float | None  # of the time of all kernels; None if the profile does not have its time


@dataclass(frozen=True)
class ProfileReport:
    """The kernels of a profile, and advice.

    Attributes:
        kernels: The kernels, the longest first.
        advice: What is worth doing about all of them; None if the profile has no times.
        notes: What a reader should know, such as that the file is cut.
    """

    kernels: tuple[ProfiledKernel, ...]
    advice: Advice | None
    notes: tuple[str, ...] = ()


def read_profile(path: str | Path, *, kernel: str = "", tried: Collection[str] = ()) -> ProfileReport:
    """Judge the kernels in a file of Nsight Compute, rocprof or Proton; no GPU and no profiler are needed.

    rocprof and Proton tell times, and what limits a kernel only where the program has told its work.

    Args:
        path: The file, as `ncu` printed it, with `--csv` or not, or as rocprof (CSV) or Proton (JSON) wrote it.
        kernel: A regular expression; only kernels in whose name it is found are read.
        tried: Ways that were tried already: `library`, `torch.compile`, `Triton`, `CUDA`.

    Returns:
        A verdict for each kernel and shape of launch with its figures, what to try next, and what is worth doing about
        the whole.

    Raises:
        ProfileError: The file cannot be read, is none of these, has no such kernel, or no value is understood.
    """
    table = read_launches(path)
    with ProfileError.when(f"{kernel!r} is no regular expression", "such as --kernel matmul", re.error):
        pattern = re.compile(kernel)
    notes = (*table.notes, *_misread(table.launches, str(path)))
    profiles = [figures_of(launch) for launch in table.launches if pattern.search(launch.kernel)]
    if not profiles:
        names = ", ".join(dict.fromkeys(launch.kernel for launch in table.launches))
        raise ProfileError(f"{path} has no kernel with {kernel!r} in its name", hint=f"it has {names[:300]}")
    grouped: dict[tuple[str, float | None, float | None], list[KernelProfile]] = {}
    for profile in profiles:
        grouped.setdefault((profile.kernel, profile.blocks, profile.threads), []).append(profile)
    whole_s = sum(map(_taken_s, profiles))
    kernels = sorted((_combine(group, whole_s) for group in grouped.values()), key=lambda one: -(one.share or 0.0))
    return ProfileReport(tuple(kernels), _advice(profiles, kernels, whole_s, tried), notes)


def _misread(launches: Sequence[ProfiledLaunch], name: str) -> list[str]:
    """A note that counts and names the values that are not understood; `ProfileError` if none is understood."""
    strange = Counter(value for launch in launches for value in _not_understood(launch))
    if not strange:
        return []
    more = f" and {len(strange) - _NAMED} others" if len(strange) > _NAMED else ""
    note = f"{strange.total()} values are not understood, and count as not measured: "
    note += ", ".join(list(strange)[:_NAMED]) + more
    if all(_first(launch.metrics, *row) is None for launch in launches for row in _FIGURES.values()):
        raise ProfileError(f"{name} has no figure: {note}", hint="print it again: ncu --import REPORT.ncu-rep --csv")
    return [note]


def _taken_s(profile: KernelProfile) -> float:
    return (profile.duration_s or 0.0) * profile.count


def _combine(group: Sequence[KernelProfile], whole_s: float) -> ProfiledKernel:
    """A kernel's launches as one, by the launch of median length."""
    timed = sorted((one for one in group if one.duration_s is not None), key=lambda one: one.duration_s or 0.0)
    middle = timed[len(timed) // 2] if timed else group[0]
    share = sum(map(_taken_s, timed)) / whole_s if timed and whole_s else None
    return ProfiledKernel(judgement_of(middle), sum(one.count for one in group), share)


def _advice(
    profiles: Sequence[KernelProfile], kernels: Sequence[ProfiledKernel], whole_s: float, ways: Collection[str]
) -> Advice | None:
    """Advice by the rules for models; operators are kernels here."""
    if not whole_s:
        return None
    ops = [
        (one.judgement.profile.kernel, one.share or 0.0, one.launches, _kind(one.judgement.profile)) for one in kernels
    ]
    busy = [(one.tensor, _taken_s(one)) for one in profiles if one.tensor and _kind(one) == "product"]
    busy_s = sum(seconds for _, seconds in busy)
    arch = next((one.arch for one in profiles if one.arch), "")
    launches_s = sum(one.count for one in profiles) * _LAUNCH_S
    advice = Advice.by_shares(
        ops, ways, call_ms=1e3 * max(whole_s, launches_s), idle=max(0.0, 1 - whole_s / launches_s),
        of_peak=sum(share / 100 * seconds for share, seconds in busy) / busy_s if busy_s else None, arch=arch,
    )  # fmt: skip
    return replace(advice, reasons=(*advice.reasons, *_verdicts(kernels)))


def _verdicts(kernels: Sequence[ProfiledKernel]) -> list[str]:
    shares: dict[str, float] = {}
    for one in kernels:
        shares[one.judgement.verdict] = shares.get(one.judgement.verdict, 0.0) + (one.share or 0.0)
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    sentences = [f"{share:.0%} of the time is {verdict}" for verdict, share in ordered if share >= _LEAST_SHARE]
    many = sum(one.launches for one in kernels if one.judgement.verdict == LAUNCH)
    return sentences + ([f"{many} launches are too short to fill the device"] if many else [])


def _kind(profile: KernelProfile) -> str:
    """The kind of a kernel's work: by the profiler's counters, else by its name; what computes most is not fused."""
    if profile.products or (profile.tensor or 0.0) >= _MATRIX_UNITS:
        return "product"
    kind = kernel_kind(profile.kernel)
    return "unknown" if kind == "fusable" and (profile.compute or 0.0) >= _COMPUTES else kind


def kernel_kind(name: str) -> str:
    """The kind of work that a kernel's name means, in the words of `compile_modes.call_profile`."""
    if _PRODUCT.search(name):
        return "product"
    if _SCATTERED.search(name):
        return "scattered"
    return "fusable" if _FUSABLE.search(name) else "unknown"
