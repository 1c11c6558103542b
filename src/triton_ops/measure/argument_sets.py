"""How many argument sets keep L2 cold: a launch that takes enough sets in turn never finds its data in L2.

Argument sets in turn replace a flush: no extra kernel runs between launches, so short kernels can be timed in a graph,
and the inputs arrive from memory as they do in a model.
"""

from __future__ import annotations

import math

_L2_COVERED = 2.5  # times the L2: bytes that the other sets must touch before a set is used again
_LEAST_SETS = 2
_MEMORY_SHARE = 0.25  # share of the free device memory that further sets may take
_ONE = 1  # a launch that touches no memory needs one set


def sets_needed(touched_bytes: int, l2_bytes: int | None, free_bytes: int | None = None) -> int | None:
    """How many argument sets to take in turn, the first included.

    Args:
        touched_bytes: Bytes that one launch reads and writes.
        l2_bytes: Size of the device's last cache; None if the size is not known.
        free_bytes: Free device memory; None if it is not known.

    Returns:
        None if the sets do not fit in a quarter of the free memory, or if the size of the cache is not known: the
        cache must then be flushed instead.
    """
    if not l2_bytes:
        return None
    if touched_bytes <= 0:
        return _ONE
    sets = max(_LEAST_SETS, math.ceil(_L2_COVERED * l2_bytes / touched_bytes) + 1)
    if free_bytes is not None and (sets - 1) * touched_bytes > _MEMORY_SHARE * free_bytes:
        return None
    return sets
