"""How many CPUs there are for this process, and with how many threads it computes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from triton_ops.settings import openmp_threads


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity, and its control group's quota."""
    cpus = _affinity()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cpus, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or no quota: the word `max`
        return cpus


def cpu_threads() -> int:
    """Threads that a computation on the CPU may use.

    They are torch's if torch is imported, else those of `OMP_NUM_THREADS`, else one for each CPU of the affinity.
    """
    torch = sys.modules.get("torch")
    asked = getattr(torch, "get_num_threads", None)  # absent while another thread is at the import of torch
    if asked is not None:
        return int(asked())
    return openmp_threads() or _affinity()


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
