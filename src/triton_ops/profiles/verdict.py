"""What limits a profiled kernel: its units, the memory, latency, or its launch; with the numbers, and what to try next.

The rules are those of Nsight Compute's own guide: a part that runs at 60 % of its peak limits the kernel, and at 80 %
it is near what can be had; if neither multiprocessors nor memory reach 60 %, the kernel waits. A kernel that waits with
both below 30 %, and is over in microseconds, is limited by its launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.profiles.figures import KernelProfile

COMPUTE, MEMORY, LATENCY, LAUNCH, UNDECIDED = (
    "compute-bound", "memory-bound", "latency-bound", "launch-bound", "undecided",
)  # fmt: skip
VERDICTS = (COMPUTE, MEMORY, LATENCY, LAUNCH, UNDECIDED)

BUSY, NEAR_PEAK = 60.0, 80.0  # percent of a peak
_IDLE = 30.0  # percent of both peaks below which a short kernel is limited by its launch
_ALIKE = 10.0  # percent between compute and memory that count as equal
_SHORT_S = 10e-6
_FEW_WARPS = 25.0  # percent of occupancy
_MOST_REGISTERS = 255
_MANY_CONFLICTS = 10.0  # percent of the accesses to shared memory
_NO_TENSOR = 5.0  # percent of the matrix units' peak


@dataclass(frozen=True)
class Step:
    """One thing to try next.

    Attributes:
        what: What to do.
        why: The figure that speaks for it.
    """

    what: str
    why: str


@dataclass(frozen=True)
class Judgement:
    """What limits a kernel.

    Attributes:
        profile: The figures.
        verdict: One of `VERDICTS`.
        reasons: The numbers behind it, in words.
        steps: What to try next, the most promising first.
    """

    profile: KernelProfile
    verdict: str
    reasons: tuple[str, ...]
    steps: tuple[Step, ...]


def judged(profile: KernelProfile) -> Judgement:
    """What limits a profiled kernel, and what to try next."""
    verdict, reasons = _verdict(profile)
    signs = _signs(profile)
    steps = signs if profile.local and verdict == MEMORY else [*signs, *_NEXT[verdict](profile)]
    return Judgement(profile, verdict, tuple(reasons), tuple(steps))


def _verdict(seen: KernelProfile) -> tuple[str, list[str]]:
    compute, memory = seen.compute, seen.memory
    if compute is None or memory is None:
        named = [name for name, share in (("compute", compute), ("memory", memory)) if share is None]
        return UNDECIDED, [f"the profile has no throughput of {' and '.join(named)}: profile the section SpeedOfLight"]
    shares = f"multiprocessors at {compute:.0f}% and memory at {memory:.0f}% of their peaks"
    if max(compute, memory) >= BUSY:
        near = "near the peak" if max(compute, memory) >= NEAR_PEAK else f"over {BUSY:.0f}%"
        both = abs(compute - memory) < _ALIKE and min(compute, memory) >= BUSY
        said = [f"{shares}: {near}" + (", and both limit it" if both else "")]
        return (COMPUTE, said) if compute >= memory else (MEMORY, [*said, *_level(seen)])
    said = [f"{shares}: both below {BUSY:.0f}%, so it waits"]
    if (short := _short(seen)) and max(compute, memory) < _IDLE:
        return LAUNCH, [*said, short]
    return LATENCY, [*said, *_waits(seen)]


def _short(seen: KernelProfile) -> str:
    """Why a kernel that waits is limited by its launch; empty if it is not."""
    if seen.duration_s is not None and seen.duration_s <= _SHORT_S:
        return f"it is over in {seen.duration_s * 1e6:.1f} us, about what launching takes"
    return ""


def _level(seen: KernelProfile) -> list[str]:
    """Which part of the memory system is the busiest."""
    parts = {"device memory": seen.dram, "L2": seen.l2, "L1 and shared memory": seen.l1}
    known = {name: share for name, share in parts.items() if share is not None}
    if not known:
        return []
    name = max(known, key=lambda part: known[part])
    if (seen.dram or 0.0) >= BUSY:  # what streams through device memory keeps L2 as busy, and is not limited by it
        name = "device memory"
    return [f"the part that limits is {name}, at {known[name]:.0f}%"]


def _waits(seen: KernelProfile) -> list[str]:
    """What is known of why it waits."""
    said = []
    if seen.no_eligible is not None:
        said.append(f"schedulers have no warp to issue in {seen.no_eligible:.0f}% of the cycles")
    if seen.occupancy is not None:
        said.append(f"achieved occupancy {seen.occupancy:.0f}%")
    if seen.waves is not None and seen.waves < 1:
        said.append(f"its blocks fill {seen.waves:.0%} of the device")
    if seen.stall is not None:
        said.append(f"warps wait longest for: {seen.stall[0]} ({seen.stall[1]:.1f} cycles of each instruction)")
    return said


def _signs(seen: KernelProfile) -> list[Step]:
    """What stands out whatever the verdict; spilled registers are what loads the memory, if it is loaded."""
    steps = []
    if seen.local:
        full = seen.registers is not None and seen.registers >= _MOST_REGISTERS
        low = seen.occupancy is not None and seen.occupancy < _FEW_WARPS
        also = f", with {seen.registers:.0f} registers per thread" if full and seen.registers else ""
        also += f" and occupancy of {seen.occupancy:.0f}%" if low else ""
        what = "look for spilled registers: triton-ops spills TARGET --config …"
        steps.append(Step(what, f"it uses local memory{also}"))
    if seen.conflicts is not None and seen.conflicts >= _MANY_CONFLICTS:
        what = "another tile or layout, so that lanes of a warp read different banks of shared memory"
        steps.append(Step(what, f"{seen.conflicts:.0f}% of the accesses to shared memory wait for a bank"))
    return steps


def _compute_steps(seen: KernelProfile) -> list[Step]:
    if seen.tensor is not None and seen.tensor < _NO_TENSOR:
        return [
            Step("let matrix units do the products: tl.dot on bf16, fp16 or fp8 tiles of 16 and more",
                 f"matrix units run at {seen.tensor:.0f}%"),
            Step("do less arithmetic for each element", "single-element operations fill the multiprocessors"),
        ]  # fmt: skip
    steps = [Step("try fewer bits: fp8 in place of bf16, bf16 in place of fp32", "the units are busy, not the memory")]
    if seen.compute is not None and seen.compute < NEAR_PEAK:
        why = f"{seen.compute:.0f}% leave room below the peak"
        steps.insert(0, Step("tune tiles, warps and stages: triton-ops tune", why))
    return steps


def _memory_steps(seen: KernelProfile) -> list[Step]:
    parts = {"dram": seen.dram or 0.0, "l2": seen.l2 or 0.0, "l1": seen.l1 or 0.0}
    level = "dram" if parts["dram"] >= BUSY else max(parts, key=lambda part: parts[part])
    if level == "l1" and parts[level]:
        return [
            Step("load wider and in order: 16 bytes per thread, neighbouring threads at neighbouring addresses",
                 f"L1 and shared memory run at {parts[level]:.0f}%"),
            Step("give every thread more of a tile, so that operands are read less often", "operands pass through L1"),
        ]  # fmt: skip
    if level == "l2" and parts[level]:
        what = "larger tiles, or programs in groups that share operands (GROUP_M)"
        return [Step(what, f"L2 runs at {parts[level]:.0f}%")]
    steps = [Step("move fewer bytes: fuse with what runs before or after, or store in fewer bits",
                  f"device memory runs at {parts['dram']:.0f}%")]  # fmt: skip
    if parts["dram"] < NEAR_PEAK:
        steps.append(Step("more bytes in flight: larger blocks, or more blocks per multiprocessor", "it leaves room"))
    return steps


def _latency_steps(seen: KernelProfile) -> list[Step]:
    steps = []
    if seen.waves is not None and seen.waves < 1:
        steps.append(Step("more blocks: smaller tiles, or split the reduction (split-K)",
                          f"blocks fill {seen.waves:.0%} of the device"))  # fmt: skip
    limits = {"registers": seen.by_registers, "shared memory": seen.by_shared}
    known = {name: blocks for name, blocks in limits.items() if blocks is not None}
    others = [blocks for blocks in (seen.by_warps, seen.by_blocks) if blocks is not None]
    if known and others:
        name = min(known, key=lambda limit: known[limit])
        if known[name] < min(others):
            cure = "smaller tiles or more warps" if name == "registers" else "fewer stages or smaller tiles"
            steps.append(Step(cure, f"{name} allow {known[name]:.0f} blocks per multiprocessor"))
    if seen.stall is not None and "barrier" in seen.stall[0]:
        steps.append(Step("fewer warps, so that fewer wait for each other", f"warps wait for: {seen.stall[0]}"))
    steps.append(Step("more stages, so that loads run ahead (num_stages)", "neither units nor memory are busy"))
    return steps


def _launch_steps(seen: KernelProfile) -> list[Step]:
    took = f"it is over in {(seen.duration_s or 0.0) * 1e6:.1f} us"
    return [
        Step("launch less often: fuse it with its neighbours (torch.compile, or one kernel)", took),
        Step("capture the launches in a CUDA graph", took),
    ]


def _undecided_steps(_: KernelProfile) -> list[Step]:
    return [Step("profile again: triton-ops profile command -- PROGRAM", "what decides is not in this profile")]


_NEXT = {
    COMPUTE: _compute_steps, MEMORY: _memory_steps, LATENCY: _latency_steps, LAUNCH: _launch_steps,
    UNDECIDED: _undecided_steps,
}  # fmt: skip
