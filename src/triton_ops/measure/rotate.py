"""How many argument sets keep L2 cold: launches in turn on enough sets never find their data there.

Rotation replaces a flush: nothing extra runs between launches, so short kernels can be timed in a graph, and the
inputs arrive from memory as they do in a model.
"""

from __future__ import annotations

import math

_L2_COVERED = 2.5  # times the L2 that must be touched before a set comes round again
_LEAST_SETS = 2
_MEMORY_SHARE = 0.25  # of the free device memory that further sets may take
_ONE = 1  # set, where a launch touches no memory


def sets_needed(touched_bytes: int, l2_bytes: int | None, free_bytes: int | None = None) -> int | None:
    """How many argument sets to rotate through, the first included.

    Args:
        touched_bytes: What one launch reads and writes.
        l2_bytes: Size of the device's last cache; None if it is not known.
        free_bytes: Device memory that is free; None if it is not known.

    Returns:
        None if the sets do not fit in a quarter of the free memory, or the cache's size is not known: then the cache
        must be flushed instead.
    """
    if not l2_bytes:
        return None
    if touched_bytes <= 0:
        return _ONE
    sets = max(_LEAST_SETS, math.ceil(_L2_COVERED * l2_bytes / touched_bytes) + 1)
    if free_bytes is not None and (sets - 1) * touched_bytes > _MEMORY_SHARE * free_bytes:
        return None
    return sets
