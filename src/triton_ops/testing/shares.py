"""Shares of successes with an interval, for tests and benchmarks that count how often a selection was right."""

from __future__ import annotations

import math

from triton_ops.measure.stats import Z95, Interval


def wilson(successes: int, count: int, z: float = Z95) -> Interval:
    """Share of successes with its 95 % Wilson interval.

    Raises:
        ValueError: `count` is not positive, or `successes` is not between 0 and `count`.
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"{successes} of {count} is no share")
    share = successes / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))
