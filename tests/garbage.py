"""Garbage is searched for less often in processes of tests, where that took a seventh of the CPU time."""

import atexit
import gc

YOUNGEST = 20_000  # objects before the youngest are searched


def seldom_collected() -> None:
    """Leave all that is there now out of every search, such as torch and Triton, and search less often.

    At the end of the process nothing is searched: that takes half a second where torch is loaded.
    """
    gc.freeze()
    atexit.register(gc.freeze)
    gc.set_threshold(YOUNGEST)
