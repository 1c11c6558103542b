"""The timer role, and the host clock.

A timer takes samples of a launch in one mode. Samples of different modes are never compared, so the mode is part of
every measurement and of every record's key.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

_NS_PER_MS = 1e6
_MOST_LAUNCHES = 1 << 20


@dataclass(frozen=True)
class Launch:
    """One call, ready to be timed.

    Attributes:
        call: Runs the kernel once; returns what it returns.
        reset: Puts the arguments back as they were, outside the timed region; None if a call leaves them usable.
    """

    call: Callable[[], Any]
    reset: Callable[[], None] | None = None


class Timer(Protocol):
    """Takes samples, in milliseconds per launch."""

    @property
    def mode(self) -> str:
        """Clock and cache state, such as `host` or `event-cold`."""

    def launches_per_sample(self, launch: Launch) -> int:
        """How many launches one sample needs so that the clock's resolution does not matter; runs some."""

    def sample(self, launch: Launch, launches: int, count: int) -> list[float]:
        """`count` samples of `launches` launches each, no more and no fewer; raises what a launch raises."""


@dataclass(frozen=True)
class HostTimer:
    """Wall time of the calling thread: for callables that return when their work is done.

    Garbage collection is off while a sample is taken. A launch with a reset is timed one call at a time.

    Attributes:
        clock: Nanoseconds, monotonic.
        least_sample_ms: A sample lasts at least this long; 2 ms is 10^4 times the cost of reading the clock.
    """

    clock: Callable[[], int] = time.perf_counter_ns
    least_sample_ms: float = 2.0

    @property
    def mode(self) -> str:
        """`host`."""
        return "host"

    def launches_per_sample(self, launch: Launch) -> int:
        """Doubles the number of launches until they last long enough."""
        launches = 1
        while launches < _MOST_LAUNCHES:
            took_ms = self.sample(launch, launches, 1)[0] * launches
            if took_ms >= self.least_sample_ms or launch.reset is not None:
                break
            needed = math.ceil(1.2 * self.least_sample_ms / max(took_ms / launches, 1e-6))
            launches = min(max(launches * 2, needed), launches * 100, _MOST_LAUNCHES)
        return launches

    def sample(self, launch: Launch, launches: int, count: int) -> list[float]:
        """Time `count` runs of `launches` calls."""
        with _no_gc():
            return [self._one(launch, launches) for _ in range(count)]

    def _one(self, launch: Launch, launches: int) -> float:
        if launch.reset is not None:
            launch.reset()
        call = launch.call
        start = self.clock()
        for _ in range(launches):
            call()
        return (self.clock() - start) / _NS_PER_MS / launches


@contextmanager
def _no_gc() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
