"""How many argument sets a launch takes in turn, so that L2 stays cold and no single place in memory decides.

Argument sets in turn replace a flush: no extra kernel runs between launches, so short kernels can be timed in a graph,
and the inputs arrive from memory as they do in a model. They also share out the luck of a place: a config's time
depends on where the driver puts its arguments, in every round alike, and a race over one place proves what the next
process refutes. `benchmarks/placement.py` measures it: on an H200, over ten sets of one process, a matrix product of
4096³ was 1.3 to 4.3 % faster than another config, with a standard deviation of 1.1 %.
"""

from __future__ import annotations

import math

_L2_COVERED = 2.5  # times the L2: bytes that the other sets must touch before a set is used again
_LEAST_SETS = 2
_PLACES = 8  # sets wherever there is memory for them: the mean over eight places has about a third of one's deviation
_MEMORY_SHARE = 0.25  # share of the free device memory that further sets may take
_ONE = 1  # a launch that touches no memory needs one set


def sets_needed(touched_bytes: int, l2_bytes: int | None, free_bytes: int | None = None) -> int | None:
    """How many argument sets to take in turn, the first included.

    Args:
        touched_bytes: Bytes that one launch reads and writes.
        l2_bytes: Size of the device's last cache; None if the size is not known.
        free_bytes: Free device memory; None if it is not known, and then there are as few sets as keep L2 cold.

    Returns:
        At least what keeps L2 cold, and up to eight where they fit in a quarter of the free memory. None if not even
        the former fit, or if the size of the cache is not known: the cache must then be flushed instead.
    """
    if not l2_bytes:
        return None
    if touched_bytes <= 0:
        return _ONE
    least = max(_LEAST_SETS, math.ceil(_L2_COVERED * l2_bytes / touched_bytes) + 1)
    if free_bytes is None:
        return least
    fitting = int(_MEMORY_SHARE * free_bytes / touched_bytes) + 1
    return max(least, min(_PLACES, fitting)) if least <= fitting else None
