"""Replays: one search on one recording, which answers with its recorded times, or many of them over processes."""

from __future__ import annotations

import logging
import math
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from triton_ops.base import require
from triton_ops.cost_model import Model
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import SpaceError
from triton_ops.search import Prior, ProblemPlace, Searcher, UsesPreviews, make_searcher
from triton_ops.space import Config
from triton_ops.values import Work
from triton_ops_lab.recording import Recording, read_recording

_log = logging.getLogger("triton_ops")


def priors_for(target: Recording, undeclared: bool = False) -> list[Prior]:
    """The model of the work, declared unless that is passed over, or read; empty if there is no forecast.

    A work in another version's form is none, with a warning.
    """
    try:
        work = target.work(undeclared=undeclared)
    except SpaceError as error:
        _log.warning("%s is searched without a model: %s", target.file, error.message)
        return []
    machine = Machine.of(DeviceSpec.named(target.device))
    if work is None or machine is None:
        return []
    if isinstance(work, Work):
        return [Model(work, machine).prior]
    prior = work.prior(machine, list(target.space))
    return [] if prior.silent else [prior]


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

    def replayed(self, processes: int, follow: Follow) -> Iterator[SpaceSummary]:
        """The summary of each recording and search, once its last seed has run; all files are read before any run."""
        for path in (*self.recordings, *self.records):
            _read(path)
        pairs = list(product(self.recordings, self.searches))
        jobs = [_Job(self, *pair, seed) for pair in pairs for seed in range(self.seeds)]
        with ExitStack() as stack:
            runs: Iterable[ReplayRun] = map(_replay, jobs)
            if processes > 1:
                pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_take_one_thread)
                stack.enter_context(pool)
                stack.callback(pool.shutdown, wait=False, cancel_futures=True)  # nobody waits for what is not begun
                with _interrupts_held():
                    futures = [pool.submit(_replay, job) for job in jobs]
                # Not `pool.map`, which cancels futures: before python/cpython#108974 a pool that has lost its processes
                # prints a trace for each of these.
                runs = (future.result() for future in futures)
            results = iter(follow(runs, len(jobs), "runs"))
            for path, search in pairs:
                yield summarise(path.name, search, list(islice(results, self.seeds)), self.budgets)


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
    target, plan = _read(job.recording), job.plan
    records = transfers_for(target, [_read(path) for path in plan.records])
    priors = priors_for(target, plan.undeclared) if plan.model else []
    searcher = make_searcher(job.search, target.space, job.seed, priors, records)
    return replay(target, searcher, max(plan.budgets), batch=plan.batch, previews=plan.previews)


@lru_cache(maxsize=32)
def _read(path: Path) -> Recording:
    return read_recording(path)
