"""A replay that is like a tune: the tuning loop itself on a clock of its own, with recorded times in place of a GPU.

Proposals wait in the feed, compilers take as long as they were recorded to take, the search sees previews as they are
done and measures what is compiled first, measurements are noisy, and the search ends where a tune would end. Only
compiling and measuring are simulated; the loop, the feed, the previews and the queue of the compilers are a tune's own.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, replace

from triton_ops.compile_pool.queue import CompileJob, Queue
from triton_ops.evaluation.station import StationFacts
from triton_ops.feed.compiled import feed_over
from triton_ops.hardware import machine_of, spec_named
from triton_ops.history.run_log import RunLog
from triton_ops.progress.events import Silent
from triton_ops.replay.recording import Recording
from triton_ops.runner.loop import TuningLoop
from triton_ops.search import Searcher
from triton_ops.space import Config
from triton_ops.task.budget import RunningBudget
from triton_ops.task.effort import Effort
from triton_ops.trial import Compiled, Measurement, Status, Trial

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
        seconds: Seconds of the whole tune.
        trials: Number of trials.
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
    chosen = _chosen(list(loop.trials.values()), recording, effort, loop.default)
    regret = math.inf if chosen is None else chosen / recording.best_ms - 1
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
    """Compilers that take as long for each config as was recorded.

    Args:
        recording: The recording with the compilers' figures and seconds.
        clock: The clock that they work by.
        workers: Number of them.
    """

    def __init__(self, recording: Recording, clock: VirtualClock, workers: int) -> None:
        self._recording, self._clock, self.workers = recording, clock, workers
        self._queue = Queue(max(1, workers // 2))
        self._running: list[tuple[float, int, CompileJob]] = []
        self._begun = 0

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
            self._begun += 1
            heapq.heappush(self._running, (self._clock.now_s + took_s, self._begun, job))

    def _end_one(self) -> None:
        ended_s, _, job = heapq.heappop(self._running)
        self._clock.now_s = max(ended_s, self._clock.now_s)
        job.future.set_result(self._made(job.config))
        self._queue.done(job)
        self._begin()

    def _made(self, config: Config) -> Compiled:
        found = self._recording.compiled.get(config)
        return Compiled(config, Status.OK, "") if found is None else found


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


def _chosen(trials: Iterable[Trial], recording: Recording, effort: Effort, default: Config) -> float | None:
    """The recorded time of the config that the last comparison chooses: the best of those that measured well.

    None if no config ran.
    """
    ran = sorted((trial for trial in trials if trial.ok), key=lambda trial: trial.rank)
    if not ran:
        return None
    near = [trial for trial in ran if trial.median_ms <= (1 + effort.near) * ran[0].median_ms][: effort.finalists]
    configs = {trial.config for trial in near} | {trial.config for trial in ran if trial.config == default}
    return min(recording.trials[config].median_ms for config in configs)
