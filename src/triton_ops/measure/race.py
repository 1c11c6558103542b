"""The interleaved race: rounds over the survivors, elimination only where a difference is proven.

A round visits every survivor once, in an order drawn anew, every second one backwards; the value of a visit is the
median of a short block. At a few scheduled looks an arm is dropped if it is worse than the leader by more than the
indifference zone, with confidence. The race ends when all that is left is proven equal, or the budget is spent.

Source: racing by blocks (irace, López-Ibáñez 2016) with an indifference zone; the design and its simulation are in
docs/concepts/measurement.md.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triton_ops.measure.arm import Arm, next_order, visit
from triton_ops.measure.stats import contrasts, median_error, robust_sigma
from triton_ops.measure.timer import Timer


@dataclass(frozen=True)
class RacePolicy:
    """How long a race may go on, and when an arm is out.

    Attributes:
        looks: After how many rounds arms may be dropped; the last one ends the race.
        zone: Differences up to this share are none.
        confidence: Standard errors by which a difference must exceed the zone; 3 keeps the error rate over a hundred
            arms and five looks below 1 %, in simulation.
        seconds: Wall seconds after which no round is started; two rounds are always run.
    """

    looks: tuple[int, ...] = (4, 8, 16, 32, 64)
    zone: float = 0.005
    confidence: float = 3.0
    seconds: float = 10.0


Keep = Callable[[], bool]


def race(
    arms: Sequence[Arm],
    timer: Timer,
    policy: RacePolicy,
    rng: random.Random,
    *,
    keep_round: Keep = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Run rounds until all survivors are proven equal, the looks are used up, or the time is.

    Args:
        arms: Their blocks, errors and `dropped_at` are filled in.
        timer: The clock that prepared the arms' samplers.
        policy: See there.
        rng: Draws the orders.
        keep_round: Asked after every round; False discards it for all arms alike, as a throttled one.
        clock: Seconds, monotonic.

    Returns:
        Why it ended: `proven`, `rounds`, `seconds`, or `one arm`.
    """
    end = clock() + policy.seconds
    order: list[Arm] = []
    done, turn = 0, 0
    while done < policy.looks[-1]:
        if sum(arm.running for arm in arms) < 2:
            return "one arm"
        if done >= 2 and clock() > end:
            return "seconds"
        order = next_order(arms, order, turn, rng)
        visited = visit(order, timer)
        turn += 1
        if keep_round():
            for arm, block in visited:
                arm.blocks.append(block)
            done += 1
        if done in policy.looks and not look([arm for arm in arms if arm.running], policy):
            return "proven"
    return "rounds"


def look(running: Sequence[Arm], policy: RacePolicy) -> bool:
    """Drop the arms that are proven worse; whether the race must go on.

    All arms that run have the same number of rounds.
    """
    if len(running) < 2:
        return False
    rows = [arm.medians_ms for arm in running]
    lead = leader(rows)
    undecided = False
    sigma = statistics.median(robust_sigma(contrasts(row, rows[lead])) for i, row in enumerate(rows) if i != lead)
    for i, (arm, row) in enumerate(zip(running, rows, strict=True)):
        if i == lead:
            continue
        gaps = contrasts(row, rows[lead])
        gap = statistics.median(gaps)
        error = policy.confidence * median_error(max(robust_sigma(gaps), sigma), len(gaps))
        if gap - error > policy.zone:
            arm.dropped_at = len(row)
        elif gap + error > policy.zone:
            undecided = True
    return undecided


def leader(rows_ms: Sequence[Sequence[float]]) -> int:
    """Position of the arm with the smallest time relative to its rounds' medians."""
    centres = [statistics.median(column) for column in zip(*rows_ms, strict=True)]
    levels = [statistics.median(contrasts(row, centres)) for row in rows_ms]
    return min(range(len(levels)), key=levels.__getitem__)
