"""Pitfalls that hold a whole space back, or make configs wrong, by the trials of a tune; no kernel is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from triton_ops.resources import Resources
from triton_ops.trial import Status, Trial
from triton_ops.work import Work

_FEWEST = 4  # compiled configs, before all of them mean anything
_INTENSE = 64.0  # operations for each byte, above which the matrix unit is needed for most of the rate
_NARROW_BYTES = 2


def pitfall_notes(trials: Sequence[Trial], work: Work | None) -> tuple[str, ...]:
    """What the linter would be asked about, in words with its rules; empty for most tunes.

    Args:
        trials: All trials of the tune.
        work: The work of the problem; None if nobody said it.
    """
    wrong = sum(trial.status is Status.WRONG for trial in trials)
    several = "config was" if wrong == 1 else "configs were"
    said = f"{wrong} {several} wrong: `triton-ops lint` looks for masks, padded lanes and strides that make results so"
    notes = (said,) if wrong else ()
    compiled = {trial.config: trial.resources for trial in trials if trial.resources is not None}
    return (*notes, *_of_space(list(compiled.values()), work)) if len(compiled) >= _FEWEST else notes


def _of_space(compiled: Sequence[Resources], work: Work | None) -> Iterable[str]:
    spills = [used.spill_bytes or 0 for used in compiled]
    if min(spills) > 0:
        yield (
            f"each of {len(compiled)} compiled configs spills registers, the least {min(spills):,} bytes per thread: "
            "the space is held back by register-spill; `triton-ops spills` tries the cures"
        )
    intense = work is not None and work.bytes > 0 and work.flops / work.bytes > _INTENSE
    if intense and all(used.mma == "none" for used in compiled):
        yield (
            f"none of {len(compiled)} compiled configs uses the matrix unit: the space is held back by no-tensor-core; "
            "`triton-ops lint` says in which line"
        )
    widths = [used.load_bytes for used in compiled]
    if all(width is not None and width <= _NARROW_BYTES for width in widths):
        yield (
            f"each of {len(compiled)} compiled configs loads {max(width or 0 for width in widths)} bytes at a time at "
            "most places: the space may be held back by narrow-access; `triton-ops lint` says in which line"
        )
