"""Spearman's rank correlation."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's rank correlation of two lists of one length, equal figures sharing their mean rank.

    From -1 for the opposite order to 1 for the same one; 1 also where one side has no order.
    """
    one, other = ranks(left), ranks(right)
    mean = (len(one) - 1) / 2
    spread = sqrt(sum([(a - mean) ** 2 for a in one]) * sum([(b - mean) ** 2 for b in other]))
    shared = sum([(a - mean) * (b - mean) for a, b in zip(one, other, strict=True)])
    return shared / spread if spread > 0 else 1.0


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each figure from 0 on, equal figures sharing their mean rank."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    places = [0.0 for _ in values]
    first = 0
    while first < len(order):
        end = first
        while end + 1 < len(order) and values[order[end + 1]] == values[order[first]]:
            end += 1
        for at in order[first : end + 1]:
            places[at] = (first + end) / 2
        first = end + 1
    return places
