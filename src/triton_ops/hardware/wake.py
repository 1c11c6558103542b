"""Readying an NVIDIA GPU without torch, so that a process can do it while it imports torch."""

from __future__ import annotations

import ctypes


def wake(device: str) -> None:
    """Initialise the driver and the context of `cuda` or `cuda:N` that torch will use; does nothing without a driver.

    Cost: a third of a second on an H200, in which other threads run on.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    number, context = ctypes.c_int(), ctypes.c_void_p()
    index = int(device.partition(":")[2] or 0)
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(number), index) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)  # what fails, torch will tell
