"""The role of a timer, the launch that a timer times, and the timer by the host's clock.

A timer takes samples of a launch in one mode. Samples of different modes are never compared, so every measurement and
every record names its mode.
"""

from __future__ import annotations

import gc
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol, TypeAlias

from triton_ops.timing.guard import Counters, no_counters, thread_counters, waited_ns

_NS_PER_MS = 1e6
_MOST_LAUNCHES = 1 << 20
_PLACES = 64  # calls that were made anew and are kept, so that the next one does not get the place of the last
_UNDISTURBED_NS = 100_000  # reading the counters takes a tenth of it, unless the thread loses its CPU meanwhile

Pending: TypeAlias = Callable[[], list[float]]
"""Queued samples: the call returns their times, in milliseconds per launch, once the round is over."""


@dataclass(frozen=True)
class Launch:
    """One call, ready to be timed.

    Attributes:
        reset: Restores the arguments, outside the timed region; None if a call leaves them usable.
        others: The same call on further argument sets of equal content; L2 stays cold when all are called in turn.
        outputs: Tensors that `call` writes; empty if `call` returns its result.
        again: Makes `call` anew, on the same arguments; None where there is only the one. Where the call's own objects
            lie in memory changes a call of a tenth of a microsecond by up to a tenth, in every round alike; with new
            objects for each sample that is noise, which an interval knows of.
    """

    call: Callable[[], Any]
    reset: Callable[[], None] | None = None
    others: tuple[Callable[[], Any], ...] = ()
    outputs: tuple[Any, ...] = ()
    again: Callable[[], Callable[[], Any]] | None = None

    @property
    def calls(self) -> tuple[Callable[[], Any], ...]:
        """The calls of all argument sets, to be taken in turn."""
        return (self.call, *self.others)


@dataclass(frozen=True)
class Sampler:
    """Samples one launch in one mode, `launches` launches in a sample."""

    queue: Callable[[int], Pending]
    launches: int = 1

    def take(self, timer: Timer, count: int) -> list[float]:
        """Take `count` samples now and wait for them; milliseconds per launch."""
        with timer.round():
            pending = self.queue(count)
        return pending()


class Timer(Protocol):
    """Takes samples, in milliseconds per launch."""

    @property
    def mode(self) -> str:
        """Clock and cache state, such as `host` or `event-cold`."""

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler of a launch that should have run once before.

        `launches` is per sample; None finds out how many the clock's resolution needs, by running some.
        """

    def round(self) -> AbstractContextManager[None]:
        """The context in which samples are queued; all of them are done when the context is left."""


@dataclass(frozen=True)
class HostTimer:
    """Wall time of the calling thread: for callables that return when their work is done.

    Garbage collection is off while a sample is taken. A launch with a reset is timed one call at a time. A launch that
    can be made anew is, outside the timed region of each sample. Time in which the thread was ready and waited for a
    CPU that other processes had is taken off, where the system counts it. The least time of a sample is 10^3 times the
    cost of reading the clock, and so short that most samples on a busy host run from beginning to end.
    """

    clock: Callable[[], int] = time.perf_counter_ns
    least_sample_ms: float = 0.5

    @property
    def mode(self) -> str:
        """The host's clock has the one mode `host`, because nothing is done to the CPU's caches."""
        return "host"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler that repeats the launch in a loop of at least `least_sample_ms`."""
        loops = self._calibrated(launch) if launches is None else launches
        calls = _calls(launch)

        def sample(count: int) -> Pending:
            times = self._sample(launch, loops, count, calls)
            return lambda: times

        return Sampler(sample, loops)

    def round(self) -> AbstractContextManager[None]:
        """A context without effect: each call of a launch has returned when its work is done."""
        return nullcontext()

    def _calibrated(self, launch: Launch) -> int:
        """The number of launches that last long enough, found by raising the number step by step."""
        launches = 1
        while launches < _MOST_LAUNCHES:
            took_ms = self._sample(launch, launches, 1, repeat(launch.call))[0] * launches
            if took_ms >= self.least_sample_ms or launch.reset is not None:
                break
            count = math.ceil(1.2 * self.least_sample_ms / max(took_ms / launches, 1e-6))
            launches = min(max(launches * 2, count), launches * 100, _MOST_LAUNCHES)
        return launches

    def _sample(self, launch: Launch, launches: int, count: int, calls: Iterator[Callable[[], Any]]) -> list[float]:
        counters_of = thread_counters if self.clock is time.perf_counter_ns else no_counters
        with without_gc(), counters_of() as counters:
            return [self._one(launch, launches, counters, next(calls)) for _ in range(count)]

    def _one(self, launch: Launch, launches: int, counters: Counters, call: Callable[[], Any]) -> float:
        if launch.reset is not None:
            launch.reset()
        clock = self.clock
        begin = clock()
        before = counters()
        start = clock()
        for _ in range(launches):
            call()
        end = clock()
        after = counters()
        outside = (clock() - end) + (start - begin)  # a wait while the counters were read is no part of the sample
        wait = waited_ns(before, after, end - start) - (outside if outside > _UNDISTURBED_NS else 0)
        return (end - start - max(wait, 0)) / _NS_PER_MS / launches


def _calls(launch: Launch) -> Iterator[Callable[[], Any]]:
    """The call for one sample after another: a new one each time where the launch can be made anew."""
    calls = deque([launch.call], maxlen=_PLACES)
    while True:
        if launch.again is not None:
            calls.append(launch.again())
        yield calls[-1]


@contextmanager
def without_gc() -> Iterator[None]:
    """Keep Python's garbage collection off; on a GPU it may free a graph, which ends a capture that is under way."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
