"""Garbage is searched for less often in processes of tests, where that took a seventh of the CPU time."""

import atexit
import gc

YOUNGEST = 20_000  # objects before the youngest are searched
# How a program begins that imports torch: Python's search for garbage at the end takes half a second then.
ENDS_UNSEARCHED = "import atexit, gc; atexit.register(gc.freeze)\n"


def seldom_collected() -> None:
    """Leave all that is there now out of every search, such as torch and Triton; search seldom, and not at the end."""
    gc.freeze()
    atexit.register(gc.freeze)
    gc.set_threshold(YOUNGEST)
