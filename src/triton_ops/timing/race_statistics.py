"""Statistics of times taken side by side, up to the decision of a race or a duel.

Rules: contrasts inside rounds decide, not absolute times. A difference below the indifference zone or the noise counts
as none. A winner must be proven faster than the default by more than the indifference zone, or the default wins. Among
equals that are, the config in use stays, then the cheaper config if it is proven equal.

Times of rival configs are compared as contrasts: differences of logarithms inside one round, in which a drift that hits
all configs alike cancels. A contrast of 0.01 is one percent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from triton_ops.base import cached_property
from triton_ops.timing.policies import INDIFFERENCE
from triton_ops.values import Measurement

# 1 / Φ⁻¹(3/4), and √(π / 2), both of large samples.
_MAD_TO_SIGMA = 1.4826  # standard deviation over median absolute deviation, for normal noise
_MEDIAN_EFFICIENCY = 1.2533  # standard error of a median over the standard error of a mean, for normal noise
Z95 = 1.96
_PARTS = 10**9  # in which the chance of an interval is counted


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    centre: float
    low: float
    high: float

    @classmethod
    def around(cls, centre: float, error: float) -> Interval:
        """The interval of an estimate with this standard error."""
        return cls(centre, centre - Z95 * error, centre + Z95 * error)

    @classmethod
    def of_gap(cls, row_ms: Sequence[float], other_ms: Sequence[float]) -> Interval:
        """The share by which `row` is slower than `other`, over the rounds that both have.

        The interval is that of a median under normal noise, which is cheap enough to compute at every checkpoint of a
        race. With a single round the interval has no width, because nothing is known of the noise.
        """
        values = Measurement.contrasts(row_ms, other_ms)
        count = len(values)
        return cls.around(statistics.median(values), small_sample(count) * median_error(robust_sigma(values), count))

    @classmethod
    def of_gain(cls, slow_ms: Sequence[float], fast_ms: Sequence[float], chance: float = 0.05) -> Interval:
        """The share by which the first is slower than the second, over the rounds that both have.

        The interval may miss the true share by `chance`, whatever the noise.
        """
        return median_interval(Measurement.contrasts(slow_ms, fast_ms), chance)

    @classmethod
    def of_few(cls, slow_ms: Sequence[float], fast_ms: Sequence[float], errors: float) -> Interval:
        """The share by which the first is slower, by the mean of few rounds and so many standard errors of it.

        For more power than a median has, every round counts: one that is disturbed makes the interval wider.
        """
        values = Measurement.contrasts(slow_ms, fast_ms)
        sigma = statistics.stdev(values) if len(values) > 1 else math.inf
        margin = errors * small_sample(len(values)) * sigma / math.sqrt(len(values))
        centre = statistics.fmean(values)
        return cls(centre, centre - margin, centre + margin)

    @property
    def margin(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2

    @property
    def chance(self) -> float:
        """The distance from 0 that chance alone may cause: three standard errors."""
        return _BEYOND_CHANCE * self.margin

    @property
    def disturbed(self) -> bool:
        """Check whether a launch and its twin, whose difference this is, differ as only a fault of measurement does."""
        return abs(self.centre) > max(INDIFFERENCE, self.chance)

    @property
    def counts(self) -> bool:
        """Check whether all of this gain lies beyond half of the indifference zone."""
        return self.low > EXCLUDED * INDIFFERENCE

    @property
    def ratio(self) -> Interval:
        """The quotient of two times, where this is the difference of their logarithms."""
        return Interval(math.exp(self.centre), math.exp(self.low), math.exp(self.high))


def robust_sigma(values: Sequence[float]) -> float:
    """Standard deviation by the median absolute deviation, which outliers do not widen; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = statistics.median(values)
    return _MAD_TO_SIGMA * statistics.median(abs(value - centre) for value in values)


def median_error(sigma: float, count: int) -> float:
    """Standard error of the median of `count` values with standard deviation `sigma`."""
    return _MEDIAN_EFFICIENCY * sigma / math.sqrt(count)


def small_sample(count: int) -> float:
    """The factor by which an interval grows because `robust_sigma` estimated its sigma from only `count` values.

    With the factor, intervals of the median of four or more normal values miss in 5 % of simulated cases; without the
    factor they miss in 23 % with four values, 12 % with eight and 7 % with 32.
    """
    return 1 + 3 / (max(count, 2) - 1.5)


def gaps_to(rows: Sequence[Sequence[float]], lead: int) -> list[tuple[float, float]]:
    """The median contrast of each row to the row `lead`, and the standard error of the median.

    All rows have the same length. A few values may lie close together by chance, so a row counts with its own sigma or
    with the median sigma of all rows, whichever is larger; with many rows, few rounds give a good median sigma.
    """
    differences = [Measurement.contrasts(row, rows[lead]) for row in rows]
    sigmas = [robust_sigma(values) for values in differences]
    others = [sigma for i, sigma in enumerate(sigmas) if i != lead]
    typical = statistics.median(others) if others else 0.0
    grown = small_sample(len(rows[lead]) * len(others))
    return [
        (statistics.median(values), grown * median_error(max(sigma, typical), len(values)))
        for values, sigma in zip(differences, sigmas, strict=True)
    ]


def median_interval(values: Sequence[float], chance: float = 0.05) -> Interval:
    """The median of `values`, and the interval between two of the ordered values that misses the true median by chance.

    No shape of the noise is assumed: how many of the values lie below the true median is a matter of coin tosses. Where
    the values are too few for so small a chance, on both sides together, the interval is their whole range: for 5 %
    there must be six of them.
    """
    ordered = sorted(values)
    count = len(ordered)
    out = _left_out(count, chance)
    return Interval(statistics.median(ordered), ordered[out], ordered[count - 1 - out])


def _left_out(count: int, chance: float) -> int:
    """Number of values on either side outside of an interval of the median that misses with `chance`."""
    allowed = round(chance / 2 * _PARTS) * 2**count  # of 2^count equally likely outcomes, in parts
    term, tail = 1, 0  # whole numbers, since 2^-count is too small for a float
    for out in range(count // 2):
        tail += term
        if tail * _PARTS > allowed:
            return max(out - 1, 0)
        term = term * (count - out) // (out + 1)
    return max(count // 2 - 1, 0)


EXCLUDED = 0.5  # of the indifference zone: the interval of a winner's gain excludes 1 by more than so much
_BEYOND_CHANCE = 1.5  # margins of a 95 % interval, or three standard errors: one in 300 by chance
_CERTAIN = 10.0  # standard errors
_ENOUGH = 8  # rounds: eight differences of one sign have a chance of 1 in 128
_PLAIN, _FEW = 0.05, 6  # a difference that every one of so many rounds shows, the fewest that bound a median at 95 %
_FAR, _LEAST = 0.4, 4  # a difference that no noise makes, in each of so many rounds
_SURE = 3.3  # standard errors of a mean of few rounds: equal configs pass in 1 of 1,000 looks
_ENOUGH_LONG = 5  # rounds whose mean has a useful error
_TWICE, _STEADY = math.log(2), 0.15  # two rounds say enough if each shows the first, and times scatter by the second
_RARE = 0.01
_STRANGE, _MANY = 0.001, 11  # by so small a chance the signs of differences say enough, and so many can have it
_PROVEN = 3.0  # standard errors: with fewer, the pick of the cheapest among many ties favours a lucky one at the edge

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class RaceDecision(Generic[Name]):
    """The outcome of a comparison, by the names of what was compared.

    `fastest` has the smallest median contrast, whatever the ties, which could not be told from it: best first, itself
    included. `noise` is the half-width of a typical 95 % interval of a contrast, as a share of the time.
    """

    winner: Name
    fastest: Name
    ties: tuple[Name, ...]
    noise: float


@dataclass(frozen=True, kw_only=True)
class Standing(Generic[Name]):
    """Candidates by name with their times in milliseconds, one for each round that all began with.

    A candidate with fewer rounds than others was dropped, and cannot tie; one that a race dropped at the last
    checkpoint has as many as the survivors, and is among `dropped`. `default` is what a winner must be proven faster
    than; None, or a name without times, where nothing can be compared with it. Differences up to `zone` count as none.
    Among equals the smallest `preference` wins, and before that an incumbent: a config in use.
    """

    rows_ms: Mapping[Name, Sequence[float]]
    default: Name | None = None
    preference: Mapping[Name, tuple[int | float | str, ...]] = field(default_factory=dict)
    incumbents: Collection[Name] = ()
    dropped: Collection[Name] = ()
    zone: float = INDIFFERENCE

    @property
    def default_ms(self) -> Sequence[float]:
        """The times of the default; empty without one."""
        return () if self.default is None else self.rows_ms.get(self.default, ())

    @classmethod
    def levels(cls, processes: Sequence[Standing[Name]], names: Sequence[Name]) -> dict[Name, list[float]]:
        """The times of some candidates over the medians of their rounds, one for each of several processes."""
        levels = [relative_levels([process.rows_ms[name] for name in names]) for process in processes]
        return {name: [math.exp(each[place]) for each in levels] for place, name in enumerate(names)}

    def gaps(self, lead: Name) -> dict[Name, Interval]:
        """The shares by which the others are slower than one of them; all have the same number of rounds."""
        estimates = zip(self.rows_ms, gaps_to(list(self.rows_ms.values()), list(self.rows_ms).index(lead)), strict=True)
        return {name: Interval.around(*estimate) for name, estimate in estimates if name != lead}

    def gain(self, name: Name) -> Interval:
        """The share by which the default is slower than a candidate."""
        return Interval.of_gain(self.default_ms, self.rows_ms[name])

    def possible(self, name: Name) -> Interval:
        """The gain with the wider ends of two intervals: that of any noise, and that of normal noise."""
        gain, normal = self.gain(name), Interval.of_gap(self.default_ms, self.rows_ms[name])
        return Interval(gain.centre, min(gain.low, normal.low), max(gain.high, normal.high))

    def by_few_rounds(self, name: Name) -> tuple[bool, Interval]:
        """Tell whether a race of few rounds shows that a candidate beats the default, and the gain that they show."""
        row_ms, gain = self.rows_ms[name], self.gain(name)
        proven = few_tell(row_ms, self.default_ms, self.zone)
        if proven and gain.low > EXCLUDED * self.zone:
            return True, gain
        return proven, Interval.of_few(self.default_ms, row_ms, Z95 if proven else _SURE)

    def beats(self, name: Name) -> bool:
        """Check whether a candidate is proven faster than the default; true without one.

        It is faster by more than the zone, and both 95 % intervals of the difference exclude half of that: the interval
        of normal noise, and that of any noise. The latter is enough where it excludes that with 99.9 %, since times of
        two states make the former wide.
        """
        return not self.default_ms or _beats(self.rows_ms[name], self.default_ms, self.zone, 0.05)

    def doubtful(self, name: Name) -> bool:
        """Check whether further rounds should say if a candidate beats the default.

        It is no doubt if the difference is known to within the zone, unless the candidate is faster by more than that
        and one odd round keeps it from beating the default; if the candidate is proven not to be faster by more than
        the zone; or if it beats the default clearly and by ten standard errors, or by far and alike in each round: what
        lasts for several can look like a smaller difference.
        """
        row_ms, difference = self.rows_ms[name], Interval.of_gap(self.default_ms, self.rows_ms[name])
        error = difference.margin / Z95
        if _PROVEN * error <= self.zone and (difference.centre <= self.zone or self.beats(name)):
            return False
        if difference.centre + _PROVEN * error <= self.zone:
            return False
        certain = is_plain(row_ms, self.default_ms) or difference.centre - _CERTAIN * error > self.zone
        return not (certain and clearly_beats(row_ms, self.default_ms, self.zone))

    @property
    def challenger(self) -> Name | None:
        """The one that the default must stand up to: the winner, or else the fastest rival; None without one."""
        if self.decision.winner != self.default:
            return self.decision.winner
        rivals = [name for name in self.rows_ms if name != self.default and name not in self.dropped]
        return max(rivals, key=lambda name: self.gain(name).centre, default=None)

    @cached_property
    def decision(self) -> RaceDecision[Name]:
        """The decision by the medians of contrasts; `ValueError` without a candidate or round.

        An incumbent wins over any candidate that it ties with, if it beats the default; another one wins over the
        fastest only if it is proven to be within the zone of it, by three standard errors as in the race. The default
        wins unless another candidate beats it.
        """
        preference = self.preference
        if not (longest := max(map(len, self.rows_ms.values()), default=0)):
            raise ValueError("a decision needs candidates with at least one round")
        full = [name for name, row in self.rows_ms.items() if len(row) == longest]
        alive = [name for name in full if name not in self.dropped] or full
        rows = [self.rows_ms[name] for name in alive]
        levels = dict(zip(alive, relative_levels(rows), strict=True))
        fastest = min(alive, key=lambda name: (levels[name], preference[name]))
        estimates = dict(zip(alive, gaps_to(rows, alive.index(fastest)), strict=True))
        gaps = {name: Interval.around(*estimate) for name, estimate in estimates.items()}
        equal = {name for name, (centre, error) in estimates.items() if centre + _PROVEN * error <= self.zone}
        tied = [name for name in alive if gaps[name].centre <= max(self.zone, gaps[name].margin)]
        wins = tied
        if self.default is not None and self.default in self.rows_ms:
            wins = [name for name in tied if name != self.default and self.beats(name)]
            tied = [name for name in tied if name != self.default] + ([] if wins else [self.default])
            wins = wins or [self.default]
        ties = sorted(tied, key=preference.__getitem__)
        if (winner := next((name for name in ties if name in wins and name in self.incumbents), None)) is None:
            winner = next((name for name in ties if name in wins and (name == fastest or name in equal)), None)
        if winner is None:
            winner = min(wins, key=lambda name: (levels.get(name, math.inf), preference[name]))
        own_ms, others = self.rows_ms[fastest], [it for it, row in self.rows_ms.items() if row and it != fastest]
        margins = [gaps[name].margin for name in others if name in gaps]
        margins = margins or [Interval.of_gap(self.rows_ms[name], own_ms).margin for name in others]
        return RaceDecision(winner, fastest, tuple(ties), statistics.median(margins) if margins else 0.0)


def by_far(row_ms: Sequence[float], default_ms: Sequence[float]) -> bool:
    """Check whether all rounds show, and alike, that a candidate takes two thirds of the default's time or less."""
    contrasts = Measurement.contrasts(default_ms, row_ms)
    return min(contrasts, default=0.0) > _FAR and max(contrasts) - min(contrasts) < _FAR / 2


def is_plain(row_ms: Sequence[float], default_ms: Sequence[float]) -> bool:
    """Check whether few rounds say enough: four that show a candidate faster by far, or two that show it twice as fast.

    Each of the two times scatters by at most 15 % then.
    """
    contrasts = Measurement.contrasts(default_ms, row_ms)
    if len(contrasts) < 2 or (len(contrasts) >= _LEAST and by_far(row_ms, default_ms)):
        return len(contrasts) >= 2
    logarithms = (Measurement.contrasts(times_ms, [1.0] * len(contrasts)) for times_ms in (row_ms, default_ms))
    return min(contrasts) >= _TWICE and max(map(statistics.stdev, logarithms)) <= _STEADY


def clearly_beats(row_ms: Sequence[float], default_ms: Sequence[float], zone: float = INDIFFERENCE) -> bool:
    """Check whether a candidate beats the default after enough rounds, so clearly that a race may end on it.

    Fewer are enough where each of them shows ten times the indifference zone, and still fewer for half of the time.
    """
    contrasts = Measurement.contrasts(default_ms, row_ms)
    enough = _FEW if min(contrasts, default=0.0) > _PLAIN else _ENOUGH
    return is_plain(row_ms, default_ms) or (len(contrasts) >= enough and _beats(row_ms, default_ms, zone, _RARE))


def few_tell(row_ms: Sequence[float], default_ms: Sequence[float], zone: float = INDIFFERENCE) -> bool:
    """Check whether few rounds, each so long that no passing state lasts for several, show that a candidate is faster.

    Five at least, or three that show it twice as fast, or fewer that are plain.
    """
    contrasts = Measurement.contrasts(default_ms, row_ms)
    if is_plain(row_ms, default_ms) or (len(contrasts) > 2 and min(contrasts) >= _TWICE):
        return True
    if len(contrasts) < _ENOUGH_LONG:
        return False
    gain = Interval.of_few(default_ms, row_ms, _SURE)
    return gain.centre > zone and gain.low > EXCLUDED * zone


def _beats(row_ms: Sequence[float], default_ms: Sequence[float], zone: float, chance: float) -> bool:
    if is_plain(row_ms, default_ms):
        return True
    difference, least = Interval.of_gain(default_ms, row_ms, chance), EXCLUDED * zone
    if difference.centre <= zone or min(difference.low, Interval.of_gap(default_ms, row_ms).low) > least:
        return difference.centre > zone
    return len(row_ms) >= _MANY and Interval.of_gain(default_ms, row_ms, _STRANGE).low > least


def relative_levels(rows_ms: Sequence[Sequence[float]]) -> list[float]:
    """The logarithm of each row's time over the medians of its rounds: smaller is faster."""
    centres = [statistics.median(column) for column in zip(*rows_ms, strict=True)]
    return [statistics.median(Measurement.contrasts(row, centres)) for row in rows_ms]


Verdict: TypeAlias = Literal["faster", "slower", "not distinguishable"]


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
        return self.verdict == "faster" and self.gain.counts


def judge(
    first_ms: Sequence[float], second_ms: Sequence[float], twin_ms: Sequence[float], *, tick_ms: float = 0.0,
    zone: float = INDIFFERENCE, chance: float = 0.05,
) -> DuelOutcome:  # fmt: skip
    """The answer from times that were measured side by side, one value of each per round.

    A difference counts if its interval excludes 0, and if it is larger than each of the indifference zone, the largest
    difference between the first and its twin, and one tick of the clock.
    """
    difference, itself = Interval.of_gain(second_ms, first_ms), Interval.of_gain(twin_ms, first_ms)
    tick = math.log1p(1.01 * tick_ms / max(min(statistics.median(first_ms), statistics.median(second_ms)), 1e-9))
    threshold = max(zone, abs(itself.low), abs(itself.high), tick)
    strict = Interval.of_gain(second_ms, first_ms, chance)
    is_clear = not strict.low <= 0 <= strict.high and abs(difference.centre) > threshold
    verdict: Verdict = "not distinguishable"
    if is_clear:
        verdict = "faster" if difference.centre > 0 else "slower"
    return DuelOutcome(verdict, difference, itself, threshold)
