"""The surrogate: it learns the measured configs, and gives an expectation with a doubt for all others.

The surrogate is a Gaussian process of scikit-learn with a Matérn kernel (nu = 5/2) and one length per column, on the
logarithm of time. On recorded spaces of 4,000 to 18,000 configs a search with it finds faster configs in 25 to 100
evaluations than with forests of trees, which know no order between unmeasured values. Lengths, amplitude and noise have
broad priors (lengths grow with the root of the number of columns: Hvarfner, Hellsten and Nardi, 2024), and the most
probable ones are used; without priors, ten points would decide on ten lengths.

scikit-learn is imported when the first surrogate is made: about a second, which other searches do not need. A tune
begins that import with its first step (`registry.py`), since the first surrogate is due soon after the first trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from triton_ops._optional import require
from triton_ops.search.encoding import Floats

Objective: TypeAlias = Callable[[Floats], tuple[float, Floats]]

_GROWTH = 1.15  # lengths are found anew once there are so many times the points of the last time
_LEAST = 0.1  # least standard deviation by which values are scaled, because few points may agree by chance
_STEPS = 25  # steps of L-BFGS: later steps change no proposal
_LENGTH = 0.3  # expected length over the root of the number of columns, for columns from 0 to 1
_NOISE = 0.1  # expected deviation of a value from a smooth function, in standard deviations of the values
_LIMITS = {"amplitude": (-4.0, 3.0), "length": (-3.0, 4.0), "noise": (2 * math.log(0.01), 2 * math.log(0.7))}  # logs
_PURPOSE = "the search `auto`"


class Surrogate:
    """Learns the values of some rows, and predicts the values of others.

    Args:
        scales: For each column of a row the number of its scale, from 0 on: columns of one scale have one length.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """

    def __init__(self, scales: Sequence[int]) -> None:
        self._process_type = require("sklearn.gaussian_process", _PURPOSE).GaussianProcessRegressor
        self._minimize = require("scipy.optimize", _PURPOSE).minimize
        self._threads = require("threadpoolctl", _PURPOSE).ThreadpoolController()
        kernels = require("sklearn.gaussian_process.kernels", _PURPOSE)
        lengths = max(scales) + 1
        length = _LENGTH * math.sqrt(lengths)
        matern = kernels.Matern(np.full(len(scales), length), nu=2.5)
        self._kernel = kernels.ConstantKernel(1.0) * matern + kernels.WhiteKernel(_NOISE**2)
        self._expected = np.log([1.0, *[length] * lengths, _NOISE**2])
        self._spread = np.array([1.0, *[1.0] * lengths, 2.0])
        self._limits = [_LIMITS["amplitude"], *[_LIMITS["length"]] * lengths, _LIMITS["noise"]]
        self._of = np.array([0, *(1 + scale for scale in scales), lengths + 1])  # the kernel's parameters among these
        self._theta = self._expected[self._of]
        self._process: Any = None
        self._due = 0.0
        self._mean, self._deviation = 0.0, 1.0

    def learn(self, rows: Floats, values: Floats, noise: Floats) -> None:
        """Learn these values in place of all values before.

        Args:
            rows: Shape (n, columns), n at least 2.
            values: The value of each row; shape (n,).
            noise: The known part of the standard deviation of each value; shape (n,).

        Cost: 2 ms for 50 rows, 15 ms for 200; ten times that when the lengths are found anew.
        """
        self._mean, self._deviation = float(values.mean()), max(float(values.std()), _LEAST)
        anew = len(values) >= self._due
        self._process = self._process_type(
            self._kernel.clone_with_theta(self._theta),
            alpha=(noise / self._deviation) ** 2 + 1e-8,
            optimizer=self._most_probable if anew else None,
        )
        with self._threads.limit(limits=1):  # several threads would wait for each other and for the compilers' CPUs
            self._process.fit(rows, (values - self._mean) / self._deviation)
        self._theta = self._process.kernel_.theta
        if anew:
            self._due = len(values) * _GROWTH + 1

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """The expected value of each row, and the standard deviation of the expectation.

        Cost: about 5 µs per row for 100 learned rows.
        """
        with self._threads.limit(limits=1):
            mean, deviation = self._process.predict(rows, return_std=True)
        noise = math.exp(self._theta[-1])  # noise of a measurement, which is no doubt about the config
        doubt = np.sqrt(np.maximum(deviation**2 - noise, 1e-9))
        return mean * self._deviation + self._mean, doubt * self._deviation

    def correlation(self, rows: Floats, row: Floats) -> Floats:
        """The correlation of the value of each of `rows` with that of `row`: 1 for `row` itself, 0 without relation."""
        found: Floats = self._process.kernel_.k1.k2(rows, row[None])[:, 0]
        return found

    def _most_probable(self, objective: Objective, _: Floats, bounds: Any) -> tuple[Floats, float]:  # noqa: ARG002
        """The most probable parameters under the priors, which scikit-learn's own optimizer does not know."""

        def penalised(tied: Floats) -> tuple[float, Floats]:
            value, slope = objective(tied[self._of])
            off = (tied - self._expected) / self._spread
            return value + 0.5 * float(off @ off), np.bincount(self._of, slope) + off / self._spread

        begin = np.zeros(len(self._expected))
        begin[self._of] = self._theta
        found = self._minimize(
            penalised, begin, jac=True, method="L-BFGS-B", bounds=self._limits, options={"maxiter": _STEPS}
        )
        return found.x[self._of], float(found.fun)


def expected_improvement(mean: Floats, doubt: Floats, best: float) -> Floats:
    """The expected decrease below `best` of each value, where a value above `best` counts as 0."""
    depth = (best - mean) / doubt
    below = require("scipy.special", _PURPOSE).ndtr(depth)
    found: Floats = doubt * (depth * below + np.exp(-0.5 * depth**2) / math.sqrt(2 * math.pi))
    return np.maximum(found, 0.0)
