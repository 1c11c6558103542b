"""The surrogate: it learns the measured configs, and gives an expectation with a doubt for all others.

The surrogate is a Gaussian process with a Matérn kernel (nu = 5/2) and one length per column, on the logarithm of time.
On recorded spaces of 4,000 to 18,000 configs a search with it finds faster configs in 25 to 100 evaluations than with
forests of trees, which know no order between unmeasured values. Lengths, amplitude and noise have broad priors (lengths
grow with the root of the number of columns: Hvarfner, Hellsten and Nardi, 2024), and the most probable ones are used;
without priors, ten points would decide on ten lengths.

The process is written out here (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, sections 2.2
and 5.4.1), because the slope of its likelihood by all lengths is then two products of matrices: a search waits a third
as long for it as for that of scikit-learn, with the same proposals.

SciPy is imported when the first surrogate is made: a quarter of a second, which other searches do not need. A tune
begins that import with its first step (`registry.py`), since the first surrogate is due soon after the first trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_ops._optional import require
from triton_ops.search.encoding import Floats

_GROWTH = 1.15  # lengths are found anew once there are so many times the points of the last time
_LEAST = 0.1  # least standard deviation by which values are scaled, because few points may agree by chance
_STEPS = 25  # steps of L-BFGS: later steps change no proposal
_LENGTH = 0.3  # expected length over the root of the number of columns, for columns from 0 to 1
_NOISE = 0.1  # expected deviation of a value from a smooth function, in standard deviations of the values
_LIMITS = {"amplitude": (-4.0, 3.0), "length": (-3.0, 4.0), "noise": (2 * math.log(0.01), 2 * math.log(0.7))}  # logs
_JITTER = 1e-8  # variance added to each value, so that equal rows do not make the covariance singular
_LEAST_VARIANCE = 1e-9
_AT_A_TIME = 1_024  # rows that are predicted at a time, so that their covariances stay in a CPU's cache
_PURPOSE = "the search `auto`"


class Surrogate:
    """Learns the values of some rows, and predicts the values of others.

    Args:
        scales: For each column of a row the number of its scale, from 0 on: columns of one scale have one length.

    Raises:
        MissingDependencyError: SciPy or threadpoolctl is not installed.
    """

    def __init__(self, scales: Sequence[int]) -> None:
        self._linear = require("scipy.linalg", _PURPOSE)
        self._minimize = require("scipy.optimize", _PURPOSE).minimize
        self._threads = require("threadpoolctl", _PURPOSE).ThreadpoolController()
        lengths = max(scales) + 1
        length = _LENGTH * math.sqrt(lengths)
        self._of = np.array(scales, dtype=np.intp)
        # the logarithms of the amplitude, of each length, and of the noise: expected, with their standard deviations
        self._expected = np.log([1.0, *[length] * lengths, _NOISE**2])
        self._spread = np.array([1.0, *[1.0] * lengths, 2.0])
        self._limits = [_LIMITS["amplitude"], *[_LIMITS["length"]] * lengths, _LIMITS["noise"]]
        self._theta = self._expected
        self._due = 0.0
        self._mean, self._deviation = 0.0, 1.0

    def learn(self, rows: Floats, values: Floats, noise: Floats) -> None:
        """Learn these values in place of all values before.

        Args:
            rows: Shape (n, columns), n at least 2.
            values: The value of each row; shape (n,).
            noise: The known part of the standard deviation of each value; shape (n,).

        Cost: 0.2 ms for 50 rows, 0.5 ms for 200; 5 ms and 40 ms when the lengths are found anew.
        """
        self._mean, self._deviation = float(values.mean()), max(float(values.std()), _LEAST)
        scaled, variances = (values - self._mean) / self._deviation, (noise / self._deviation) ** 2 + _JITTER
        with self._threads.limit(limits=1):  # several threads would wait for each other and for the compilers' CPUs
            if len(values) >= self._due:
                self._theta = self._most_probable(rows, scaled, variances)
                self._due = len(values) * _GROWTH + 1
            covariance = self._amplitude * _matern(_squares(self._over_lengths(rows)))
            covariance[np.diag_indices(len(rows))] += self._noise + variances
            self._rows = self._over_lengths(rows)
            self._root = self._linear.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
            self._weights = self._linear.cho_solve((self._root, True), scaled, check_finite=False)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """The expected value of each row, and the standard deviation of the expectation.

        The deviation is without the noise of a measurement, which is no doubt about the config.

        Cost: about 1 µs per row for 100 learned rows.
        """
        mean, variance = np.empty(len(rows)), np.empty(len(rows))
        with self._threads.limit(limits=1):
            for begin in range(0, len(rows), _AT_A_TIME):
                part = slice(begin, begin + _AT_A_TIME)
                shared = self._amplitude * _matern(_squares(self._over_lengths(rows[part]), self._rows))
                mean[part] = shared @ self._weights
                known = self._linear.solve_triangular(self._root, shared.T, lower=True, check_finite=False)
                variance[part] = self._amplitude - np.einsum("ij,ij->j", known, known)
        doubt = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        return mean * self._deviation + self._mean, doubt * self._deviation

    def correlation(self, rows: Floats, row: Floats) -> Floats:
        """The correlation of the value of each of `rows` with that of `row`: 1 for `row` itself, 0 without relation."""
        found: Floats = _matern(_squares(self._over_lengths(rows), self._over_lengths(row[None])))[:, 0]
        return found

    @property
    def _amplitude(self) -> float:
        return math.exp(self._theta[0])

    @property
    def _noise(self) -> float:
        return math.exp(self._theta[-1])

    def _over_lengths(self, rows: Floats) -> Floats:
        found: Floats = rows / np.exp(self._theta[1:-1])[self._of]
        return found

    def _most_probable(self, rows: Floats, values: Floats, variances: Floats) -> Floats:
        """The most probable amplitude, lengths and noise under their priors, as logarithms."""

        def penalised(theta: Floats) -> tuple[float, Floats]:
            value, slope = self._unlikeliness(theta, rows, values, variances)
            off = (theta - self._expected) / self._spread
            return value + 0.5 * float(off @ off), slope + off / self._spread

        found: Any = self._minimize(
            penalised, self._theta, jac=True, method="L-BFGS-B", bounds=self._limits, options={"maxiter": _STEPS}
        )
        best: Floats = found.x
        return best

    def _unlikeliness(self, theta: Floats, rows: Floats, values: Floats, variances: Floats) -> tuple[float, Floats]:
        """The negative logarithm of the values' likelihood, less a constant, and its slope by each of `theta`."""
        amplitude, noise = math.exp(theta[0]), math.exp(theta[-1])
        near = rows / np.exp(theta[1:-1])[self._of]
        squares = _squares(near)
        shared = amplitude * _matern(squares)
        covariance = shared.copy()
        covariance[np.diag_indices(len(rows))] += noise + variances
        root = self._linear.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        weights = self._linear.cho_solve((root, True), values, check_finite=False)
        inverse = np.tril(self._linear.lapack.dpotri(root, lower=1)[0])
        inverse += np.tril(inverse, -1).T
        pull = inverse - np.outer(weights, weights)  # twice the slope by each entry of the covariance
        by_squares = pull * (amplitude * _matern_slope(squares))
        # the slope of an entry by the logarithm of a length is the squared distance along it, times that by the squares
        by_columns = by_squares.sum(axis=1) @ near**2 - np.einsum("ik,ik->k", near, by_squares @ near)
        slope = [
            0.5 * float((pull * shared).sum()),
            *np.bincount(self._of, by_columns, minlength=len(theta) - 2),
            0.5 * noise * float(np.trace(pull)),
        ]
        return 0.5 * float(values @ weights) + float(np.log(np.diag(root)).sum()), np.array(slope)


def _squares(rows: Floats, others: Floats | None = None) -> Floats:
    """The squared distance of each row from each of `others`, or of `rows`; shape (n, m)."""
    others = rows if others is None else others
    found: Floats = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2 * rows @ others.T
    return np.maximum(found, 0.0, out=found)


def _matern(squares: Floats) -> Floats:
    """The Matérn correlation (nu = 5/2) at these squared distances."""
    away = np.sqrt(5 * squares)
    found: Floats = (1 + away + away**2 / 3) * np.exp(-away)
    return found


def _matern_slope(squares: Floats) -> Floats:
    """Minus twice the slope of `_matern` by the squared distance."""
    away = np.sqrt(5 * squares)
    found: Floats = 5 / 3 * (1 + away) * np.exp(-away)
    return found


def expected_improvement(mean: Floats, doubt: Floats, best: float) -> Floats:
    """The expected decrease below `best` of each value, where a value above `best` counts as 0."""
    depth = (best - mean) / doubt
    below = require("scipy.special", _PURPOSE).ndtr(depth)
    found: Floats = doubt * (depth * below + np.exp(-0.5 * depth**2) / math.sqrt(2 * math.pi))
    return np.maximum(found, 0.0)
