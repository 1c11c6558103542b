"""The choice of configs that are spread over a space, for the first trials."""

from __future__ import annotations

import numpy as np

from triton_ops.search.encoding import Floats

_AMONG = 10  # random rows that are compared: the farthest of all rows would always be the same corners


def farthest(rows: Floats, known: Floats, random: np.random.Generator) -> int:
    """The position of the row, among some random `rows`, that is farthest from all of `known`; any if none is known.

    The distance is the sum of differences over all columns. There must be at least one row.
    """
    drawn = random.permutation(len(rows))[:_AMONG]
    if not len(known):
        return int(drawn[0])
    nearest = np.full(len(drawn), np.inf)
    for row in known:
        nearest = np.minimum(nearest, np.abs(rows[drawn] - row).sum(axis=1))
    return int(drawn[int(np.argmax(nearest))])


def middle(rows: Floats, known: Floats) -> int:
    """The position of the row that, once known, makes the sum of distances from all rows to the nearest known smallest.

    `farthest` prefers corners, and this function prefers places with many rows. There must be at least one row.

    Cost: the distances of all pairs, 20 ms for 500 rows.
    """
    apart = np.abs(rows[:, None] - rows[None]).sum(axis=2)
    if len(known):
        apart = np.minimum(apart, np.abs(rows[:, None] - known[None]).sum(axis=2).min(axis=1)[:, None])
    return int(np.argmin(apart.sum(axis=0)))
