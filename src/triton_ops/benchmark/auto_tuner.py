"""`TritonAutoTuner`: the documented tuner for any callable, with an exact number of calls per configuration.

Every config is warmed up; then all are timed in rounds of random order, so that a device whose clock drifts favours no
config. For search, verification, run logs and records beyond a plain config cache, use `triton_ops.tune`.
"""

from __future__ import annotations

import contextlib
import logging
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from triton_ops.backend import Arguments, CandidateError, Executable, FunctionKernel
from triton_ops.benchmark.performance import PerformanceProfile as PerformanceProfile
from triton_ops.benchmark.performance import compute_elementwise_metrics as compute_elementwise_metrics
from triton_ops.benchmark.performance import compute_gemm_metrics as compute_gemm_metrics
from triton_ops.benchmark.plain_configs import ConfigCache
from triton_ops.benchmark.timing import measuring
from triton_ops.device import gpu_missing, probe
from triton_ops.evaluation import Subject
from triton_ops.exceptions import ConfigValueError, KernelTypeError, SettingsError, TuningFailedError
from triton_ops.space import Config, ConfigSpace, Members, given_back
from triton_ops.timing import Arm, EmptyCaptureError, HostTimer, Launch, Rounds, Sampler, SharedTimer, Timer
from triton_ops.values import KernelMetrics as KernelMetrics
from triton_ops.values import Measurement, Status, TensorSpec, Trial
from triton_ops.values import TuningResult as TuningResult

ALONE = "low: the cached winner alone was measured, and compared with nothing"
_FEWEST_ROUNDS = 2  # that show any noise


@dataclass(frozen=True)
class WinnerStanding:
    """Distance of the winner from the other configs.

    `ties` are the winner and the configs that noise does not tell from it; `noise` is the half-width of a typical 95 %
    interval of the difference of two configs, as a share; `confidence` is `ok`, or `low` with the reason.
    """

    ties: tuple[Config, ...]
    noise: float = 0.0
    confidence: str = "ok"


def standing_of(trials: Sequence[Trial], arms: Sequence[Arm], winner: Trial) -> WinnerStanding:
    """Find the configs that differ from the winner by no more than noise, in the rounds that all were timed in."""
    arms_of = {trial.config: arm for trial, arm in zip(trials, arms, strict=True) if trial.ok}
    if len(arms_of) == 1:
        return WinnerStanding((winner.config,))
    if len(arms_of[winner.config].visits) < _FEWEST_ROUNDS:
        return WinnerStanding((winner.config,), confidence="low: too few timed calls to know the noise")
    gaps = Rounds.standing(arms_of).gaps(winner.config)
    tied = [config for config, gap in gaps.items() if gap.centre <= gap.chance]
    hidden = [config for config in tied if gaps[config].margin > 0]
    configs = f"({hidden[0]})" + (f" and {len(hidden) - 1} more" if len(hidden) > 1 else "") if hidden else ""
    return WinnerStanding(
        ties=(winner.config, *tied),
        noise=statistics.median(gap.margin for gap in gaps.values()),
        confidence=f"low: noise hides whether the winner is faster than {configs}" if hidden else "ok",
    )


_log = logging.getLogger("triton_ops")

_NEVER = Sampler(lambda _: list)  # of a config that failed, or is not prepared yet
_ROUNDS = 10  # the timed calls of a config are spread over this many rounds, if there are at least as many calls


class TritonAutoTuner:
    """Measures every configuration of a callable and keeps the fastest.

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
            raise KernelTypeError(
                f"{kernel_fn!r} is a Triton kernel, which is launched with a grid and not called",
                hint="give a function that launches it: def run(x, BLOCK): kernel[grid](x, BLOCK=BLOCK)",
            )
        self._kernel = FunctionKernel(kernel_fn)
        self._space = ConfigSpace(config_space)  # type: ignore[arg-type]  # it makes tunables of plain lists
        self.kernel_fn = kernel_fn
        self.config_space = config_space
        self.warmup_runs = checked_runs("warmup_runs", warmup_runs, 0)
        self.benchmark_runs = checked_runs("benchmark_runs", benchmark_runs, 1)
        self.cache = ConfigCache(cache_dir)
        self.all_configs: list[dict[str, Any]] = [
            dict(config.with_members(self._space.members)) for config in self._space
        ]
        self.timer: Timer | None = None

    def tune(
        self,
        *args: Any,
        problem_size: Any = None,
        device: str | None = None,
        kernel_type: str = "unknown",
        performance: PerformanceProfile | None = None,
        **kwargs: Any,
    ) -> TuningResult:
        """Measure every config on these arguments, or only the cached winner.

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
            SettingsError: `performance` is no profile.
            KernelTypeError: A tensor is sparse or nested.
            TuningFailedError: Every config failed; the error holds the reason of each.

        Cost: exactly `warmup_runs + benchmark_runs` calls per config; one copy of the arguments' tensors. On a GPU a
        few more calls of the first config choose the timer, and there are the copies that keep L2 cold. A call that
        takes less than 0.2 ms there is timed by replays of a graph, as by `tune`: `benchmark_runs` is then the number
        of replays, each of several calls. A config that does nothing on the GPU fails there.
        """
        start = time.monotonic()
        arguments = Arguments(args, kwargs)
        for tensor in arguments.tensors():
            TensorSpec.check_layout(tensor, "an argument")
        self._kernel.check(self._space.tunables, arguments)
        if performance is not None and not callable(getattr(performance, "metrics", None)):
            raise SettingsError(
                f"performance is {performance!r}; it must be a PerformanceProfile",
                hint="PerformanceProfile.gemm(M, N, K)",
            )
        label = (kernel_type, problem_size, device) if device and _is_given(problem_size) else None
        shared_timer = _shared_timer(arguments, device)
        subject = Subject.on(arguments, shared_timer.sets)
        gradients = _Gradients(arguments)
        try:
            if label is not None and (hit := self._cached(label)) is not None:
                (trial,), _ = self._measure([hit], subject, shared_timer)
                if trial.ok:
                    return _result([trial], trial, performance, problem_size, device, start, self._space.members)
                _log.warning("cached config (%s) failed, searching again: %s", hit, trial.error)
            trials, arms = self._measure([Config(c) for c in self.all_configs], subject, shared_timer)
        finally:
            subject.first.restore()
            gradients.restore()
        winner = _fastest(trials, problem_size)
        if label is not None:
            self.cache.set(*label, dict(winner.config))
        standing = standing_of(trials, arms, winner)
        return _result(trials, winner, performance, problem_size, device, start, self._space.members, standing)

    def get_cached_config(self, problem_size: Any, device: str, kernel_type: str = "unknown") -> dict[str, Any] | None:
        """The cached winner; None if there is none. Nothing is measured."""
        config = self.cache.get(kernel_type, problem_size, device)
        members = self._space.members
        return config and {name: given_back(value, members.get(name, {})) for name, value in config.items()}

    def clear_cache(self) -> None:
        """Forget every winner, in memory and in the cache folder."""
        self.cache.clear()

    def _cached(self, label: tuple[str, Any, str]) -> Config | None:
        entry = self.cache.get(*label)
        if not entry:
            return None
        try:
            config = Config.from_json(entry)
            reason = self._space.why_not(config)
        except ConfigValueError as error:  # set by other code, with a value that no space can hold
            reason = error.message
        if reason is not None:
            _log.warning("cached config %s is not in this space (%s), searching again", entry, reason)
            return None
        return config

    def _measure(
        self, configs: Sequence[Config], subject: Subject, shared_timer: SharedTimer
    ) -> tuple[list[Trial], list[Arm]]:
        """One trial and one arm per config, in the order given; each config is called exactly as often as asked."""
        members = [config.with_members(self._space.members) for config in configs]
        executables = [self._kernel.compile(config, subject.arguments) for config in members]
        with _without_ptxas_dumps(), measuring(shared_timer.device_name):
            arms, timer = self._run(executables, subject, shared_timer)
        return [_trial(config, arm, timer) for config, arm in zip(configs, arms, strict=True)], arms

    def _run(
        self, executables: Sequence[Executable], subject: Subject, shared_timer: SharedTimer
    ) -> tuple[list[Arm], Timer]:
        """Warm up the configs one after the other, then time them in rounds; each timed call finds the same arguments.

        Without warm-up runs it is not known whether a config writes its arguments, so they are always restored.
        """
        subject.restores = self.warmup_runs == 0
        arms: list[Arm] = []
        for executable in executables:
            arms.append(Arm(_NEVER, error=self._warm_up(executable.bind(subject.arguments))))
            if subject.first.changed():
                subject.first.restore()
                subject.restores = True
        timer = self._prepare(arms, [subject.launch(executable) for executable in executables], shared_timer)
        self._time(arms, timer)
        return arms, timer

    def _prepare(self, arms: Sequence[Arm], launches: Sequence[Launch], shared_timer: SharedTimer) -> Timer:
        """Choose the timer, and prepare the samplers of all arms that work; graphs for all of them, or for none."""
        if self.timer is not None:
            shared_timer.timer = self.timer
        working = _starting(shared_timer, arms, launches)
        if working is None:
            return HostTimer()  # nothing is timed
        return shared_timer.prepare_all(working, lambda timer: self._prepare_with(timer, arms, launches))

    def _prepare_with(self, timer: Timer, arms: Sequence[Arm], launches: Sequence[Launch]) -> Timer:
        each = None if timer.mode.startswith("graph") else 1
        for arm, launch in zip(arms, launches, strict=True):
            if arm.error is not None:
                continue
            try:
                arm.sampler = timer.prepare(launch, each)
            except EmptyCaptureError as error:
                arm.error = error
        return timer

    def _time(self, arms: Sequence[Arm], timer: Timer) -> None:
        """Exactly `benchmark_runs` timed calls of every arm, spread over rounds."""
        each = max(1, self.benchmark_runs // _ROUNDS)
        rounds = Rounds(timer=timer, rng=random.Random(0))
        for arm in arms:
            arm.visit_samples = each
        rounds.run(arms, self.benchmark_runs // each)
        if rest := self.benchmark_runs % each:
            for arm in arms:
                arm.visit_samples = rest
            rounds.run(arms, 1)

    def _warm_up(self, call: Callable[[], Any]) -> Exception | None:
        try:
            for _ in range(self.warmup_runs):
                call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit too; it ends this config
            return CandidateError.of(error, Status.RUNTIME)  # without the frames, which hold the call's allocations
        return None


class _Gradients:
    """Sums in the gradients of arguments, to which a config that goes backward adds."""

    def __init__(self, arguments: Arguments) -> None:
        leaves = [tensor for tensor in arguments.tensors() if tensor.is_leaf and tensor.requires_grad]
        self._saved = [(leaf, leaf.grad, None if leaf.grad is None else leaf.grad.detach().clone()) for leaf in leaves]

    def restore(self) -> None:
        """Give every argument the gradient that it had."""
        for leaf, grad, content in self._saved:
            if grad is not None:
                grad.detach().copy_(content)
            leaf.grad = grad


def checked_runs(name: str, value: Any, least: int) -> int:
    """A number of runs as an int, also one of NumPy's.

    Raises:
        SettingsError: It is no whole number of `least` or more.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise SettingsError(f"{name} is {value!r}; it must be a whole number, {least} or more")
    return int(value)


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


def _starting(shared_timer: SharedTimer, arms: Sequence[Arm], launches: Sequence[Launch]) -> Launch | None:
    """The first config that works, which chooses the timer; one whose work a graph would miss fails here."""
    for arm, launch in zip(arms, launches, strict=True):
        if arm.error is not None:
            continue
        try:
            shared_timer.start(launch)
        except EmptyCaptureError as error:
            arm.error = error
        else:
            return launch
    return None


def _trial(config: Config, arm: Arm, timer: Timer) -> Trial:
    if arm.error is None:
        return Trial(config, Status.OK, Measurement(tuple(arm.samples_ms), timer.mode))
    error = CandidateError.of(arm.error, Status.RUNTIME)
    _log.warning("config (%s) failed: %s", config, error)
    return Trial(config, error.status, error=str(error))


def _fastest(trials: Sequence[Trial], problem_size: Any) -> Trial:
    ok = [trial for trial in trials if trial.ok]
    if ok:
        return min(ok, key=lambda trial: trial.median_ms)  # the first of equals
    failures = [(dict(trial.config), f"{trial.status}: {trial.error}") for trial in trials]
    last = failures[-1][1] if failures else None
    raise TuningFailedError(
        f"none of {len(trials)} configs ran; the last one failed with {last}",
        problem_size,
        len(trials),
        last,
        failures,
        hint="every config's reason is in the error's `failures`",
    )


def _result(
    trials: Sequence[Trial],
    winner: Trial,
    performance: PerformanceProfile | None,
    problem_size: Any,
    device: str | None,
    start: float,
    members: Members,
    standing: WinnerStanding | None = None,
) -> TuningResult:
    """The result of a tune; without a standing that of a winner from the cache, which was measured alone."""
    from_cache, ranked = standing is None, standing or WinnerStanding((), confidence=ALONE)
    results = [(dict(t.config.with_members(members)), _metrics(t, performance)) for t in trials if t.ok]
    return TuningResult(
        best_config=dict(winner.config.with_members(members)),
        metrics=_metrics(winner, performance),
        all_results=[] if from_cache else results,
        problem_size=problem_size,
        device=device,
        from_cache=from_cache,
        trials=() if from_cache else tuple(trials),
        ties=ranked.ties,
        noise=ranked.noise,
        confidence=ranked.confidence,
        stopped="cached" if from_cache else "complete",
        elapsed_s=time.monotonic() - start,
        mode=winner.best_measurement.mode,
        totals={} if from_cache else Trial.totals(tuple(trials)),
        winner=winner,
    )


def _metrics(trial: Trial, performance: PerformanceProfile | None) -> KernelMetrics:
    measurement = trial.best_measurement
    if performance is None:
        return KernelMetrics(measurement.median_ms, p20_ms=measurement.p20_ms, p80_ms=measurement.p80_ms)
    return replace(performance.metrics(measurement.median_ms), p20_ms=measurement.p20_ms, p80_ms=measurement.p80_ms)


_PTXAS_DUMP = "please share the reproducer above with Triton project"  # ends what a failing ptxas prints


@contextlib.contextmanager
def _without_ptxas_dumps() -> Iterator[None]:
    """Keep Triton's dumps of a failing ptxas from stdout, inside of the block; everything else gets there at once."""
    with contextlib.redirect_stdout(_WithoutDumps(sys.stdout)):
        yield


class _WithoutDumps:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        self._dropped = _PTXAS_DUMP in text or (self._dropped and text == "\n")  # print writes its newline apart
        return len(text) if self._dropped else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
