"""A clock that passes only when a launch spends it, and arms of known times on it."""

import itertools
from contextlib import contextmanager

import pytest

from triton_ops.timing import Arm, HostTimer, Launch, rounds

MS = 1_000_000  # nanoseconds


class Clock:
    """Nanoseconds that pass only when a call spends them; read in steps of `tick`."""

    def __init__(self, tick=1):
        self.now = 0
        self.tick = tick
        self.calls = 0

    def __call__(self):
        return self.now // self.tick * self.tick

    @property
    def seconds(self):
        return lambda: self.now / 1e9

    def spend(self, ns):
        self.calls += 1
        self.now += ns

    def launch(self, ns, reset_ns=None):
        reset = None if reset_ns is None else lambda: self.pass_by(reset_ns)
        return Launch(lambda: self.spend(ns), reset)

    def sampler(self, ns, launches=1):
        return HostTimer(self).prepare(self.launch(ns), launches)

    def pass_by(self, ns):
        self.now += ns


class Field:
    """Arms of known times in one race: the arm at place N takes N + 1 ms, unless `ms` gives other times."""

    def __init__(self, count, visit_samples=1, ms=None):
        self.clock = Clock()
        self.timer = HostTimer(self.clock)
        self.log = []
        times = ms or [place + 1 for place in range(count)]
        self.arms = [self.arm(place, time_ms, visit_samples) for place, time_ms in enumerate(times)]

    def arm(self, name, ms, visit_samples=1):
        return Arm(
            self.timer.prepare(Launch(lambda: (self.log.append(name), self.clock.spend(round(ms * MS)))), 1),
            visit_samples,
        )

    def rounds(self, count):
        return [self.log[start : start + count] for start in range(0, len(self.log), count)]


class SteadyClock:
    """Nanoseconds of which a million pass between any two readings: every sample of every launch takes as long."""

    def __init__(self):
        self._readings = itertools.count(step=MS)

    def __call__(self):
        return next(self._readings)


@contextmanager
def steady_times():
    """Callables on the CPU all take the same time, and few calls: for tests of what is no matter of time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rounds, "HostTimer", lambda: HostTimer(SteadyClock()))
        yield
