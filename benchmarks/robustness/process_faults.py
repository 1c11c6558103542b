"""What a config can do to its process, in a module without torch: a worker for it starts in a fifth of the time."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from triton_ops import ConfigSpace, Status

GOOD = "none"
TIMES_MS = (2.0, 3.0, 4.0, 6.0)

# Statuses that count for a fault; a crash that comes back is the same as a hang that is killed to nobody.
PROCESS_FAULTS = {
    "abort": Status.CRASH,
    "segmentation fault": Status.CRASH,
    "killed": Status.CRASH,
    "exit without cleaning up": Status.CRASH,
    "sys.exit": Status.RUNTIME,
    "raises": Status.RUNTIME,
    "endless loop": Status.TIMEOUT,
    "out of memory": Status.RESOURCES,
}


def process_fault(fault: str) -> None:
    """The fault of that name; nothing for any other name."""
    if fault == "abort":
        os.abort()
    elif fault == "segmentation fault":
        ctypes.string_at(0)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "exit without cleaning up":
        os._exit(3)
    elif fault == "sys.exit":
        raise SystemExit(3)
    elif fault == "raises":
        raise ValueError("planted")
    elif fault == "out of memory":
        raise MemoryError("planted")
    while fault == "endless loop":
        pass


def nap(*, ms: float, fault: str) -> None:
    """Sleep, or the fault: a function to tune that needs no tensors."""
    process_fault(fault)
    time.sleep(ms * 1e-3)


def sums_space(faults) -> ConfigSpace:
    """Good configs, and the faults at half the time of the best of them."""
    good = [{"ms": ms, "fault": GOOD} for ms in TIMES_MS]
    planted = [{"ms": TIMES_MS[0] / 2, "fault": fault} for fault in faults]
    return ConfigSpace.from_configs([good[-1], *good[:-1], *planted])
