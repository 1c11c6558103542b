"""Samples of candidates side by side: a screening of each, then the interleaved race of the finalists.

A round visits every surviving arm once, in a new random order; every second round runs the previous order backwards.
A visit takes a few samples, because drift is the same for all arms only in a short round, and counts by the mean of
their middle (`middle_mean`). At a few scheduled rounds, the checkpoints, an arm is dropped if it is slower than the
leader by more than the indifference zone, with confidence. The race ends when all remaining arms are proven equal, or,
if its policy says so, when no rival can be much faster than the leader; or when the budget is spent.

Source: racing by blocks (irace, López-Ibáñez 2016) with an indifference zone. The design and its simulation are in
docs/concepts/measurement.md.

Clocks and temperatures drift during a comparison. The drift hits all arms of one round alike, so a comparison inside
rounds removes it.

A screening takes a few samples of a candidate, cut short if it is far too slow. It ranks candidates roughly and never
decides.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from numbers import Integral, Real
from typing import ClassVar

from triton_ops.exceptions import SettingsError
from triton_ops.timing.gpu_timers import BURST_MS
from triton_ops.timing.race_statistics import (
    INDIFFERENCE,
    clearly_beats,
    gain,
    gaps_to,
    middle_mean,
    relative_levels,
)
from triton_ops.timing.timer import Pending, Sampler, Timer


@dataclass(frozen=True)
class ScreenPolicy:
    """The limits of the screening of one candidate.

    Attributes:
        screening_ms: Time that the samples should take; short, so that the power state cannot drift meanwhile.
        least: Fewest samples, however long they take.
        most: Most samples, however short they are.
        hopeless: A candidate whose first sample is this many times slower than the best so far gets no second sample.
    """

    screening_ms: float = 3.0
    least: int = 3
    most: int = 10
    hopeless: float = 1.5


def screen(sampler: Sampler, timer: Timer, policy: ScreenPolicy, best_ms: float | None = None) -> list[float]:
    """Take a few samples; milliseconds per launch, in the order taken. `best_ms` is None for the first candidate."""
    samples = sampler.take(timer, 1)
    if best_ms is not None and samples[0] > policy.hopeless * best_ms:
        return samples
    count = fitting(samples[0] * sampler.launches, policy.screening_ms, policy.least, policy.most)
    return samples + sampler.take(timer, count - 1)


def fitting(sample_ms: float, wanted_ms: float, least: int, most: int) -> int:
    """Number of samples of `sample_ms` that fill `wanted_ms`, at least `least` and at most `most`."""
    return min(max(int(wanted_ms / max(sample_ms, 1e-6)), least), most)


_COARSEST_TICK_MS = 0.001024  # the coarsest step of a GPU's events met so far; most clocks are finer
_FEW_TICKS = 20  # a time of fewer ticks of its clock is known to no better than 5 %


def tick_of(samples_ms: Sequence[float], launches: int) -> float:
    """Step of the clock that took these samples, in milliseconds per launch: their smallest difference.

    The step is at most that of the coarsest clock, because samples may also be few, far apart, or all the same.
    """
    values = sorted(set(samples_ms))
    steps = [b - a for a, b in pairwise(values)]
    return min([*steps, _COARSEST_TICK_MS / launches])


@dataclass
class Arm:
    """One launch in a comparison, with its samples in milliseconds: a list for each round that counted.

    `dropped_at` is how many rounds it had run when it was dropped; None while it takes part. An arm with an error,
    which the launch raised, runs no further round.
    """

    LEAST_SAMPLE_MS: ClassVar = _FEW_TICKS * _COARSEST_TICK_MS  # a longer sample is known to 5 %, whatever the clock

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
        """The time of the arm's last visit; 0 before the first visit."""
        return statistics.median(self.visits[-1]) * self.sampler.launches * self.visit_samples if self.visits else 0.0

    @property
    def running(self) -> bool:
        """Check whether the arm takes part in the next round."""
        return self.dropped_at is None and self.error is None

    @property
    def tick_ms(self) -> float:
        """Step of the clock, per launch."""
        return tick_of(self.samples_ms, self.sampler.launches)

    @property
    def coarse(self) -> bool:
        """Check whether its shortest sample is so few ticks of the clock that it is known to no better than 5 %."""
        return min(self.samples_ms) < _FEW_TICKS * self.tick_ms

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
    return [pair for burst in _bursts(order) for pair in _run_burst(burst, timer)]


def interleave(arms: Sequence[Arm], timer: Timer, *, rounds: int, rng: random.Random) -> None:
    """Run up to `rounds` rounds over arms, and fill in their visits and errors; only an arm that fails is dropped."""
    order: list[Arm] = []
    for turn in range(rounds):
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


def _run_burst(arms: Sequence[Arm], timer: Timer) -> list[tuple[Arm, list[float]]]:
    queued: list[tuple[Arm, Pending]] = []
    with timer.round():
        queued.extend((arm, pending) for arm in arms if (pending := _queue_visit(arm)) is not None)
    return [(arm, collect()) for arm, collect in queued]


def _queue_visit(arm: Arm) -> Pending | None:
    try:
        return arm.sampler.queue(arm.visit_samples)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - one candidate's failure is its own, SystemExit too; the others go on
        failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        arm.error = failure.with_traceback(None)  # the traceback's frames would keep the launch's memory allocated
        return None


@dataclass(frozen=True, kw_only=True)
class RacePolicy:
    """The limits of a race, and the rule by which an arm is dropped.

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
        checkpoints: object = self.checkpoints
        rounds = checkpoints if isinstance(checkpoints, (tuple, list)) else ()
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
        """Number of samples of `sample_ms` milliseconds that make a visit."""
        return fitting(sample_ms, self.visit_ms, 1, self.longest)

    def undecided(self, gap: float, error: float, rounds: int) -> bool:
        """Check whether a race goes on for an arm."""
        margin = self.confidence * error
        if self.regret is None:
            return gap + margin > self.zone
        return rounds < _LEAST_ROUNDS or margin - gap > self.regret

    def ends_on(self, gain: float) -> bool:
        """Check whether a race may end on so large a proven gain over the default.

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
    default: Arm | None = None,
    keep_round: Keep = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Run rounds until the survivors are decided, the last checkpoint is reached, or the time is used up.

    The arms' visits, errors and `dropped_at` are filled in. Arms `beside` run in every round, are never dropped, and
    cause no arm to be dropped: twins, by which the noise is known. The arm of the default is never dropped: whoever
    wins is compared with it to the end. `keep_round` is called after every round; False discards it for all arms alike,
    as a throttled round. Returns why the race ended: `proven`, `rounds`, `seconds`, or `one arm`.
    """
    end = clock() + policy.seconds
    order: list[Arm] = []
    rounds, turn = 0, 0
    while rounds < policy.checkpoints[-1]:
        if sum(arm.running for arm in arms) < 2:
            return "one arm"
        if (rounds >= 2 or turn >= _PATIENCE) and clock() > end:
            return "seconds"
        order = next_order([*arms, *beside], order, turn, rng)
        visited = visit(order, timer)
        turn += 1
        if keep_round():
            for arm, samples in visited:
                arm.visits.append(samples)
            rounds += 1
        if rounds in policy.checkpoints and not drop_slower([arm for arm in arms if arm.running], policy, default):
            return "proven"
    return "rounds"


def drop_slower(running: Sequence[Arm], policy: RacePolicy, default: Arm | None = None) -> bool:
    """Drop the arms that are proven slower than the leader; returns whether the policy is undecided about another.

    The arms must all have the same number of rounds. The arm `default` is never dropped; it is undecided
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
        if running[i] is default:
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
