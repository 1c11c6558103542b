"""An arm of a comparison, and the round that visits arms in turn.

What drifts, as clocks and temperatures do, hits all arms alike within a round; comparing inside rounds removes it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from triton_ops.measure.pace import BURST_MS
from triton_ops.measure.timer import Pending, Sampler, Timer


@dataclass
class Arm:
    """One launch in a comparison, and what was measured of it.

    Attributes:
        sampler: Queues samples; from the timer's `prepare`.
        block: Samples per visit.
        blocks: Per round that it took part in and that counted, its samples in milliseconds.
        dropped_at: How many rounds it had run when it was dropped; None if it is still in.
        error: What it raised; it takes no further part.
    """

    sampler: Sampler
    block: int = 1
    blocks: list[list[float]] = field(default_factory=list)
    dropped_at: int | None = None
    error: Exception | None = None

    @property
    def medians_ms(self) -> list[float]:
        """Block medians, one per round."""
        return [statistics.median(block) for block in self.blocks]

    @property
    def samples_ms(self) -> list[float]:
        """All samples in the order taken."""
        return [sample for block in self.blocks for sample in block]

    @property
    def visit_ms(self) -> float:
        """How long its last visit took; 0 before the first."""
        return statistics.median(self.blocks[-1]) * self.sampler.launches * self.block if self.blocks else 0.0

    @property
    def running(self) -> bool:
        """Whether it takes part in the next round."""
        return self.dropped_at is None and self.error is None


def next_order(arms: Sequence[Arm], before: Sequence[Arm], turn: int, rng: random.Random) -> list[Arm]:
    """The order of round `turn`: drawn anew, and in every second round the one before backwards.

    So no arm always follows the same one, and what an arm leaves behind falls on all others alike.
    """
    if turn % 2:
        return [arm for arm in reversed(before) if arm.running]
    running = [arm for arm in arms if arm.running]
    return rng.sample(running, len(running))


def visit(order: Sequence[Arm], timer: Timer) -> list[tuple[Arm, list[float]]]:
    """One round, in bursts that a GPU can take at its highest clock; the blocks of those that did not fail."""
    return [found for burst in _bursts(order) for found in _together(burst, timer)]


def interleave(
    arms: Sequence[Arm],
    timer: Timer,
    *,
    rounds: int,
    rng: random.Random,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Run up to `rounds` rounds over `arms`, dropping none but those that fail.

    Args:
        arms: Their `blocks` and `error` are filled in.
        timer: The clock that prepared their samplers.
        rounds: How many times each arm is visited.
        rng: Draws the orders.
        go_on: Asked before every round after the second; False ends the comparison.
    """
    order: list[Arm] = []
    for turn in range(rounds):
        if turn > 1 and not go_on():
            return
        order = next_order(arms, order, turn, rng)
        for arm, block in visit(order, timer):
            arm.blocks.append(block)


def _bursts(order: Sequence[Arm]) -> list[list[Arm]]:
    """The arms in their order, parted wherever the work would go on for longer than a burst."""
    bursts: list[list[Arm]] = [[]]
    took_ms = 0.0
    for arm in order:
        took_ms += arm.visit_ms
        if bursts[-1] and took_ms > BURST_MS:
            bursts.append([])
            took_ms = arm.visit_ms
        bursts[-1].append(arm)
    return bursts


def _together(arms: Sequence[Arm], timer: Timer) -> list[tuple[Arm, list[float]]]:
    """Everything is queued before anything is read."""
    queued: list[tuple[Arm, Pending]] = []
    with timer.round():
        queued.extend((arm, pending) for arm in arms if (pending := _queued(arm)) is not None)
    return [(arm, collect()) for arm, collect in queued]


def _queued(arm: Arm) -> Pending | None:
    try:
        return arm.sampler.queue(arm.block)
    except Exception as error:  # noqa: BLE001 - one candidate's failure is its own; the others go on
        arm.error = error.with_traceback(None)  # whose frames would keep what the launch had allocated
        return None
