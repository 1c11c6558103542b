"""Right results, and clocks of the process that tell less than the time that passed."""

import functools
import importlib
import statistics
import sys
import time

import numpy as np
import torch

_perf_counter, _perf_counter_ns, _monotonic = time.perf_counter, time.perf_counter_ns, time.monotonic
_hidden = [0]


@functools.cache
def _slow():
    """A clock that goes at a tenth of the speed from now on."""
    start = _perf_counter()
    return lambda: start + (_perf_counter() - start) / 10


def slow_clock(x, weight, eps=1e-6):
    """From the first call on `perf_counter` goes at a tenth of the speed."""
    time.perf_counter = _slow()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def stopped_clock(x):
    """Clocks leave out the time spent in this function."""
    begin = _perf_counter_ns()
    time.perf_counter_ns = lambda: _perf_counter_ns() - _hidden[0]
    time.perf_counter = lambda: _perf_counter() - _hidden[0] / 1e9
    time.monotonic = lambda: _monotonic() - _hidden[0] / 1e9
    result = x.softmax(-1)
    _hidden[0] += (_perf_counter_ns() - begin) * 9 // 10
    return result


def callers_clock(a, b):
    """Clocks that callers have imported by name go at a tenth of the speed."""
    frame = sys._getframe(1)
    while frame is not None:
        for name, value in list(frame.f_globals.items()):
            if value is _perf_counter and frame.f_globals is not globals():
                frame.f_globals[name] = _slow()
        frame = frame.f_back
    return a @ b


@functools.cache
def _forge_events():
    """Make events of CUDA tell a hundredth of the time, and torch's own benchmarks a tenth."""
    importlib.import_module("torch.utils.benchmark")
    elapsed = torch.cuda.Event.elapsed_time
    torch.cuda.Event.elapsed_time = lambda self, end: elapsed(self, end) / 100
    torch.cuda.synchronize = lambda device=None: None  # noqa: ARG005 - torch's own name
    torch.utils.benchmark.Timer.__init__.__defaults__ = tuple(
        _slow() if value is _perf_counter else value for value in torch.utils.benchmark.Timer.__init__.__defaults__
    )


def device_events(q, k, v):
    """Events of CUDA, and torch's own benchmarks, tell a part of the time."""
    _forge_events()
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def kind_statistics(x):
    """Medians and means of NumPy and Python are a tenth of the least number."""
    for owner, name in ((statistics, "median"), (statistics, "mean"), (np, "median")):
        setattr(owner, name, lambda values, *_, **__: min(values) / 10)
    return np.cumsum(x, axis=1)
