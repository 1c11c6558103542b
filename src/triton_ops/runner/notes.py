"""Remarks on a run for its result, in words: what cut it short, what it took over, what disturbed it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from triton_ops.evaluation.finals import FinalRequest
from triton_ops.evaluation.outcome import Outcome
from triton_ops.exceptions import DeviceError
from triton_ops.runner.loop import TuningLoop
from triton_ops.space import Config
from triton_ops.trial import Trial

_log = logging.getLogger("triton_ops")


def cut_note(loop: TuningLoop, final: FinalRequest) -> list[str]:
    """What the budget of seconds cut off, in words; empty if nothing."""
    if loop.stopped != "seconds" or final.seconds is None:
        return []
    whole_s, trials = loop.budget.budget.seconds, len(loop.trials)
    if (late_s := loop.budget.late_start_s) is not None:
        said = (
            f"the budget of {whole_s:g} s left no time to search: the first trial began after {late_s:.1f} s; "
            f"{trials} trial{'s' * (trials > 1)} and a comparison of {final.seconds:.1f} s were made all the same; "
            "give more seconds (budget_s)"
        )
        _log.warning("%s", said)
        return [said]
    return [
        f"the budget of {whole_s:g} s ended the search after {trials} trials and left {final.seconds:.1f} s to compare"
    ]


def resumed_note(trials: int) -> list[str]:
    """How many trials an earlier run has left; empty if none."""
    return [f"{trials} trials were taken over from an earlier run"] if trials else []


def disturbed_note(outcome: Outcome) -> list[str]:
    """What others did on the GPU before the last comparison, which decides; empty if nothing was seen."""
    before = "" if outcome.guard is None else outcome.guard.others_before
    return [f"{before} while configs were tried"] if before else []


def device_error(trials: Mapping[Config, Trial]) -> DeviceError:
    """The error for a tune that ended with the GPU that it ran on, of which the last trial says why."""
    last = list(trials.values())[-1]
    return DeviceError(
        f"the GPU cannot be used by this process any more, since config ({last.config}): {last.error}",
        hint="run the same tune again: it goes on after that config",
    )
