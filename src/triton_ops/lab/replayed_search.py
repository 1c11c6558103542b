"""A replay: one search on one recording, which answers with its recorded times.

Proposals wait in the feed, compilers take as long as they were recorded to take, the search sees previews as they are
done and measures what is compiled first, measurements are noisy, and the search ends where a tune would end. Only
compiling and measuring are simulated; the loop, the feed, the previews and the queue of the compilers are a tune's own.
"""

from __future__ import annotations

import heapq
import logging
import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, replace

from triton_ops.compilation import Queue
from triton_ops.cost_model import InferredPrior, ModelPrior, Readings, recorded_model
from triton_ops.device import machine_of, spec_named
from triton_ops.evaluation import StationFacts
from triton_ops.exceptions import SpaceError
from triton_ops.lab.recording import Recording
from triton_ops.records import RunLog
from triton_ops.request import Effort, RunningBudget
from triton_ops.search import Prior, ProblemPlace, Searcher, UsesPreviews, expected_gain, make_transfer
from triton_ops.space import Config
from triton_ops.timing import INDIFFERENCE
from triton_ops.tuner import Silent, TuningLoop, feed_over
from triton_ops.values import Compiled, Measurement, Status, Trial

_LAUNCHES = 20  # of a screening
_USUAL_COMPILE_S = 0.3  # where the recording has no time
_READ_S = 0.03  # to read what a config does from its TTIR


@dataclass(frozen=True, kw_only=True)
class LiveConditions:
    """The machine and the GPU of a simulated tune.

    Attributes:
        compilers: Processes that compile.
        compilers_s: Seconds until they are ready.
        worker_s: Seconds until the process that measures is ready.
        trial_s: Seconds of a trial beside its launches.
        noise: Standard deviation of the logarithm of a measured time.
    """

    compilers: int = 16
    compilers_s: float = 1.0
    worker_s: float = 3.0
    trial_s: float = 0.025
    noise: float = 0.01


@dataclass(frozen=True)
class LiveRun:
    """The outcome of one simulated tune.

    Attributes:
        regret: The time of the config that was chosen over the best recorded time, less 1.
        stopped: Why the search ended.
    """

    regret: float
    _: KW_ONLY
    seconds: float
    trials: int
    stopped: str


def live_replay(
    recording: Recording,
    searcher: Searcher,
    effort: Effort,
    *,
    seed: int = 0,
    conditions: LiveConditions | None = None,
    texts_read: int = 0,
) -> LiveRun:
    """Simulate one tune on a recording.

    Args:
        recording: The recording with the times.
        searcher: A new searcher of the recording's space.
        effort: The effort of the tune.
        seed: The seed of the noise.
        conditions: The machine; None takes one with 16 compilers.
        texts_read: Texts of the kernel that are read before the search, which takes time.
    """
    conditions = conditions or LiveConditions()
    clock = VirtualClock(conditions.compilers_s + _READ_S * texts_read / conditions.compilers)
    compilers = SimulatedCompilers(recording, clock, conditions.compilers)
    spec = spec_named(recording.device)
    machine = machine_of(spec) if spec is not None else None
    feed = feed_over(compilers, machine, effort, searcher, wait=compilers.wait)
    loop = TuningLoop(
        space=recording.space,
        searcher=searcher,
        budget=RunningBudget(effort.budget, clock, start=0.0, reserve_s=effort.final_s),
        log=RunLog(),
        listener=Silent(),
        default=recording.space.default_config,
        feed=feed,
        worthwhile=effort.worthwhile,
    )
    loop.prepare([])
    compilers.advance(max(conditions.worker_s, clock.now_s))
    loop.run(SimulatedStation(recording, compilers, conditions, random.Random(seed)))
    chosen_ms = _chosen_ms(list(loop.trials.values()), recording, effort, loop.default)
    regret = math.inf if chosen_ms is None else chosen_ms / recording.best_ms - 1
    seconds = clock.now_s + effort.race.seconds
    return LiveRun(regret, seconds=seconds, trials=len(loop.trials), stopped=loop.stopped)


class VirtualClock:
    """Seconds that pass only when something is simulated to take time."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Seconds now."""
        return self.now_s


class SimulatedCompilers:
    """Compilers that take as long for each config as was recorded."""

    def __init__(self, recording: Recording, clock: VirtualClock, workers: int) -> None:
        self._recording, self._clock, self.workers = recording, clock, workers
        self._queue = Queue(max(1, workers // 2))
        self._running: list[tuple[float, int, Queue.Job]] = []
        self._count = 0

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:  # noqa: ARG002
        """Compile a config, as the compile pool does; no rule refuses any."""
        future = self._queue.add(config, spare)
        self._begin()
        return future

    def advance(self, to_s: float) -> None:
        """Let time pass, in which the compilers work."""
        while self._running and self._running[0][0] <= to_s:
            self._end_one()
        self._clock.now_s = max(to_s, self._clock.now_s)

    def pass_time(self, seconds: float) -> None:
        """Let some seconds pass, in which the compilers work."""
        self.advance(self._clock.now_s + seconds)

    def wait(self, futures: Sequence[Future[Compiled]]) -> None:
        """Let time pass until one of the futures is done."""
        while not any(future.done() for future in futures):
            self._end_one()

    def _begin(self) -> None:
        while len(self._running) < self.workers and (job := self._queue.take()) is not None:
            took_s = self._recording.trials[job.config].compile_s or _USUAL_COMPILE_S
            self._count += 1
            heapq.heappush(self._running, (self._clock.now_s + took_s, self._count, job))

    def _end_one(self) -> None:
        ended_s, _, job = heapq.heappop(self._running)
        self._clock.now_s = max(ended_s, self._clock.now_s)
        job.future.set_result(self._compilation(job.config))
        self._queue.done(job)
        self._begin()

    def _compilation(self, config: Config) -> Compiled:
        compiled = self._recording.compiled.get(config)
        return Compiled(config, Status.OK, "") if compiled is None else compiled


class SimulatedStation:
    """Answers with recorded times, each with noise, and takes the time that measuring takes.

    Args:
        recording: The recording with the times.
        compilers: They go on while a config is measured.
        conditions: How long a trial takes, and how noisy it is.
        rng: The source of the noise.
    """

    def __init__(
        self, recording: Recording, compilers: SimulatedCompilers, conditions: LiveConditions, rng: random.Random
    ) -> None:
        self._recording, self._compilers, self._conditions, self._rng = recording, compilers, conditions, rng
        self.facts = StationFacts(mode="recorded")

    def attempt(self, config: Config, best: Trial | None) -> Trial:  # noqa: ARG002
        """The recorded trial with noise."""
        trial = self._recording.trials[config]
        launches_s = _LAUNCHES * trial.median_ms / 1e3 if trial.ok else 0.0
        self._compilers.pass_time(self._conditions.trial_s + launches_s)
        if trial.measurement is None:
            return trial
        noisy = trial.median_ms * math.exp(self._rng.gauss(0.0, self._conditions.noise))
        return replace(trial, measurement=Measurement((noisy,), trial.measurement.mode))


def _chosen_ms(trials: Iterable[Trial], recording: Recording, effort: Effort, default: Config) -> float | None:
    """The recorded time of the config that the last comparison chooses: the best of those that measured well.

    None if no config ran.
    """
    measured = sorted((trial for trial in trials if trial.ok), key=lambda trial: trial.rank)
    if not measured:
        return None
    limit_ms = (1 + effort.near) * measured[0].median_ms
    near = [trial for trial in measured if trial.median_ms <= limit_ms][: effort.finalists]
    configs = {trial.config for trial in near} | {trial.config for trial in measured if trial.config == default}
    return min(recording.trials[config].median_ms for config in configs)


_log = logging.getLogger("triton_ops")


def priors_for(target: Recording, undeclared: bool = False) -> list[Prior]:
    """The model of the declared work, else of the work that was read of the kernel; empty if there is no forecast.

    Args:
        target: The recording that is searched.
        undeclared: Whether a declared work is passed over.
    """
    model = None if uses_readings(target, undeclared) else recorded_model(target.head)
    if model is not None:
        return [ModelPrior(model)]
    readings, spec = recorded_readings(target), spec_named(target.device)
    machine = machine_of(spec) if spec is not None else None
    if readings is None or machine is None:
        return []
    prior = InferredPrior(readings, machine, list(target.space))
    return [] if prior.silent else [prior]


def uses_readings(target: Recording, undeclared: bool) -> bool:
    """Return True if a search goes by what was read of the kernel: only if no work is declared that counts."""
    return undeclared or recorded_model(target.head) is None


def recorded_readings(target: Recording) -> Readings | None:
    """The readings of the recorded kernel; None, with a warning, if they have another version's form."""
    plain = target.head.get("inferred")
    if not isinstance(plain, Mapping):
        return None
    try:
        return Readings.from_json(plain)
    except SpaceError as error:
        _log.warning("%s is searched without a model: %s", target.file, error.message)
        return None


def transfers_for(target: Recording, records: Sequence[Recording]) -> list[Prior]:
    """The recordings in `records` of the same kernel with the same tunables as priors, nearest first.

    A recording of the same problem and device is left out, because it would give the answer away.
    """
    helpful = [other for other in records if _helps(target, other)]
    helpful.sort(key=lambda other: (_distance(target, other), other.file))
    transfers = (make_transfer(target.space, list(o.trials.values()), _distance(target, o)) for o in helpful)
    return [transfer for transfer in transfers if transfer is not None]


def _helps(target: Recording, other: Recording) -> bool:
    same_kernel = target.kernel == other.kernel and set(target.space.tunables) == set(other.space.tunables)
    return same_kernel and not target.same_place(other)


def _distance(target: Recording, other: Recording) -> float:
    by_tensors = bool(target.arguments and other.arguments)
    return _place(target, by_tensors).distance(_place(other, by_tensors))


def _place(recording: Recording, by_tensors: bool) -> ProblemPlace:
    """The place of a recording: by its tensors as in a live tune if both recordings have them, else by its extents."""
    if by_tensors:
        return ProblemPlace.of_arguments(recording.arguments, recording.device)
    return ProblemPlace.of_shape(recording.problem, recording.dtype, recording.device)


@dataclass(frozen=True)
class ReplayRun:
    """The course of one replayed search.

    Attributes:
        fractions: The best recorded time over the best time found so far, after each evaluation; 0 until a config ran.
            An evaluation is a distinct config that the search asked to measure, also one that failed. Previews do not
            count, because they use no device.
        overhead_s: Seconds of the search itself for each evaluation, in `ask` and `tell`.
        ended: Number of evaluations after which the search expected to gain less than the noise; None if never.
        previews: Number of previews that the search was shown.
    """

    fractions: tuple[float, ...]
    overhead_s: tuple[float, ...]
    _: KW_ONLY
    ended: int | None = None
    previews: int = 0

    def at(self, budget: int) -> float:
        """The fraction after `budget` evaluations, or after the last one if there were fewer."""
        return self.fractions[min(budget, len(self.fractions)) - 1] if self.fractions else 0.0

    def first_within(self, share: float) -> int | None:
        """Number of evaluations until a config at most `share` slower than the best was found; None if never."""
        return next((count for count, fraction in enumerate(self.fractions, 1) if fraction * (1 + share) >= 1), None)


@dataclass(frozen=True)
class PreviewAllowance:
    """Number of previews that a search may have, about as many as the compilers of a live tune manage.

    Attributes:
        first: Previews before the first evaluation. Sixteen compilers manage 128 in three seconds, about as long as a
            process that measures takes to start.
        each: Previews per evaluation, while a config is measured.
    """

    first: int = 128
    each: int = 8


def replay(
    recording: Recording,
    searcher: Searcher,
    budget: int,
    *,
    batch: int = 1,
    previews: PreviewAllowance | None = None,
) -> ReplayRun:
    """Let `searcher` try up to `budget` configs of `recording`, and tell it their recorded times.

    The searcher sees only times of configs that it asked to measure, and the compiler's figures of these and of its
    previews.

    Args:
        recording: The recording with the times.
        searcher: A new searcher of the recording's space.
        budget: Most evaluations.
        batch: Number of configs that are asked for at a time.
        previews: Number of previews that the searcher may have; None takes the defaults. A recording without the
            compiler's figures has no previews.
    """
    allowance = previews or PreviewAllowance()
    previewing = searcher if isinstance(searcher, UsesPreviews) and recording.compiled else None
    best, evaluated = 0.0, set[Config]()
    fractions: list[float] = []
    overhead: list[float] = []
    ended: int | None = None
    preview_count = 0
    while len(fractions) < budget:
        if ended is None and expected_gain(searcher) < INDIFFERENCE:
            ended = len(fractions)
        start = time.perf_counter()
        if previewing is not None:
            most = allowance.each * batch if fractions else allowance.first
            preview_count += show_previews(recording, previewing, most)
        configs = searcher.ask(min(batch, budget - len(fractions)))
        seconds = time.perf_counter() - start
        if not configs:
            break
        trials = [recording.trials[config] for config in configs if config not in evaluated]
        evaluated.update(configs)
        start = time.perf_counter()
        searcher.tell(trials)
        seconds += time.perf_counter() - start
        for trial in trials:
            best = max(best, _fraction(recording, trial))
            fractions.append(best)
        overhead += [seconds / len(configs)] * len(trials)
    return ReplayRun(tuple(fractions), tuple(overhead), ended=ended, previews=preview_count)


def show_previews(recording: Recording, previewing: UsesPreviews, count: int) -> int:
    """Show a searcher up to `count` previews that it wants; returns the number of previews shown."""
    configs = previewing.wanted_previews(count)
    previewing.take_previews([recording.compiled[config] for config in configs])
    return len(configs)


def _fraction(recording: Recording, trial: Trial) -> float:
    return recording.best_ms / trial.median_ms if trial.ok else 0.0
