"""Tied configs are compared again in fresh processes, since the speed of a kernel differs a little between processes.

The placement of data in memory, and the work that ran before, are fixed for the life of a process and favour one config
or another by up to a few tenths of a percent; no number of rounds in one process averages that out. Each further
process is a worker with the same assignment as the first: it verifies results, restores arguments and is guarded too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from triton_ops.device import Turns
from triton_ops.evaluation.finals import FinalRequest
from triton_ops.evaluation.isolated import Isolated, NotPortableError
from triton_ops.evaluation.outcome import Outcome, with_further_processes
from triton_ops.evaluation.station import Assignment, TakesTurns
from triton_ops.exceptions import TritonKernelError
from triton_ops.timing import RacePolicy

_log = logging.getLogger("triton_ops")

_RACE = RacePolicy(checkpoints=(32,), seconds=60.0, confidence=math.inf)
"""The race in each process: no arm is ever proven slower and dropped, so that the results of all are checked again."""

_LEAST_S = 10.0
_START_S = 5.0  # a new process imports torch, and makes the arguments


def confirm_in_fresh_processes(
    outcome: Outcome,
    assignment: Assignment,
    final: FinalRequest,
    mode: str | None,
    *,
    turns: Turns | None = None,
    left_s: float | None = None,
) -> Outcome:
    """The outcome after fresh processes, as many as the effort asks for, have compared the tied configs.

    A process that fails is left out with a warning. An outcome without ties is returned unchanged.

    `final` is the request that the station was given, and `mode` the one in which it timed: times of other modes would
    not be comparable. `turns` None takes turns of its own. Nothing is confirmed in less than 10 s per process of
    `left_s`; None is no limit.

    Cost: about 10 s per process on a GPU, one after another.
    """
    count = assignment.effort.processes
    if len(outcome.ties) < 2 or count == 0:
        return outcome
    if left_s is not None and left_s < count * _LEAST_S:
        _log.warning("the tied configs are not confirmed in further processes: the budget left %.1f s for it", left_s)
        return outcome
    each_s = None if left_s is None else left_s / count - _START_S
    tied = tuple(trial for trial in outcome.trials if trial.config in outcome.ties)
    fresh = replace(assignment, baseline=outcome.ties[0], mode=mode)
    questions = [
        replace(final, trials=tied, seed=final.seed + n, race=_RACE, settle=False, seconds=each_s)
        for n in range(1, count + 1)
    ]
    elsewhere = list(_outcomes(fresh, questions, turns or Turns(assignment.device_name)))
    if not elsewhere:
        return outcome
    confirmed = with_further_processes(outcome, elsewhere, final.default, final.incumbents)
    return replace(confirmed, raced=outcome.raced, elsewhere=tuple(elsewhere))


def _outcomes(assignment: Assignment, questions: list[FinalRequest], turns: Turns) -> Iterator[Outcome]:
    for question in questions:
        try:
            with closing(TakesTurns(Isolated(assignment), turns)) as station:
                outcome = station.finals(question)
        except NotPortableError as error:
            _log.warning("the tied configs of %s are not confirmed in further processes: %s", assignment.problem, error)
            return
        except TritonKernelError as error:
            _log.warning("a process that should confirm the winner failed: %s", error)
            continue
        if len({len(trial.final.by_round) for trial in outcome.trials if trial.final is not None}) == 1:
            yield outcome
        else:
            _log.warning("a process that should confirm the winner did not compare the tied configs")
