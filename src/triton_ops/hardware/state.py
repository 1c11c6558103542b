"""What a device has left, and whether this process can still use it: asked of the device, never told from messages."""

from __future__ import annotations

import os
from pathlib import Path

from triton_ops._optional import require
from triton_ops.hardware.spec import DeviceSpec


def device_lost(device: DeviceSpec, device_name: str) -> str | None:
    """Why a device cannot be used by this process any more; None if it can.

    An illegal access leaves the whole process without its GPU. It is found by using the device.

    Args:
        device: Its description.
        device_name: Its torch name.
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
    return "it computes 1 + 1 wrongly"


def free_bytes(device: DeviceSpec, device_name: str) -> int:
    """Memory that is free now: the GPU's own, or the host's for a CPU, all of it where the host does not tell."""
    if device.kind != "cpu":
        return int(require("torch", "asking the GPU").cuda.mem_get_info(device_name)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
