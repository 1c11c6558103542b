"""The values of tuning, all frozen: status, measurement, trial, metrics, result.

A trial ends in exactly one status; a failed trial has no time at all, instead of an infinite one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from triton_ops.base import Count, Frozen, NotNegative, escaped, gain_text
from triton_ops.space import Config
from triton_ops.values.conclusion import Conclusion
from triton_ops.values.resources import Resources

if TYPE_CHECKING:
    from triton_ops import device

_WARPS = 4  # Triton's default for a config that names none


def _median(values: Sequence[float]) -> float:
    import statistics  # with `fractions` it takes 2 ms, and a launch from a record needs no statistics

    return statistics.median(values)


class Status(str, Enum):
    """The end of a trial."""

    OK = "ok"
    CONSTRAINT = "constraint"  # refused before any work
    GRID = "grid"  # more blocks than the device takes on an axis
    COMPILE = "compile"  # the compiler refused it
    RESOURCES = "resources"  # more shared memory, registers or memory than the device has
    RUNTIME = "runtime"  # it raised, or the device reported an error
    DEFERRED = "deferred"  # it can be launched, but is of a slow kind, and others worked
    TIMEOUT = "timeout"  # it did not end in time
    CRASH = "crash"  # its process died
    WRONG = "wrong"  # its result differs from the reference

    def __str__(self) -> str:
        return self.value

    @property
    def facts(self) -> StatusFacts:
        """What it means to those who count, show, keep or hand on trials."""
        return _STATUS_FACTS[self]

    @staticmethod
    def drops() -> list[str]:
        """What drops candidates, in the order of the steps of a run."""
        return [facts.dropped_by for facts in _STATUS_FACTS.values() if facts.dropped_by]

    @classmethod
    def of_t4(cls, word: str) -> str:
        """The status that a word of the exchange format T4 stands for; a word of no status as it is."""
        return next((status.value for status in cls if status.facts.t4 == word), word)


class StatusFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one status means. Everything that is asked of a status stands here, so that a new one is a row."""

    dropped_by: str  # what dropped a candidate that was not timed; empty for one that was
    t4: str  # the word of the exchange format T4
    listed: int  # place in a list of compiled configs, the most useful first
    launchable: bool = False  # it can be launched, as far as can be known without a launch
    refused: bool = False  # it is known before a launch that there can be none
    compared: bool = False  # the config ran, and its result was compared
    dangerous: bool = False  # later tunes do not run the config again
    hurts_device: bool = False  # the device may be lost to this process

    @property
    def lost(self) -> bool:
        """Whether the config failed where it was to run, so that nothing is known of its result."""
        return not (self.launchable or self.refused or self.compared)


_STATUS_FACTS = {
    Status.OK: StatusFacts(dropped_by="", t4="correct", listed=0, launchable=True, compared=True),
    Status.CONSTRAINT: StatusFacts(dropped_by="a constraint of the space", t4="constraints", listed=3, refused=True),
    Status.GRID: StatusFacts(dropped_by="the device's largest grid", t4="constraints", listed=4, refused=True),
    Status.COMPILE: StatusFacts(dropped_by="the compiler", t4="compile", listed=5, refused=True),
    Status.RESOURCES: StatusFacts(
        dropped_by="the device's resources", t4="compile", listed=2, refused=True, hurts_device=True
    ),
    Status.DEFERRED: StatusFacts(
        dropped_by="a rule: a slow kind, and others worked", t4="runtime", listed=1, launchable=True
    ),
    Status.RUNTIME: StatusFacts(dropped_by="an error at run time", t4="runtime", listed=8, hurts_device=True),
    Status.TIMEOUT: StatusFacts(dropped_by="the time limit", t4="timeout", listed=6, dangerous=True),
    Status.CRASH: StatusFacts(dropped_by="the end of its process", t4="runtime", listed=7, dangerous=True),
    Status.WRONG: StatusFacts(dropped_by="the check of its result", t4="correctness", listed=9, compared=True),
}
"""By status, in the order of the steps that drop a candidate."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A config that was compiled, or refused before, and was not launched yet.

    The status is `ok` or `deferred` if it can be launched, as far as can be known without a launch; else that in which
    its trial ends: `constraint`, `grid`, `compile`, `resources`, `timeout` or `crash`. A deferred config is tried only
    where nothing else works. Resources are None for one that a rule deferred before it was compiled, and may be known
    in part for one over a limit. Configs of equal `launch`, the fingerprint of machine code, memory, grid and plain
    arguments, are the same program, and one measurement serves all; None where it is not known.
    """

    config: Config = field(kw_only=False)
    status: Status = field(kw_only=False)
    reason: str = field(default="", kw_only=False)  # why the status is not ok, with the numbers; empty if it is
    resources: Resources | None = field(default=None, kw_only=False)
    compile_s: NotNegative | None = None  # None if nothing was compiled
    launch: str | None = None
    resident: Count | None = None  # blocks that one multiprocessor holds at a time; None where not known
    trace: str = ""  # of what the compiler, or code of the user's that it called, raised

    @property
    def launchable(self) -> bool:
        """True if the config can be launched, deferred or not."""
        return self.status.facts.launchable

    @property
    def deferred(self) -> bool:
        """True if the config can be launched, but is tried only where nothing else works."""
        return self.status is Status.DEFERRED

    def with_residents(self, machine: device.Machine | None) -> Compiled:
        """The same with the number of its blocks on a multiprocessor of a machine at a time, if that is known."""
        resources, warps = self.resources, self.config.get("num_warps", _WARPS)
        if machine is None or resources is None or resources.registers is None:
            return self
        if not isinstance(warps, int) or warps < 1:
            return self
        return replace(self, resident=machine.blocks_at_once(resources.registers, resources.shared_bytes or 0, warps))


@dataclass(frozen=True)
class Measurement:
    """Timed samples of one config, in milliseconds per launch, in the order taken.

    Attributes:
        samples_ms: The samples: at least one, and none negative.
        mode: Clock and cache state, such as `event-cold` or `host`; only equal modes may be compared.
        rounds: In how many rounds, with equally many samples each, the config was measured.
    """

    samples_ms: tuple[float, ...]
    mode: str
    rounds: int = 1

    def __post_init__(self) -> None:
        if not self.samples_ms or not math.isfinite(sum(self.samples_ms)) or min(self.samples_ms) < 0:
            raise ValueError(f"a measurement needs finite samples of 0 ms or more, not {self.samples_ms[:5]}")
        if not 1 <= self.rounds <= len(self.samples_ms):
            raise ValueError(f"{len(self.samples_ms)} samples cannot be of {self.rounds} rounds")

    def __repr__(self) -> str:
        return (
            f"Measurement({self.median_ms:.4g} ms, {len(self.samples_ms)} samples, {self.mode}, {self.rounds} rounds)"
        )

    @property
    def by_round(self) -> list[tuple[float, ...]]:
        """The samples, one tuple per round."""
        size = len(self.samples_ms) // self.rounds
        return [self.samples_ms[at : at + size] for at in range(0, size * self.rounds, size)]

    @property
    def rounds_ms(self) -> list[float]:
        """The value of each round, by which configs of one race are compared."""
        return [self.middle_mean(samples) for samples in self.by_round]

    @staticmethod
    def contrasts(row: Sequence[float], other: Sequence[float]) -> list[float]:
        """The logarithm of row over other, both in milliseconds, for each round that both have."""
        return [math.log(max(a, 1e-9) / max(b, 1e-9)) for a, b in zip(row, other, strict=False)]

    @staticmethod
    def middle_mean(values: Sequence[float]) -> float:
        """The mean of the values without about a fifth of them at either end, one at least where there are three.

        A few disturbed values do not move it. Where values have two levels it lies between them, by how often each
        comes, as the time of many launches does; a median would be one of the two.
        """
        count = min(max(1, round(len(values) / 5)), (len(values) - 1) // 2)  # one value is left at least
        middle = sorted(values)[count : len(values) - count]
        return math.fsum(middle) / len(middle)

    @property
    def median_ms(self) -> float:
        """The median, by which configs are ranked: half of the samples are faster."""
        return _median(self.samples_ms)

    @property
    def p20_ms(self) -> float:
        """The 20 % quantile: a fifth of the samples are faster."""
        return min(self._fifth(1), self.median_ms)  # quantiles of equal samples differ by a rounding error

    @property
    def p80_ms(self) -> float:
        """The 80 % quantile: a fifth of the samples are slower."""
        return max(self._fifth(4), self.median_ms)

    @property
    def spread(self) -> float:
        """(p80 − p20) / median: the middle three fifths, relative."""
        return (self.p80_ms - self.p20_ms) / self.median_ms if self.median_ms > 0 else 0.0

    def _fifth(self, which: int) -> float:
        if len(self.samples_ms) == 1:
            return self.samples_ms[0]
        import statistics

        return statistics.quantiles(self.samples_ms, n=5, method="inclusive")[which - 1]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The finished trial of one config on one problem.

    Attributes:
        config: The config.
        status: How the trial ended.
        measurement: The times of the screening; None unless the status is ok.
        error: Why the status is not ok, in one line; empty if it is.
        resources: Resources of the compiled config, where known.
        compile_s: Seconds of its compilation; None if it was not compiled.
        final: The times of the last comparison; None if the config was no finalist.
        relative: The median divided by that of the baseline config, measured in turn with it. Trials of different
            minutes are compared by this number, never by their times. None if there was no baseline.
        same_code_as: A config with the same machine code, to which the measurement belongs; None if this config was run
            itself.
        trace: Where in the user's code, or in a library, the failure was raised; empty if nothing was raised, or the
            frames are not known.
        excess: How many times a wrong result's error is what is allowed; None if it is not wrong, or wrong in a way
            that no tolerance measures, such as by another shape.
    """

    LITTLE: ClassVar[float] = 10.0  # times what is allowed, up to which a result is wrong by little

    config: Config = field(kw_only=False)
    status: Status = field(kw_only=False)
    measurement: Measurement | None = field(default=None, kw_only=False)
    error: str = ""
    resources: Resources | None = None
    compile_s: NotNegative | None = None
    final: Measurement | None = None
    relative: NotNegative | None = None
    same_code_as: Config | None = None
    trace: str = ""
    excess: float | None = None

    def __post_init__(self) -> None:
        if (self.status is Status.OK) != (self.measurement is not None):
            raise ValueError(f"a trial is measured exactly when it is ok; this one is {self.status}")

    @classmethod
    def of_time(cls, config: Config, ms: float, mode: str, **more: Any) -> Trial:
        """The trial of a config of which one time is known."""
        return cls(config, Status.OK, Measurement((float(ms),), mode), **more)

    @property
    def ok(self) -> bool:
        """True if the config ran, was right, and was timed."""
        return self.status is Status.OK

    @property
    def failed(self) -> bool:
        """True if the config failed; a deferred one was not run, and has not failed."""
        return not self.status.facts.launchable

    def over(self, other: Trial | None) -> float | None:
        """This trial's time over another's, by times that were taken alike; None where there are none.

        These are times of the last comparison, round by round; else those relative to the baseline, else screenings in
        one mode.
        """
        own_ms = other_ms = 0.0
        if other is None or not (self.ok and other.ok):
            return None
        if self.final is not None and other.final is not None:
            return math.exp(_median(Measurement.contrasts(self.final.rounds_ms, other.final.rounds_ms)))
        if self.relative is not None and other.relative is not None:
            own_ms, other_ms = self.relative, other.relative
        elif self.measurement and other.measurement and self.measurement.mode == other.measurement.mode:
            own_ms, other_ms = self.measurement.median_ms, other.measurement.median_ms
        return own_ms / other_ms if other_ms > 0 else None

    @property
    def best_measurement(self) -> Measurement:
        """The times to report: those of the last comparison, or else those of the screening.

        Raises:
            ValueError: The trial is not ok.
        """
        measurement = self.final or self.measurement
        if measurement is None:
            raise ValueError(f"config ({self.config}) was not measured: {self.status}: {self.error}")
        return measurement

    @property
    def rank(self) -> float:
        """The number by which screenings are ranked; smaller is faster.

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

    @staticmethod
    def totals(trials: Sequence[Trial]) -> dict[str, int]:
        """The number of trials for each status that occurred; the values add up to the number of trials."""
        counts = Counter(trial.status for trial in trials)
        return {status.value: counts[status] for status in Status if counts[status]}

    @staticmethod
    def one_alone(totals: Mapping[str, int]) -> bool:
        """True if one config ran, and others failed where they were to run; by the numbers for each status."""
        return totals.get("ok") == 1 and any(status.facts.lost and totals.get(status.value) for status in Status)


@dataclass(frozen=True)
class KernelMetrics:
    """Latency, throughput and bandwidth of one config.

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
    _: KW_ONLY
    p20_ms: float | None = None
    p80_ms: float | None = None

    def __str__(self) -> str:
        parts = [f"Latency: {self.latency_ms:.3f} ms"]
        if self.throughput_tflops:
            parts.append(f"Throughput: {self.throughput_tflops:.2f} TFLOPS")
        if self.bandwidth_gbps:
            share = f" ({self.bandwidth_utilization:.1f}%)" if self.bandwidth_utilization else ""
            parts.append(f"Bandwidth: {self.bandwidth_gbps:.1f} GB/s{share}")
        return ", ".join(parts)


_FAILURES_SHOWN = 3


@dataclass(frozen=True)
class _FirstFields:
    """The first fields of a result; those of a base class stand before its own."""

    best_config: dict[str, Any]
    metrics: KernelMetrics
    all_results: list[tuple[dict[str, Any], KernelMetrics]] = field(default_factory=list)
    problem_size: Any = None
    _: KW_ONLY
    device: str | None = None


class Trials(tuple[Trial, ...]):
    """Trials in the order in which they were tried; shown with the fastest first, and the failed ones last."""

    HEADER: ClassVar = ("median ms", "spread", "status", "config")

    def rows(self) -> list[tuple[str, str, str, str]]:
        """A trial's median in milliseconds, the spread of its samples, its status and its config."""
        order = sorted(self, key=lambda trial: (not trial.ok, trial.median_ms if trial.ok else 0.0))
        return [
            (f"{trial.median_ms:.4g}" if trial.ok else "-", f"{trial.best_measurement.spread:.1%}" if trial.ok else "-",
             str(trial.status), str(trial.config))
            for trial in order
        ]  # fmt: skip

    def __repr__(self) -> str:
        rows = [self.HEADER, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        numbers = [f"{ms:>{widths[0]}}  {spread:>{widths[1]}}  " for ms, spread, *_ in rows]
        words = [f"{status:{widths[2]}}  {config}" for *_, status, config in rows]
        return "\n".join(map(str.__add__, numbers, words))

    __str__ = __repr__

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))  # IPython's own way prints the items of any tuple

    def _repr_html_(self) -> str:
        import html

        def row(cells: tuple[str, ...], tag: str) -> str:
            return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

        return f"<table>{row(self.HEADER, 'th')}{''.join(row(cells, 'td') for cells in self.rows())}</table>"


@dataclass(frozen=True)
class TuningResult(Conclusion, _FirstFields):
    """The result of a tune.

    Attributes:
        best_config: Name to value of the winner.
        metrics: The winner's speed.
        all_results: Every config that ran, with its speed, in the order tried; empty on a cache hit.
        problem_size: The problem size that the caller gave, else the problem's label.
        device: The device that the caller gave, else the device's name.
        from_cache: Whether the winner was known, and nothing was searched.
        trials: Every trial, failures included; empty on a cache hit.
        default: The default config's trial; None if it was not tried or failed.
        ties: Configs that could not be told from the winner, itself included.
        noise: Relative difference below which two configs count as equal here.
        raced_gain: The default's time divided by the winner's, compared round by round; None if they did not race.
        gain_interval: 95 % interval of `raced_gain`.
        within_1pct: The chance, 0 to 1, that no config of the space is faster than the winner by more than 1 %, by
            simulated tunes on recorded spaces. None where it is unknown: by another search than `auto`, of fewer than
            24 trials, or where `noise` is larger.
        confidence: `ok`, or in words why the comparison should not be relied on.
        unproven: Why the winner is none to rely on: nothing was compared, noise hides whether it is the fastest, or
            Triton's interpreter was timed; empty for a proven winner.
        guard: Summary of the device's sensors during the comparison: throttling, clocks, power.
        stopped: Why the search ended: `complete`, `settled` (too little left to gain), `trials`, `seconds` or
            `interrupted`; `cached` where the reason was not kept.
        elapsed_s: Wall seconds of this call.
        place: Where the candidates ran: in a process of its own, or inline and why.
        verified: What every result was compared with before it was timed.
        notes: Remarks on how the tune was done, such as that inputs were restored before every launch.
        waited_s: Seconds in which nothing could be measured because nothing was compiled yet.
        mode: The mode of the last measurements, clock and cache state, such as `graph-cold` or `host`.
        totals: How many trials ended in each status; on a cache hit those of the tune that found the winner.
        run: Id of the run log of the tune that found the winner; empty if none was kept.
        winner: The winner's trial, with the times that `metrics` shows.
        recalled_failures: On a cache hit, the failed trials that the record keeps.
        record: Id of the record that later calls find; empty if the winner is not remembered, for which `notes` may
            have the reason.
        ordered_by: What the search ordered or left out configs by: a model, records; the winner is measured always.
        bits: The class of configs that give the winner's bits, in which the search stayed if that was asked for; empty
            where it cannot be told.
        contents: For each content, where there are several, its `label`, `weight` (0 if held out) and `times_ms` of the
            raced configs, with `regret(config)` beside the fastest.
    """

    _: KW_ONLY
    from_cache: bool = False
    trials: tuple[Trial, ...] = ()
    default: Trial | None = None
    unproven: str = ""
    guard: Mapping[str, Any] = field(default_factory=dict)
    elapsed_s: float = 0.0
    verified: str = ""
    winner: Trial | None = None
    recalled_failures: tuple[Trial, ...] = ()
    record: str = ""
    contents: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        Frozen.fields(self, "guard", "totals")
        # Of a caller's own, so that a result that `replace` makes shares nothing that can be changed.
        object.__setattr__(self, "best_config", dict(self.best_config))
        object.__setattr__(self, "all_results", [(dict(config), metrics) for config, metrics in self.all_results])
        object.__setattr__(self, "trials", Trials(self.trials))

    @property
    def failures(self) -> list[Trial]:
        """The failed trials, with status and reason; on a cache hit those that the record keeps."""
        return [*(trial for trial in self.trials if trial.failed), *self.recalled_failures]

    @property
    def gain(self) -> float | None:
        """The default's time divided by the winner's: 1.25 is a quarter faster; None if the default was not measured.

        The times are compared round by round if the two raced; else their medians are.
        """
        default_ms = self._default_ms
        return self.raced_gain if default_ms is None else self.gain_by(default_ms, self.metrics.latency_ms)

    @property
    def _default_ms(self) -> float | None:
        return self.default.median_ms if self.default is not None and self.default.ok else None

    @property
    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON values, without its trials."""
        return {
            "best_config": dict(Config(self.best_config)), "metrics": msgspec.to_builtins(self.metrics),
            "problem": self.problem_size, "device": self.device, "from_cache": self.from_cache,
            "default": None if self.default is None else dict(self.default.config),
            "default_ms": self._default_ms, "gain": self.gain, "ties": [dict(config) for config in self.ties],
            "noise": self.noise, "gain_interval": self.gain_interval, "within_1pct": self.within_1pct,
            "confidence": self.confidence, "unproven": self.unproven,
            "guard": self.guard, "stopped": self.stopped, "elapsed_s": self.elapsed_s, "place": self.place,
            "verified": self.verified, "notes": list(self.notes), "waited_s": self.waited_s, "mode": self.mode,
            "run": self.run, "ordered_by": list(self.ordered_by), "bits": self.bits, "totals": self.totals,
            "failures": [
                {"config": dict(trial.config), "status": trial.status.value, "error": trial.error}
                for trial in self.failures
            ],
        }  # fmt: skip

    def uninterrupted(self) -> TuningResult:
        """This result; a `KeyboardInterrupt` where Ctrl-C has ended its tune, as a step of something longer."""
        if self.stopped == "interrupted":
            raise KeyboardInterrupt
        return self

    def __str__(self) -> str:
        config = ", ".join(f"{name}={value}" for name, value in self.best_config.items())
        lines = [f"Best config: {{{config}}}", str(self.metrics), self._gain_line()]
        lines += [f"Ties: {len(self.ties) - 1} more within noise ({self.noise:.2%})"] if len(self.ties) > 1 else []
        if self.totals:
            counts = ", ".join(f"{count} {status}" for status, count in self.totals.items())
            then = "; from the cache, not measured again" if self.from_cache else ""
            lines.append(f"Trials: {sum(self.totals.values())}: {counts}{then}")
        lines += self._failure_lines()
        if self.unproven:
            lines.append(f"Unproven: {self.unproven}")
        elif self.mode:  # something was measured side by side, or its record was found
            lines.append(f"Confidence: {self.confidence}")
        lines.append(f"Verified: results compared with {self.verified}" if self.verified else "")
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(filter(None, lines))

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))  # the last line of a notebook's cell; the `repr` of all samples fills a screen

    def _repr_html_(self) -> str:
        import html  # here and below: a launch from a record shows no page

        return f"<pre>{html.escape(str(self))}</pre>{Trials(self.trials)._repr_html_() if self.trials else ''}"

    def _gain_line(self) -> str:
        if self.default is not None and self.default.config == Config(self.best_config):
            return "Gain: none, the default is kept" if self.unproven else "Gain: none, the default won"
        return "" if self.gain is None else f"Gain: {gain_text(self.gain, self.gain_interval)} as fast as the default"

    def _failure_lines(self) -> list[str]:
        shown, more = self.failures[:_FAILURES_SHOWN], len(self.failures) - _FAILURES_SHOWN
        lines = [f"Failed: ({trial.config}) {trial.status}: {escaped(trial.error)}" for trial in shown]
        return [*lines, f"Failed: {more} more, in `failures`"] if more > 0 else lines
