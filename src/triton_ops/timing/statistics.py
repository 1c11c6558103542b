"""Statistics of timings: pure functions on numbers, without a clock or a device.

Times of rival configs are compared as contrasts: differences of logarithms inside one round, in which a drift that hits
all configs alike cancels. A contrast of 0.01 is one percent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
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
    the values are too few for so small a chance, the interval is their whole range: for 5 % there must be six of them.

    Args:
        values: Independent values, at least one.
        chance: How often the interval may miss, on both sides together.
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
