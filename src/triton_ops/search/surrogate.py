"""The surrogate: from the configs measured so far to an expectation, with a doubt, for those that were not.

A Gaussian process of scikit-learn with a Matérn kernel (nu = 5/2) and one length per column, on the logarithm of time:
on recorded spaces of 4,000 to 18,000 configs it finds more with 25 to 100 evaluations than forests of trees do, which
see no order between values that they have not met. Lengths, amplitude and noise are the most probable ones under broad
priors (lengths that grow with the root of the number of columns: Hvarfner, Hellsten and Nardi, 2024); without priors,
ten points would decide on ten lengths.

scikit-learn is imported when the first surrogate is made: about a second that other searches do not pay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from triton_ops._optional import require
from triton_ops.search.encoding import Floats

Objective: TypeAlias = Callable[[Floats], tuple[float, Floats]]

_GROWTH = 1.15  # lengths are found anew when there are this many times the points of the last time
_LEAST = 0.1  # deviation of values below which they are not told apart further: few points may agree by chance
_STEPS = 25  # of L-BFGS: later steps change no proposal
_LENGTH = 0.3  # times the root of the number of columns: the expected length, where columns go from 0 to 1
_NOISE = 0.1  # expected deviation of a value from anything smooth, in deviations of the values
_LIMITS = {"amplitude": (-4.0, 3.0), "length": (-3.0, 4.0), "noise": (2 * math.log(0.01), 2 * math.log(0.7))}  # logs
_PURPOSE = "the search `auto`"
SURROGATE_PACKAGES = ("sklearn.gaussian_process", "scipy.optimize", "scipy.special")
"""What a surrogate imports."""


class Surrogate:
    """Learns rows and values, predicts values of other rows.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """

    def __init__(self, columns: int) -> None:
        self._process_type = require("sklearn.gaussian_process", _PURPOSE).GaussianProcessRegressor
        self._minimize = require("scipy.optimize", _PURPOSE).minimize
        self._threads = require("threadpoolctl", _PURPOSE).ThreadpoolController()
        kernels = require("sklearn.gaussian_process.kernels", _PURPOSE)
        length = _LENGTH * math.sqrt(columns)
        matern = kernels.Matern(np.full(columns, length), nu=2.5)
        self._kernel = kernels.ConstantKernel(1.0) * matern + kernels.WhiteKernel(_NOISE**2)
        self._expected = np.log([1.0, *[length] * columns, _NOISE**2])
        self._spread = np.array([1.0, *[1.0] * columns, 2.0])
        self._limits = [_LIMITS["amplitude"], *[_LIMITS["length"]] * columns, _LIMITS["noise"]]
        self._theta = self._expected
        self._process: Any = None
        self._due = 0.0
        self._mean, self._deviation = 0.0, 1.0

    def learn(self, rows: Floats, values: Floats, noise: Floats) -> None:
        """Take these in place of all that was learned.

        Args:
            rows: Shape (n, columns), n at least 2.
            values: Shape (n,): what to predict.
            noise: Shape (n,): the standard deviation of each value, as far as it is known.

        Cost: 2 ms for 50 rows, 15 ms for 200; ten times that when the lengths are found anew.
        """
        self._mean, self._deviation = float(values.mean()), max(float(values.std()), _LEAST)
        anew = len(values) >= self._due
        self._process = self._process_type(
            self._kernel.clone_with_theta(self._theta),
            alpha=(noise / self._deviation) ** 2 + 1e-8,
            optimizer=self._most_probable if anew else None,
        )
        with self._threads.limit(limits=1):  # more of them wait for each other, and for the compilers' CPUs
            self._process.fit(rows, (values - self._mean) / self._deviation)
        self._theta = self._process.kernel_.theta
        if anew:
            self._due = len(values) * _GROWTH + 1

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Expectation of each row's value, and the standard deviation of that expectation.

        Cost: about 5 µs per row for 100 learned rows.
        """
        with self._threads.limit(limits=1):
            mean, deviation = self._process.predict(rows, return_std=True)
        noise = math.exp(self._theta[-1])  # belongs to a measurement, not to the config
        doubt = np.sqrt(np.maximum(deviation**2 - noise, 1e-9))
        return mean * self._deviation + self._mean, doubt * self._deviation

    def alike(self, rows: Floats, row: Floats) -> Floats:
        """How far the values of `rows` go with that of `row`: 1 for itself, 0 for one that says nothing of it."""
        found: Floats = self._process.kernel_.k1.k2(rows, row[None])[:, 0]
        return found

    def _most_probable(self, objective: Objective, _: Floats, bounds: Any) -> tuple[Floats, float]:  # noqa: ARG002
        """In place of scikit-learn's own search, which knows no priors and starts where it is told."""

        def penalised(theta: Floats) -> tuple[float, Floats]:
            value, slope = objective(theta)
            off = (theta - self._expected) / self._spread
            return value + 0.5 * float(off @ off), slope + off / self._spread

        found = self._minimize(
            penalised, self._theta, jac=True, method="L-BFGS-B", bounds=self._limits, options={"maxiter": _STEPS}
        )
        return found.x, float(found.fun)


def expected_improvement(mean: Floats, doubt: Floats, best: float) -> Floats:
    """How far below `best` each value is expected to be, where all that end above it count as 0."""
    depth = (best - mean) / doubt
    below = require("scipy.special", _PURPOSE).ndtr(depth)
    found: Floats = doubt * (depth * below + np.exp(-0.5 * depth**2) / math.sqrt(2 * math.pi))
    return np.maximum(found, 0.0)
