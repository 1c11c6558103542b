"""The present state of a device: its free memory, and whether this process can still use it.

The device itself is asked; no state is guessed from the text of an error.
"""

from __future__ import annotations

import os
from pathlib import Path

from triton_ops._optional import require
from triton_ops.hardware.spec import DeviceSpec


def device_lost(device: DeviceSpec, device_name: str) -> str | None:
    """Why this process can no longer use a device; None if it can.

    An illegal access leaves the whole process without its GPU. A small computation on the device finds that out.

    Args:
        device: The spec of the device.
        device_name: Torch's name of the device.
    """
    if device.kind == "cpu":
        return None
    torch = require("torch", "asking the GPU")
    try:
        torch.cuda.synchronize(device_name)
        if torch.ones(1, device=device_name).add_(1).item() == 2:
            return None
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "the device computes 1 + 1 wrongly"


def free_bytes(device: DeviceSpec, device_name: str) -> int:
    """The GPU's free memory, or the host's for a CPU; the host's whole memory where the host does not tell."""
    return free_bytes_of("cpu" if device.kind == "cpu" else device_name)


def free_bytes_of(device_name: str) -> int:
    """The free memory of a device by its torch name: a GPU's, or the host's for `cpu`."""
    if device_name != "cpu":
        return int(require("torch", "asking the GPU").cuda.mem_get_info(device_name)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
