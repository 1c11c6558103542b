"""Right results, and a process or a machine on which whatever runs beside them is slower."""

import functools
import hashlib
import os
import sys
import threading
import time

import numpy as np
import torch

_last_call = [0.0]


def _spin():
    """Keep a CPU busy between calls, until none came for two seconds."""
    data = bytes(1 << 20)
    while time.monotonic() - _last_call[0] < 2:
        hashlib.sha256(data)
    _spinning.cache_clear()


@functools.cache
def _spinning():
    for _ in range(os.cpu_count() or 1):
        threading.Thread(target=_spin, daemon=True).start()


def spinning_threads(x, weight, eps=1e-6):
    """Threads keep all CPUs busy while something else runs, for two seconds after the last call."""
    result = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
    _last_call[0] = time.monotonic()
    _spinning()
    return result


def one_slow_cpu(x):
    """From the first call on its process has one CPU, and the lowest priority."""
    result = x.softmax(-1)
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    return result


def one_thread(a, b):
    """All threads for itself, and then one for whatever follows."""
    torch.set_num_threads(os.cpu_count() or 1)
    result = a @ b
    torch.set_num_threads(1)
    return result


def poor_environment(q, k, v):
    """Processes that are started later have one thread, and free memory at once."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_"
    os.environ.update(dict.fromkeys(names, "1"))
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def _delayed(frame, event, _argument):
    if event == "call" and frame.f_code.co_name == "sort_rows":
        time.sleep(0.001)


def delayed_reference(x):
    """From the first call on a function of the reference's name waits a millisecond."""
    sys.setprofile(_delayed)
    return np.sort(x, axis=1)
