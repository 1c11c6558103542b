"""Remarks on a run for its caller: what its budget cut off, what it waits for, and what its trials suggest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from triton_ops.base import warn
from triton_ops.evaluation import Outcome
from triton_ops.records import Record
from triton_ops.tuner.loop import TuningLoop
from triton_ops.values import Resources, Status, Trial, Work


def cut_note(loop: TuningLoop, seconds: float | None) -> list[str]:
    """A note of what the budget of seconds cut off; empty if nothing. The comparison had so many `seconds`."""
    whole_s, trials = loop.budget.budget.seconds, len(loop.trials)
    if loop.stopped != "seconds" or whole_s is None:
        return []
    if (late_s := loop.budget.late_start_s) is not None:
        of = "" if seconds is None else f" of {seconds:.1f} s"
        text = (
            f"the budget of {whole_s:g} s left no time to search: the first trial began after {late_s:.1f} s; "
            f"{trials} trial{'s' * (trials > 1)} and a comparison{of} were made all the same; "
            "give more seconds (budget_s)"
        )
        warn("%s", text)
        return [text]
    left = "" if seconds is None else f" and left {seconds:.1f} s to compare"
    return [f"the budget of {whole_s:g} s ended the search after {trials} trials{left}"]


_LONG_ROUND_S = 1.0  # of the default and the best, from which a user wonders what goes on


def tell_of_long_rounds(pair: Sequence[Trial], seconds: float | None) -> None:
    """Say what the last comparison waits for, where its rounds of the best and the default take seconds."""
    round_s = sum(trial.median_ms for trial in pair) / 1e3
    if len(pair) == 2 and round_s >= _LONG_ROUND_S:
        end = "until they can tell" if seconds is None else f"in the {seconds:.0f} s that are left"
        warn("the best is compared with the default in 2 to 16 rounds of %.1f s, %s", round_s, end)


_FEWEST = 4  # compiled configs, before all of them mean anything
_INTENSE = 64.0  # operations for each byte, above which the matrix unit is needed for most of the rate
_NARROW_BYTES = 2


def pitfall_notes(trials: Sequence[Trial], work: Work | None) -> tuple[str, ...]:
    """Notes of what the linter would be asked about, with its rules; empty for most tunes."""
    wrong = sum(trial.status is Status.WRONG for trial in trials)
    several = "config was" if wrong == 1 else "configs were"
    text = f"{wrong} {several} wrong: `triton-ops lint` looks for masks, padded lanes and strides that make results so"
    notes = (text,) if wrong else ()
    compiled = {trial.config: trial.resources for trial in trials if trial.resources is not None}
    return (*notes, *_of_space(list(compiled.values()), work)) if len(compiled) >= _FEWEST else notes


def _of_space(compiled: Sequence[Resources], work: Work | None) -> Iterable[str]:
    spills = [resources.spill_bytes or 0 for resources in compiled]
    if min(spills) > 0:
        yield (
            f"each of {len(compiled)} compiled configs spills registers, the least {min(spills):,} bytes per thread: "
            "the space is held back by register-spill; `triton-ops explain spills` tries the cures"
        )
    intense = work is not None and work.bytes > 0 and work.flops / work.bytes > _INTENSE
    if intense and all(resources.mma == "none" for resources in compiled):
        yield (
            f"none of {len(compiled)} compiled configs uses the matrix unit: the space is held back by no-tensor-core; "
            "`triton-ops lint` says in which line"
        )
    widths = [resources.load_bytes for resources in compiled]
    if all(width is not None and width <= _NARROW_BYTES for width in widths):
        yield (
            f"each of {len(compiled)} compiled configs loads {max(width or 0 for width in widths)} bytes at a time at "
            "most places: the space may be held back by narrow-access; `triton-ops lint` says in which line"
        )


def untold(loop: TuningLoop, outcome: Outcome) -> str:
    """The reason why a budget left the tune without an answer, so that the next call goes on; empty if it did not."""
    if loop.stopped in ("trials", "seconds") and outcome.confidence == Record.ALONE:
        return Record.ALONE
    return "" if outcome.told else "there was no time to tell which config is the fastest"
