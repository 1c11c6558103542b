"""How the winner of `TritonAutoTuner`, which has the lowest latency, stands to the other configs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from triton_ops.measure import Arm
from triton_ops.measure.decision import BEYOND_CHANCE
from triton_ops.measure.stats import Z95, gaps_to
from triton_ops.space import Config
from triton_ops.trial import Trial

ALONE = "low: the cached winner alone was measured, and compared with nothing"
_FEWEST_ROUNDS = 2  # that show any noise


@dataclass(frozen=True)
class Standing:
    """How the winner stands to the other configs.

    Attributes:
        ties: The winner, and the configs that noise does not tell from it.
        noise: Half-width of a typical 95 % interval of the difference of two configs, as a share.
        confidence: `ok`, or `low` with the reason.
    """

    ties: tuple[Config, ...]
    noise: float = 0.0
    confidence: str = "ok"


def standing_of(trials: Sequence[Trial], arms: Sequence[Arm], winner: Trial) -> Standing:
    """Which configs differ from the winner by no more than noise, in the rounds that all were timed in."""
    rows = {trial.config: arm.values_ms for trial, arm in zip(trials, arms, strict=True) if trial.ok}
    others = [config for config in rows if config != winner.config]
    if not others:
        return Standing((winner.config,))
    if len(rows[winner.config]) < _FEWEST_ROUNDS:
        return Standing((winner.config,), confidence="low: too few timed calls to know the noise")
    found = gaps_to(list(rows.values()), list(rows).index(winner.config))
    gaps = {config: gap for config, gap in zip(rows, found, strict=True) if config != winner.config}
    tied = [config for config, (centre, error) in gaps.items() if centre <= BEYOND_CHANCE * Z95 * error]
    hidden = [config for config in tied if gaps[config][1] > 0]
    told = f"({hidden[0]})" + (f" and {len(hidden) - 1} more" if len(hidden) > 1 else "") if hidden else ""
    return Standing(
        ties=(winner.config, *tied),
        noise=statistics.median(Z95 * error for _, error in gaps.values()),
        confidence=f"low: noise hides whether the winner is faster than {told}" if hidden else "ok",
    )
