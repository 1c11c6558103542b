"""Many replays at once: every search on every recording with every seed, spread over processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from triton_ops._optional import require
from triton_ops.replay.known import priors_for, transfers_for
from triton_ops.replay.recording import Recording, read_recording
from triton_ops.replay.run import PreviewAllowance, Run, replay
from triton_ops.replay.summary import SpaceSummary, summarise
from triton_ops.search import make_searcher


@dataclass(frozen=True)
class ReplayPlan:
    """What to replay.

    Attributes:
        recordings: Files, each a space of its own.
        searches: Names of searchers.
        budgets: Numbers of evaluations to report; the largest is how long a run is.
        seeds: Each search runs with the seeds 0, 1, … below this.
        records: Files of other problems and devices that searches may learn from.
        batch: Configs asked for at a time.
        model: Whether a search may ask the model of the kernel's declared work.
        previews: How many previews a search may have.
    """

    recordings: tuple[Path, ...]
    searches: tuple[str, ...]
    budgets: tuple[int, ...]
    seeds: int
    records: tuple[Path, ...] = ()
    batch: int = 1
    model: bool = True
    previews: PreviewAllowance = field(default_factory=PreviewAllowance)


@dataclass(frozen=True)
class _OneReplay:
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
        plan: What to replay.
        jobs: Processes, each of one thread; 1 runs here.

    Raises:
        RecordingError: A file that is no recording; raised before anything runs.
    """
    for path in (*plan.recordings, *plan.records):
        _read(path)
    todo = [
        _OneReplay(path, search, seed, max(plan.budgets), plan.batch, plan.records, plan.model, plan.previews)
        for path in plan.recordings
        for search in plan.searches
        for seed in range(plan.seeds)
    ]
    runs: dict[tuple[Path, str], dict[int, Run]] = defaultdict(dict)
    for job, run in _here(todo) if jobs == 1 else _elsewhere(todo, jobs):
        found = runs[job.recording, job.search]
        found[job.seed] = run
        if len(found) == plan.seeds:
            ordered = [found[seed] for seed in range(plan.seeds)]
            yield summarise(job.recording.name, job.search, ordered, plan.budgets)


def _here(todo: Sequence[_OneReplay]) -> Iterator[tuple[_OneReplay, Run]]:
    return ((job, _done(job)) for job in todo)


def _elsewhere(todo: Sequence[_OneReplay], jobs: int) -> Iterator[tuple[_OneReplay, Run]]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_take_one_thread) as pool:
        yield from _as_they_end(pool, todo)


def _take_one_thread() -> None:
    """Several processes with a thread each are faster than each with as many threads as there are cores."""
    require("scipy.linalg", "the search `auto`")  # its libraries must be there to be limited
    require("threadpoolctl", "the search `auto`").threadpool_limits(1)


def _as_they_end(pool: Executor, todo: Sequence[_OneReplay]) -> Iterator[tuple[_OneReplay, Run]]:
    waiting = {pool.submit(_done, job): job for job in todo}
    try:
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _done(job: _OneReplay) -> Run:
    target = _read(job.recording)
    records = transfers_for(target, [_read(path) for path in job.records])
    searcher = make_searcher(job.search, target.space, job.seed, priors_for(target) if job.model else [], records)
    return replay(target, searcher, job.budget, batch=job.batch, previews=job.previews)


@lru_cache(maxsize=32)
def _read(path: Path) -> Recording:
    return read_recording(path)
