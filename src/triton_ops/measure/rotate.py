"""How many copies of the arguments keep L2 cold: calls in turn on enough copies never find their data there.

Rotation replaces a flush: nothing extra runs between launches, so short kernels can be timed in a graph, and the
inputs arrive from memory as they do in a model.
"""

from __future__ import annotations

import math

_L2_COVERED = 2.5  # times the L2 that must be touched before a copy comes round again
_LEAST_COPIES = 2
_MEMORY_SHARE = 0.25  # of the free device memory that copies may take
_WARM_ALREADY = 1  # copies, when the cache does not matter


def copies_needed(touched_bytes: int, l2_bytes: int | None, free_bytes: int | None = None) -> int | None:
    """How many argument sets to rotate through, the first included.

    Args:
        touched_bytes: What one launch reads and writes.
        l2_bytes: Size of the device's last cache; None if it is not known.
        free_bytes: Device memory that is free; None if it is not known.

    Returns:
        None if the copies do not fit in a quarter of the free memory, or the cache's size is not known: then the cache
        must be flushed instead.
    """
    if not l2_bytes:
        return None
    if touched_bytes <= 0:
        return _WARM_ALREADY
    copies = max(_LEAST_COPIES, math.ceil(_L2_COVERED * l2_bytes / touched_bytes) + 1)
    if free_bytes is not None and (copies - 1) * touched_bytes > _MEMORY_SHARE * free_bytes:
        return None
    return copies
