"""Spearman's rank correlation."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import StatisticsError, correlation


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation of two lists of one length, equal figures sharing their mean rank.

    From -1 for the opposite order to 1 for the same one; 1 also where one side has no order.
    """
    try:
        return correlation(_ranks(first), _ranks(second))
    except StatisticsError:  # one side has no order
        return 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value) - 1) / 2 for value in values]
