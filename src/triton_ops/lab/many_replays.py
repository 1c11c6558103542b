"""Many replays: every search on every recording with every seed, spread over processes."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from triton_ops.base import require
from triton_ops.lab.recording import Recording, read_recording
from triton_ops.lab.replayed_search import (
    LiveConditions,
    LiveRun,
    PreviewAllowance,
    ReplayRun,
    live_replay,
    priors_for,
    recorded_readings,
    replay,
    transfers_for,
    uses_readings,
)
from triton_ops.request import Effort
from triton_ops.search import Searcher, make_searcher

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
    """The summary of one search on one recording.

    Attributes:
        budgets: Fractions of the optimum after each number of evaluations.
        overhead_ms: Median milliseconds of the search itself per evaluation.
        overhead_mean_ms: Mean milliseconds of the search itself, since a few evaluations take much longer than others.
        previews: Mean number of previews per run; a preview does not count as an evaluation.
    """

    file: str
    search: str
    budgets: dict[int, Share]
    to_5pct: Reach
    to_1pct: Reach
    overhead_ms: float
    overhead_mean_ms: float
    previews: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The summary as plain JSON values, with fractions rounded to four digits."""
        return {
            "file": self.file,
            "search": self.search,
            "budgets": {
                str(budget): {name: round(value, 4) for name, value in asdict(share).items()}
                for budget, share in self.budgets.items()
            },
            "to_5pct": asdict(self.to_5pct),
            "to_1pct": asdict(self.to_1pct),
            "overhead_ms": round(self.overhead_ms, 3),
            "overhead_mean_ms": round(self.overhead_mean_ms, 3),
            "previews": round(self.previews, 1),
        }


@dataclass(frozen=True, kw_only=True)
class LiveSummary:
    """The summary of simulated tunes with one search on one recording.

    Attributes:
        within_1pct: Share of the tunes that chose a config within 1 % of the optimum.
        regret_mean: Mean of how much slower the chosen config is than the best.
        regret_worst: The same of the worst tune.
        stopped: How many tunes ended for each reason.
    """

    file: str
    search: str
    within_1pct: float
    regret_mean: float
    regret_worst: float
    trials: float
    seconds: float
    stopped: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The summary as plain JSON values; a tune in which no config ran has no regret, which is null."""
        rounded = {name: round(value, 4) for name, value in asdict(self).items() if isinstance(value, float)}
        return {**asdict(self), **{name: v if math.isfinite(v) else None for name, v in rounded.items()}}


def summarise_live(file: str, search: str, runs: Sequence[LiveRun]) -> LiveSummary:
    """The summary of simulated tunes, at least one, that differ in their seed."""
    regrets = [run.regret for run in runs]
    return LiveSummary(
        file=file,
        search=search,
        within_1pct=statistics.fmean(regret <= _NEAR for regret in regrets),
        regret_mean=statistics.fmean(regrets),
        regret_worst=max(regrets),
        trials=statistics.fmean(run.trials for run in runs),
        seconds=statistics.fmean(run.seconds for run in runs),
        stopped=dict(Counter(run.stopped for run in runs)),
    )


def summarise(file: str, search: str, runs: Sequence[ReplayRun], budgets: Sequence[int]) -> SpaceSummary:
    """The summary of runs, at least one, that differ in their seed."""
    overhead = [seconds * 1e3 for run in runs for seconds in run.overhead_s]
    return SpaceSummary(
        file=file,
        search=search,
        budgets={budget: _share([run.at(budget) for run in runs]) for budget in budgets},
        to_5pct=_reach([run.first_within(0.05) for run in runs]),
        to_1pct=_reach([run.first_within(0.01) for run in runs]),
        overhead_ms=statistics.median(overhead) if overhead else 0.0,
        overhead_mean_ms=statistics.fmean(overhead) if overhead else 0.0,
        previews=statistics.fmean(run.previews for run in runs),
    )


def _share(fractions: list[float]) -> Share:
    lowest, *_ = statistics.quantiles(fractions, n=10, method="inclusive") if len(fractions) > 1 else fractions
    return Share(statistics.fmean(fractions), statistics.median(fractions), lowest)


def _reach(counts: list[int | None]) -> Reach:
    numbers = [math.inf if count is None else count for count in counts]
    return Reach(_whole(_nearest(numbers, 0.5)), _whole(_nearest(numbers, 0.9)))


def _whole(number: float) -> int | None:
    return int(number) if math.isfinite(number) else None


def _nearest(numbers: list[float], share: float) -> float:
    """The smallest of `numbers` that at least this share of them does not exceed."""
    return sorted(numbers)[max(math.ceil(share * len(numbers)), 1) - 1]


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """The replays to run.

    Attributes:
        budgets: Numbers of evaluations to report; the largest is the length of a run.
        seeds: Number of runs of each search, with the seeds 0, 1, …
        records: Files of recordings of other problems and devices that searches may learn from.
        model: Whether a search may use the model of the kernel's work.
        undeclared: Whether a declared work is passed over, for what was read of the kernel.
        previews: Number of previews that a search may have.
    """

    recordings: tuple[Path, ...]
    searches: tuple[str, ...]
    budgets: tuple[int, ...]
    seeds: int
    records: tuple[Path, ...] = ()
    batch: int = 1
    model: bool = True
    undeclared: bool = False
    previews: PreviewAllowance = field(default_factory=PreviewAllowance)


class _Job(NamedTuple):
    """One search on one recording with one seed."""

    plan: ReplayPlan
    recording: Path
    search: str
    seed: int


_Run = TypeVar("_Run")


def replay_all(plan: ReplayPlan, jobs: int = 1) -> Iterator[SpaceSummary]:
    """The summary of each recording and search, as soon as its last seed has run.

    Args:
        plan: The replays to run.
        jobs: Number of processes, each of one thread; 1 uses this process.

    Raises:
        RecordingError: A file is no recording; raised before any replay.
    """
    for (path, search), runs in _groups(plan, _spread(_jobs(plan), _replay, jobs)):
        yield summarise(path.name, search, runs, plan.budgets)


def replay_live(
    plan: ReplayPlan, effort: Effort, conditions: LiveConditions | None = None, jobs: int = 1
) -> Iterator[LiveSummary]:
    """The summary of simulated tunes for each recording and search, as soon as the last seed has run.

    Args:
        plan: The recordings, the searches and what they may know; numbers of evaluations do not count.
        effort: The effort of the tunes.
        conditions: The machine; None takes one with 16 compilers.
        jobs: Number of processes, each of one thread; 1 uses this process.

    Raises:
        RecordingError: A file is no recording; raised before any tune.
    """
    run = partial(_tune, effort=effort, conditions=conditions)
    for (path, search), runs in _groups(plan, _spread(_jobs(plan), run, jobs)):
        yield summarise_live(path.name, search, runs)


def _jobs(plan: ReplayPlan) -> list[_Job]:
    """Every recording with every search and every seed; all files can be read."""
    for path in (*plan.recordings, *plan.records):
        _read(path)
    return [_Job(plan, *one) for one in product(plan.recordings, plan.searches, range(plan.seeds))]


def _groups(plan: ReplayPlan, pairs: Iterable[tuple[_Job, _Run]]) -> Iterator[tuple[tuple[Path, str], list[_Run]]]:
    """The runs of each recording and search in the order of their seeds, as soon as there are all of them."""
    runs: dict[tuple[Path, str], dict[int, _Run]] = defaultdict(dict)
    for job, run in pairs:
        by_seed = runs[job.recording, job.search]
        by_seed[job.seed] = run
        if len(by_seed) == plan.seeds:
            yield (job.recording, job.search), [by_seed[seed] for seed in range(plan.seeds)]


def _spread(todo: Sequence[_Job], run: Callable[[_Job], _Run], jobs: int) -> Iterator[tuple[_Job, _Run]]:
    if jobs == 1:
        yield from ((job, run(job)) for job in todo)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_take_one_thread) as pool:
        yield from _as_they_end(pool, todo, run)


def _take_one_thread() -> None:
    """Several processes with a thread each are faster than each with as many threads as there are cores."""
    require("scipy.linalg", "the search `auto`")  # the limit affects only libraries that are loaded
    require("threadpoolctl", "the search `auto`").threadpool_limits(1)


def _as_they_end(pool: Executor, todo: Sequence[_Job], run: Callable[[_Job], _Run]) -> Iterator[tuple[_Job, _Run]]:
    waiting = {pool.submit(run, job): job for job in todo}
    try:
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _replay(job: _Job) -> ReplayRun:
    target, searcher = _searcher(job)
    return replay(target, searcher, max(job.plan.budgets), batch=job.plan.batch, previews=job.plan.previews)


def _tune(job: _Job, effort: Effort, conditions: LiveConditions | None) -> LiveRun:
    target, searcher = _searcher(job)
    reads = job.plan.model and uses_readings(target, job.plan.undeclared)
    readings = recorded_readings(target) if reads else None
    texts = 0 if readings is None else len(readings.works)
    return live_replay(target, searcher, effort, seed=job.seed, conditions=conditions, texts_read=texts)


def _searcher(job: _Job) -> tuple[Recording, Searcher]:
    """The recording, and a new searcher with the priors that it may have."""
    target, plan = _read(job.recording), job.plan
    records = transfers_for(target, [_read(path) for path in plan.records])
    priors = priors_for(target, plan.undeclared) if plan.model else []
    return target, make_searcher(job.search, target.space, job.seed, priors, records)


@lru_cache(maxsize=32)
def _read(path: Path) -> Recording:
    return read_recording(path)
