"""A kernel on a simulated GPU that takes its simulated time: launches sleep, and cost next to no CPU."""

from __future__ import annotations

import functools
import os
import time

from tests.simulated_device import SimulatedDevice

from triton_ops import operation

LAUNCH_MS = 60.0
"""The true time of the fastest config's launch."""
_STEP = 0.25  # by which each config is slower than the next faster one
CONFIGS = 4


@functools.cache
def _device() -> SimulatedDevice:
    return SimulatedDevice(seed=os.getpid())


def true_ms(n: int, block: int) -> float:
    """The true time of a config; another one is the fastest for each problem."""
    return LAUNCH_MS * (1 + _STEP * ((block + n) % CONFIGS))


@operation(space={"block": list(range(CONFIGS))}, arguments=lambda n=64: {"n": n}, device="cpu")
def simulated(n: int, block: int) -> int:
    """Launch a config: the simulated GPU says how long it takes, and this thread sleeps so long."""
    device = _device()
    before_s = device.now_s
    device.kernel(true_ms(n, block), f"{n} {block}")()
    time.sleep(device.now_s - before_s)
    return n
