"""A duel of two launches: rounds over both and a twin of the first tell which is faster, with an interval.

The twin is the first launch once more, as an arm of its own. The first and its twin differ only by noise, so a
difference between the two launches counts only if it is larger.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from triton_ops.timing.race_statistics import (
    BEYOND_CHANCE,
    EXCLUDED,
    INDIFFERENCE,
    Interval,
    contrasts,
    gain,
    median_error,
    robust_sigma,
    small_sample,
)
from triton_ops.timing.races import Arm, next_order, visit
from triton_ops.timing.timer import Timer

Verdict: TypeAlias = Literal["faster", "slower", "not distinguishable"]

LEAST_ROUNDS = 6  # six values of one sign have a chance of 1 in 32: fewer values cannot bound a median at 95 %


@dataclass(frozen=True)
class DuelPolicy:
    """The limits of a duel, which ends after one of the checkpoints' rounds if the answer is clear, and after the last.

    After so many seconds no round is started; six rounds are always run. Differences up to `zone` count as none. A
    clear difference exceeds the least one that counts by so many standard errors: among several checkpoints a lucky
    early one must not decide. `chance` is how often the interval that must exclude 0 may miss.
    """

    checkpoints: tuple[int, ...] = (12, 24, 48, 96)
    seconds: float = 10.0
    zone: float = INDIFFERENCE
    errors: float = 3.0
    chance: float = 0.05


@dataclass(frozen=True)
class DuelOutcome:
    """The answer of a duel; shares are differences of logarithms, 0.01 is one percent.

    `gain` is the second's time over the first's, positive if the first is faster; `itself` the twin's time over the
    first's, which is 0 but for the noise; `needed` the largest share that still counts as no difference.
    """

    verdict: Verdict
    gain: Interval
    itself: Interval
    needed: float

    @property
    def noise(self) -> float:
        """The largest share by which the first may differ from itself: the far end of the twin's interval."""
        return max(abs(self.itself.low), abs(self.itself.high))

    @property
    def proven(self) -> bool:
        """Check whether the first is faster, and the interval excludes half of the indifference zone too."""
        return self.verdict == "faster" and self.gain.low > EXCLUDED * INDIFFERENCE

    @property
    def disturbed(self) -> bool:
        """Check whether the first and its twin differ beyond chance, which only a fault of measurement can cause."""
        return abs(self.itself.centre) > max(INDIFFERENCE, BEYOND_CHANCE * self.itself.margin)


def duel(
    arms: tuple[Arm, Arm, Arm],
    timer: Timer,
    policy: DuelPolicy,
    rng: random.Random,
    *,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> DuelOutcome:
    """Run rounds of the first, the second and the first's twin until the answer is clear, or a limit is reached.

    The arms' visits and errors are filled in; what a launch raised is raised. `keep_round` is called after every round;
    False discards the round for all arms alike, as a throttled round.
    """
    order: list[Arm] = []
    end = clock() + policy.seconds
    rounds, turn = 0, 0
    while rounds < policy.checkpoints[-1] and not (rounds >= LEAST_ROUNDS and clock() > end):
        order = next_order(arms, order, turn, rng)
        visited = visit(order, timer)
        turn += 1
        for arm in arms:
            if arm.error is not None:
                raise arm.error
        if keep_round():
            for arm, samples in visited:
                arm.visits.append(samples)
            rounds += 1
            if rounds in policy.checkpoints and _is_clear(_judge_arms(arms, policy), arms, policy):
                break
    return _judge_arms(arms, policy)


def judge(
    first_ms: Sequence[float],
    second_ms: Sequence[float],
    twin_ms: Sequence[float],
    *,
    tick_ms: float = 0.0,
    zone: float = INDIFFERENCE,
    chance: float = 0.05,
) -> DuelOutcome:
    """The answer from times that were measured side by side, one value of each per round.

    A difference counts if its interval excludes 0, and if it is larger than each of the indifference zone, the largest
    difference between the first and its twin, and one tick of the clock.
    """
    difference, itself = gain(second_ms, first_ms), gain(twin_ms, first_ms)
    tick = math.log1p(1.01 * tick_ms / max(min(statistics.median(first_ms), statistics.median(second_ms)), 1e-9))
    threshold = max(zone, abs(itself.low), abs(itself.high), tick)
    strict = gain(second_ms, first_ms, chance)
    is_clear = not strict.low <= 0 <= strict.high and abs(difference.centre) > threshold
    verdict: Verdict = "not distinguishable"
    if is_clear:
        verdict = "faster" if difference.centre > 0 else "slower"
    return DuelOutcome(verdict, difference, itself, threshold)


def _judge_arms(arms: Sequence[Arm], policy: DuelPolicy) -> DuelOutcome:
    tick_ms = max(arm.tick_ms for arm in arms)
    first, second, twin = (arm.values_ms for arm in arms)
    return judge(first, second, twin, tick_ms=tick_ms, zone=policy.zone, chance=policy.chance)


def _is_clear(outcome: DuelOutcome, arms: Sequence[Arm], policy: DuelPolicy) -> bool:
    """Check whether more rounds would not change the answer: different by far, or proven to be within the zone."""
    if outcome.verdict == "not distinguishable":
        return max(abs(outcome.gain.low), abs(outcome.gain.high)) <= policy.zone
    gaps = contrasts(arms[1].values_ms, arms[0].values_ms)
    error = policy.errors * small_sample(len(gaps)) * median_error(robust_sigma(gaps), len(gaps))
    return abs(outcome.gain.centre) - error > outcome.needed
