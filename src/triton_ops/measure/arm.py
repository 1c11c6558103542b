"""An arm of a comparison, and the round that visits arms in turn.

Clocks and temperatures drift during a comparison. The drift hits all arms of one round alike, so a comparison inside
rounds removes it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from triton_ops.measure.pace import BURST_MS
from triton_ops.measure.stats import middle_mean
from triton_ops.measure.timer import Pending, Sampler, Timer


@dataclass
class Arm:
    """One launch in a comparison, with its measured times.

    Attributes:
        sampler: Queues samples; made by the timer's `prepare`.
        visit_samples: Samples per visit.
        visits: The arm's samples in milliseconds, one list per round that counted and in which the arm ran.
        dropped_at: How many rounds the arm had run when it was dropped; None while it takes part.
        error: What the launch raised; an arm with an error runs no further round.
    """

    sampler: Sampler
    visit_samples: int = 1
    _: KW_ONLY
    visits: list[list[float]] = field(default_factory=list)
    dropped_at: int | None = None
    error: Exception | None = None

    @property
    def values_ms(self) -> list[float]:
        """The value of each visit, one per round that counted."""
        return [middle_mean(samples) for samples in self.visits]

    @property
    def samples_ms(self) -> list[float]:
        """All samples in the order taken."""
        return [sample for samples in self.visits for sample in samples]

    @property
    def visit_ms(self) -> float:
        """How long the arm's last visit took; 0 before the first visit."""
        return statistics.median(self.visits[-1]) * self.sampler.launches * self.visit_samples if self.visits else 0.0

    @property
    def running(self) -> bool:
        """Whether the arm takes part in the next round."""
        return self.dropped_at is None and self.error is None

    def start_again(self) -> None:
        """Forget all rounds, for a race from the beginning."""
        self.visits, self.dropped_at = [], None


def next_order(arms: Sequence[Arm], before: Sequence[Arm], turn: int, rng: random.Random) -> list[Arm]:
    """The order of round `turn`: a new random order in even rounds, and the previous order backwards in odd rounds.

    No arm therefore always follows the same other arm: the heat and the cache contents that an arm leaves behind fall
    on all others alike.
    """
    if turn % 2:
        return [arm for arm in reversed(before) if arm.running]
    running = [arm for arm in arms if arm.running]
    return rng.sample(running, len(running))


def visit(order: Sequence[Arm], timer: Timer) -> list[tuple[Arm, list[float]]]:
    """Run one round, in bursts short enough for a GPU's highest clock; the samples of the arms that did not fail."""
    return [found for burst in _bursts(order) for found in _together(burst, timer)]


def interleave(
    arms: Sequence[Arm],
    timer: Timer,
    *,
    rounds: int,
    rng: random.Random,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Run up to `rounds` rounds over `arms`; only an arm that fails is dropped.

    Args:
        arms: The launches to compare; their `visits` and `error` are filled in.
        timer: The clock that prepared their samplers.
        rounds: How many times each arm is visited.
        rng: Draws the orders.
        go_on: Called before every round after the second; False ends the comparison.
    """
    order: list[Arm] = []
    for turn in range(rounds):
        if turn > 1 and not go_on():
            return
        order = next_order(arms, order, turn, rng)
        for arm, samples in visit(order, timer):
            arm.visits.append(samples)


def _bursts(order: Sequence[Arm]) -> list[list[Arm]]:
    """The arms in their order, split wherever the work would last longer than one burst."""
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
    """The samples of `arms`, all of which are queued before any time is read."""
    queued: list[tuple[Arm, Pending]] = []
    with timer.round():
        queued.extend((arm, pending) for arm in arms if (pending := _queued(arm)) is not None)
    return [(arm, collect()) for arm, collect in queued]


def _queued(arm: Arm) -> Pending | None:
    try:
        return arm.sampler.queue(arm.visit_samples)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - one candidate's failure is its own, SystemExit too; the others go on
        found = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        arm.error = found.with_traceback(None)  # the traceback's frames would keep the launch's memory allocated
        return None
