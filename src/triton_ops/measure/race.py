"""The interleaved race: rounds over the surviving arms, and an arm is dropped only if it is proven slower.

A round visits every surviving arm once, in a new random order; every second round runs the previous order backwards.
A visit takes a few samples, because drift is the same for all arms only in a short round, and counts by the mean of
their middle (`middle_mean`). At a few scheduled rounds, the checkpoints, an arm is dropped if it is slower than the
leader by more than the indifference zone, with confidence. The race ends when all remaining arms are proven equal, or,
if its policy says so, when no rival can be much faster than the leader; or when the budget is spent.

Source: racing by blocks (irace, López-Ibáñez 2016) with an indifference zone. The design and its simulation are in
docs/concepts/measurement.md.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real

from triton_ops.exceptions import SettingsError
from triton_ops.measure.arm import Arm, next_order, visit
from triton_ops.measure.decision import INDIFFERENCE, clearly_beats, gain, relative_levels
from triton_ops.measure.screen import fitting
from triton_ops.measure.stats import gaps_to
from triton_ops.measure.timer import Timer


@dataclass(frozen=True, kw_only=True)
class RacePolicy:
    """How long a race may go on, and when an arm is dropped.

    Attributes:
        checkpoints: After how many rounds arms may be dropped; the last checkpoint ends the race.
        zone: Differences up to this share count as none.
        confidence: Standard errors by which a difference must exceed the zone.
        seconds: Wall seconds after which no round is started; two rounds are always run.
        visit_ms: Time that a visit should take: ten replays of a short kernel, a few launches of a long one, and ten
            arms in one burst.
        longest: Most samples in a visit.
        regret: The race ends as soon as no rival can be faster than the leader by more than this share, with
            confidence, though they are not proven equal: more rounds would hardly find a better winner. None ends it
            only when all are proven equal.

    Raises:
        SettingsError: A field has a value that it cannot have.
    """

    checkpoints: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    zone: float = INDIFFERENCE
    confidence: float = 3.0
    seconds: float = 10.0
    visit_ms: float = 2.5
    longest: int = 10
    regret: float | None = None

    def __post_init__(self) -> None:
        given: object = self.checkpoints
        rounds = given if isinstance(given, (tuple, list)) else ()
        steps = (0, *rounds)
        if not rounds or not all(_is_count(step) for step in rounds) or any(b <= a for a, b in pairwise(steps)):
            raise SettingsError(
                f"checkpoints are {self.checkpoints!r}; they must be numbers of rounds that grow",
                hint="checkpoints=(4, 8, 16)",
            )
        for name, value in (
            ("zone", self.zone), ("confidence", self.confidence), ("seconds", self.seconds),
            ("visit_ms", self.visit_ms), ("regret", 0.0 if self.regret is None else self.regret),
        ):  # fmt: skip
            if not _is_amount(value):
                raise SettingsError(f"{name} of a race is {value!r}; it must be a number of 0 or more")
        if not _is_count(self.longest) or self.longest < 1:
            raise SettingsError(f"longest of a race is {self.longest!r}; it must be a whole number of 1 or more")

    def samples(self, sample_ms: float) -> int:
        """How many samples of `sample_ms` milliseconds make a visit."""
        return fitting(sample_ms, self.visit_ms, 1, self.longest)

    def undecided(self, gap: float, error: float, rounds: int) -> bool:
        """Whether a race goes on for an arm.

        Args:
            gap: The share by which the arm was slower than the leader.
            error: The standard error of `gap`.
            rounds: How many rounds both have run.
        """
        margin = self.confidence * error
        if self.regret is None:
            return gap + margin > self.zone
        return rounds < _LEAST_ROUNDS or margin - gap > self.regret

    def ends_on(self, gain: float) -> bool:
        """Whether a race may end on so large a proven gain over the default.

        A race that may end early does not end on a gain near the zone: what lasts for the tenths of a second of a few
        rounds, such as the boost of a chip that has rested, can look like it.
        """
        return self.regret is None or gain > self.zone + self.regret


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_amount(value: object) -> bool:
    return isinstance(value, Real) and float(value) >= 0  # a NaN is not


Keep = Callable[[], bool]

_LEAST_ROUNDS = 12  # before a race ends although arms are not proven equal: few values may agree by chance
_PATIENCE = 8  # rounds after which the time limit holds even if fewer than two counted


def race(
    arms: Sequence[Arm],
    timer: Timer,
    policy: RacePolicy,
    rng: random.Random,
    *,
    beside: Sequence[Arm] = (),
    kept: Arm | None = None,
    keep_round: Keep = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Run rounds until the survivors are decided, the last checkpoint is reached, or the time is used up.

    Args:
        arms: The launches that race; their visits, errors and `dropped_at` are filled in.
        timer: The clock that prepared the arms' samplers.
        policy: How long the race may go on, and when an arm is dropped.
        rng: Draws the orders.
        beside: Arms that run in every round, are never dropped, and cause no arm to be dropped: twins, by which the
            noise is known.
        kept: The arm of the default, which is never dropped: whoever wins is compared with it to the end.
        keep_round: Called after every round; False discards the round for all arms alike, as a throttled round.
        clock: Returns monotonic seconds.

    Returns:
        Why the race ended: `proven`, `rounds`, `seconds`, or `one arm`.
    """
    end = clock() + policy.seconds
    order: list[Arm] = []
    done, turn = 0, 0
    while done < policy.checkpoints[-1]:
        if sum(arm.running for arm in arms) < 2:
            return "one arm"
        if (done >= 2 or turn >= _PATIENCE) and clock() > end:
            return "seconds"
        order = next_order([*arms, *beside], order, turn, rng)
        visited = visit(order, timer)
        turn += 1
        if keep_round():
            for arm, samples in visited:
                arm.visits.append(samples)
            done += 1
        if done in policy.checkpoints and not drop_slower([arm for arm in arms if arm.running], policy, kept):
            return "proven"
    return "rounds"


def drop_slower(running: Sequence[Arm], policy: RacePolicy, kept: Arm | None = None) -> bool:
    """Drop the arms that are proven slower than the leader; returns whether the policy is undecided about another.

    The arms must all have the same number of rounds. The arm `kept` is never dropped; it is undecided
    until the leader clearly beats it.
    """
    if len(running) < 2:
        return False
    rows = [arm.values_ms for arm in running]
    lead = leader(rows)
    undecided = False
    for i, (gap, error) in enumerate(gaps_to(rows, lead)):
        if i == lead:
            continue
        margin = policy.confidence * error
        if running[i] is kept:
            beaten = policy.ends_on(gap) and clearly_beats(rows[lead], rows[i], policy.zone)
            undecided |= gap + margin > policy.zone and not beaten
        elif gap - margin > policy.zone and gain(rows[i], rows[lead]).low > 0:  # few values may agree by chance
            running[i].dropped_at = len(rows[i])
        else:
            undecided |= policy.undecided(gap, error, len(rows[i]))
    return undecided


def leader(rows_ms: Sequence[Sequence[float]]) -> int:
    """Position of the arm with the smallest time relative to the medians of its rounds."""
    levels = relative_levels(rows_ms)
    return min(range(len(levels)), key=levels.__getitem__)
