"""Device time on a GPU by events, with rests that keep its clock high and a chosen state of L2.

The samples of a round are queued behind a delay on the device, so that the host's launch overhead happens while the GPU
is busy and never inside a timed region. Resets, flushes and the sums before a cold launch are outside the event pairs.

Argument sets in turn replace a flush: no extra kernel runs between launches, so short kernels can be timed in a graph,
and the inputs arrive from memory as they do in a model. They also share out the luck of a place: a config's time
depends on where the driver puts its arguments, in every round alike, and a race over one place proves what the next
process refutes. `benchmarks/timing/placement.py` measures it: on an H200, over ten sets of one process, a matrix
product of 4096³ was 1.3 to 4.3 % faster than another config, with a standard deviation of 1.1 %.

At the power limit the clock follows the power that all arms draw together, so an arm that draws little power is slowed
by its neighbours that draw much. On an H200, configs of one matrix product then measured up to 10 % off their times
alone relative to each other, and the noise of a round tripled. With rests as long as the work, levels held within 1 %
for as long as was watched, and ranks agreed with those of each config running alone (docs/measured_facts.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from typing import Any, Literal

from triton_ops.base import require
from triton_ops.timing.timer import Launch, Pending, Sampler

DUTY = 0.5  # share of the time; an H200 reaches its power limit after 50 to 75 ms without a rest, and never at 0.5
BURST_MS = 25.0  # longest work without a rest: a third to a half of the time in which an H200 reaches its limit


class Pace:
    """Keeps the share of time that a device works at `duty` or below, by a rest after each stretch of work.

    Time in which the host compiles or captures and the device is idle counts as rest.

    Args:
        duty: Largest share of the time that the device works; 1 means no rest.
        clock: Returns monotonic seconds.
        sleep: Waits for a number of seconds.

    Raises:
        ValueError: `duty` is not in (0, 1].
    """

    def __init__(
        self,
        duty: float = DUTY,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0 < duty <= 1:
            raise ValueError(f"the share of time that a device works must be in (0, 1], not {duty}")
        self._per_s = 1 / duty - 1  # seconds of rest owed for a second of work
        self._clock = clock
        self._sleep = sleep
        self._owed_s = 0.0
        self._end = clock()

    @contextmanager
    def stretch(self, idle_s: float = 0.0) -> Iterator[None]:
        """A stretch of work; the remaining rest of the previous stretch is taken first.

        Args:
            idle_s: Seconds of the stretch in which the device does next to nothing, such as a delay that it spends in
                one thread. They are rest.
        """
        left_s = self._owed_s - (self._clock() - self._end)
        if left_s > 0:
            self._sleep(left_s)
        start = self._clock()
        try:
            yield
        finally:
            self._end = self._clock()
            self._owed_s = (self._end - start - idle_s) * self._per_s - idle_s


_L2_COVERED = 2.5  # times the L2: bytes that the other sets must touch before a set is used again
_LEAST_SETS = 2
_PLACES = 8  # sets wherever there is memory for them: the mean over eight places has about a third of one's deviation
_MEMORY_SHARE = 0.25  # share of the free device memory that further sets may take
_ONE = 1  # a launch that touches no memory needs one set


def sets_needed(touched_bytes: int, l2_bytes: int | None, free_bytes: int | None = None) -> int | None:
    """Number of argument sets to take in turn, the first included.

    Args:
        touched_bytes: Bytes that one launch reads and writes.
        l2_bytes: Size of the device's last cache; None if the size is not known.
        free_bytes: Free device memory; None if it is not known, and then there are as few sets as keep L2 cold.

    Returns:
        At least what keeps L2 cold, and up to eight where they fit in a quarter of the free memory. None if not even
        the former fit, or if the size of the cache is not known: the cache must then be flushed instead.
    """
    if not l2_bytes:
        return None
    if touched_bytes <= 0:
        return _ONE
    least = max(_LEAST_SETS, math.ceil(_L2_COVERED * l2_bytes / touched_bytes) + 1)
    if free_bytes is None:
        return least
    fitting = int(_MEMORY_SHARE * free_bytes / touched_bytes) + 1
    return max(least, min(_PLACES, fitting)) if least <= fitting else None


Cache = Literal["cold", "flushed", "warm"]
"""State of L2 before a launch: cold by argument sets in turn, flushed by a write, or left as it is."""

LONGEST_DELAY_MS = 64.0
"""The longest delay of a `DelayedQueue`: what takes the host longer is not hidden."""
_FLUSH_FACTOR = 2  # times the L2: a write of exactly the size of L2 leaves some old lines in place
_LEAST_FLUSH_BYTES = 32 << 20
_CYCLES_PER_MS = 1_900_000  # the delay kernel's count at an H200's 1,980 MHz; a longer delay does no harm
_FIRST_DELAY_MS = 0.1
_ROWS, _ROW = 16_384, 256  # float32 that `unsettle` reads, 16 MiB: sums of 4 MiB do not change where blocks go


class DelayedQueue:
    """Rounds of work queued behind a delay on one GPU; the delay grows until the host stays ahead of the device.

    Work that is queued keeps the device busy while the host queues more, so the delay need not last until all of it is
    queued: whoever times something tells the queue by `watch` where a wait of the device would be in a time. A queue is
    not safe to share among threads.

    Args:
        device: `cuda` or `cuda:N`.
        duty: Share of the time that the device may work.

    Attributes:
        again: Whether the device waited for the host in the last round, and would wait less in the next one, whose
            delay is longer. The device's waits are then in the times of that round.
    """

    def __init__(self, device: str, duty: float = DUTY) -> None:
        self.torch = require("torch", "timing on a GPU")
        self.device = self.torch.device(device)
        self._pace = Pace(duty)
        self._delay_ms = _FIRST_DELAY_MS
        self.again = False

    @contextmanager
    def round(self) -> Iterator[None]:
        """Take the rest that is due, queue a delay, let the caller queue its work, and wait until the work is done."""
        torch = self.torch
        delay_s = self._delay_ms / 1e3
        with torch.cuda.device(self.device), self._pace.stretch(idle_s=delay_s):
            torch.cuda._sleep(int(self._delay_ms * _CYCLES_PER_MS))
            delayed = torch.cuda.Event()
            delayed.record()
            self._queued, self._watched, self._late = 0, False, False
            yield
            ran_out = self._late if self._watched else bool(delayed.query()) and self._queued > 0
            torch.cuda.synchronize()
        self.again = ran_out and self._delay_ms < LONGEST_DELAY_MS
        if self.again:
            self._delay_ms *= 2

    def event(self) -> Any:
        """A new timing event."""
        self._queued += 1
        return self.torch.cuda.Event(enable_timing=True)

    def watch(self, start: Any) -> None:
        """Note whether the device has passed an event by now, when what is timed from it on has just been queued.

        Then it may have waited for the host between the two. Without a call in a round, all of the round's work must be
        queued before the delay ends.
        """
        self._watched = True
        self._late = self._late or bool(start.query())

    def unsettle(self) -> None:
        """Queue a short kernel after which the blocks of the next launch may go to other multiprocessors.

        Where its clusters of blocks go decides how long some kernels take, by up to 14 %, and stays as it is while the
        same kernels follow each other: all replays of a graph show one of several levels, and the next comparison
        shows another. In a model all sorts of kernels come before. Row sums of 16 MiB change the level, in 8 us, and
        leave nothing in L2 that would have to be written back (docs/measured_facts.md).
        """
        rows, sums = self._rows_and_sums
        self.torch.sum(rows, 1, out=sums)

    @cached_property
    def _rows_and_sums(self) -> tuple[Any, Any]:
        with self.torch.inference_mode(False):  # or the sums could be made in this mode alone
            rows, sums = (
                self.torch.zeros(shape, dtype=self.torch.float32, device=self.device)
                for shape in ((_ROWS, _ROW), (_ROWS,))
            )
            return rows, sums

    _queued, _watched, _late = 0, False, False


def pending(pairs: list[tuple[Any, Any]], launches: int) -> Pending:
    """A function that waits for the last event and returns the times between the events of each pair, per launch."""

    def collect() -> list[float]:
        if pairs:
            pairs[-1][1].synchronize()
        return [start.elapsed_time(end) / launches for start, end in pairs]

    return collect


class EventTimer:
    """An event pair around each launch: for launches of 0.2 ms and more.

    The resolution is that of the device's events; docs/measured_facts.md has the figure for an H200.

    Args:
        device: `cuda` or `cuda:N`.
        cache: State of L2 before every launch. `cold` takes a launch's argument sets in turn, and flushes where there
            is only one set.
        duty: Share of the time that the device may work; see `pace.py`.
    """

    def __init__(self, device: str = "cuda", *, cache: Cache = "flushed", duty: float = DUTY) -> None:
        self._queue = DelayedQueue(device, duty)
        self._cache = cache
        self._turn = count()  # one count for all launches: an arm must not find the data of the arm before it in L2

    @property
    def mode(self) -> str:
        """The mode is `event-cold`, `event-flushed` or `event-warm`."""
        return f"event-{self._cache}"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler with an event pair around every launch, or around every `launches` launches."""
        each = launches or 1
        calls = launch.calls if self._cache == "cold" else (launch.call,)
        flush = self._cache == "flushed" or (self._cache == "cold" and not launch.others)
        unsettle = self._cache != "warm"
        if unsettle:  # the first use of either allocates and may wait for the device, so it stands outside a round
            self._queue.unsettle()
        if flush:
            self._flush.zero_()

        def sample(samples: int) -> Pending:
            pairs = [(self._queue.event(), self._queue.event()) for _ in range(samples)]
            for start, end in pairs:
                if launch.reset is not None:
                    launch.reset()
                if flush:
                    self._flush.zero_()
                if unsettle:
                    self._queue.unsettle()
                start.record()
                for _ in range(each):
                    calls[next(self._turn) % len(calls)]()
                self._queue.watch(start)
                end.record()
            return pending(pairs, each)

        return Sampler(sample, each)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Queue the round behind a delay, and wait for the device at the end."""
        with self._queue.round():
            yield

    @cached_property
    def _flush(self) -> Any:
        torch, device = self._queue.torch, self._queue.device
        l2_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        size = max(_FLUSH_FACTOR * l2_bytes, _LEAST_FLUSH_BYTES)
        return torch.empty(size, dtype=torch.uint8, device=device)
