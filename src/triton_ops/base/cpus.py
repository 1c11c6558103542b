"""The number of CPUs that this process may use, and the number of threads with which it computes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from triton_ops.settings import openmp_threads


def usable_cpus() -> int:
    """CPUs that this process may use: the CPUs of its affinity, or its control group's quota if that is smaller."""
    cpus = affinity_cpus()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cpus, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # there is no such file, or it says `max`, which means no quota
        return cpus


def cpu_threads() -> int:
    """Threads that a computation on the CPU may use.

    The number is torch's if torch is imported, else that of `OMP_NUM_THREADS`, else one for each CPU of the affinity.
    """
    torch = sys.modules.get("torch")
    threads_of_torch = getattr(torch, "get_num_threads", None)  # absent while another thread is still importing torch
    if threads_of_torch is not None:
        return int(threads_of_torch())
    return openmp_threads() or affinity_cpus()


def affinity_cpus() -> int:
    """CPUs on which this process may run: all of the machine's where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
