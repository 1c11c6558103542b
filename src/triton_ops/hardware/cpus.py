"""How many CPUs there are for this process."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity, and its control group's quota."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cpus, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or no quota: the word `max`
        return cpus
