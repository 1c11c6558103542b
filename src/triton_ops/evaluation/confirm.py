"""The tied configs compared again in fresh processes: how fast a kernel runs differs a little from process to process.

Where data lies in memory, and what ran before, is fixed for the life of a process and favours one config or another
by up to a few tenths of a percent; no number of rounds in one process averages that out. Each further process is a
worker with the same assignment as the first: it verifies, puts arguments back and is guarded as the first one was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from triton_ops.evaluation.finals import Final, Outcome, confirmed
from triton_ops.evaluation.isolated import Isolated, NotPortableError
from triton_ops.evaluation.station import Assignment
from triton_ops.exceptions import TritonKernelError
from triton_ops.measure import RacePolicy

_log = logging.getLogger("triton_ops")

_ROUNDS = 32  # in each process, with no arm dropped before the last
_SECONDS = 60.0


def confirmed_elsewhere(outcome: Outcome, assignment: Assignment, final: Final, mode: str | None) -> Outcome:
    """The outcome after as many fresh processes as the effort asks for have compared the tied configs.

    A process that fails is left out with a warning. Nothing is done where one config leads clearly.

    Args:
        outcome: Of the last comparison.
        assignment: What its station worked on.
        final: What it compared.
        mode: The mode in which it timed: others would not be comparable.

    Cost: about 10 s per process on a GPU, one after another.
    """
    if len(outcome.ties) < 2 or assignment.effort.processes == 0:
        return outcome
    tied = tuple(trial for trial in outcome.trials if trial.config in outcome.ties)
    race = RacePolicy(checkpoints=(_ROUNDS,), seconds=_SECONDS)
    given = replace(assignment, baseline=outcome.ties[0], mode=mode)
    questions = [
        replace(final, trials=tied, seed=final.seed + n, race=race) for n in range(1, assignment.effort.processes + 1)
    ]
    elsewhere = list(_answers(given, questions))
    return confirmed(outcome, elsewhere, final) if elsewhere else outcome


def _answers(assignment: Assignment, questions: list[Final]) -> Iterator[Outcome]:
    for question in questions:
        try:
            with closing(Isolated(assignment)) as station:
                found = station.finals(question)
        except NotPortableError as error:
            _log.warning("the tied configs of %s are not confirmed in further processes: %s", assignment.problem, error)
            return
        except TritonKernelError as error:
            _log.warning("a process that should confirm the winner failed: %s", error)
            continue
        if len({len(trial.final.blocks) for trial in found.trials if trial.final is not None}) == 1:
            yield found
        else:
            _log.warning("a process that should confirm the winner did not compare the tied configs")
