"""Right results, and a device on which whatever runs after them is slower."""

import contextlib
import functools
import threading

import torch

_CYCLES = 100_000_000  # of the device's clock: some 60 ms


@functools.cache
def _side():
    return torch.cuda.Stream()


def _spin():
    with torch.cuda.stream(_side()):
        torch.cuda._sleep(_CYCLES)


def spins_after_return(x):
    """A thread has the device wait for some 60 ms, from two milliseconds after the return on."""
    out = torch.softmax(x, -1)
    threading.Timer(0.002, _spin).start()
    return out


@functools.cache
def _filled():
    """Nearly all memory that this process can have."""
    parts = []
    with contextlib.suppress(torch.OutOfMemoryError):
        while True:
            parts.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
    return parts[:-2]


def full_memory(a, b):
    """From the first call on its process holds the memory that others could have."""
    result = a @ b
    _filled()
    return result
