"""The nouns of tuning, all frozen: problem, status, measurement, trial, metrics, result.

A trial ends in exactly one status; a failure is never an infinite time, a None or a print.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from triton_ops._hashing import fingerprint
from triton_ops.space import Config
from triton_ops.tensors import TensorSpec
from triton_ops.work import Work as Work

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True)
class Problem:
    """What is tuned for: a kernel's name and the arguments that decide which config is best.

    Attributes:
        kernel: The kernel family, such as `matmul` or `package.module:function`.
        arguments: Name to tensor spec or scalar, in calling order.
        label: Short text for people, such as `4096x4096x4096 bfloat16`; not part of the identity.
    """

    kernel: str
    arguments: tuple[tuple[str, TensorSpec | Scalar], ...] = ()
    label: str = field(default="", compare=False)

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """The tensor arguments."""
        return {name: given for name, given in self.arguments if isinstance(given, TensorSpec)}

    @property
    def fingerprint(self) -> str:
        """Names the problem's content."""
        return fingerprint([self.kernel, [[name, plain(given)] for name, given in self.arguments]])

    def __str__(self) -> str:
        return f"{self.kernel} {self.label}".rstrip()


def plain(given: TensorSpec | Scalar) -> Any:
    """An argument of a problem as a value that JSON has."""
    if isinstance(given, TensorSpec):
        return {
            "shape": list(given.shape), "dtype": given.dtype, "stride": list(given.strides), "aligned": given.aligned,
        }  # fmt: skip
    if isinstance(given, float) and not math.isfinite(given):
        return {"float": repr(given)}  # JSON has no infinity, but a mask value is often one
    return given


class Status(str, Enum):
    """How a trial ended."""

    OK = "ok"
    CONSTRAINT = "constraint"  # refused before any work
    COMPILE = "compile"  # the compiler refused it
    RESOURCES = "resources"  # more shared memory, registers or memory than the device has
    RUNTIME = "runtime"  # it raised, or the device reported an error
    DEFERRED = "deferred"  # it can be launched, but others worked that promise more
    TIMEOUT = "timeout"  # it did not end in time
    CRASH = "crash"  # its process died
    WRONG = "wrong"  # its result differs from the reference

    def __str__(self) -> str:
        return self.value


WASTEFUL_SPILL_BYTES = 64
"""A config that spills more than this per thread is tried last.

Source: of 486 configs of a matrix product, the compiler's answers split at 64 bytes; all of 54 published winners for an
H200 stay below, and on seven recorded spaces none above reached 0.51 of the best one's speed.
"""


@dataclass(frozen=True)
class Resources:
    """What the compiler made of a config. None where the backend cannot know.

    Attributes:
        registers: Per thread.
        spill_bytes: Local memory per thread that registers did not hold.
        shared_bytes: Shared memory per block.
        binary: Fingerprint of the machine code: equal binaries need measuring once.
        stack_bytes: Stack frame per thread.
        mma: Matrix instructions used: `wgmma`, `tcgen05`, `mma.sync`, `mfma`, `wmma`, or `none`.
        load_bytes: Bytes that one thread loads at once, in the commonest load from global memory.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    binary: str | None = None
    stack_bytes: int | None = None
    mma: str | None = None
    load_bytes: int | None = None

    @property
    def wasteful(self) -> bool:
        """Whether the config spills so much that it is tried last, and loses against its equals."""
        return (self.spill_bytes or 0) > WASTEFUL_SPILL_BYTES


@dataclass(frozen=True)
class Compiled:
    """A config that was compiled, or refused before, and was not launched yet.

    Attributes:
        config: What was compiled.
        status: `ok` or `deferred` if it can be launched, as far as can be known without doing it; else how its trial
            ends: `constraint`, `compile`, `resources`, `timeout` or `crash`. A deferred config is tried only where
            nothing else works; a rule may have deferred it before it was compiled: `resources` is None then.
        reason: Why it is not ok, with the numbers; empty otherwise.
        resources: What the compiler made of it; of a config over a limit, as much as was found out.
        compile_s: Seconds it took; None if nothing was compiled.
        launch: Names all that a launch is, machine code, memory, grid and plain arguments: two configs with the same
            are the same program, and one measurement serves both. None where that is not known.
        resident: Blocks that one multiprocessor holds at a time; None where registers or device are not known.
    """

    config: Config
    status: Status
    reason: str = ""
    resources: Resources | None = None
    compile_s: float | None = None
    launch: str | None = None
    resident: int | None = None

    @property
    def launchable(self) -> bool:
        """Whether it can be launched, deferred or not."""
        return self.status in (Status.OK, Status.DEFERRED)

    @property
    def deferred(self) -> bool:
        """Whether it can be launched, and is only tried where nothing else works."""
        return self.status is Status.DEFERRED


@dataclass(frozen=True)
class Measurement:
    """Timed samples of one config, in milliseconds per launch, in the order taken.

    Attributes:
        samples_ms: At least one; none is negative.
        mode: Clock and cache state, such as `event-cold` or `host`; only equal modes may be compared.
        rounds: How many blocks of equal length the samples were taken in, side by side with other configs.
    """

    samples_ms: tuple[float, ...]
    mode: str
    rounds: int = 1

    def __post_init__(self) -> None:
        if not self.samples_ms or not all(math.isfinite(s) and s >= 0 for s in self.samples_ms):
            raise ValueError(f"a measurement needs finite samples of 0 ms or more, not {self.samples_ms[:5]}")

    @property
    def blocks(self) -> list[tuple[float, ...]]:
        """The samples, one tuple per round."""
        size = len(self.samples_ms) // self.rounds
        return [self.samples_ms[at : at + size] for at in range(0, size * self.rounds, size)]

    @property
    def median_ms(self) -> float:
        """The statistic that ranks: half of the samples are faster."""
        return statistics.median(self.samples_ms)

    @property
    def p20_ms(self) -> float:
        """A fifth of the samples are faster."""
        return self._fifth(1)

    @property
    def p80_ms(self) -> float:
        """A fifth of the samples are slower."""
        return self._fifth(4)

    @property
    def spread(self) -> float:
        """(p80 − p20) / median: the middle three fifths, relative."""
        return (self.p80_ms - self.p20_ms) / self.median_ms if self.median_ms > 0 else 0.0

    def _fifth(self, which: int) -> float:
        if len(self.samples_ms) == 1:
            return self.samples_ms[0]
        return statistics.quantiles(self.samples_ms, n=5, method="inclusive")[which - 1]


@dataclass(frozen=True)
class Trial:
    """One config on one problem, finished.

    Attributes:
        config: What was tried.
        status: How it ended.
        measurement: Its times; only with status ok.
        error: Why it is not ok: one line; empty with status ok.
        resources: What the compiler made of it, where known.
        compile_s: Seconds spent on compiling it; None if it was not compiled.
        final: Its times in the last comparison, side by side with the other finalists; None if it was none.
        relative: Its median over that of the reference config measured just before or after: times of different
            minutes are compared by it, never directly. None if nothing served as reference.
        same_code_as: A config with the same machine code, whose measurement this is; None if it was run itself.
    """

    config: Config
    status: Status
    measurement: Measurement | None = None
    error: str = ""
    resources: Resources | None = None
    compile_s: float | None = None
    final: Measurement | None = None
    relative: float | None = None
    same_code_as: Config | None = None

    def __post_init__(self) -> None:
        if (self.status is Status.OK) != (self.measurement is not None):
            raise ValueError(f"a trial is measured exactly when it is ok; this one is {self.status}")

    @property
    def ok(self) -> bool:
        """Whether it ran, was right, and was timed."""
        return self.status is Status.OK

    @property
    def best_measurement(self) -> Measurement:
        """The times to report: those of the last comparison where there are some.

        Raises:
            ValueError: The trial is not ok.
        """
        found = self.final or self.measurement
        if found is None:
            raise ValueError(f"config ({self.config}) was not measured: {self.status}: {self.error}")
        return found

    @property
    def rank(self) -> float:
        """What screenings are ranked by: smaller is faster.

        Raises:
            ValueError: The trial is not ok.
        """
        return self.best_measurement.median_ms if self.relative is None else self.relative

    @property
    def median_ms(self) -> float:
        """Median milliseconds per launch.

        Raises:
            ValueError: The trial is not ok.
        """
        return self.best_measurement.median_ms


def totals(trials: list[Trial] | tuple[Trial, ...]) -> dict[str, int]:
    """How many trials ended in each status that occurred; adds up to the number of trials."""
    counts = Counter(trial.status for trial in trials)
    return {status.value: counts[status] for status in Status if counts[status]}


@dataclass(frozen=True)
class KernelMetrics:
    """How fast one config runs.

    Attributes:
        latency_ms: Median milliseconds per call.
        throughput_tflops: 10^12 operations per second; 0 if the work is not known.
        bandwidth_gbps: 10^9 bytes per second; 0 if the work is not known.
        bandwidth_utilization: Percent of the device's peak bandwidth; 0 if the work is not known.
        p20_ms: A fifth of the calls are faster; None if only one number is known.
        p80_ms: A fifth of the calls are slower; None if only one number is known.
    """

    latency_ms: float
    throughput_tflops: float = 0.0
    bandwidth_gbps: float = 0.0
    bandwidth_utilization: float = 0.0
    p20_ms: float | None = None
    p80_ms: float | None = None

    def __str__(self) -> str:
        return (
            f"Latency: {self.latency_ms:.3f} ms, Throughput: {self.throughput_tflops:.2f} TFLOPS, "
            f"Bandwidth: {self.bandwidth_gbps:.1f} GB/s ({self.bandwidth_utilization:.1f}%)"
        )


@dataclass(frozen=True)
class TuningResult:
    """What a tune found.

    Attributes:
        best_config: Name to value of the winner.
        metrics: The winner's speed.
        all_results: Every config that ran, with its speed, in the order tried; empty on a cache hit.
        problem_size: As given by the caller, else the problem's label.
        device: As given by the caller, else the device's name.
        from_cache: Whether the config was known, and nothing was searched.
        trials: Every trial, failures included; empty on a cache hit.
        default: The default config's trial; None if it was not tried or failed.
        ties: Configs that could not be told from the winner, itself included.
        noise: Relative difference below which two configs count as equal here.
        speedup: The default's time over the winner's, compared round by round; None if they did not race.
        gain_interval: 95 % interval of `speedup`.
        confidence: `ok`, or in words why the comparison should not be relied on.
        guard: What the device said of itself meanwhile: throttling, clocks, power.
        stopped: Why the search ended: `complete`, `settled` (too little left to gain), `trials`, `seconds` or
            `interrupted`; `cached` where that was not remembered.
        elapsed_s: Wall seconds of this call.
        place: Where the candidates ran: in a process of its own, or inline and why.
        verified: What every result was compared with before it was timed.
        notes: What else to know of how it was done.
        waited_s: Seconds in which nothing could be measured because nothing was compiled yet.
        mode: Clock and state of the caches that measuring ended in, such as `graph-cold` or `host`.
        totals: How many trials ended in each status; on a cache hit those of the tune that found the winner.
        run: Id of the run log of the tune that found the winner; empty if none was kept.
        winner: The winner's trial, with the times that `metrics` shows.
    """

    best_config: dict[str, Any]
    metrics: KernelMetrics
    all_results: list[tuple[dict[str, Any], KernelMetrics]] = field(default_factory=list)
    problem_size: Any = None
    device: str | None = None
    from_cache: bool = False
    trials: tuple[Trial, ...] = ()
    default: Trial | None = None
    ties: tuple[Config, ...] = ()
    noise: float = 0.0
    speedup: float | None = None
    gain_interval: tuple[float, float] | None = None
    confidence: str = "ok"
    guard: dict[str, Any] = field(default_factory=dict)
    stopped: str = ""
    elapsed_s: float = 0.0
    place: str = ""
    verified: str = ""
    notes: tuple[str, ...] = ()
    waited_s: float = 0.0
    mode: str = ""
    totals: dict[str, int] = field(default_factory=dict)
    run: str = ""
    winner: Trial | None = None

    @property
    def failures(self) -> list[Trial]:
        """The trials that did not end ok, with status and reason; deferred configs were not run and have not failed."""
        return [trial for trial in self.trials if trial.status not in (Status.OK, Status.DEFERRED)]

    @property
    def gain(self) -> float | None:
        """Default's time over the winner's: 1.25 is a quarter faster; None if the default was not measured.

        Compared round by round where they raced, else of their medians.
        """
        if self.speedup is not None:
            return self.speedup
        if self.default is None or not self.default.ok or self.metrics.latency_ms <= 0:
            return None
        return self.default.median_ms / self.metrics.latency_ms

    def __str__(self) -> str:
        config = ", ".join(f"{name}={value}" for name, value in self.best_config.items())
        return f"Best config: {{{config}}}\n{self.metrics}"
