"""Times of launches on a watched device.

A timer takes samples of a launch in one mode. Samples of different modes are never compared, so every measurement and
every record names its mode.

Linux counts for every thread how long it was ready and waited for a CPU. On a host with more work than CPUs, a call of
2 ms takes 2 ms or 6 ms, depending on whether the thread loses its CPU meanwhile; without that wait it takes 2 ms each
time.

A round of a comparison in which a GPU was slowed (thermal, power brake), or used by others, does not count, for all
candidates alike: discarding single candidates would select on the outcome. The power cap is no fault, since matrix
products always run at the cap. The guard only reads sensors, and changes no setting of the device.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import cycle, repeat
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from triton_ops.base import require
from triton_ops.device import Others, Reading, Sensors, TorchDevice, probe
from triton_ops.exceptions import DeviceError

_FILE = "/proc/thread-self/schedstat"  # nanoseconds on a CPU, nanoseconds ready and waiting, number of time slices
_LENGTH = 96
_ALONE = 0.02  # other threads of this process that worked for a larger share of a sample may have caused the wait


@dataclass(frozen=True)
class ThreadCounts:
    """The counters of a thread and its process at one moment, in nanoseconds since each began."""

    waited_ns: int = 0  # the thread was ready and waited for a CPU
    others_ns: int = 0  # CPU time of the process's other threads


Counters: TypeAlias = Callable[[], ThreadCounts]
"""Reads the counters of one thread."""


@contextmanager
def thread_counters() -> Iterator[Counters]:
    """The counters of the calling thread, 5 microseconds a reading; they stay at 0 where the system does not count."""
    try:
        file = os.open(_FILE, os.O_RDONLY)
    except OSError:
        yield ThreadCounts
        return

    def read() -> ThreadCounts:
        own, wait, _ = os.pread(file, _LENGTH, 0).split()
        return ThreadCounts(int(wait), time.process_time_ns() - int(own))

    try:
        yield read
    finally:
        os.close(file)


def no_counters() -> AbstractContextManager[Counters]:
    """Counters that stay at 0, for clocks that do not run with the host's."""
    return nullcontext(ThreadCounts)


def waited_ns(before: ThreadCounts, after: ThreadCounts, took_ns: int) -> int:
    """For how much of a sample the thread waited for a CPU that another process had.

    A sample during which other threads of this process worked counts whole: they may have caused the wait, and a
    callable that uses more threads than there are CPUs pays for it.
    """
    if after.others_ns - before.others_ns > _ALONE * took_ns:
        return 0
    return min(after.waited_ns - before.waited_ns, took_ns)


_NS_PER_MS = 1e6
_MOST_LAUNCHES = 1 << 20
_PLACES = 64  # calls that were made anew and are kept, so that the next one does not get the place of the last
_UNDISTURBED_NS = 100_000  # reading the counters takes a tenth of it, unless the thread loses its CPU meanwhile

Look: TypeAlias = Callable[[Any], object] | None
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
        contents: Launches on further contents of the arguments, which are timed in turn with this one.
        value: What the times of this launch and of its contents count as, in milliseconds.
        renewed: The context of a sample on the host's clock, outside the timed region, such as one in which inputs
            have other values. What it yields gets the last result; None if nobody looks at it. Where it ends an error
            of the call quietly, the sample is taken again.
    """

    call: Callable[[], Any]
    reset: Callable[[], None] | None = None
    others: tuple[Callable[[], Any], ...] = ()
    outputs: tuple[Any, ...] = ()
    again: Callable[[], Callable[[], Any]] | None = None
    contents: tuple[Launch, ...] = ()
    value: Callable[[Sequence[float]], float] = statistics.fmean
    renewed: Callable[[], AbstractContextManager[Look]] = nullcontext

    @property
    def calls(self) -> tuple[Callable[[], Any], ...]:
        """The calls of all argument sets, to be taken in turn."""
        return (self.call, *self.others)

    def started(self) -> Launch:
        """This launch, after it has run once, so that everything loaded or built lazily is in place."""
        for each in (self, *self.contents):
            if each.reset is not None:
                each.reset()
            each.call()
        return self

    def sampler(self, timer: Timer, launches: int | None = None) -> Sampler:
        """The sampler of a timer for this launch, in turn with its contents if it has any; `launches` as of a timer."""
        own = timer.prepare(self, launches)
        if not self.contents:
            return own
        parts = (own, *(timer.prepare(each, own.launches) for each in self.contents))
        by_content: list[list[float]] = []

        def queue(count: int) -> Pending:
            pending = [part.queue(count) for part in parts]

            def collect() -> list[float]:
                columns = [each() for each in pending]
                by_content.append([statistics.median(column) for column in columns])
                return [self.value(row) for row in zip(*columns, strict=True)]

            return collect

        return Sampler(queue, own.launches * len(parts), by_content)


@dataclass(frozen=True)
class Sampler:
    """Samples one launch in one mode, `launches` launches in a sample; `by_content` has the parts of each visit."""

    queue: Callable[[int], Pending]
    launches: int = 1
    by_content: list[list[float]] = field(default_factory=list)

    @classmethod
    def of_taken(cls, take: Callable[[int], list[float]], launches: int = 1) -> Sampler:
        """A sampler whose samples are taken at once when they are queued."""

        def queue(count: int) -> Pending:
            samples = take(count)
            return lambda: samples

        return cls(queue, launches)

    @classmethod
    def of_calls(
        cls, call: Callable[[], Any], device_name: str, least_sample_ms: float = 0.0, launches: int | None = None
    ) -> Sampler:
        """A sampler of calls in a row whose work on a device is part of a sample: on a GPU by its events."""
        clock = EventClock(device_name) if device_name.startswith("cuda") else time.perf_counter_ns
        return HostTimer(clock, least_sample_ms).prepare(Launch(call), launches)

    @classmethod
    def in_turn(cls, samplers: Sequence[Sampler]) -> Sampler:
        """A sampler that takes the next of some samplers, of equally many launches, each time that it is asked."""
        turn = cycle(samplers)
        return cls(lambda count: next(turn).queue(count), samplers[0].launches)

    def inside(self, context: Callable[[], AbstractContextManager[object]]) -> Sampler:
        """This sampler, which queues inside of a context."""

        def queue(count: int) -> Pending:
            with context():
                return self.queue(count)

        return replace(self, queue=queue)

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


DUTY = 0.5  # share of the time; an H200 reaches its power limit after 50 to 75 ms without a rest, and never at 0.5
BURST_MS = 25.0  # longest stretch, and work after which a rest is due: two are less than an H200 reaches its limit in


class Pace:
    """Keeps the share of time that a device works at `duty` or below, by a rest once it has worked for `BURST_MS`.

    Shorter stretches follow each other without a rest until they make a burst. Time in which the host compiles or
    captures and the device is idle counts as rest; a `duty` of 1 means no rest.
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
        self._most_s = self._per_s * BURST_MS / 1e3  # that may be owed while work goes on
        self._clock = clock
        self._sleep = sleep
        self._owed_s = 0.0
        self._end = clock()

    @contextmanager
    def stretch(self, idle_s: float = 0.0) -> Iterator[None]:
        """A stretch of work; the rest that is left of the stretches before is taken first if they have made a burst.

        `idle_s` seconds of it are rest: the device does next to nothing, as in a delay that it spends in one thread.
        """
        left_s = max(self._owed_s - (self._clock() - self._end), 0.0)
        if left_s > self._most_s:
            self._sleep(left_s)
            left_s = 0.0
        start = self._clock()
        try:
            yield
        finally:
            self._end = self._clock()
            self._owed_s = left_s + (self._end - start - idle_s) * self._per_s - idle_s


class EventClock:
    """Nanoseconds by the events of a GPU: two readings are a pair of events around what was queued between them."""

    def __init__(self, device_name: str) -> None:
        self._cuda, self._device_name = require("torch", "timing on a GPU").cuda, device_name
        self._last: Any = None
        self._ns = 0

    def __call__(self) -> int:
        """The time when everything that was queued before is done, which is waited for."""
        self._cuda.synchronize(self._device_name)  # work may be on several streams
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device_name))
        event.synchronize()
        if self._last is not None:
            # From event to event: CUDA tells a distance as a float32 of ms, whose steps over a minute are 4 us.
            self._ns += round(_NS_PER_MS * self._last.elapsed_time(event))
        self._last = event
        return self._ns


@dataclass(frozen=True)
class HostTimer:
    """Time of the calling thread: for callables that return when their work is done, or by a clock that waits for it.

    Garbage collection is off while a sample is taken. A launch with a reset is timed one call at a time. A launch that
    can be made anew is, outside the timed region of each sample. Time in which the thread was ready and waited for a
    CPU that other processes had is taken off, where the system counts it. The least time of a sample is 10^3 times the
    cost of reading the clock, and so short that most samples on a busy host run from beginning to end. `pace` rests
    between rounds whose samples other processes take on a GPU.
    """

    clock: Callable[[], int] = time.perf_counter_ns
    least_sample_ms: float = 0.5
    pace: Pace | None = None

    @classmethod
    def for_processes(cls, device_name: str) -> HostTimer:
        """The timer of rounds whose samples are taken in other processes, on this device."""
        return cls(pace=Pace() if device_name.startswith("cuda") else None)

    @property
    def mode(self) -> str:
        """The host's clock has the one mode `host`, because nothing is done to the CPU's caches."""
        return "host"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler that repeats the launch in a loop of at least `least_sample_ms`."""
        loops = self._calibrated(launch) if launches is None else launches
        calls = _calls(launch)
        return Sampler.of_taken(lambda count: self._sample(launch, loops, count, calls), loops)

    def round(self) -> AbstractContextManager[None]:
        """A context that does no more than to rest: each call of a launch has returned when its work is done."""
        return nullcontext() if self.pace is None else self.pace.stretch()

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
        taken: list[float] = []
        with launch.renewed() as look:
            taken.append(self._timed(launches, counters, call, look))
        return taken[0] if taken else self._one(launch, launches, counters, call)

    def _timed(self, launches: int, counters: Counters, call: Callable[[], Any], look: Look) -> float:
        clock = self.clock
        begin = clock()
        before = counters()
        start = clock()
        for _ in range(launches - 1):
            call()
        result = [call()]
        if look is None:
            result.clear()  # to free a result is a part of a call
        end = clock()
        after = counters()
        outside = (clock() - end) + (start - begin)  # a wait while the counters were read is no part of the sample
        wait = waited_ns(before, after, end - start) - (outside if outside > _UNDISTURBED_NS else 0)
        if look is not None:
            look(result[0])
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


_WAITS_S = (0.25, 1.0, 4.0)  # after the first, second and third slowed round in a row
_CLOCK_CHANGE = 0.03  # a larger share of difference between the clocks of two rounds is counted as a change
_MOST_LOST = 0.2  # a larger share of discarded rounds makes the confidence in the race low
_MOST_READINGS = 512  # twice the longest race

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, kw_only=True)
class GuardSummary:
    """The readings of a guard during a race. Ranges are (lowest, highest) after a round; None without a reading.

    Attributes:
        guarded: Whether the GPU was watched to the end.
        reason: Why the GPU was not watched; empty if it was.
        status: `throttled` if a slowdown outlasted all waits, and `shared` if another process's use did, such rounds
            being kept from then on, or if that use was told only after the last round.
        discarded: How many of the rounds were discarded.
        clock_changes: How many rounds ended with a clock, that of the memory included, more than 3 % from that of the
            round before.
        regimes: Reasons read after a round, except `idle`; in the order of `CLOCK_REASONS`, a vendor's own words last.
        clock_mhz: Of the multiprocessors or compute units.
        others: Other processes that used the GPU meanwhile, as text; empty if none was seen.
        others_before: Those that used it before the race, while configs were tried.
        others_unknown: Why nothing is known of other processes; empty if it is known.
        confidence: `low` if the race was throttled or shared, or more than a fifth of its rounds was discarded.
        confidence_reason: Why the confidence is low, or what an `ok` does not cover; else empty.
    """

    guarded: bool
    reason: str = ""
    status: Literal["ok", "throttled", "shared"] = "ok"
    rounds: int = 0
    discarded: int = 0
    clock_changes: int = 0
    regimes: tuple[str, ...] = ()
    clock_mhz: tuple[int, int] | None = None
    memory_mhz: tuple[int, int] | None = None
    power_w: tuple[float, float] | None = None
    temperature_c: tuple[int, int] | None = None
    others: str = ""
    others_before: str = ""
    others_unknown: str = ""
    confidence: Literal["ok", "low"] = "ok"
    confidence_reason: str = ""


@dataclass(eq=False)
class Guard:
    """Says whether rounds on a device count, during one race; a device that nobody watches is never disturbed.

    `reason` tells why it is not watched; `readings` are the latest 512, one for each round, oldest first.
    """

    reason: str
    rounds: int = 0
    readings: Sequence[Reading] = ()

    def round_ok(self) -> bool:
        """Check whether the round that has just ended counts; the call may wait until the device has recovered."""
        self.rounds += 1
        return True

    def summary(self) -> GuardSummary:
        """A summary of all rounds so far."""
        reason = f"not watched: {self.reason}"
        return GuardSummary(guarded=False, reason=self.reason, rounds=self.rounds, confidence_reason=reason)


class SensorGuard(Guard):
    """Watches one GPU through its sensors; not safe to share among threads.

    A slowed round is discarded, and the next round waits 0.25 s, then 1 s, then 4 s; a good round starts the waits
    anew. After a fourth slowed round in a row the guard discards no more: that round and all later ones are kept, and
    the summary says `throttled`. Rounds that another process has disturbed are treated alike, and the summary then says
    `shared`; the driver samples processes a few times a second, so that others stay unseen in a race's first tenths,
    and the summary asks once more: `shared` is also what it is told of only then. If the sensors fail during the race,
    the guard warns once and keeps every later round.

    The sensors are closed when the guard is garbage-collected. `others` is who else uses the GPU, and has used it since
    this was made; None asks the sensors, from now on.
    """

    def __init__(
        self, sensors: Sensors, *, sleep: Callable[[float], None] = time.sleep, others: Others | None = None
    ) -> None:
        super().__init__("")
        weakref.finalize(self, sensors.close)
        self._sensors = sensors
        self._others = Others(sensors) if others is None else others
        self._others_before = self._others.in_words()
        self._others.begin()
        self._disturbers = ""
        self._shared = False
        self._told_late = ""
        self._sleep = sleep
        self.readings: deque[Reading] = deque(maxlen=_MOST_READINGS)
        self._before: Reading | None = None  # the reading after the previous round; None after a wait
        self._discarded = self._clock_changes = self._in_a_row = 0
        self._throttled = False

    def round_ok(self) -> bool:
        """Read the GPU and judge the round that has just ended; sleeps up to 4 s if the round was disturbed."""
        self.rounds += 1
        if self.reason:
            return True
        try:
            reading = self._sensors.read()
        except DeviceError as error:
            self.reason = f"its sensors failed after round {self.rounds}: {error}"
            warnings.warn(f"the GPU is no longer watched: {self.reason}", RuntimeWarning, stacklevel=2)
            return True
        self._note(reading)
        slowed, others = bool(reading.slowdowns), self._others.in_words()
        if others:
            self._disturbers = others
        if not (slowed or others):
            self._in_a_row = 0
            return True
        return self._disturbed(slowed)

    def summary(self) -> GuardSummary:
        """A summary of all rounds so far; words and ranges cover `readings`, discarded rounds included."""
        if self.rounds and not self.reason and (others := self._others.in_words()):
            self._told_late = others
        confidence, reason = self._confidence()
        return GuardSummary(
            guarded=not self.reason, reason=self.reason,
            status="throttled" if self._throttled else "shared" if self._shared or self._told_late else "ok",
            rounds=self.rounds, discarded=self._discarded, clock_changes=self._clock_changes,
            regimes=Reading.regimes(self.readings), clock_mhz=_span(reading.clock_mhz for reading in self.readings),
            memory_mhz=_span(reading.memory_mhz for reading in self.readings),
            power_w=_span(reading.power_w for reading in self.readings),
            temperature_c=_span(reading.temperature_c for reading in self.readings),
            others=self._disturbers or self._told_late, others_before=self._others_before,
            others_unknown=self._others.unknown, confidence=confidence, confidence_reason=reason,
        )  # fmt: skip

    def _note(self, reading: Reading) -> None:
        self.readings.append(reading)
        before, self._before = self._before or reading, reading
        pairs = ((before.clock_mhz, reading.clock_mhz), (before.memory_mhz, reading.memory_mhz))
        changes = [(old, new) for old, new in pairs if old is not None and new is not None]
        self._clock_changes += any(abs(new - old) > _CLOCK_CHANGE * old for old, new in changes)

    def _disturbed(self, slowed: bool) -> bool:
        if self._throttled or self._shared or self._in_a_row == len(_WAITS_S):
            self._throttled |= slowed  # the race must end: contrasts inside disturbed rounds are better than none
            self._shared |= not slowed
            return True
        self._discarded += 1
        self._sleep(_WAITS_S[self._in_a_row])
        self._in_a_row += 1
        self._before = None  # the GPU was idle during the wait, so its clock may have changed
        self._others.begin()
        return False

    def _confidence(self) -> tuple[Literal["ok", "low"], str]:
        slowdowns = {word for reading in self.readings for word in reading.slowdowns}
        slowed = " and ".join(word for word in Reading.regimes(self.readings) if word in slowdowns)
        if self._throttled:
            return "low", f"the GPU was still slowed ({slowed}) after {len(_WAITS_S)} waits; slowed rounds were kept"
        if self._shared:
            return "low", f"{self._disturbers}, still after {len(_WAITS_S)} waits; rounds beside it were kept"
        if self._told_late:
            return "low", f"{self._told_late}, which the driver told only after the last round"
        if self._discarded > _MOST_LOST * self.rounds:
            lost_to = " and ".join(filter(None, [slowed, self._disturbers]))
            return "low", f"{self._discarded} of {self.rounds} rounds were lost to {lost_to}"
        return "ok", f"not watched to the end: {self.reason}" if self.reason else ""


def guard_for(device_name: str, since_s: float | None = None) -> Guard:
    """The guard of a device, by torch's name of it; never raises.

    A device that cannot be watched gets a plain one, which says why. Other processes that used the device are named
    from `since_s` on, seconds since 1970; None is now.
    """
    try:
        sensors = TorchDevice(device_name).sensors(probe(device_name))
        return SensorGuard(sensors, others=Others(sensors, since_s))
    except Exception as error:  # noqa: BLE001 - a race must not fail because its guard cannot work
        return Guard(str(error) or type(error).__name__)


def _span(values: Iterable[_Number | None]) -> tuple[_Number, _Number] | None:
    numbers = [value for value in values if value is not None]
    return (min(numbers), max(numbers)) if numbers else None
