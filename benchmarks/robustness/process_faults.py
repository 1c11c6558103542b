"""What a config can do to its process, and workers found from outside; without torch, so that workers start at once."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

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


def workers_of(parent: int) -> list[int]:
    """Worker processes of a process that are alive."""
    return [pid for pid in _children(parent) if b"triton_ops.evaluation.worker" in _command(pid)]


def _children(parent: int) -> Iterator[int]:
    """Processes that a process has started, and that have not ended."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent and fields[0] != "Z":
                    yield int(entry.name)


def _command(pid: int) -> bytes:
    """The command of a process; one that is just being started has none for a moment."""
    with contextlib.suppress(OSError):  # it has ended
        for _ in range(100):
            if words := Path(f"/proc/{pid}/cmdline").read_bytes():
                return words
            time.sleep(0.01)
    return b""
