"""What commands that tune and compare print."""

from __future__ import annotations

from typing import Any

from website.documents.common import Config, Form, Guard, Resources


class Metrics(Form):
    """The winner's speed.

    Attributes:
        latency_ms: Median milliseconds of a launch.
        p20_ms, p80_ms: The middle three fifths of the samples lie between them; null where that is not known.
        throughput_tflops, bandwidth_gbps: 0 where the work of the problem is not known.
        bandwidth_utilization: The share of the device's peak; 0 where that is not known.
    """

    latency_ms: float
    throughput_tflops: float
    bandwidth_gbps: float
    bandwidth_utilization: float
    p20_ms: float | None
    p80_ms: float | None


class FailedConfig(Form):
    """A config that did not run, or whose result was wrong.

    Attributes:
        status: How it ended, such as `compile` or `wrong`.
        error: The reason.
    """

    config: Config
    status: str
    error: str


class Result(Form):
    """What a tune found.

    Attributes:
        from_cache: Whether the winner was known and nothing was measured; there are then no trials.
        default, default_ms: The default config and its time; null if it was not measured.
        gain: The default's time over the winner's; null if the default was not measured.
        ties: Configs that could not be told from the fastest, the winner included.
        noise: The relative difference below which two configs count as equal.
        gain_interval: The 95 % interval of `gain`; null if the default was not measured beside the winner.
        within_1pct: The chance that nothing of the space is faster by more than 1 %; null where it is unknown.
        confidence: `ok`, or why the comparison should not be relied on.
        unproven: Why the winner is unproven; empty for a proven one.
        stopped: `complete`, `settled`, `trials`, `seconds`, `interrupted` or `cached`.
        place: Where the candidates ran: in a process of their own, or inline and why.
        verified: What every result was compared with.
        notes: What else to know of how it was done.
        waited_s: Seconds in which nothing could be measured because nothing was compiled yet.
        mode: The clock and the state of the cache, such as `event-cold`; empty if nothing was measured.
        run: The id of the run log.
        ordered_by: What ordered the configs before they were measured.
        bits: The class of the winner's bits; empty where it cannot be told.
        totals: How many trials ended in each status.
        failures: The failed configs.
    """

    best_config: Config
    metrics: Metrics
    problem: str
    device: str
    from_cache: bool
    default: Config | None
    default_ms: float | None
    gain: float | None
    ties: list[Config]
    noise: float
    gain_interval: list[float] | None
    within_1pct: float | None
    confidence: str
    unproven: str
    guard: Guard
    stopped: str
    elapsed_s: float
    place: str
    verified: str
    notes: list[str]
    waited_s: float
    mode: str
    run: str
    ordered_by: list[str]
    bits: str
    totals: dict[str, int]
    failures: list[FailedConfig]


class Trial(Form):
    """One config that was tried.

    Attributes:
        status: `ok`, or how it failed.
        error, trace: Why it failed, and where that was raised.
        median_ms, spread: Its time, and the width of the middle three fifths of the samples relative to it.
        final: Whether it was in the last comparison, whose times count then.
        compile_s: Seconds that compiling took; null if nothing was compiled.
        resources: What the compiler made of it; null for a function.
        same_code_as: A config with the same machine code, whose measurement it is.
        excess: Of a wrong result its error over what is allowed; null where no tolerance measures it.
    """

    config: Config
    status: str
    error: str
    trace: str
    median_ms: float | None
    spread: float | None
    final: bool
    compile_s: float | None
    resources: Resources | None
    same_code_as: Config | None
    excess: float | None


class Tune(Result):
    """What `triton-ops tune` found for one problem.

    Attributes:
        trials: Every trial in the order tried.
    """

    trials: list[Trial]


class ListedProblem(Form):
    """One problem of a list.

    Attributes:
        status: `tuned`, `known`, `failed`, `interrupted` or `not begun`.
        reason: Why it has no result.
        began_s, ended_s: Seconds since the run began; null if it did not begin.
        result: What was found, or null.
    """

    label: str
    status: str
    reason: str
    device: str
    began_s: float | None
    ended_s: float | None
    result: Result | None


class TuneList(Form):
    """What `triton-ops tune` found for a list of problems.

    Attributes:
        stopped: `complete`, `seconds`, `interrupted` or `no device`.
        totals: How many problems ended in each status.
    """

    stopped: str
    elapsed_s: float
    totals: dict[str, int]
    problems: list[ListedProblem]


class Contestant(Form):
    """One side of a comparison.

    Attributes:
        label: The config's values alone.
        origin: Which config that is, such as `default config`.
        median_ms, p20_ms, p80_ms, spread: Its times; null where a result was wrong before anything was timed.
    """

    target: str
    config: Config
    label: str
    origin: str
    median_ms: float | None
    p20_ms: float | None
    p80_ms: float | None
    spread: float | None
    samples: int


class Bench(Form):
    """Which of two contestants is faster.

    Attributes:
        verdict: `faster`, `slower` or `not distinguishable`, of A relative to B; `wrong` where a result is.
        percent: How much longer the slower one takes; positive if A is faster, negative if it is slower.
        interval: The 95 % interval of `percent`.
        needed: A difference up to this many percent counts as none.
        noise: How many percent A differed from itself at most.
        confidence: `ok`, or why the verdict should not be relied on.
        rounds, mode: In how many rounds both were measured, and with which clock and state of the cache.
        wrong: For each contestant with a wrong result how it is wrong.
        disputed: Whether `wrong` names both since they differ, and no reference says which is wrong.
        verified: What results were compared with; begins with `nothing` where they were not.
    """

    verdict: str
    percent: float | None
    interval: list[float | None] | None
    needed: float | None
    noise: float | None
    confidence: str
    rounds: int
    mode: str
    problem: str
    device: str
    a: Contestant
    b: Contestant
    guard: Guard | None
    notes: list[str]
    wrong: dict[str, str]
    disputed: bool
    verified: str


class CheckedShape(Form):
    """The times of a candidate and its reference at one shape.

    Attributes:
        verdict: `faster`, `slower`, `same` or `undecided`.
        speedup, interval: The reference's time over the candidate's, and its 95 % interval.
        needed: The share up to which a difference counts as none.
        reference_ms, candidate_ms: Median milliseconds of a call.
        calls, rounds: How many calls were timed together, and in how many rounds.
    """

    shape: str
    verdict: str
    speedup: float
    interval: list[float]
    needed: float
    reference_ms: float
    candidate_ms: float
    calls: int
    rounds: int


class FaultyElement(Form):
    """The first element that is off.

    Attributes:
        allowed: What may lie between the value and the right one.
    """

    index: list[int]
    value: float | None
    right: float | None
    allowed: float | None


class Fault(Form):
    """How a candidate is wrong, at the smallest shape that was found.

    Attributes:
        kind: `result`, `changes` or `aliases`; where there is no result `raised`, `hung`, `ended`, `memory`, `type` or
            `start`.
        text: The fault in words.
        values, layout: The sort of values, and how the inputs lie in memory; empty for as they were asked for.
        timed: Whether it was a timed call.
        place: The first element that is off; null where it is no matter of elements.
    """

    kind: str
    text: str
    shape: str
    values: str
    layout: str
    timed: bool
    place: FaultyElement | None


class Check(Form):
    """What is to be thought of a candidate.

    Attributes:
        verdict: `wrong`, `suspect` (right, but not to be believed), `faster`, `slower`, `same` or `undecided`.
        speedup, interval: The reference's time over the candidate's, over all shapes, and its 95 % interval; null
            without times.
        fault: How it is wrong, or null.
        needed: What would decide; empty where it is decided.
        verified: What results were compared with.
        suspicion: Why it is not to be believed.
        tried: What was tried.
        refused: Inputs that nobody asked for, and that the candidate refuses.
        notes: Remarks on how it was measured, and what could not be confined.
    """

    verdict: str
    candidate: str
    reference: str
    speedup: float | None
    interval: list[float] | None
    shapes: list[CheckedShape]
    fault: Fault | None
    needed: str
    verified: str
    suspicion: list[str]
    tried: list[str]
    refused: list[str]
    notes: list[str]


class BenchedKernel(Form):
    """A shipped kernel beside one rival, at one named problem; null where nothing was timed.

    Attributes:
        rival: `library`, `eager`, `compile`, `default`, or `reference` where the problem was not timed.
        origin: Where the kernel's config comes from.
        is_default: Whether it is the config that runs untuned.
        speedup, interval: The rival's time over the kernel's, and its 95 % interval.
        verdict: `faster`, `slower` or `not distinguishable`, else why nothing was timed.
        confidence: `ok`, or why the verdict should not be relied on.
        tflops, gbps: Of the kernel.
    """

    kernel: str
    problem: str
    rival: str
    shape: list[int]
    dtype: str
    config: Config
    origin: str
    is_default: bool
    kernel_ms: float | None
    rival_ms: float | None
    speedup: float | None
    interval: list[float] | None
    verdict: str
    confidence: str
    tflops: float
    gbps: float
    mode: str


class BenchKernels(Form):
    """Every shipped kernel beside its rivals."""

    device: str
    rows: list[BenchedKernel]


DOCUMENTS: dict[str, Any] = {
    "tune": Tune,
    "tune list": TuneList,
    "bench": Bench,
    "bench kernels": BenchKernels,
    "check": Check,
}
