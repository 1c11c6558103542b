"""The surrogate: it learns the measured configs, and gives an expectation with a doubt for all others.

The surrogate is a Gaussian process with a Matérn kernel (nu = 5/2) and one length per column, on the logarithm of time.
On recorded spaces of 4,000 to 18,000 configs a search with it finds faster configs in 25 to 100 evaluations than with
forests of trees, which know no order between unmeasured values. Lengths, amplitude and noise have broad priors (lengths
grow with the root of the number of columns: Hvarfner, Hellsten and Nardi, 2024; those of flags are long, as those that
fit whole recorded spaces are), and the most probable ones are used; without priors, ten points would decide on ten
lengths. `correlation.py` has the kernel, and another one by tunables.

The process is written out here (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, sections 2.2
and 5.4.1), because the slope of its likelihood by all lengths is then two products of matrices: a search waits a third
as long for it as for that of scikit-learn, with the same proposals.

SciPy is imported when the first surrogate is made: a quarter of a second, which other searches do not need. A tune
begins that import with its first step (`registry.py`), since the first surrogate is due soon after the first trials.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from triton_ops._optional import require
from triton_ops.search.correlation import Correlation
from triton_ops.search.encoding import Floats

_GROWTH = 1.15  # lengths are found anew once there are so many times the points of the last time
_LEAST = 0.1  # least standard deviation by which values are scaled, because few points may agree by chance
_AMPLITUDE = 2.0  # expected logarithm: the values of few configs say little of how far apart those of all are
_STEPS = 25  # steps of L-BFGS: later steps change no proposal
_NOISE = 0.1  # expected deviation of a value from a smooth function, in standard deviations of the values
_LIMITS = {"amplitude": (-4.0, 3.0), "noise": (2 * math.log(0.01), 2 * math.log(0.7))}  # logs
_JITTER = 1e-8  # variance added to each value, so that equal rows do not make the covariance singular
_LEAST_VARIANCE = 1e-9
_AT_A_TIME = 1_024  # rows that are predicted at a time, so that their covariances stay in a CPU's cache
_PURPOSE = "the search `auto`"


class Surrogate:
    """Learns the values of some rows, and predicts the values of others.

    Args:
        correlation: How alike the values of two rows are expected to be.

    Raises:
        MissingDependencyError: SciPy or threadpoolctl is not installed.
    """

    def __init__(self, correlation: Correlation) -> None:
        self._linear = require("scipy.linalg", _PURPOSE)
        self._minimize = require("scipy.optimize", _PURPOSE).minimize
        self._threads = require("threadpoolctl", _PURPOSE).ThreadpoolController()
        self._correlation = correlation
        # the logarithms of the amplitude, of each length or share, and of the noise, with their standard deviations
        self._expected = np.array([_AMPLITUDE, *self._correlation.expected, 2 * math.log(_NOISE)])
        self._spread = np.array([*[1.0] * (len(self._expected) - 1), 2.0])
        self._limits = [_LIMITS["amplitude"], *self._correlation.limits, _LIMITS["noise"]]
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
            self._rows = rows
            covariance = self._amplitude * self._alike(rows, rows)
            covariance[np.diag_indices(len(rows))] += self._noise + variances
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
                shared = self._amplitude * self._alike(rows[part], self._rows)
                mean[part] = shared @ self._weights
                known = self._linear.solve_triangular(self._root, shared.T, lower=True, check_finite=False)
                variance[part] = self._amplitude - np.einsum("ij,ij->j", known, known)
        doubt = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        return mean * self._deviation + self._mean, doubt * self._deviation

    def correlation(self, rows: Floats, row: Floats) -> Floats:
        """The correlation of the value of each of `rows` with that of `row`: 1 for `row` itself, 0 without relation."""
        return self._alike(rows, row[None])[:, 0]

    @property
    def _amplitude(self) -> float:
        return math.exp(self._theta[0])

    @property
    def _noise(self) -> float:
        return math.exp(self._theta[-1])

    def _alike(self, rows: Floats, others: Floats) -> Floats:
        return self._correlation.of(self._theta[1:-1], rows, others)

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
        alike, slope_of = self._correlation.with_slope(theta[1:-1], rows)
        shared = amplitude * alike
        covariance = shared.copy()
        covariance[np.diag_indices(len(rows))] += noise + variances
        root = self._linear.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        weights = self._linear.cho_solve((root, True), values, check_finite=False)
        inverse = np.tril(self._linear.lapack.dpotri(root, lower=1)[0])
        inverse += np.tril(inverse, -1).T
        pull = inverse - np.outer(weights, weights)  # twice the slope by each entry of the covariance
        slope = [float((pull * shared).sum()), *(amplitude * slope_of(pull)), noise * float(np.trace(pull))]
        return 0.5 * float(values @ weights) + float(np.log(np.diag(root)).sum()), 0.5 * np.array(slope)


def expected_improvement(mean: Floats, doubt: Floats, best: float) -> Floats:
    """The expected decrease below `best` of each value, where a value above `best` counts as 0."""
    depth = (best - mean) / doubt
    below = require("scipy.special", _PURPOSE).ndtr(depth)
    found: Floats = doubt * (depth * below + np.exp(-0.5 * depth**2) / math.sqrt(2 * math.pi))
    return np.maximum(found, 0.0)
