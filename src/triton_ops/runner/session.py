"""`tune`: from a kernel, a space and a problem to a winner that is measured, remembered and explained."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, Timeout

from triton_ops import settings
from triton_ops._files import ensure_folder, folder_lock, writable
from triton_ops.backend import Kernel, Operation
from triton_ops.cache import Key, Record, Store
from triton_ops.evaluation.confirm import confirm_in_fresh_processes
from triton_ops.evaluation.finals import FinalRequest, Outcome, fastest_screening
from triton_ops.evaluation.isolated import open_station, process_started_early, wants_isolation
from triton_ops.evaluation.station import Assignment, Station, assignment_of
from triton_ops.exceptions import DeviceError
from triton_ops.history.quarantine import Quarantine, quarantine_of
from triton_ops.history.recall import recalled, reference_fingerprint, store_in, unknown_note
from triton_ops.history.run_log import RunLog
from triton_ops.history.runs import FOLDER, Runs
from triton_ops.history.transfer import model_of, transfers_to
from triton_ops.processes.process import WorkerProcess
from triton_ops.processes.signals import cleaned_up_on_sigterm
from triton_ops.runner.compiled_feed import open_feed
from triton_ops.runner.events import Listener, Plan
from triton_ops.runner.logged import log_comparison, log_end, open_log
from triton_ops.runner.loop import TuningLoop
from triton_ops.runner.progress import ProgressBar
from triton_ops.runner.results import failed, record_of, result_from, result_of
from triton_ops.search import USES_PRIORS, AnySearch, Searcher, make_searcher
from triton_ops.space import Config
from triton_ops.task.budget import RunningBudget
from triton_ops.task.effort import Effort, Patience, chosen_effort
from triton_ops.task.task import Task, make_task
from triton_ops.trial import Trial, TuningResult

_log = logging.getLogger("triton_ops")


def tune(
    target: Operation | Kernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    space: Any = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    device: str | None = None,
    reference: Callable[..., Any] | None = None,
    effort: str | Effort | None = None,
    search: AnySearch | None = None,
    trials: int | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    force: bool = False,
    cold: bool = True,
    isolate: bool | None = None,
    patience: Patience | None = None,
    transfer: bool = True,
    listener: Listener | None = None,
) -> TuningResult:
    """Find the fastest config of `target` for one problem, or recall it.

    The arguments are either yours (`args`, `kwargs`), copied so that no candidate can damage them, or dummies made
    from an operation's `shape` and `dtype`, uniform in [-1, 1].

    Args:
        target: An `Operation`, a `FunctionKernel`, a `TritonKernel`, or a callable; config values are its keywords.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        space: Name to values, a list of configs or `triton.Config`, or a `ConfigSpace`; None takes the operation's.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        device: `cpu`, `cuda` or `cuda:N`; None follows the arguments, then the operation, then takes a GPU if any.
        reference: Called with the same arguments; every candidate's result must agree with it before it is timed.
            None compares with the default config.
        effort: `quick`, `full`, `exhaustive`, or an `Effort` of your own; None asks `TRITON_OPS_EFFORT`, then takes
            `quick`.
        search: A searcher's name, such as `auto`, `random` or `exhaustive`; a searcher of your own, or a function from
            the space and the seed to one; None takes the effort's.
        trials: Most trials; None takes the effort's.
        budget_s: Most seconds of search; None takes the effort's.
        seed: Of the search's order and the dummy inputs.
        cache_dir: Folder of records and run logs; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder.
        force: Search again even if the winner is known; the known one takes part.
        cold: On a GPU, whether L2 holds nothing of the kernel's data when it starts, as in a model.
        isolate: Whether candidates run in a process of their own, where a crash or a hang ends one trial; None isolates
            Triton kernels on a GPU. What cannot be made in another process runs inline, with a warning.
        patience: After how many seconds a trial has hung; None takes the effort's. Inline nothing is ended.
        transfer: Whether records of the same kernel on other problems and devices may guide the search `auto`.
        listener: Hears of the run; None draws a progress bar when stderr is a terminal.

    Returns:
        The winner with its times beside the default's. `from_cache` tells whether it was known.

    Raises:
        KernelTypeError, SpaceError, ShapeMismatchError, UnsupportedDtypeError, DeviceError, SettingsError, CacheError:
            Something does not fit; raised before anything runs.
        TuningFailedError: No config ran; carries every config's reason.
        DeviceError: Inline, a candidate left the process without its GPU; what was tried is kept, and the next call
            goes on.
        KeyboardInterrupt: Ctrl-C before any config ran. Later it ends the search early and returns the best so far;
            the next call goes on where this one stopped.

    Cost: a hit reads one file; a search is bounded by the effort's budget.
    """
    start = time.monotonic()
    plan = chosen_effort(effort, search, trials, budget_s)
    plan = plan if patience is None else replace(plan, patience=patience)
    task = make_task(
        target,
        args,
        kwargs,
        space=space,
        shape=shape,
        dtype=dtype,
        device=device,
        reference=reference,
        seed=seed,
    )
    default = task.space.default_config
    folder = ensure_folder(settings.cache_dir() if cache_dir is None else cache_dir)
    key = Key.of(task.problem, task.kernel.identity, task.device, cold=cold)
    run = _Run(task, plan, default, key, seed, cold, isolate, transfer, folder)
    store = store_in(folder.absolute())
    if not force and (known := _known(run, store)) is not None:
        return result_from(known, task, time.monotonic() - start)
    with cleaned_up_on_sigterm(), _only_one(folder, run.key) as kept:
        if not force and (known := _known(run, store)) is not None:
            return result_from(known, task, time.monotonic() - start)
        return _search(run, store, kept, listener or ProgressBar(), start)


@dataclass(frozen=True)
class _Run:
    """What one call of `tune` works on."""

    task: Task
    effort: Effort
    default: Config
    key: Key
    seed: int
    cold: bool
    isolate: bool | None
    transfer: bool
    folder: Path


@dataclass(frozen=True)
class _Kept:
    """What is kept of a run beside its record."""

    runs: Runs
    quarantine: Quarantine


def _known(run: _Run, store: Store[Record]) -> Record | None:
    """The stored winner, if it holds for what is asked."""
    task = run.task
    return recalled(run.key, store, space=task.space, effort=run.effort, reference=task.reference)


@contextmanager
def _only_one(folder: Path, key: Key) -> Iterator[_Kept]:
    """One tune of a problem at a time, with what it keeps; a second one waits, and finds the first one's winner."""
    lock = _lock(folder, key)
    if lock is None:
        _log.warning("%s cannot be written: this tune will be neither stored nor resumable", folder)
        yield _Kept(Runs(None, key.id), quarantine_of(folder, key))
        return
    try:
        yield _Kept(Runs(folder, key.id), quarantine_of(folder, key))
    finally:
        lock.release()


def _lock(folder: Path, key: Key) -> BaseFileLock | None:
    """The problem's lock, taken; None where the folder, or the lock in it, is not this user's to write."""
    if not writable(folder):
        return None
    lock = folder_lock(ensure_folder(folder / FOLDER), f"{key.id}.lock")
    try:
        lock.acquire(timeout=0)
    except PermissionError:
        return None
    except Timeout:
        _log.warning("another process is tuning %s; waiting for it", f"{key.kernel} {key.label}".rstrip())
        lock.acquire()
    return lock


def _search(run: _Run, store: Store[Record], kept: _Kept, listener: Listener, start: float) -> TuningResult:
    with process_started_early(run.task.kernel, run.task.device, run.task.device_name, run.isolate) as process:
        return _searched(run, store, kept, listener, start, process)


def _searched(
    run: _Run,
    store: Store[Record],
    kept: _Kept,
    listener: Listener,
    start: float,
    process: WorkerProcess | None,
) -> TuningResult:
    # Kernels that cannot be told apart may share a key: the trials of one say nothing of another.
    unfinished = None if run.key.unknown else kept.runs.unfinished(run.task.space.fingerprint)
    before = [] if unfinished is None else unfinished.trials.values()
    known = [trial for trial in before if run.task.space.why_not(trial.config) is None]
    incumbents = _incumbents(run, store)
    searcher = _searcher(run, store)
    listener.started(_plan(run, len(known)))
    log = open_log(kept.runs, unfinished, run.key, run.task, run.effort, seed=run.seed, start=start)
    result: TuningResult | None = None
    try:
        with ExitStack() as opened:
            with open_feed(run.task, run.effort, searcher, log.preview) as feed:
                search = TuningLoop(
                    space=run.task.space,
                    searcher=searcher,
                    budget=RunningBudget(run.effort.budget),
                    log=log,
                    listener=listener,
                    default=run.default,
                    feed=feed,
                    quarantine=kept.quarantine,
                    thorough=run.effort.thorough,
                    worthwhile=run.effort.worthwhile,
                )
                search.prepare(incumbents, known)
                assignment = _assignment(run, known)
                station = opened.enter_context(closing(open_station(assignment, run.isolate, process)))
                search.run(station)
            outcome = _outcome(search, station, final := _final(run, search, incumbents))  # nothing is compiled beside
            facts = replace(station.facts, waited_s=feed.waited_s)
        outcome = _confirmed(search, outcome, assignment, final, facts.mode)
        for trial in outcome.trials:
            kept.quarantine.add(trial)  # what has died in the last comparison
        if outcome.winner is None:
            raise _nothing_ran(run, search, outcome, log)
        result = result_of(run.task, outcome, run.default, search.stopped, time.monotonic() - start, facts)
        result = replace(result, run=log.id, notes=(*result.notes, *_not_remembered(run)))
    finally:
        listener.ended(result)
    if search.stopped == "device lost":
        raise _device_error(search.trials)
    if search.stopped != "interrupted":
        log_comparison(log, outcome)
        record = _record(run, result, outcome.winner)
        if result.notes == facts.notes:  # nothing stands against remembering it
            store.put(record)
        log_end(log, record)
        kept.runs.prune(log.id)
    return result


def _not_remembered(run: _Run) -> list[str]:
    """Why the winner cannot be stored; empty if it can."""
    if run.key.unknown is not None:
        return [unknown_note(run.key)]
    if dict(run.task.kernel.identity) != dict(run.key.identity):
        return ["the winner is not remembered, since something that the kernel refers to changed while it was tuned"]
    return []


def _record(run: _Run, result: TuningResult, winner: Trial) -> Record:
    space, reference = run.task.space.fingerprint, reference_fingerprint(run.task.reference)
    return record_of(run.key, result, winner, run.effort, space=space, reference=reference or None)


def _searcher(run: _Run, store: Store[Record]) -> Searcher:
    if run.effort.search not in USES_PRIORS:
        return make_searcher(run.effort.search, run.task.space, run.seed)
    records = transfers_to(run.task, run.key, store, run.folder) if run.transfer else []
    return make_searcher(run.effort.search, run.task.space, run.seed, model_of(run.task, run.folder), records)


def _assignment(run: _Run, known: Sequence[Trial]) -> Assignment:
    """What the station works on; its baseline has worked in an interrupted run."""
    worked = [trial for trial in known if trial.ok]
    baseline = next((trial for trial in worked if trial.config == run.default), next(iter(worked), None))
    return assignment_of(run.task, run.effort, run.cold, None if baseline is None else baseline.config)


def _final(run: _Run, search: TuningLoop, incumbents: Sequence[Config]) -> FinalRequest:
    trials = tuple(search.trials.values())
    return FinalRequest(trials=trials, default=run.default, incumbents=tuple(incumbents), seed=run.seed)


def _outcome(search: TuningLoop, station: Station, final: FinalRequest) -> Outcome:
    """The last comparison, or the fastest screening if it was interrupted."""
    if search.stopped not in ("interrupted", "device lost") and any(trial.ok for trial in final.trials):
        try:
            return station.finals(final)
        except KeyboardInterrupt:
            search.stopped = "interrupted"
    return fastest_screening(final.trials)


def _confirmed(
    search: TuningLoop, outcome: Outcome, assignment: Assignment, final: FinalRequest, mode: str | None
) -> Outcome:
    """The outcome after further processes, once the station has given its memory back."""
    if search.stopped not in ("interrupted", "device lost"):
        try:
            return confirm_in_fresh_processes(outcome, assignment, final, mode)
        except KeyboardInterrupt:
            search.stopped = "interrupted"
    return outcome


def _nothing_ran(run: _Run, search: TuningLoop, outcome: Outcome, log: RunLog) -> BaseException:
    if search.stopped == "interrupted":
        return KeyboardInterrupt()
    if search.stopped == "device lost":
        return _device_error(search.trials)
    log.ended("failed")
    return failed(run.task, outcome.trials)


def _device_error(trials: Mapping[Config, Trial]) -> DeviceError:
    last = list(trials.values())[-1]
    return DeviceError(
        f"the GPU cannot be used by this process any more, since config ({last.config}): {last.error}",
        hint="run the same tune again: it goes on after that config",
    )


def _incumbents(run: _Run, store: Store[Record]) -> list[Config]:
    """The winner stored for this problem, if the space still has it: to be beaten, not assumed."""
    record = recalled(run.key, store)
    return [record.config] if record is not None and run.task.space.why_not(record.config) is None else []


def _plan(run: _Run, resumed: int) -> Plan:
    where = f"{run.task.device.name} ({run.task.device_name})"
    isolated = wants_isolation(run.task.kernel, run.task.device, run.isolate)
    return Plan(
        run.task.problem, run.task.space.size, run.effort.search_name, run.effort.budget, where, resumed, isolated
    )
