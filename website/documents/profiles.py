"""What commands on profiles and assembler logs print."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from website.documents.common import Form


class ProfileRoofline(Form):
    """A profiled launch beside the device's limits."""

    flops: float
    bytes: float
    intensity: float | None
    ridge: float | None
    ms: float
    tflops: float
    gbps: float
    of_units: float | None
    of_memory: float | None
    limit: str | None
    of_limit: float | None
    of_measured: float | None


class NextStep(Form):
    """What to try next, and why."""

    what: str
    why: str


class ProfiledKernel(Form):
    """One kernel of a profile.

    Attributes:
        share: Of the time of all kernels.
        verdict: `compute-bound`, `memory-bound`, `latency-bound` or `undecided`.
        figures: What the profiler counted; null where it did not.
        roofline: Null where the work or the device is not known.
    """

    kernel: str
    launches: int
    share: float
    verdict: str
    reasons: list[str]
    next: list[NextStep]
    figures: dict[str, Any]
    roofline: ProfileRoofline | None


class ProfileAdvice(Form):
    """The way that is worth trying, such as `library` or `skip`, and why."""

    way: str
    reasons: list[str]


class Profile(Form):
    """What limits the kernels of a profile."""

    kernels: list[ProfiledKernel]
    advice: ProfileAdvice
    notes: list[str]


class FlowStep(Form):
    """A step of `--dry-run`."""

    name: str
    what: str
    command: list[str]


class FlowTime(Form):
    """A time as do_bench takes it."""

    median_ms: float
    p20_ms: float
    p80_ms: float
    mode: str
    confidence: str
    notes: list[str]


class FlowPart(Form):
    """A kernel or operator behind the time."""

    name: str
    share: float
    calls: float
    mean_ms: float


class Flow(Form):
    """A time, the kernels behind it, and what limits them; or, with `--dry-run`, the steps alone.

    Attributes:
        idle: The share of a call in which the GPU waits for the host; null on a CPU.
        counters: What `explain profile` prints, or null.
        missing: Why there are no counters, or null.
    """

    steps: list[FlowStep] | UnsetType = UNSET
    time: FlowTime | UnsetType = UNSET
    parts: list[FlowPart] | UnsetType = UNSET
    idle: float | UnsetType | None = UNSET
    counters: Profile | UnsetType | None = UNSET
    missing: str | UnsetType | None = UNSET


class AssembledKernel(Form):
    """What NVIDIA's assembler said of a kernel; null where it did not say it.

    Attributes:
        stack_bytes, store_bytes, load_bytes: The frame, and spilled bytes stored and loaded, of a thread.
        refused: The assembler's first reason; empty if it took the kernel.
        verdict: `spills`, `frame`, `refused`, `fits` or `unknown`.
        next: What to try.
    """

    kernel: str
    arch: str
    registers: int | None
    stack_bytes: int | None
    store_bytes: int | None
    load_bytes: int | None
    shared_bytes: int | None
    serialised: bool
    refused: str
    verdict: str
    next: str


class ProfileCommand(Form):
    """The words of the command that makes a profile."""

    command: list[str]


class ProfileCall(Form):
    """What was called, and how often."""

    target: str
    calls: int


DOCUMENTS: dict[str, Any] = {
    "explain profile": Profile,
    "explain profile flow": Flow,
    "explain profile ptxas": list[AssembledKernel],
    "explain profile command": ProfileCommand,
    "explain profile call": ProfileCall,
}
