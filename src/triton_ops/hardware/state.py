"""The present state of a device: its free memory, and whether this process can still use it.

The device itself is asked; no state is guessed from the text of an error.
"""

from __future__ import annotations

import os
from pathlib import Path

from triton_ops import _proc
from triton_ops._optional import require
from triton_ops.hardware.spec import DeviceSpec

_BUSY = 0.2  # of all CPU time: less, such as one program on a host of many CPUs, is not worth a note


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
    if (available := _proc.available_bytes()) is not None:
        return available
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


class CpuLoad:
    """How much of the CPUs other programs use, from the moment this object is made; Linux counts it."""

    def __init__(self) -> None:
        self._before = _cpu_seconds()

    @property
    def others(self) -> float | None:
        """The share of all CPU time that other processes and other virtual machines took; None if it is not known.

        Processes that this one has started count as its own once they have ended.
        """
        after = _cpu_seconds()
        if self._before is None or after is None:
            return None
        busy_s, whole_s, own_s = (late - early for late, early in zip(after, self._before, strict=True))
        return min(max((busy_s - own_s) / whole_s, 0.0), 1.0) if whole_s > 0 else None

    def notes(self, device: DeviceSpec) -> tuple[str, ...]:
        """A note if other programs kept the CPUs busy while callables were timed on them; empty if not, or on a GPU.

        Args:
            device: The device on which callables were timed.
        """
        others = self.others if device.kind == "cpu" else None
        return () if others is None or others < _BUSY else (f"other programs used {others:.0%} of the CPUs meanwhile",)


def _cpu_seconds() -> tuple[float, float, float] | None:
    """Seconds since the start: CPUs busy, CPUs busy or idle, and CPU time of this process and of ended children."""
    try:
        first, _, _ = Path("/proc/stat").read_text(encoding="ascii").partition("\n")
    except OSError:  # no Linux
        return None
    ticks = [int(word) for word in first.split()[1:9]]  # user, nice, system, idle, waiting for a disk, …, steal
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) * tick_s, sum(ticks) * tick_s, sum(os.times()[:4])
