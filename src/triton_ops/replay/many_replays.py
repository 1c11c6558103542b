"""Many replays: every search on every recording with every seed, spread over processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from triton_ops._optional import require
from triton_ops.replay.prior_knowledge import priors_for, transfers_for
from triton_ops.replay.recording import Recording, read_recording
from triton_ops.replay.single_replay import PreviewAllowance, ReplayRun, replay
from triton_ops.replay.summary import SpaceSummary, summarise
from triton_ops.search import make_searcher


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
        model: Whether a search may use the model of the kernel's declared work.
        previews: Number of previews that a search may have.
    """

    recordings: tuple[Path, ...]
    searches: tuple[str, ...]
    budgets: tuple[int, ...]
    seeds: int
    records: tuple[Path, ...] = ()
    batch: int = 1
    model: bool = True
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
    previews: PreviewAllowance


def replay_all(plan: ReplayPlan, jobs: int = 1) -> Iterator[SpaceSummary]:
    """The summary of each recording and search, as soon as its last seed has run.

    Args:
        plan: The replays to run.
        jobs: Number of processes, each of one thread; 1 uses this process.

    Raises:
        RecordingError: A file is no recording; raised before any replay.
    """
    for path in (*plan.recordings, *plan.records):
        _read(path)
    todo = [
        _OneReplay(
            recording=path,
            search=search,
            seed=seed,
            budget=max(plan.budgets),
            batch=plan.batch,
            records=plan.records,
            model=plan.model,
            previews=plan.previews,
        )
        for path in plan.recordings
        for search in plan.searches
        for seed in range(plan.seeds)
    ]
    runs: dict[tuple[Path, str], dict[int, ReplayRun]] = defaultdict(dict)
    for job, run in _here(todo) if jobs == 1 else _elsewhere(todo, jobs):
        found = runs[job.recording, job.search]
        found[job.seed] = run
        if len(found) == plan.seeds:
            ordered = [found[seed] for seed in range(plan.seeds)]
            yield summarise(job.recording.name, job.search, ordered, plan.budgets)


def _here(todo: Sequence[_OneReplay]) -> Iterator[tuple[_OneReplay, ReplayRun]]:
    return ((job, _done(job)) for job in todo)


def _elsewhere(todo: Sequence[_OneReplay], jobs: int) -> Iterator[tuple[_OneReplay, ReplayRun]]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_take_one_thread) as pool:
        yield from _as_they_end(pool, todo)


def _take_one_thread() -> None:
    """Several processes with a thread each are faster than each with as many threads as there are cores."""
    require("scipy.linalg", "the search `auto`")  # the limit affects only libraries that are loaded
    require("threadpoolctl", "the search `auto`").threadpool_limits(1)


def _as_they_end(pool: Executor, todo: Sequence[_OneReplay]) -> Iterator[tuple[_OneReplay, ReplayRun]]:
    waiting = {pool.submit(_done, job): job for job in todo}
    try:
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _done(job: _OneReplay) -> ReplayRun:
    target = _read(job.recording)
    records = transfers_for(target, [_read(path) for path in job.records])
    searcher = make_searcher(job.search, target.space, job.seed, priors_for(target) if job.model else [], records)
    return replay(target, searcher, job.budget, batch=job.batch, previews=job.previews)


@lru_cache(maxsize=32)
def _read(path: Path) -> Recording:
    return read_recording(path)
