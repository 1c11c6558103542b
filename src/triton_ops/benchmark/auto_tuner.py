"""`TritonAutoTuner`: the documented tuner for any callable, with an exact number of calls per configuration.

Every config is warmed up, and the results of its first and its last warm-up call are judged; then all are timed in
rounds of random order, so that a device whose clock drifts favours no config. For search, isolation, run logs and
records beyond a plain config cache, use `triton_ops.tune`.

Throughput and bandwidth are derived from the least bytes and operations of the work; the traffic of a real kernel may
be larger.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from triton_ops.backend import Arguments, CandidateError, FunctionKernel
from triton_ops.base import warn
from triton_ops.benchmark.comparing import Manner
from triton_ops.benchmark.judging import ConfigJudge
from triton_ops.benchmark.plain_configs import ConfigCache
from triton_ops.benchmark.timing import measuring
from triton_ops.device import gpu_missing, probe
from triton_ops.evaluation import Subject
from triton_ops.exceptions import ConfigValueError, KernelTypeError, SettingsError, TuningFailedError
from triton_ops.space import Config, ConfigSpace, given_back
from triton_ops.timing import Arm, EmptyCaptureError, HostTimer, Launch, Rounds, Sampler, SharedTimer, Timer
from triton_ops.values import KernelMetrics as KernelMetrics
from triton_ops.values import Measurement, Status, TensorSpec, Trial, Work, as_callable
from triton_ops.values import TuningResult as TuningResult

ALONE = "low: the cached winner alone was measured, and compared with nothing"
_FEWEST_ROUNDS = 2  # that show any noise


def standing_of(trials: Sequence[Trial], arms: Sequence[Arm], winner: Trial) -> dict[str, Any]:
    """The fields `ties`, `noise` and `confidence` of a result: the configs that noise does not tell from the winner.

    The noise is the half-width of a typical 95 % interval of the difference of two configs in the same rounds.
    """
    arms_of = {trial.config: arm for trial, arm in zip(trials, arms, strict=True) if trial.ok}
    if len(arms_of) == 1:
        return {"ties": (winner.config,)}
    if len(arms_of[winner.config].visits) < _FEWEST_ROUNDS:
        return {"ties": (winner.config,), "confidence": "low: too few timed calls to know the noise"}
    gaps = Rounds.standing(arms_of).gaps(winner.config)
    tied = [config for config, gap in gaps.items() if gap.centre <= gap.chance]
    hidden = [config for config in tied if gaps[config].margin > 0]
    configs = f"({hidden[0]})" + (f" and {len(hidden) - 1} more" if len(hidden) > 1 else "") if hidden else ""
    return {
        "ties": (winner.config, *tied),
        "noise": statistics.median(gap.margin for gap in gaps.values()),
        "confidence": f"low: noise hides whether the winner is faster than {configs}" if hidden else "ok",
    }


_NEVER = Sampler(lambda _: list)  # of a config that failed, or is not prepared yet
_ROUNDS = 10  # the timed calls of a config are spread over this many rounds, if there are at least as many calls


class TritonAutoTuner:
    """Measures every configuration of a callable and keeps the fastest of those with right results.

    Not safe to use from several threads at once; its cache is.

    Args:
        kernel_fn: Called as `kernel_fn(*args, **kwargs, **config)`.
        config_space: Name to candidate values.
        warmup_runs: Untimed calls per config, 0 or more.
        benchmark_runs: Timed calls per config, 1 or more.
        cache_dir: Folder of the config cache; None keeps it in memory only.

    Attributes:
        cache: The config cache.
        all_configs: Every config, in product order, the last name fastest.
        timer: The clock; None takes the host's clock, and for CUDA tensors the clock that `tune` would take.
        reference: Returns the right result for the same arguments; None, as at first, judges by the first config that
            runs, as `tune` does by its default.
        check: Whether results are judged, as at first; False takes times alone, and says so.

    Raises:
        KernelTypeError: `kernel_fn` is not callable.
        SpaceError: The space is empty, or holds values that cannot be stored.
        SettingsError: A number of runs is out of range.
        CacheError: `cache_dir` cannot be a folder, or is empty.
    """

    def __init__(
        self,
        kernel_fn: Callable[..., Any],
        config_space: Mapping[str, Sequence[Any]],
        warmup_runs: int = 10,
        benchmark_runs: int = 100,
        cache_dir: str | None = None,
    ) -> None:
        if hasattr(kernel_fn, "arg_names") and hasattr(kernel_fn, "run"):
            message = f"{kernel_fn!r} is a Triton kernel, which is launched with a grid and not called"
            hint = "give a function that launches it: def run(x, BLOCK): kernel[grid](x, BLOCK=BLOCK)"
            raise KernelTypeError(message, hint=hint)
        self._kernel = FunctionKernel(kernel_fn)
        self._space = ConfigSpace(config_space)  # it makes tunables of plain lists
        self.kernel_fn = kernel_fn
        self.config_space = config_space
        self.warmup_runs = int(SettingsError.checked("warmup_runs", warmup_runs, 0, whole=True))
        self.benchmark_runs = int(SettingsError.checked("benchmark_runs", benchmark_runs, 1, whole=True))
        self.cache = ConfigCache(cache_dir)
        self.all_configs: list[dict[str, Any]] = [
            dict(config.with_members(self._space.members)) for config in self._space
        ]
        self.timer: Timer | None = None
        self.reference: Callable[..., Any] | None = None
        self.check = True

    def tune(
        self,
        *args: Any,
        problem_size: Any = None,
        device: str | None = None,
        kernel_type: str = "unknown",
        performance: PerformanceProfile | None = None,
        **kwargs: Any,
    ) -> TuningResult:
        """Measure every config on these arguments, or only the cached winner where it is in the space and runs.

        A config whose results are not those of the reference, else of the first config that runs, ends as `wrong`: what
        its first and its last warm-up call return and change is judged by the rule of `triton_ops.tune`. A result that
        goes wrong in timed calls only is not seen, and without warm-up calls none is: no call is made beyond those that
        were asked for. `verified` says what results were compared with.

        Tensors among the arguments are restored at the end, also those that a config writes, and their gradients.

        Args:
            *args: Passed to `kernel_fn`.
            problem_size: Names the cache entry, together with `device`; nothing is cached without both.
            device: A label that separates cache entries: `cuda:0`, `cuda:1` and a device's name make three.
            kernel_type: Third part of the cache entry's name.
            performance: The work of one call, from which throughput and bandwidth are computed.
            **kwargs: Passed to `kernel_fn`.

        Returns:
            The winner with its median latency and spread. On a hit `from_cache` is true, the config was measured
            again, and `all_results` is empty.

        Raises:
            ConfigCollisionError: A tunable has the name of an argument passed here.
            UnknownTunableError: `kernel_fn` takes no keyword of a tunable's name.
            ConfigValueError: The cache cannot hold `problem_size`; see `ConfigCache.set`.
            SettingsError: `performance` is no profile, or `check` no truth.
            TargetError: The reference raises, or gives another result each time.
            KernelTypeError: A tensor is sparse or nested.
            TuningFailedError: Every config failed; the error holds the reason of each.

        Cost: exactly `warmup_runs + benchmark_runs` calls per config; a copy of the arguments' tensors and of the
        results of one config; the reference is called two or three times, on a further copy. On a GPU a few more calls
        of the first config choose the timer, and there are the copies that keep L2 cold. A call that takes less than
        0.2 ms there is timed by replays of a graph, as by `tune`: `benchmark_runs` is then the number of replays, each
        of several calls. A config that does nothing on the GPU fails there.
        """
        start = time.monotonic()
        arguments = Arguments(args, kwargs)
        for tensor in arguments.tensors():
            TensorSpec.check_layout(tensor, "an argument")
        self._kernel.check(self._space.tunables, arguments)
        if performance is not None and not callable(getattr(performance, "metrics", None)):
            message = f"performance is {performance!r}; it must be a PerformanceProfile"
            raise SettingsError(message, hint="PerformanceProfile.gemm(M, N, K)")
        manner = Manner(reference=as_callable("reference", self.reference), check=self.check)
        label = (kernel_type, problem_size, device) if device not in (None, "") and _is_given(problem_size) else None
        shared_timer = _shared_timer(arguments, device)
        subject = Subject.on(arguments, shared_timer.sets)
        with _restored(subject):
            if label is not None and (hit := self._cached(label)) is not None:
                judge = ConfigJudge(subject.first, manner.reference, manner.check)
                (trial,), _ = self._measure([hit], subject, shared_timer, judge)
                if trial.ok:
                    return TuningResult(
                        **self._figures(trial, performance), problem_size=problem_size, device=device, from_cache=True,
                        all_results=[], confidence=ALONE, stopped="cached", elapsed_s=time.monotonic() - start,
                        verified=judge.against,
                    )  # fmt: skip
                warn("cached config (%s) failed, searching again: %s", hit, trial.error)
            judge = ConfigJudge(subject.first, manner.reference, manner.check)
            trials, arms = self._measure([Config(c) for c in self.all_configs], subject, shared_timer, judge)
        winner = _fastest(trials, problem_size)
        if label is not None:
            self.cache.set(*label, dict(winner.config))
        figures = [self._figures(trial, performance) for trial in trials if trial.ok]
        standing = standing_of(trials, arms, winner)
        if judge.doubt:
            standing["confidence"] = f"low: {judge.doubt}"
        return TuningResult(
            **self._figures(winner, performance), problem_size=problem_size, device=device, from_cache=False,
            all_results=[(each["best_config"], each["metrics"]) for each in figures], trials=tuple(trials),
            stopped="complete", elapsed_s=time.monotonic() - start, totals=Trial.totals(tuple(trials)),
            verified=judge.against,
            **standing,
        )  # fmt: skip

    def get_cached_config(self, problem_size: Any, device: str, kernel_type: str = "unknown") -> dict[str, Any] | None:
        """The cached winner; None if there is none. Nothing is measured."""
        config = self.cache.get(kernel_type, problem_size, device)
        members = self._space.members
        return config and {name: given_back(value, members.get(name, {})) for name, value in config.items()}

    def clear_cache(self) -> None:
        """Forget every winner, in memory and in the cache folder."""
        self.cache.clear()

    def _figures(self, trial: Trial, performance: PerformanceProfile | None) -> dict[str, Any]:
        """The fields of a result that a trial decides as the winner."""
        times = trial.best_measurement
        metrics = metrics_of(times, None if performance is None else performance.metrics, "performance.metrics")
        config = dict(trial.config.with_members(self._space.members))
        return {"best_config": config, "metrics": metrics, "mode": times.mode, "winner": trial}

    def _cached(self, label: tuple[str, Any, str]) -> Config | None:
        if not (entry := self.cache.get(*label)):
            return None
        try:
            config = Config.from_json(entry)
            reason = self._space.why_not(config)
        except ConfigValueError as error:  # set by other code, with a value that no space can hold
            reason = error.message
        if reason is not None:
            warn("cached config %s is not in this space (%s), searching again", entry, reason)
            return None
        return config

    def _measure(
        self, configs: Sequence[Config], subject: Subject, shared_timer: SharedTimer, judge: ConfigJudge
    ) -> tuple[list[Trial], list[Arm]]:
        """One trial and one arm per config, in the order given; each config is called exactly as often as asked.

        All are warmed up one after the other, then timed in rounds; each timed call finds the same arguments. Without
        warm-up runs it is not known whether a config writes its arguments, so they are always restored.
        """
        members = [config.with_members(self._space.members) for config in configs]
        executables = [self._kernel.compile(config, subject.arguments) for config in members]
        subject.restores, arms = self.warmup_runs == 0, list[Arm]()
        with contextlib.redirect_stdout(_WithoutDumps(sys.stdout)), measuring(shared_timer.device_name):
            for config, executable in zip(configs, executables, strict=True):
                call, fault = executable.bind(subject.arguments), partial(judge.fault, config)
                arms.append(Arm(_NEVER, error=self._warm_up(call, subject, fault)))
                _restore(subject)
            timer = self._prepare(arms, [subject.launch(executable) for executable in executables], shared_timer)
            self._time(arms, timer)
        return [_trial(config, arm, timer) for config, arm in zip(configs, arms, strict=True)], arms

    def _prepare(self, arms: Sequence[Arm], launches: Sequence[Launch], shared_timer: SharedTimer) -> Timer:
        """Choose the timer by the first config that works, and prepare the samplers of all; graphs for all or none."""
        if self.timer is not None:
            shared_timer.timer = self.timer

        def prepared(timer: Timer) -> Timer:
            each = None if timer.mode.startswith("graph") else 1
            for arm, launch in zip(arms, launches, strict=True):
                if arm.error is None:
                    with _empty_fails(arm):
                        arm.sampler = timer.prepare(launch, each)
            return timer

        for arm, launch in zip(arms, launches, strict=True):
            if arm.error is None:
                with _empty_fails(arm):
                    shared_timer.start(launch)
            if arm.error is None:
                return shared_timer.prepare_all(launch, prepared)
        return HostTimer()  # nothing is timed

    def _time(self, arms: Sequence[Arm], timer: Timer) -> None:
        """Exactly `benchmark_runs` timed calls of every arm, spread over rounds."""
        each = max(1, self.benchmark_runs // _ROUNDS)
        rounds = Rounds(timer=timer, rng=random.Random(0))
        full, rest = divmod(self.benchmark_runs, each)
        for samples, count in ((each, full), *([(rest, 1)] if rest else [])):
            for arm in arms:
                arm.visit_samples = samples
            rounds.run(arms, count)

    def _warm_up(self, call: Callable[[], Any], subject: Subject, fault: Callable[[Any], str]) -> Exception | None:
        """Call a config untimed; what its first and its last call do to the arguments as they were must be right."""
        try:
            for run in range(1, self.warmup_runs + 1):
                if run == self.warmup_runs:
                    _restore(subject)
                answer = call()
                if run in (1, self.warmup_runs) and (how := fault(answer)):
                    raise CandidateError(Status.WRONG, how if run == 1 else f"called again, {how}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit too; it ends this config
            return CandidateError.of(error, Status.RUNTIME)  # without the frames, which hold the call's allocations
        return None


def _restore(subject: Subject) -> None:
    """Undo what calls have changed in the arguments, which is then undone before each timed call too."""
    if subject.first.changed():
        subject.first.restore()
        subject.restores = True


@contextlib.contextmanager
def _restored(subject: Subject) -> Iterator[None]:
    """Give the arguments back their content, and their gradients, to which a config that goes backward adds."""
    leaves = [tensor for tensor in subject.arguments.tensors() if tensor.is_leaf and tensor.requires_grad]
    saved = [(leaf, leaf.grad, None if leaf.grad is None else leaf.grad.detach().clone()) for leaf in leaves]
    try:
        yield
    finally:
        subject.first.restore()
        for leaf, grad, content in saved:
            if grad is not None:
                grad.detach().copy_(content)
            leaf.grad = grad


def _is_given(problem_size: Any) -> bool:
    """Tell whether a problem is named: not by None, 0 or nothing. Of an array the cache says what it takes."""
    try:
        return bool(problem_size)
    except (ValueError, RuntimeError):
        return True


def _shared_timer(arguments: Arguments, device: str | None) -> SharedTimer:
    """The timer of the device that the tensors are on, else of the host; without tensors the label `device` decides."""
    places = [str(tensor.device) for tensor in arguments.tensors()]
    name = next((place for place in places if place != "cpu"), "cpu")
    if not places and str(device).startswith("cuda") and gpu_missing() is None:
        name = "cuda"
    return SharedTimer(probe(name), name)


@contextlib.contextmanager
def _empty_fails(arm: Arm) -> Iterator[None]:
    """Let a config fail whose work a graph would miss."""
    try:
        yield
    except EmptyCaptureError as error:
        arm.error = error


def _trial(config: Config, arm: Arm, timer: Timer) -> Trial:
    if arm.error is None:
        return Trial(config, Status.OK, Measurement(tuple(arm.samples_ms), timer.mode))
    error = CandidateError.of(arm.error, Status.RUNTIME)
    warn("config (%s) failed: %s", config, error)
    return Trial(config, error.status, error=str(error))


def _fastest(trials: Sequence[Trial], problem_size: Any) -> Trial:
    ok = [trial for trial in trials if trial.ok]
    if ok:
        return min(ok, key=lambda trial: trial.median_ms)  # the first of equals
    failures = [(dict(trial.config), f"{trial.status}: {trial.error}") for trial in trials]
    last = failures[-1][1] if failures else None
    message = f"none of {len(trials)} configs ran; the last one failed with {last}"
    hint = "every config's reason is in the error's `failures`"
    raise TuningFailedError(message, problem_size, len(trials), last, failures, hint=hint)


_PTXAS_DUMP = "please share the reproducer above with Triton project"  # ends what a failing ptxas prints


class _WithoutDumps:
    """A stream without Triton's dumps of a failing ptxas; everything else gets there at once."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        self._dropped = _PTXAS_DUMP in text or (self._dropped and text == "\n")  # print writes its newline apart
        return len(text) if self._dropped else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


SHORTEST_MS = 1e-9  # used for a latency of 0, which only a clock too coarse for the kernel can report
A100_BANDWIDTH_GBPS = 2039.0  # of 80 GB by datasheet: assumed where no device is known
_UNKNOWN = Work()


@dataclass(frozen=True)
class PerformanceProfile:
    """The work of one call, which turns a latency into metrics.

    Attributes:
        work: Operations and bytes per call; zeros where they are not known.
        name: The kind of work, such as `gemm`.
    """

    work: Work = _UNKNOWN
    name: str = "latency_only"

    @classmethod
    def latency_only(cls) -> PerformanceProfile:
        """A profile without known work, which gives throughput and bandwidth of 0."""
        return cls()

    @classmethod
    def elementwise(cls, numel: int, bytes_per_element: int = 2) -> PerformanceProfile:
        """One tensor of `numel` elements read, one written: 2 · numel · bytes; no operations.

        Raises:
            SettingsError: A number is not a positive integer; it is a ValueError as well.
        """
        count, size = _positive("numel", numel), _positive("bytes_per_element", bytes_per_element)
        return cls(Work(bytes=2.0 * count * size), "elementwise")

    @classmethod
    def gemm(cls, M: int, N: int, K: int, bytes_per_element: int = 2) -> PerformanceProfile:
        """[M, K] times [K, N]: 2·M·N·K operations, (M·K + K·N + M·N) elements moved.

        Raises:
            SettingsError: A number is not a positive integer; it is a ValueError as well.
        """
        m, n, k, size = _sizes(M, N, K, bytes_per_element)
        return cls(Work(2.0 * m * n * k, float((m * k + k * n + m * n) * size)), "gemm")

    @classmethod
    def gated_mlp(cls, M: int, N: int, K: int, bytes_per_element: int = 2) -> PerformanceProfile:
        """activation(x·gate) · (x·up) with x [M, K] and two [K, N] weights: 4·M·N·K operations.

        Elements moved: M·K + 2·K·N + M·N. The activation's own operations are not counted.

        Raises:
            SettingsError: A number is not a positive integer; it is a ValueError as well.
        """
        m, n, k, size = _sizes(M, N, K, bytes_per_element)
        return cls(Work(4.0 * m * n * k, float((m * k + 2 * k * n + m * n) * size)), "gated_mlp")

    def metrics(self, latency_ms: float, peak_bandwidth_gbps: float | None = None) -> KernelMetrics:
        """The metrics of a call that took `latency_ms`.

        Args:
            latency_ms: Milliseconds per call; 0 counts as 1e-9.
            peak_bandwidth_gbps: 10^9 bytes per second that count as 100 %. None takes the datasheet figure of the
                present GPU; without a GPU, or with one whose figure is not known, it is 2039 GB/s, that of an A100 80
                GB.

        Raises:
            SettingsError: A number is negative, NaN, infinite, or no number; it is a ValueError as well.

        Cost: the first call without a peak looks for a GPU, which imports torch where it is installed.
        """
        latency = float(SettingsError.checked("latency_ms", latency_ms, 0, hint="give milliseconds")) or SHORTEST_MS
        peak = _peak("peak_bandwidth_gbps", peak_bandwidth_gbps)
        gbps = self.work.gbps(latency)
        percent = gbps / (peak or probe().bandwidth_gbps or A100_BANDWIDTH_GBPS) * 100 if gbps else 0.0
        return KernelMetrics(latency, self.work.tflops(latency), gbps, bandwidth_utilization=percent)


def metrics_of(times: Measurement, compute: Callable[[float], Any] | None, name: str) -> KernelMetrics:
    """The metrics of a call with its spread; `compute`, of that name, makes them from milliseconds.

    None leaves the latency alone.
    """
    metrics = KernelMetrics(times.median_ms) if compute is None else compute(times.median_ms)
    if not isinstance(metrics, KernelMetrics):
        raise SettingsError(f"{name} returns a {type(metrics).__name__}; it must return KernelMetrics")
    return replace(metrics, p20_ms=times.p20_ms, p80_ms=times.p80_ms)


def compute_gemm_metrics(
    M: int,
    N: int,
    K: int,
    latency_ms: float,
    peak_tflops: float | None = None,
    peak_bandwidth_gbps: float | None = None,
    bytes_per_element: int = 2,
) -> KernelMetrics:
    """Metrics of a matrix product [M, K] · [K, N].

    TFLOP/s = 2·M·N·K / (ms · 10^9); GB/s = (M·K + K·N + M·N) · bytes_per_element / (ms · 10^6); utilisation = GB/s as
    percent of the peak bandwidth.

    Args:
        M: Rows of the result.
        N: Columns of the result.
        K: Length of the inner products.
        latency_ms: Milliseconds per call; 0 counts as 1e-9.
        peak_tflops: Checked, and without effect: no field of the result is relative to it.
        peak_bandwidth_gbps: As in `PerformanceProfile.metrics`: None is the peak of the present GPU, else 2039 GB/s.
            That figure, like 312 TFLOP/s, is an A100's; on an H200 it would overstate the utilisation by 2.4.
        bytes_per_element: Bytes of an element of any of the three matrices.

    Raises:
        SettingsError: A size is not a positive integer, or another number is negative, NaN or infinite; it is a
            ValueError as well.
    """
    _peak("peak_tflops", peak_tflops)
    return PerformanceProfile.gemm(M, N, K, bytes_per_element).metrics(latency_ms, peak_bandwidth_gbps)


def compute_elementwise_metrics(
    numel: int, latency_ms: float, bytes_per_element: int = 2, peak_bandwidth_gbps: float | None = None
) -> KernelMetrics:
    """Metrics of an operation that reads one tensor and writes one of the same size.

    GB/s = 2 · numel · bytes_per_element / (ms · 10^6); TFLOP/s is 0, since bandwidth is the limit.

    Args:
        numel: Elements of the tensor.
        latency_ms: Milliseconds per call; 0 counts as 1e-9.
        bytes_per_element: Bytes of an element of input and output.
        peak_bandwidth_gbps: As in `PerformanceProfile.metrics`.

    Raises:
        SettingsError: A size is not a positive integer, or another number is negative, NaN or
            infinite; it is a ValueError as well.
    """
    return PerformanceProfile.elementwise(numel, bytes_per_element).metrics(latency_ms, peak_bandwidth_gbps)


def _sizes(M: Any, N: Any, K: Any, bytes_per_element: Any) -> tuple[int, int, int, int]:
    return (_positive("M", M), _positive("N", N), _positive("K", K), _positive("bytes_per_element", bytes_per_element))


def _positive(name: str, value: Any) -> int:
    return int(SettingsError.checked(name, value, whole=True, hint=f"pass int({name})"))


def _peak(name: str, value: Any) -> float | None:
    return None if value is None else float(SettingsError.checked(name, value, hint="None takes the device's own"))
