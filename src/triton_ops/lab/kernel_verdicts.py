"""Verdicts on the kernels of a profile of Nsight Compute or of a log of ptxas.

The rules are those of Nsight Compute's own guide: a part that runs at 60 % of its peak limits the kernel, and at 80 %
it is near what can be had; if neither multiprocessors nor memory reach 60 %, the kernel waits. A kernel that waits with
both below 30 %, and is over in microseconds, is limited by its launch.

Text of `ptxas -v`, by itself or among other lines: `TRITON_DUMP_PTXAS_LOG=1` has Triton print it, `-Xptxas -v`
nvcc. Its form is that of CUDA 11 to 13.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from triton_ops.base import StoredFile
from triton_ops.compile_modes import Advice
from triton_ops.exceptions import ProfileError
from triton_ops.lab.profile_reading import KernelProfile, figures_of, read_ncu
from triton_ops.values import Resources

SPILLS, FRAME, REFUSED, FITS = "spills", "frame", "refused", "fits"
"""The verdicts on a kernel."""
_LARGEST_BYTES = 1 << 28
_PTXAS_LOG_MOST_REGISTERS = 255
_ENTRY = re.compile(r"Compiling entry function '([^']+)'(?: for '([^']+)')?")
_OF = re.compile(r"Function properties for '?([^'\s]+)'?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_REFUSED = re.compile(r"ptxas\s+(?:error|fatal)\s*:\s*(.+)")
_SERIALISED = re.compile(r"wgmma\.mma_async instructions are serialized.*'([^']+)'")
_NAMED = re.compile(r"(?:[Ff]unction|in) '([^']+)'|in function ([\w$]+)")
_ABORTED = "aborted due to errors"
_FOR = re.compile(r"--gpu-name[= ](\w+)")
_HINT = "give what ptxas -v printed: run with TRITON_DUMP_PTXAS_LOG=1 and TRITON_ALWAYS_COMPILE=1, or nvcc -Xptxas -v"


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """The assembler's figures of one kernel; sizes are in bytes of a thread, each spill instruction run once."""

    kernel: str
    arch: str = ""  # empty if that was not said
    registers: int | None = None  # None if that was not said, as of a kernel that was refused
    stack_bytes: int = 0  # the frame in local memory
    store_bytes: int = 0
    load_bytes: int = 0
    shared_bytes: int = 0  # static, of a block; Triton's is dynamic, and not told here
    serialised: bool = False  # products of warp groups wait for each other
    refused: str = ""  # the assembler's error; empty if there is none

    @property
    def verdict(self) -> str:
        """`refused`, `spills`, `frame` (local memory without spilled registers), or `fits`."""
        if self.refused:
            return REFUSED
        if self.stack_bytes <= Resources.WASTEFUL_SPILL_BYTES:
            return FITS
        return SPILLS if self.store_bytes + self.load_bytes else FRAME

    @property
    def next(self) -> str:
        """The next step; empty if there is none."""
        if self.verdict == REFUSED and "register" in self.refused:
            return "a smaller tile, or fewer warps: each thread of many warps has few registers"
        if self.verdict == REFUSED:
            return "a smaller tile, or fewer stages: what does not fit does not run"
        if self.verdict == SPILLS:
            full = ", all that there are" if self.registers == _PTXAS_LOG_MOST_REGISTERS else ""
            return f"{self.registers} registers{full}: triton-ops explain spills TARGET tries tiles, warps and stages"
        if self.verdict == FRAME:
            return "a local array with an index that is known at run time alone lies there; nothing is spilled"
        if self.serialised:
            return "fewer registers: a smaller tile or more warps, so that products run beside each other"
        return ""


def read_ptxas(path: str | Path) -> tuple[Assembled, ...]:
    """The kernels in a file with the assembler's words, in their order, each with its result for every config."""
    try:
        text = StoredFile(path).read(_LARGEST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}", hint="name another file") from error
    kernels = parse_ptxas(text)
    if not kernels:
        raise ProfileError(f"{path} says nothing of a kernel that ptxas has assembled", hint=_HINT)
    return kernels


def parse_ptxas(text: str) -> tuple[Assembled, ...]:
    """As `read_ptxas`, of a text."""
    kernels: list[Assembled] = []
    early: set[str] = set()  # kernels that are spoken of before their own lines
    of = ""
    for line in text.splitlines():
        if (match := _SERIALISED.search(line)) is not None:
            early.add(match[1])
        elif (match := _ENTRY.search(line)) is not None:
            of = match[1]
            kernels.append(Assembled(kernel=of, arch=match[2] or "", serialised=of in early))
            early.discard(of)
        elif (match := _REFUSED.search(line)) is not None:
            _refuse(kernels, match[1].strip())
        elif (match := _OF.search(line)) is not None:
            of = match[1]
        elif kernels and kernels[-1].refused:
            target = _FOR.search(line)  # in Triton's line with the command
            kernels[-1] = replace(kernels[-1], arch=target[1]) if target else kernels[-1]
        elif kernels and of == kernels[-1].kernel:
            kernels[-1] = _with(kernels[-1], line)
    return tuple(dict.fromkeys(kernels))


def _refuse(kernels: list[Assembled], reason: str) -> None:
    """Add an error to the kernel under way, or as a kernel of its own, whose lines it came before."""
    last = kernels[-1] if kernels else Assembled(kernel="")
    if _ABORTED in reason and last.refused:
        return  # what was wrong has been said
    match = _NAMED.search(reason)
    name = (match[1] or match[2]) if match else last.kernel
    under_way = name == last.kernel and last.registers is None and not last.refused
    if under_way and kernels:
        kernels[-1] = replace(last, refused=reason)
    elif name:
        kernels.append(Assembled(kernel=name, arch=last.arch, refused=reason))


def _with(one: Assembled, line: str) -> Assembled:
    if (frame := _FRAME.search(line)) is not None:
        stack, stores, loads = map(int, frame.groups())
        one = replace(one, stack_bytes=stack, store_bytes=stores, load_bytes=loads)
    if (usage := _USED.search(line)) is not None:
        shared = _SHARED.search(line)
        one = replace(one, registers=int(usage[1]), shared_bytes=int(shared[1]) if shared else 0)
    return one


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
class NextStep:
    """One thing to try next, and the figure that speaks for it."""

    what: str
    why: str


@dataclass(frozen=True)
class Judgement:
    """The limit of a kernel, with the numbers behind it in words, and what to try, the most promising first."""

    profile: KernelProfile
    verdict: str  # one of `VERDICTS`
    reasons: tuple[str, ...]
    steps: tuple[NextStep, ...]


def judgement_of(profile: KernelProfile) -> Judgement:
    """The limit of a profiled kernel, and the next steps."""
    verdict, reasons = _verdict(profile)
    signs = _signs(profile)
    steps = signs if profile.local and verdict == MEMORY else [*signs, *_NEXT[verdict](profile)]
    return Judgement(profile, verdict, tuple(reasons), tuple(steps))


def _verdict(profile: KernelProfile) -> tuple[str, list[str]]:
    compute, memory = profile.compute, profile.memory
    if compute is None or memory is None:
        names = [name for name, share in (("compute", compute), ("memory", memory)) if share is None]
        return UNDECIDED, [f"the profile has no throughput of {' and '.join(names)}: profile the section SpeedOfLight"]
    shares = f"multiprocessors at {compute:.0f}% and memory at {memory:.0f}% of their peaks"
    if max(compute, memory) >= BUSY:
        near = "near the peak" if max(compute, memory) >= NEAR_PEAK else f"over {BUSY:.0f}%"
        both = abs(compute - memory) < _ALIKE and min(compute, memory) >= BUSY
        reasons = [f"{shares}: {near}" + (", and both limit it" if both else "")]
        return (COMPUTE, reasons) if compute >= memory else (MEMORY, [*reasons, *_level(profile)])
    reasons = [f"{shares}: both below {BUSY:.0f}%, so it waits"]
    if profile.duration_s is not None and profile.duration_s <= _SHORT_S and max(compute, memory) < _IDLE:
        return LAUNCH, [*reasons, f"it is over in {profile.duration_s * 1e6:.1f} us, about what launching takes"]
    return LATENCY, [*reasons, *_waits(profile)]


def _level(profile: KernelProfile) -> list[str]:
    parts = {"device memory": profile.dram, "L2": profile.l2, "L1 and shared memory": profile.l1}
    shares = {name: share for name, share in parts.items() if share is not None}
    if not shares:
        return []
    name = max(shares, key=lambda part: shares[part])
    if (profile.dram or 0.0) >= BUSY:  # what streams through device memory keeps L2 as busy, and is not limited by it
        name = "device memory"
    return [f"the part that limits is {name}, at {shares[name]:.0f}%"]


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
    steps = [
        NextStep("try fewer bits: fp8 in place of bf16, bf16 in place of fp32", "the units are busy, not the memory")
    ]
    if profile.compute is not None and profile.compute < NEAR_PEAK:
        why = f"{profile.compute:.0f}% leave room below the peak"
        steps.insert(0, NextStep("tune tiles, warps and stages: triton-ops tune", why))
    return steps


def _memory_steps(profile: KernelProfile) -> list[NextStep]:
    parts = {"dram": profile.dram or 0.0, "l2": profile.l2 or 0.0, "l1": profile.l1 or 0.0}
    level = "dram" if parts["dram"] >= BUSY else max(parts, key=lambda part: parts[part])
    if level == "l1" and parts[level]:
        return [
            NextStep("load wider and in order: 16 bytes per thread, neighbouring threads at neighbouring addresses",
                 f"L1 and shared memory run at {parts[level]:.0f}%"),
            NextStep("give every thread more of a tile, so that operands are read less often",
                 "operands pass through L1"),
        ]  # fmt: skip
    if level == "l2" and parts[level]:
        what = "larger tiles, or programs in groups that share operands (GROUP_M)"
        return [NextStep(what, f"L2 runs at {parts[level]:.0f}%")]
    steps = [NextStep("move fewer bytes: fuse with what runs before or after, or store in fewer bits",
                  f"device memory runs at {parts['dram']:.0f}%")]  # fmt: skip
    if parts["dram"] < NEAR_PEAK:
        steps.append(
            NextStep("more bytes in flight: larger blocks, or more blocks per multiprocessor", "it leaves room")
        )
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
    duration = f"it is over in {(profile.duration_s or 0.0) * 1e6:.1f} us"
    return [
        NextStep("launch less often: fuse it with its neighbours (torch.compile, or one kernel)", duration),
        NextStep("capture the launches in a CUDA graph", duration),
    ]


def _undecided_steps(_: KernelProfile) -> list[NextStep]:
    return [
        NextStep("profile again: triton-ops explain profile command -- PROGRAM", "what decides is not in this profile")
    ]


_NEXT = {
    COMPUTE: _compute_steps, MEMORY: _memory_steps, LATENCY: _latency_steps, LAUNCH: _launch_steps,
    UNDECIDED: _undecided_steps,
}  # fmt: skip


_PRODUCT = re.compile(
    r"gemm|cutlass|xmma|cublas|nvjet|matmul|product|conv|attention|attn|flash|fmha|(?:^|_)(?:add|b|baddb)?mm(?:_|$)",
    re.IGNORECASE,
)
_MATRIX_UNITS = 5.0  # percent of their peak at which a kernel multiplies matrices, whatever its name
_SCATTERED = re.compile(r"sort|scatter|gather|index|radix|topk|cumsum|scan|unique|histogram|embedding", re.IGNORECASE)
_LEAST_SHARE = 0.005  # of the time, to be worth a word
_LAUNCH_S = 3.5e-6  # of an empty kernel between two events, as measured on an H200 (docs/concepts/model.md)


@dataclass(frozen=True)
class ProfiledKernel:
    """All launches of one kernel in a profile."""

    judgement: Judgement  # on its launch of median length
    launches: int
    share: float | None  # of the time of all kernels; None if the profile has no times


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
    """Judge the kernels in a CSV file of Nsight Compute; no GPU and no profiler are needed.

    Args:
        path: The file, as `ncu --csv` printed it.
        kernel: A regular expression; only kernels in whose name it is found are read.
        tried: Ways that were tried already: `library`, `torch.compile`, `Triton`, `CUDA`.

    Returns:
        A verdict for each kernel with its figures, what to try next, and what is worth doing about the whole.

    Raises:
        ProfileError: The file cannot be read, is none of Nsight Compute's, or has no such kernel.
    """
    table = read_ncu(path)
    try:
        pattern = re.compile(kernel)
    except re.error as error:
        raise ProfileError(f"{kernel!r} is no regular expression: {error}", hint="such as --kernel matmul") from error
    profiles = [figures_of(launch) for launch in table.launches if pattern.search(launch.kernel)]
    if not profiles:
        names = ", ".join(dict.fromkeys(launch.kernel for launch in table.launches))
        raise ProfileError(f"{path} has no kernel with {kernel!r} in its name", hint=f"it has {names[:300]}")
    grouped: dict[str, list[KernelProfile]] = {}
    for profile in profiles:
        grouped.setdefault(profile.kernel, []).append(profile)
    whole_s = sum(profile.duration_s or 0.0 for profile in profiles)
    kernels = sorted((_combine(group, whole_s) for group in grouped.values()), key=lambda one: -(one.share or 0.0))
    return ProfileReport(tuple(kernels), _advice(profiles, kernels, whole_s, tried), table.notes)


def _combine(group: Sequence[KernelProfile], whole_s: float) -> ProfiledKernel:
    """A kernel's launches as one, by the launch of median length."""
    timed = sorted((one for one in group if one.duration_s is not None), key=lambda one: one.duration_s or 0.0)
    middle = timed[len(timed) // 2] if timed else group[0]
    share = sum(one.duration_s or 0.0 for one in timed) / whole_s if whole_s else None
    return ProfiledKernel(judgement_of(middle), len(group), share)


def _advice(
    profiles: Sequence[KernelProfile], kernels: Sequence[ProfiledKernel], whole_s: float, ways: Collection[str]
) -> Advice | None:
    """Advice by the rules for models; operators are kernels here."""
    if not whole_s:
        return None
    ops = [
        (one.judgement.profile.kernel, one.share or 0.0, one.launches, _kind(one.judgement.profile)) for one in kernels
    ]
    busy = [(one.tensor or 0.0, one.duration_s or 0.0) for one in profiles if one.tensor and _kind(one) == "product"]
    busy_s = sum(seconds for _, seconds in busy)
    arch = next((one.arch for one in profiles if one.arch), "")
    launches_s = len(profiles) * _LAUNCH_S
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
    """The kind of a kernel's work: by the profiler's counters, else by its name."""
    multiplies = profile.products or (profile.tensor or 0.0) >= _MATRIX_UNITS
    return "product" if multiplies else kernel_kind(profile.kernel)


def kernel_kind(name: str) -> str:
    """The kind of work that a kernel's name means, in the words of `compile_modes.call_profile`."""
    if _PRODUCT.search(name):
        return "product"
    return "scattered" if _SCATTERED.search(name) else "fusable"
