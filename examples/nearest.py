"""The nearest of some centres for each point, so many points at a time: a workload for any CPU, with NumPy alone.

A loop over the points is how one writes it first: Python then takes longer to call NumPy than NumPy to compute. All
points at once is how one writes it next: it makes arrays of points x centres x coordinates (2 MiB each for the inputs
below), for which memory is fetched anew each time. The best lies between, elsewhere on each machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS, CENTRES, COORDINATES = 1024, 8, 32
SPACE = {"rows": [1, 4, 16, 64, 256, POINTS]}  # the first is the default


def inputs() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points and centres, the same each time."""
    random = np.random.default_rng(0)
    return random.standard_normal((POINTS, COORDINATES)), random.standard_normal((CENTRES, COORDINATES))


def nearest(points: NDArray[Any], centres: NDArray[Any]) -> NDArray[np.intp]:
    """Which centre is nearest to each point, by the sum of absolute differences; for all points at once."""
    return np.abs(points[:, None] - centres).sum(-1).argmin(-1)


def nearest_in_parts(points: NDArray[Any], centres: NDArray[Any], *, rows: int) -> NDArray[np.intp]:
    """The same for `rows` points at a time."""
    return np.concatenate([nearest(points[at : at + rows], centres) for at in range(0, len(points), rows)])
