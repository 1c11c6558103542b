"""The lines of a run log that the run writes beside its trials: the head and the last comparison."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

from triton_ops.cache import Key
from triton_ops.evaluation.outcome import Outcome
from triton_ops.hardware import load_calibration
from triton_ops.history.head import head_of
from triton_ops.history.run_log import Finalist, Run, RunLog, Twins
from triton_ops.history.runs import Runs, new_run_id
from triton_ops.results.record import versions
from triton_ops.task.effort import Effort
from triton_ops.task.task import Task


def open_log(
    runs: Runs, unfinished: Run | None, key: Key, task: Task, effort: Effort, *, seed: int, start: float
) -> RunLog:
    """The log of an interrupted run, which is continued, or else that of a new run.

    Args:
        runs: The runs of the key.
        unfinished: The interrupted run; None if there is none.
        key: The key of the task and of the cache state that was asked for.
        task: The task that is tuned.
        effort: The effort of this call.
        seed: The seed of everything random in the run.
        start: When the tune was called, by `time.monotonic`.
    """
    if unfinished is not None:
        log = RunLog(unfinished.path, start, unfinished.at_s, root=runs.root)
        log.resume(effort=effort.name, searcher=effort.search_name, seed=seed)
        return log
    started = datetime.now(timezone.utc) - timedelta(seconds=time.monotonic() - start)
    run_id = new_run_id(started)
    log = RunLog(runs.path(run_id), start, root=runs.root)
    calibration = None if runs.root is None or task.work is None else load_calibration(runs.root, task.device.name)
    log.begin(head_of(
        run_id, key, task, effort, seed=seed, versions=versions(), started=started, calibration=calibration
    ))  # fmt: skip
    return log


def log_comparison(log: RunLog, outcome: Outcome) -> None:
    """Write the last comparison, and those in fresh processes: every finalist with its rounds, and the twins."""
    for process, found in enumerate((outcome, *outcome.elsewhere)):
        trials, raced = {trial.config: trial for trial in found.trials}, found.raced
        for config, dropped_at in raced.dropped_at:
            log.write(Finalist(at_s=log.at_s, trial=trials[config], dropped_at=dropped_at, process=process))
        if raced.twin is not None:
            log.write(Twins(at_s=log.at_s, config=raced.twin, medians_ms=raced.twins_ms, process=process))
