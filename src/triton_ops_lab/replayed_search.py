"""Replays: one search on one recording, which answers with its recorded times, or many of them over processes.

In a simulated tune proposals wait in the feed, and compilers take as long as they were recorded to take. The search
sees previews as they are done, and measures what is compiled first. Measurements are noisy, and the search ends where a
tune would end. Only compiling and measuring are simulated; the loop, the feed, the previews and the queue of the
compilers are a tune's own.
"""

from __future__ import annotations

import heapq
import logging
import math
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from triton_ops.base import require
from triton_ops.compilation import Queue
from triton_ops.cost_model import Model, Readings
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import SpaceError
from triton_ops.request import Effort
from triton_ops.search import Prior, ProblemPlace, Searcher, UsesPreviews, make_searcher
from triton_ops.space import Config
from triton_ops.tuner import TuningLoop
from triton_ops.values import Compiled, Status, Trial, Work
from triton_ops_lab.recording import Recording, read_recording

_LAUNCHES = 20  # of a screening
_USUAL_COMPILE_S = 0.3  # where the recording has no time
_READ_S = 0.03  # to read what a config does from its TTIR


@dataclass(frozen=True, kw_only=True)
class LiveConditions:
    """The machine and the GPU of a simulated tune."""

    compilers: int = 16  # processes
    compilers_s: float = 1.0  # until they are ready
    worker_s: float = 3.0  # until the process that measures is ready
    trial_s: float = 0.025  # of a trial beside its launches
    noise: float = 0.01  # standard deviation of the logarithm of a measured time


@dataclass(frozen=True)
class LiveRun:
    """The outcome of one simulated tune, and why its search ended."""

    regret: float  # the time of the config that was chosen over the best recorded time, less 1
    _: KW_ONLY
    seconds: float
    trials: int
    stopped: str
    within_1pct: float | None = None  # the chance of a regret of at most 1 %, as a tune says it


def simulated(
    recording: Recording, searcher: Searcher, effort: Effort, conditions: LiveConditions, *, seed: int = 0,
    texts_read: int = 0,
) -> TuningLoop:  # fmt: skip
    """The loop of one simulated tune at its end; the `texts_read` of the kernel before its search take time."""
    start_s = conditions.compilers_s + _READ_S * texts_read / conditions.compilers
    compilers = SimulatedCompilers(recording, start_s, conditions.compilers)
    machine = Machine.of(DeviceSpec.named(recording.device))
    loop = TuningLoop(
        space=recording.space, searcher=searcher, effort=effort, pool=compilers, machine=machine, wait=compilers.wait,
        start=0.0, clock=lambda: compilers.now_s,
    )  # fmt: skip
    loop.prepare([])
    compilers.advance(max(conditions.worker_s, compilers.now_s))
    loop.run(SimulatedStation(recording, compilers, conditions, random.Random(seed)))
    return loop


def live_replay(
    recording: Recording, searcher: Searcher, effort: Effort, conditions: LiveConditions, *, seed: int = 0,
    texts_read: int = 0, modelled: bool = False,
) -> LiveRun:  # fmt: skip
    """Simulate one tune as `simulated`; `modelled` says whether the searcher has a model, for the chance it tells."""
    loop = simulated(recording, searcher, effort, conditions, seed=seed, texts_read=texts_read)
    trials = list(loop.trials.values())
    return LiveRun(
        regret_of(trials, recording, effort, loop.default), seconds=loop.budget.elapsed_s + effort.race.seconds,
        trials=len(trials), stopped=loop.stopped,
        within_1pct=loop.chance_within_1pct(modelled=modelled),
    )  # fmt: skip


class SimulatedCompilers:
    """Compilers that take as long for each config as was recorded; `now_s` passes only by what is simulated."""

    def __init__(self, recording: Recording, now_s: float, workers: int) -> None:
        self._recording, self.now_s, self.workers = recording, now_s, workers
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
        self.now_s = max(to_s, self.now_s)

    def wait(self, futures: Sequence[Future[Compiled]]) -> None:
        """Let time pass until one of the futures is done."""
        while not any(future.done() for future in futures):
            self._end_one()

    def _begin(self) -> None:
        while len(self._running) < self.workers and (job := self._queue.take()) is not None:
            took_s = self._recording.trials[job.config].compile_s or _USUAL_COMPILE_S
            self._count += 1
            heapq.heappush(self._running, (self.now_s + took_s, self._count, job))

    def _end_one(self) -> None:
        ended_s, _, job = heapq.heappop(self._running)
        self.now_s = max(ended_s, self.now_s)
        compiled = self._recording.compiled.get(job.config)
        job.future.set_result(Compiled(job.config, Status.OK, "") if compiled is None else compiled)
        self._queue.done(job)
        self._begin()


@dataclass
class SimulatedStation:
    """Answers with recorded times, each with noise, and takes the time that measuring takes, while compilers go on."""

    recording: Recording
    compilers: SimulatedCompilers
    conditions: LiveConditions
    rng: random.Random  # of the noise
    lost: str | None = None

    def attempt(self, config: Config, best: Trial | None) -> Trial:  # noqa: ARG002
        """The recorded trial with noise."""
        trial = self.recording.trials[config]
        launches_s = _LAUNCHES * trial.median_ms / 1e3 if trial.ok else 0.0
        self.compilers.advance(self.compilers.now_s + self.conditions.trial_s + launches_s)
        if trial.measurement is None:
            return trial
        noisy = trial.median_ms * math.exp(self.rng.gauss(0.0, self.conditions.noise))
        return replace(trial, measurement=replace(trial.measurement, samples_ms=(noisy,)))


def regret_of(trials: Iterable[Trial], recording: Recording, effort: Effort, default: Config) -> float:
    """The regret of the config that the last comparison chooses of those that measured well; infinite if none ran."""
    measured = sorted((trial for trial in trials if trial.ok), key=lambda trial: trial.rank)
    if not measured:
        return math.inf
    limit_ms = (1 + effort.near) * measured[0].median_ms
    near = [trial for trial in measured if trial.median_ms <= limit_ms][: effort.finalists]
    configs = {trial.config for trial in near} | {trial.config for trial in measured if trial.config == default}
    return min(recording.trials[config].median_ms for config in configs) / recording.best_ms - 1


_log = logging.getLogger("triton_ops")


def priors_for(target: Recording, undeclared: bool = False) -> list[Prior]:
    """The model of the work, declared unless that is passed over, or read; empty if there is no forecast."""
    work, machine = _work_of(target, undeclared), Machine.of(DeviceSpec.named(target.device))
    if work is None or machine is None:
        return []
    if isinstance(work, Work):
        return [Model(work, machine).prior]
    prior = work.prior(machine, list(target.space))
    return [] if prior.silent else [prior]


def _work_of(target: Recording, undeclared: bool) -> Work | Readings | None:
    """The work of the recorded kernel; None, with a warning, if it has another version's form."""
    try:
        return target.work(undeclared=undeclared)
    except SpaceError as error:
        _log.warning("%s is searched without a model: %s", target.file, error.message)
        return None


def transfers_for(target: Recording, records: Sequence[Recording]) -> list[Prior]:
    """The recordings in `records` of the same kernel with the same tunables as priors, nearest first.

    A recording of the same problem and device is left out, because it would give the answer away.
    """
    helpful = [other for other in records if target.kernel == other.kernel]
    helpful = [other for other in helpful if set(target.space.tunables) == set(other.space.tunables)]
    own = (target.problem, target.dtype, target.device)
    helpful = [other for other in helpful if (other.problem, other.dtype, other.device) != own]
    helpful.sort(key=lambda other: (_distance(target, other), other.file))
    transfers = (ProblemPlace.transfer(target.space, list(o.trials.values()), _distance(target, o)) for o in helpful)
    return [transfer for transfer in transfers if transfer is not None]


def _distance(target: Recording, other: Recording) -> float:
    """The distance of recordings: by their tensors as in a live tune if both have them, else by their extents."""
    both = (target, other)
    if target.arguments and other.arguments:
        own, its = (ProblemPlace.of_arguments(one.arguments, one.device) for one in both)
    else:
        own, its = (ProblemPlace.of_shape(one.problem, one.dtype, one.device) for one in both)
    return own.distance(its)


@dataclass(frozen=True)
class ReplayRun:
    """The course of one replayed search.

    An evaluation is a distinct config that the search asked to measure, also one that failed. Previews do not count,
    because they use no device.
    """

    fractions: tuple[float, ...]  # the best time of all over the best so far, by evaluation; 0 until one ran
    overhead_s: tuple[float, ...]  # of the search itself for each evaluation, in `ask` and `tell`
    _: KW_ONLY
    previews: int = 0

    def at(self, budget: int) -> float:
        """The fraction after `budget` evaluations, or after the last one if there were fewer."""
        return self.fractions[min(budget, len(self.fractions)) - 1] if self.fractions else 0.0

    def first_within(self, share: float) -> int | None:
        """Number of evaluations until a config at most `share` slower than the best was found; None if never."""
        return next((count for count, fraction in enumerate(self.fractions, 1) if fraction * (1 + share) >= 1), None)


@dataclass(frozen=True)
class PreviewAllowance:
    """Number of previews that a search may have, about as many as the compilers of a live tune manage."""

    first: int = 128  # before the first evaluation, in three seconds: as long as a process that measures takes to start
    each: int = 8  # per evaluation, while a config is measured


def replay(
    recording: Recording, searcher: Searcher, budget: int, *, batch: int = 1, previews: PreviewAllowance | None = None
) -> ReplayRun:
    """Let `searcher` try up to `budget` configs of `recording`, and tell it their recorded times.

    The searcher sees only times of configs that it asked to measure, and the compiler's figures of these and of its
    previews; a recording without these figures has no previews.
    """
    allowance = previews or PreviewAllowance()
    previewing = searcher if isinstance(searcher, UsesPreviews) and recording.compiled else None
    best, evaluated = 0.0, set[Config]()
    fractions: list[float] = []
    overhead: list[float] = []
    preview_count = 0
    while len(fractions) < budget:
        start = time.perf_counter()
        if previewing is not None:
            previews_now = previewing.wanted_previews(allowance.each * batch if fractions else allowance.first)
            previewing.take_previews([recording.compiled[config] for config in previews_now])
            preview_count += len(previews_now)
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
            best = max(best, recording.best_ms / trial.median_ms if trial.ok else 0.0)
            fractions.append(best)
        overhead += [seconds / len(configs)] * len(trials)
    return ReplayRun(tuple(fractions), tuple(overhead), previews=preview_count)


_NEAR = 0.01


@dataclass(frozen=True)
class Share:
    """Fractions of the optimum over several runs: their mean, their median, and their first tenth."""

    mean: float
    median: float
    p10: float


@dataclass(frozen=True)
class Reach:
    """Evaluations until a goal over several runs: median and ninth tenth; None if too few runs reached the goal."""

    median: int | None
    p90: int | None


@dataclass(frozen=True, kw_only=True)
class SpaceSummary:
    """The summary of one search on one recording."""

    file: str
    search: str
    budgets: dict[int, Share]  # fractions of the optimum after each number of evaluations
    to_5pct: Reach
    to_1pct: Reach
    overhead_ms: float  # of the search itself per evaluation: the median
    overhead_mean_ms: float  # the mean, since a few evaluations take much longer
    previews: float  # mean number per run


@dataclass(frozen=True, kw_only=True)
class LiveSummary:
    """The summary of simulated tunes with one search on one recording."""

    file: str
    search: str
    within_1pct: float  # share of the tunes that chose a config within 1 % of the optimum
    regret_mean: float  # how much slower the chosen config is than the best; infinite where no config ran
    regret_worst: float  # of a tune
    promised: float | None  # the mean of the chances that the tunes told for that; None if one told none
    trials: float
    seconds: float
    stopped: dict[str, int]  # how many tunes ended for each reason


def summarise_live(file: str, search: str, runs: Sequence[LiveRun]) -> LiveSummary:
    """The summary of simulated tunes, at least one, that differ in their seed."""
    regrets = [run.regret for run in runs]
    told = [run.within_1pct for run in runs if run.within_1pct is not None]
    return LiveSummary(
        file=file, search=search, within_1pct=_mean(regret <= _NEAR for regret in regrets), regret_mean=_mean(regrets),
        regret_worst=round(max(regrets), 4), promised=_mean(told) if told else None,
        trials=_mean(run.trials for run in runs),
        seconds=_mean(run.seconds for run in runs), stopped=dict(Counter(run.stopped for run in runs)),
    )  # fmt: skip


def summarise(file: str, search: str, runs: Sequence[ReplayRun], budgets: Sequence[int]) -> SpaceSummary:
    """The summary of runs, at least one, that differ in their seed."""
    overhead = [seconds * 1e3 for run in runs for seconds in run.overhead_s]
    return SpaceSummary(
        file=file,
        search=search,
        budgets={budget: _share([run.at(budget) for run in runs]) for budget in budgets},
        to_5pct=_reach([run.first_within(0.05) for run in runs]),
        to_1pct=_reach([run.first_within(0.01) for run in runs]),
        overhead_ms=round(statistics.median(overhead), 3) if overhead else 0.0,
        overhead_mean_ms=_mean(overhead, 3) if overhead else 0.0,
        previews=_mean((run.previews for run in runs), 1),
    )


def _mean(values: Iterable[float], digits: int = 4) -> float:
    return round(statistics.fmean(values), digits)


def _share(fractions: list[float]) -> Share:
    lowest, *_ = statistics.quantiles(fractions, n=10, method="inclusive") if len(fractions) > 1 else fractions
    return Share(_mean(fractions), round(statistics.median(fractions), 4), round(lowest, 4))


def _reach(counts: list[int | None]) -> Reach:
    numbers = sorted(math.inf if count is None else count for count in counts)
    places = (max(math.ceil(share * len(numbers)), 1) - 1 for share in (0.5, 0.9))  # as many do not exceed the number
    return Reach(*(int(numbers[at]) if math.isfinite(numbers[at]) else None for at in places))


_Run = TypeVar("_Run")
Follow: TypeAlias = Callable[[Iterable[Any], int, str], Iterable[Any]]  # passes items on, and shows how many


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """The replays to run."""

    recordings: tuple[Path, ...]
    searches: tuple[str, ...]
    budgets: tuple[int, ...]  # numbers of evaluations to report; the largest is the length of a run
    seeds: int  # runs of each search, with the seeds 0, 1, …
    records: tuple[Path, ...] = ()  # other problems and devices that searches may learn from
    batch: int = 1
    model: bool = True  # a search may use the model of the kernel's work
    undeclared: bool = False  # a declared work is passed over, for what was read of the kernel
    previews: PreviewAllowance = field(default_factory=PreviewAllowance)

    def replayed(self, jobs: int, follow: Follow) -> Iterator[SpaceSummary]:
        """The summary of each recording and search, once its last seed has run; all files are read before any run."""
        for path, search, runs in self._runs(_replay, jobs, follow):
            yield summarise(path.name, search, runs, self.budgets)

    def tuned(self, effort: Effort, conditions: LiveConditions, jobs: int, follow: Follow) -> Iterator[LiveSummary]:
        """The summary of simulated tunes as of `replayed`; the numbers of evaluations do not count."""
        run = partial(_tune, effort=effort, conditions=conditions)
        for path, search, runs in self._runs(run, jobs, follow):
            yield summarise_live(path.name, search, runs)

    def _runs(
        self, run: Callable[[_Job], _Run], processes: int, follow: Follow
    ) -> Iterator[tuple[Path, str, list[_Run]]]:
        """The runs of each recording and search in the order of their seeds, as soon as there are all of them."""
        for path in (*self.recordings, *self.records):
            _read(path)
        pairs = list(product(self.recordings, self.searches))
        jobs = [_Job(self, *pair, seed) for pair in pairs for seed in range(self.seeds)]
        with ExitStack() as stack:
            runs: Iterable[_Run] = map(run, jobs)
            if processes > 1:
                pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_take_one_thread)
                stack.enter_context(pool)
                stack.callback(pool.shutdown, wait=False, cancel_futures=True)  # nobody waits for what is not begun
                with _interrupts_held():
                    futures = [pool.submit(run, job) for job in jobs]
                # Not `pool.map`, which cancels futures: before python/cpython#108974 a pool that has lost its processes
                # prints a trace for each of these.
                runs = (future.result() for future in futures)
            results = iter(follow(runs, len(jobs), "runs"))
            for path, search in pairs:
                yield path, search, list(islice(results, self.seeds))


class _Job(NamedTuple):
    plan: ReplayPlan
    recording: Path
    search: str
    seed: int


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back inside of the block, also in processes that begin there; nothing is held back on Windows."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_one_thread() -> None:
    """End at Ctrl-C without a word, and take one thread: as many as there are cores in each process are slower."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    require("scipy.linalg", "the search `auto`")  # the limit affects only libraries that are loaded
    require("threadpoolctl", "the search `auto`").threadpool_limits(1)


def _replay(job: _Job) -> ReplayRun:
    target, searcher, _ = _searcher(job)
    return replay(target, searcher, max(job.plan.budgets), batch=job.plan.batch, previews=job.plan.previews)


def _tune(job: _Job, effort: Effort, conditions: LiveConditions) -> LiveRun:
    target, searcher, modelled = _searcher(job)
    work = _work_of(target, job.plan.undeclared) if job.plan.model else None
    texts = len(work.works) if isinstance(work, Readings) else 0
    own = replace(effort, search=job.search)
    return live_replay(target, searcher, own, conditions, seed=job.seed, texts_read=texts, modelled=modelled)


def _searcher(job: _Job) -> tuple[Recording, Searcher, bool]:
    """The recording, its searcher, and whether that has a model of the work."""
    target, plan = _read(job.recording), job.plan
    records = transfers_for(target, [_read(path) for path in plan.records])
    priors = priors_for(target, plan.undeclared) if plan.model else []
    return target, make_searcher(job.search, target.space, job.seed, priors, records), bool(priors)


@lru_cache(maxsize=32)
def _read(path: Path) -> Recording:
    return read_recording(path)
