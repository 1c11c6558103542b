"""Many replays: every search on every recording with every seed, spread over processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from triton_ops._optional import require
from triton_ops.replay.live_replay import LiveConditions, LiveRun, live_replay
from triton_ops.replay.prior_knowledge import priors_for, recorded_readings, transfers_for, uses_readings
from triton_ops.replay.recording import Recording, read_recording
from triton_ops.replay.single_replay import PreviewAllowance, ReplayRun, replay
from triton_ops.replay.summary import LiveSummary, SpaceSummary, summarise, summarise_live
from triton_ops.search import Searcher, make_searcher
from triton_ops.task.effort import Effort


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """The replays to run.

    Attributes:
        recordings: Files of recordings.
        searches: Names of searchers.
        budgets: Numbers of evaluations to report; the largest is the length of a run.
        seeds: Number of runs of each search, with the seeds 0, 1, …
        records: Files of recordings of other problems and devices that searches may learn from.
        batch: Number of configs that are asked for at a time.
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


@dataclass(frozen=True, kw_only=True)
class _OneReplay:
    """One search on one recording with one seed; the attributes are those of `ReplayPlan`."""

    recording: Path
    search: str
    seed: int
    budget: int
    batch: int
    records: tuple[Path, ...]
    model: bool
    undeclared: bool
    previews: PreviewAllowance


@dataclass(frozen=True, kw_only=True)
class _OneTune:
    """One simulated tune on one recording with one seed; the attributes are those of `ReplayPlan`."""

    recording: Path
    search: str
    seed: int
    records: tuple[Path, ...]
    model: bool
    undeclared: bool
    effort: Effort
    conditions: LiveConditions


_Job = TypeVar("_Job", _OneReplay, _OneTune)
_Run = TypeVar("_Run")


def replay_all(plan: ReplayPlan, jobs: int = 1) -> Iterator[SpaceSummary]:
    """The summary of each recording and search, as soon as its last seed has run.

    Args:
        plan: The replays to run.
        jobs: Number of processes, each of one thread; 1 uses this process.

    Raises:
        RecordingError: A file is no recording; raised before any replay.
    """
    todo = [
        _OneReplay(
            recording=path,
            search=search,
            seed=seed,
            budget=max(plan.budgets),
            batch=plan.batch,
            records=plan.records,
            model=plan.model,
            undeclared=plan.undeclared,
            previews=plan.previews,
        )
        for path, search, seed in _each(plan)
    ]
    for (path, search), runs in _grouped(plan, _spread(todo, _done, jobs)):
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
    todo = [
        _OneTune(
            recording=path,
            search=search,
            seed=seed,
            records=plan.records,
            model=plan.model,
            undeclared=plan.undeclared,
            effort=effort,
            conditions=conditions or LiveConditions(),
        )
        for path, search, seed in _each(plan)
    ]
    for (path, search), runs in _grouped(plan, _spread(todo, _tuned, jobs)):
        yield summarise_live(path.name, search, runs)


def _each(plan: ReplayPlan) -> list[tuple[Path, str, int]]:
    """Every recording with every search and every seed; all files can be read."""
    for path in (*plan.recordings, *plan.records):
        _read(path)
    return [(path, search, seed) for path in plan.recordings for search in plan.searches for seed in range(plan.seeds)]


def _grouped(plan: ReplayPlan, ended: Iterable[tuple[_Job, _Run]]) -> Iterator[tuple[tuple[Path, str], list[_Run]]]:
    """The runs of each recording and search in the order of their seeds, as soon as there are all of them."""
    runs: dict[tuple[Path, str], dict[int, _Run]] = defaultdict(dict)
    for job, run in ended:
        found = runs[job.recording, job.search]
        found[job.seed] = run
        if len(found) == plan.seeds:
            yield (job.recording, job.search), [found[seed] for seed in range(plan.seeds)]


def _spread(todo: Sequence[_Job], run: Callable[[_Job], _Run], jobs: int) -> Iterator[tuple[_Job, _Run]]:
    return ((job, run(job)) for job in todo) if jobs == 1 else _elsewhere(todo, run, jobs)


def _elsewhere(todo: Sequence[_Job], run: Callable[[_Job], _Run], jobs: int) -> Iterator[tuple[_Job, _Run]]:
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


def _done(job: _OneReplay) -> ReplayRun:
    target, searcher = _searcher(job)
    return replay(target, searcher, job.budget, batch=job.batch, previews=job.previews)


def _tuned(job: _OneTune) -> LiveRun:
    target, searcher = _searcher(job)
    read = recorded_readings(target) if job.model and uses_readings(target, job.undeclared) else None
    texts = 0 if read is None else len(read.works)
    return live_replay(target, searcher, job.effort, seed=job.seed, conditions=job.conditions, texts_read=texts)


def _searcher(job: _OneReplay | _OneTune) -> tuple[Recording, Searcher]:
    """The recording, and a new searcher that knows what it may know."""
    target = _read(job.recording)
    records = transfers_for(target, [_read(path) for path in job.records])
    priors = priors_for(target, job.undeclared) if job.model else []
    return target, make_searcher(job.search, target.space, job.seed, priors, records)


@lru_cache(maxsize=32)
def _read(path: Path) -> Recording:
    return read_recording(path)
