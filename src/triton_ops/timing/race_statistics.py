"""Statistics of timings, up to the decision of a race: the winner, its ties, the noise.

Rules: contrasts inside rounds decide, not absolute times. A difference below the indifference zone or the noise counts
as none. A winner must be proven faster than the default by more than the indifference zone, or the default wins. Among
equals that are, the config in use stays, then the cheaper config if it is proven equal.

Times of rival configs are compared as contrasts: differences of logarithms inside one round, in which a drift that hits
all configs alike cancels. A contrast of 0.01 is one percent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

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

    @property
    def margin(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


def robust_sigma(values: Sequence[float]) -> float:
    """Standard deviation by the median absolute deviation, which outliers do not widen; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = statistics.median(values)
    return _MAD_TO_SIGMA * statistics.median(abs(value - centre) for value in values)


def middle_mean(values: Sequence[float]) -> float:
    """The mean of the values without about a fifth of them at either end, one at least where there are three or more.

    A few disturbed values do not move it. Where values have two levels it lies between them, by how often each comes,
    as the time of many launches does; a median would be one of the two.
    """
    count = min(max(1, round(len(values) / 5)), (len(values) - 1) // 2)
    return statistics.fmean(sorted(values)[count : len(values) - count])


def median_error(sigma: float, count: int) -> float:
    """Standard error of the median of `count` values with standard deviation `sigma`."""
    return _MEDIAN_EFFICIENCY * sigma / math.sqrt(count)


def small_sample(count: int) -> float:
    """The factor by which an interval grows because `robust_sigma` estimated its sigma from only `count` values.

    With the factor, intervals of the median of four or more normal values miss in 5 % of simulated cases; without the
    factor they miss in 23 % with four values, 12 % with eight and 7 % with 32.
    """
    return 1 + 3 / (max(count, 2) - 1.5)


def contrasts(row: Sequence[float], other: Sequence[float]) -> list[float]:
    """The logarithm of row over other, both in milliseconds, for each round that both have."""
    return [math.log(max(a, 1e-9) / max(b, 1e-9)) for a, b in zip(row, other, strict=False)]


def gaps_to(rows: Sequence[Sequence[float]], lead: int) -> list[tuple[float, float]]:
    """The median contrast of each row to the row `lead`, and the standard error of the median.

    All rows have the same length. A few values may lie close together by chance, so a row counts with its own sigma or
    with the median sigma of all rows, whichever is larger; with many rows, few rounds give a good median sigma.
    """
    differences = [contrasts(row, rows[lead]) for row in rows]
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


INDIFFERENCE = 0.005  # a faster config must be faster by more than this share
EXCLUDED = 0.5  # of the indifference zone: the interval of a winner's gain excludes 1 by more than so much
BEYOND_CHANCE = 1.5  # margins of a 95 % interval, or three standard errors: one in 300 by chance
_CERTAIN = 10.0  # standard errors
_ENOUGH = 8  # rounds: eight differences of one sign have a chance of 1 in 128
_LEAST = 4
_RARE = 0.01
_PROVEN = 3.0  # standard errors: with fewer, the pick of the cheapest among many ties favours a lucky one at the edge


@dataclass(frozen=True)
class RaceDecision:
    """The outcome of a comparison; indices are positions in the list that was compared.

    `fastest` has the smallest median contrast, whatever the ties, which could not be told from it: best first, itself
    included. `noise` is the half-width of a typical 95 % interval of a contrast, as a share of the time.
    """

    winner: int
    fastest: int
    ties: tuple[int, ...]
    noise: float


def decide(
    rows_ms: Sequence[Sequence[float]],
    preference: Sequence[tuple[int | float | str, ...]],
    *,
    incumbents: Collection[int] = (),
    default: int | None = None,
    dropped: Collection[int] = (),
    zone: float = INDIFFERENCE,
) -> RaceDecision:
    """Compare candidates by their medians in milliseconds, one per round that they all began with.

    A candidate with fewer rounds than others was dropped, and cannot tie; one that a race dropped at the last
    checkpoint has as many as the survivors, and is among `dropped`. Among equals the smallest `preference` wins. An
    incumbent, the config in use, wins over any candidate that it ties with, if it beats the default; another one wins
    over the fastest only if it is proven to be within `zone` of it, by three standard errors as in the race. The
    default wins unless another candidate beats it; it is None or without rounds where it cannot be compared.
    `ValueError` without a candidate or round.
    """
    longest = max(map(len, rows_ms), default=0)
    if not longest:
        raise ValueError("a decision needs candidates with at least one round")
    full = [i for i, row in enumerate(rows_ms) if len(row) == longest]
    alive = [i for i in full if i not in dropped] or full
    levels = dict(zip(alive, relative_levels([rows_ms[i] for i in alive]), strict=True))
    fastest = min(alive, key=lambda i: (levels[i], preference[i]))
    gaps_and_errors = dict(zip(alive, gaps_to([rows_ms[i] for i in alive], alive.index(fastest)), strict=True))
    gaps = {i: Interval.around(centre, error) for i, (centre, error) in gaps_and_errors.items()}
    equal = {i for i, (centre, error) in gaps_and_errors.items() if centre + _PROVEN * error <= zone}
    tied = {i for i in alive if gaps[i].centre <= max(zone, gaps[i].margin)}
    wins = tied
    if default is not None:
        wins = {i for i in tied if i != default and beats(rows_ms[i], rows_ms[default], zone)}
        tied = tied - {default} if wins else tied | {default}
        wins = wins or {default}
    ties = sorted(tied, key=lambda i: preference[i])
    winner = next((i for i in ties if i in wins and i in incumbents), None)
    if winner is None:
        winner = next((i for i in ties if i in wins and (i == fastest or i in equal)), None)
    if winner is None:
        winner = min(wins, key=lambda i: (levels.get(i, math.inf), preference[i]))
    margins = [gaps[i].margin for i in alive if i != fastest]
    return RaceDecision(winner, fastest, tuple(ties), statistics.median(margins) if margins else 0.0)


def beats(row_ms: Sequence[float], default_ms: Sequence[float], zone: float = INDIFFERENCE) -> bool:
    """Check whether a candidate is proven faster than the default; true for a default without rounds.

    It is faster by more than `zone`, and both 95 % intervals of the difference exclude half of that: the interval of
    normal noise, and that of any noise.
    """
    return not default_ms or _beats(row_ms, default_ms, zone, 0.05)


def clearly_beats(row_ms: Sequence[float], default_ms: Sequence[float], zone: float = INDIFFERENCE) -> bool:
    """Check whether a candidate beats the default after enough rounds, so clearly that a race may end on it."""
    return min(len(row_ms), len(default_ms)) >= _ENOUGH and _beats(row_ms, default_ms, zone, _RARE)


def doubtful(row_ms: Sequence[float], default_ms: Sequence[float]) -> bool:
    """Check whether further rounds should say if a candidate beats the default.

    It is no doubt if the difference is known to within the zone, unless the candidate is faster by more than that and
    one odd round keeps it from beating the default; if the candidate is proven not to be faster by more than the zone;
    or if it beats the default clearly and by ten standard errors: noise that lasts for several rounds can look like a
    smaller difference. Where there was no time for four rounds, there is none for more of them either.
    """
    difference = gap(default_ms, row_ms)
    error = difference.margin / Z95
    if min(len(row_ms), len(default_ms)) < _LEAST:
        return False
    if _PROVEN * error <= INDIFFERENCE and (difference.centre <= INDIFFERENCE or beats(row_ms, default_ms)):
        return False
    if difference.centre + _PROVEN * error <= INDIFFERENCE:
        return False
    return not (difference.centre - _CERTAIN * error > INDIFFERENCE and clearly_beats(row_ms, default_ms))


def _beats(row_ms: Sequence[float], default_ms: Sequence[float], zone: float, chance: float) -> bool:
    difference = gain(default_ms, row_ms, chance)
    return difference.centre > zone and min(difference.low, gap(default_ms, row_ms).low) > EXCLUDED * zone


def relative_levels(rows_ms: Sequence[Sequence[float]]) -> list[float]:
    """The logarithm of each row's time over the medians of its rounds: smaller is faster."""
    centres = [statistics.median(column) for column in zip(*rows_ms, strict=True)]
    return [statistics.median(contrasts(row, centres)) for row in rows_ms]


def gap(row_ms: Sequence[float], other_ms: Sequence[float]) -> Interval:
    """The share by which `row` is slower than `other`, with its 95 % interval, over the rounds that both have.

    The interval is that of a median under normal noise, which is cheap enough to compute at every checkpoint of a race.
    With a single round the interval has no width, because nothing is known of the noise.
    """
    values = contrasts(row_ms, other_ms)
    count = len(values)
    return Interval.around(statistics.median(values), small_sample(count) * median_error(robust_sigma(values), count))


def gain(slow_ms: Sequence[float], fast_ms: Sequence[float], chance: float = 0.05) -> Interval:
    """The share by which the first is slower than the second, over the rounds that both have.

    The interval may miss the true share by `chance`.
    """
    return median_interval(contrasts(slow_ms, fast_ms), chance)
