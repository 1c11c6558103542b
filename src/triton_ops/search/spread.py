"""Configs far apart: what to try before anything is known."""

from __future__ import annotations

import numpy as np

from triton_ops.search.encoding import Floats

_AMONG = 10  # rows looked at, drawn anew each time: the farthest of all would always be the same corners


def farthest(rows: Floats, known: Floats, random: np.random.Generator) -> int:
    """The position in `rows`, at least one, that is farthest from all of `known`; any one if none is known.

    Distance is the sum over columns: a row is far when it differs in many.
    """
    drawn = random.permutation(len(rows))[:_AMONG]
    if not len(known):
        return int(drawn[0])
    nearest = np.full(len(drawn), np.inf)
    for row in known:
        nearest = np.minimum(nearest, np.abs(rows[drawn] - row).sum(axis=1))
    return int(drawn[int(np.argmax(nearest))])


def middle(rows: Floats, known: Floats) -> int:
    """The position in `rows`, at least one, after which every row has a known one nearest on the whole.

    Where `farthest` goes to the corners, this goes to where most rows are. Cost: all distances, 20 ms for 500 rows.
    """
    apart = np.abs(rows[:, None] - rows[None]).sum(axis=2)
    if len(known):
        apart = np.minimum(apart, np.abs(rows[:, None] - known[None]).sum(axis=2).min(axis=1)[:, None])
    return int(np.argmin(apart.sum(axis=0)))
