"""How alike the values of two rows are expected to be, by the distance between the rows.

Both correlations have parameters, of which logarithms are taken, and tell by each how the correlations change. They are
made from a Matérn function (nu = 5/2) of the distance, where each scale of columns has a length of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.search.encoding import Floats

Slope: TypeAlias = Callable[[Floats], Floats]

_LENGTH = 0.3  # expected length over the root of the number of columns, for columns from 0 to 1
_LENGTH_ALONE = 1.0  # expected length where each tunable has a distance of its own
_SHARE = 1.0  # expected share of a tunable
_FLAG = 8.0  # how many times as long the length of a tunable that is on or off is expected to be: most matter little
_LIMITS = (-3.0, 4.0)  # of the logarithm of each parameter


class Correlation(Protocol):
    """A correlation of rows.

    Attributes:
        expected: The expected logarithm of each parameter.
        limits: The least and the largest logarithm of each.
    """

    expected: Floats
    limits: list[tuple[float, float]]

    def of(self, logs: Floats, rows: Floats, others: Floats) -> Floats:
        """The correlation of each row with each of `others`, by the logarithms of the parameters; shape (n, m)."""

    def with_slope(self, logs: Floats, rows: Floats) -> tuple[Floats, Slope]:
        """The correlation of each row with each, and its slope.

        The slope takes a weight for each pair of rows, symmetrical, and returns for each parameter the sum of the
        correlations' slopes by its logarithm, times the weights.
        """


class ByDistance:
    """One distance over all columns, so that rows are alike where they are alike in all.

    Args:
        scales: For each column the number of its scale, from 0 on.
        flags: The scales of tunables that are on or off.
    """

    def __init__(self, scales: Sequence[int], flags: Collection[int] = ()) -> None:
        self._of = np.array(scales, dtype=np.intp)
        lengths = max(scales, default=-1) + 1
        self.expected = _expected_lengths(_LENGTH * math.sqrt(lengths), lengths, flags)
        self.limits = [_LIMITS] * lengths

    def of(self, logs: Floats, rows: Floats, others: Floats) -> Floats:
        """The correlation of each row with each of `others`."""
        lengths = np.exp(logs)[self._of]
        return _matern(_squares(rows / lengths, others / lengths))

    def with_slope(self, logs: Floats, rows: Floats) -> tuple[Floats, Slope]:
        """The correlation of each row with each, and its slope."""
        near = rows / np.exp(logs)[self._of]
        squares = _squares(near, near)

        def slope(weights: Floats) -> Floats:
            by_columns = _by_columns(weights * _matern_slope(squares), near)
            found: Floats = np.bincount(self._of, by_columns, minlength=len(logs)).astype(float)
            return found

        return _matern(squares), slope


class ByTunables:
    """A distance for each tunable, so that rows that are alike in some tunables are alike to some degree.

    The correlation is the product of (1 + s * m) / (1 + s) over the tunables, where m is the Matérn function of the
    distance along a tunable and s is its share: a sum over all sets of tunables.

    Args:
        scales: For each column the number of its scale, from 0 on.
        tunables: For each column the number of its tunable, from 0 on.
        flags: The scales of tunables that are on or off.
    """

    def __init__(self, scales: Sequence[int], tunables: Sequence[int], flags: Collection[int] = ()) -> None:
        self._of = np.array(scales, dtype=np.intp)
        self._lengths, shares = max(scales) + 1, max(tunables) + 1
        self._columns = [np.flatnonzero(np.array(tunables) == at) for at in range(shares)]
        lengths = _expected_lengths(_LENGTH_ALONE, self._lengths, flags)
        self.expected: Floats = np.concatenate([lengths, np.full(shares, math.log(_SHARE))])
        self.limits = [_LIMITS] * len(self.expected)

    def of(self, logs: Floats, rows: Floats, others: Floats) -> Floats:
        """The correlation of each row with each of `others`."""
        lengths, found = np.exp(logs[: self._lengths])[self._of], np.ones((len(rows), len(others)))
        for share, columns in zip(np.exp(logs[self._lengths :]), self._columns, strict=True):
            near, far = rows[:, columns] / lengths[columns], others[:, columns] / lengths[columns]
            first, same = _distinct(rows[:, columns])
            found *= ((1 + share * _matern(_squares(near[first], far))) / (1 + share))[same]
        return found

    def with_slope(self, logs: Floats, rows: Floats) -> tuple[Floats, Slope]:
        """The correlation of each row with each, and its slope."""
        lengths, shares = np.exp(logs[: self._lengths])[self._of], np.exp(logs[self._lengths :])
        near = rows / lengths
        squares = [_squares(near[:, columns], near[:, columns]) for columns in self._columns]
        alike = [_matern(one) for one in squares]
        whole = np.prod([(1 + share * one) / (1 + share) for share, one in zip(shares, alike, strict=True)], axis=0)

        def slope(weights: Floats) -> Floats:
            by_columns, by_shares = np.empty(len(self._of)), np.empty(len(shares))
            for at, (share, columns) in enumerate(zip(shares, self._columns, strict=True)):
                factor = weights * whole * share / (1 + share * alike[at])  # the sum without this tunable, in part
                by_shares[at] = (factor * (alike[at] - 1)).sum() / (1 + share)
                by_columns[columns] = _by_columns(factor * _matern_slope(squares[at]), near[:, columns])
            return np.concatenate([np.bincount(self._of, by_columns, minlength=self._lengths), by_shares])

        return whole, slope


def _expected_lengths(usual: float, lengths: int, flags: Collection[int]) -> Floats:
    """The logarithm of each expected length."""
    return np.log([usual * (_FLAG if scale in flags else 1.0) for scale in range(lengths)])


def _distinct(rows: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the first of all equal rows, and for each row its place among these positions."""
    told = (rows * np.sqrt(np.arange(2, rows.shape[1] + 2))).sum(axis=1)  # no two rows of values have one sum
    _, first, same = np.unique(told, return_index=True, return_inverse=True)
    return first, same


def _by_columns(pull: Floats, near: Floats) -> Floats:
    """For each column the sum of `pull` times the squared distance of each pair of rows along it."""
    found: Floats = 2 * (pull.sum(axis=1) @ near**2 - np.einsum("ik,ik->k", near, pull @ near))
    return found


def _squares(rows: Floats, others: Floats) -> Floats:
    """The squared distance of each row from each of `others`; shape (n, m)."""
    found: Floats = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2 * rows @ others.T
    return np.maximum(found, 0.0, out=found)


def _matern(squares: Floats) -> Floats:
    """The Matérn correlation (nu = 5/2) at these squared distances."""
    away = np.sqrt(5 * squares)
    found: Floats = (1 + away + away**2 / 3) * np.exp(-away)
    return found


def _matern_slope(squares: Floats) -> Floats:
    """Minus twice the slope of `_matern` by the squared distance: its slope by the logarithm of a length, over that."""
    away = np.sqrt(5 * squares)
    found: Floats = 5 / 3 * (1 + away) * np.exp(-away)
    return found
