"""Several launches measured side by side: in every round each is timed once, in an order drawn anew.

What drifts, as clocks and temperatures do, hits all of them alike within a round; comparing inside rounds removes
it. Every second round runs the order of the one before it backwards, so that no launch always follows the same one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from triton_ops.measure.timer import Launch, Timer


@dataclass
class Arm:
    """One launch in a comparison, and what became of it.

    Attributes:
        launch: What is timed.
        launches: Launches per sample.
        blocks: Per round that it finished, its samples in milliseconds.
        error: What it raised; it took no part in later rounds.
    """

    launch: Launch
    launches: int = 1
    blocks: list[list[float]] = field(default_factory=list)
    error: Exception | None = None

    @property
    def samples_ms(self) -> list[float]:
        """All its samples in the order taken."""
        return [sample for block in self.blocks for sample in block]


def interleave(
    arms: Sequence[Arm],
    timer: Timer,
    *,
    rounds: int,
    block: int,
    rng: random.Random,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Run up to `rounds` rounds over `arms`, filling in their blocks.

    Args:
        arms: Their `blocks` and `error` are filled in.
        timer: The clock.
        rounds: How many times each arm is visited.
        block: Samples per visit.
        rng: Draws the orders.
        go_on: Asked before every round after the second; False ends the comparison.
    """
    order: list[Arm] = []
    for turn in range(rounds):
        if turn > 1 and not go_on():
            return
        order = order[::-1] if turn % 2 else rng.sample(list(arms), len(arms))
        for arm in order:
            if arm.error is None:
                _visit(arm, timer, block)


def _visit(arm: Arm, timer: Timer, block: int) -> None:
    try:
        arm.blocks.append(timer.sample(arm.launch, arm.launches, block))
    except Exception as error:  # noqa: BLE001 - one candidate's failure is its own; the others go on
        arm.error = error.with_traceback(None)  # whose frames would keep what the launch had allocated
