"""Device time on a GPU, by events around launches or around replays of a graph, with rests and a chosen state of L2.

The samples of a round are queued behind a delay on the device, so that the host's launch overhead happens while the GPU
is busy and never inside a timed region. Resets, flushes and the sums before a cold launch are outside the event pairs.

Argument sets in turn replace a flush: no extra kernel runs between launches, so short kernels can be timed in a graph,
and the inputs arrive from memory as they do in a model. They also share out the luck of a place: a config's time
depends on where the driver puts its arguments, in every round alike, and a race over one place proves what the next
process refutes. On an H200, over ten sets of one process, a matrix product of 4096³ was 1.3 to 4.3 % faster than
another config, with a standard deviation of 1.1 % (2026-11-22, `benchmarks/timing/placement.py` of commit 83e97e6e).

At the power limit the clock follows the power that all arms draw together, so an arm that draws little power is slowed
by its neighbours that draw much. On an H200, configs of one matrix product then measured up to 10 % off their times
alone relative to each other, and the noise of a round tripled. With rests as long as the work, levels held within 1 %
for as long as was watched, and ranks agreed with those of each config running alone (benchmarks/timing/README.md).

A launch of a few microseconds is no longer than the events' resolution and the launch overhead, which both disappear in
a graph of many launches. Every captured graph is checked: a launch that is missing in its graph would replay in no time
and win.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any, Literal

from triton_ops.base import cached_property, require, warn
from triton_ops.device import TorchDevice
from triton_ops.timing.timer import DUTY, Launch, Pace, Pending, Sampler, Timer, without_gc

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
    queued: whoever times something tells the queue by `watch` where a wait of the device would be in a time. `again`
    tells whether the device waited for the host in the last round, so that times hold the wait, and would wait less in
    the next one. Not safe to share among threads.
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
        with torch.cuda.device(self.device), self._pace.stretch(idle_s=self._delay_ms / 1e3):
            # Private: torch has no public kernel that lasts for a given time.
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
        leave nothing in L2 that would have to be written back (benchmarks/timing/README.md).
        """
        rows, sums = self._rows_and_sums
        self.torch.sum(rows, 1, out=sums)

    @cached_property
    def _rows_and_sums(self) -> tuple[Any, Any]:
        with self.torch.inference_mode(False):  # or the sums could be made in this mode alone
            zeros = partial(self.torch.zeros, dtype=self.torch.float32, device=self.device)
            return zeros((_ROWS, _ROW)), zeros((_ROWS,))

    _queued, _watched, _late = 0, False, False


class _QueuedTimer:
    """Samples between pairs of events, in rounds that are queued behind a delay on one GPU."""

    def __init__(self, device: str, duty: float) -> None:
        self._queue = DelayedQueue(device, duty)

    def round(self) -> AbstractContextManager[None]:
        """Queue the round behind a delay, and wait for the device at the end."""
        return self._queue.round()

    def _sampler(
        self,
        clears: Sequence[Callable[[], object]],
        work: Callable[[], object],
        launches: int,
        reset: Callable[[], None] | None = None,
    ) -> Sampler:
        """A sampler with an event pair around `work`, which makes so many launches; `clears` sets the state of L2."""
        for clear in clears:  # a first use allocates and may wait for the device, so it stands outside a round
            clear()

        def sample(samples: int) -> Pending:
            pairs = [(self._queue.event(), self._queue.event()) for _ in range(samples)]
            for start, end in pairs:
                if reset is not None:
                    reset()
                for clear in clears:
                    clear()
                start.record()
                work()
                self._queue.watch(start)
                end.record()

            def times_ms() -> list[float]:
                if pairs:
                    pairs[-1][1].synchronize()
                return [start.elapsed_time(end) / launches for start, end in pairs]

            return times_ms

        return Sampler(sample, launches)


class EventTimer(_QueuedTimer):
    """An event pair around each launch: for launches of 0.2 ms and more.

    The resolution is that of the device's events; benchmarks/timing/README.md has the figure for an H200. `cold` takes
    a launch's argument sets in turn, and flushes where there is only one set.
    """

    def __init__(self, device: str = "cuda", *, cache: Cache = "flushed", duty: float = DUTY) -> None:
        super().__init__(device, duty)
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
        clears: list[Callable[[], object]] = []
        if self._cache == "flushed" or (self._cache == "cold" and not launch.others):
            clears.append(self._flush.zero_)
        if self._cache != "warm":
            clears.append(self._queue.unsettle)

        def work() -> None:
            for _ in range(each):
                calls[next(self._turn) % len(calls)]()

        return self._sampler(clears, work, each, launch.reset)

    @cached_property
    def _flush(self) -> Any:
        torch, device = self._queue.torch, self._queue.device
        l2_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        size = flush_bytes(l2_bytes, TorchDevice(str(device)).allowed_bytes)
        return torch.empty(size, dtype=torch.uint8, device=device)


REPLAY_MS = 0.2  # the least length of a replay: 200 times the events' resolution, 30 times the graph's own launch
_MOST_UNROLLED = 1024
_ESTIMATE_CALLS, _LONG_MS = 5, 10 * REPLAY_MS  # of a launch that is plainly long, one call is enough
_MOST_HELD_BYTES = 256 << 20  # of an eager call's results, while the same call is captured


class CaptureError(Exception):
    """A launch cannot be captured in a graph: the launch and its rivals must all be timed another way."""


class EmptyCaptureError(Exception):
    """A captured graph lacks the launch's work, which runs elsewhere: no clock on this stream would see the work."""


class GraphTimer(_QueuedTimer):
    """Replays of unrolled launches: for launches below 0.2 ms.

    A launch with further argument sets takes them in turn during a replay where it is to be cold. With a single set L2
    holds whatever the launch before left there.
    """

    def __init__(self, device: str = "cuda", *, cold: bool = True, duty: float = DUTY) -> None:
        super().__init__(device, duty)
        self._cold = cold

    @property
    def mode(self) -> str:
        """The mode is `graph-cold` or `graph-warm`."""
        return "graph-cold" if self._cold else "graph-warm"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler that replays one checked graph; `CaptureError` if the launch cannot be captured.

        So is one that needs a reset, unless `launches` is 1. `EmptyCaptureError` if the graph lacks the launch's work.
        """
        if launch.reset is not None and launches != 1:
            raise CaptureError("a launch that writes its inputs cannot be repeated inside one graph")
        calls = launch.calls if self._cold else (launch.call,)
        if launches is None:  # enough for `REPLAY_MS`, and one per argument set, without which L2 would stay warm
            replays = math.ceil(REPLAY_MS / max(estimate_ms(self._queue, launch), 1e-4))
            launches = min(max(replays, len(calls)), max(_MOST_UNROLLED, len(calls)))
        graph, results = self._checked(launch, calls, launches)
        owners = graph, launch, results  # the graph works in their memory, which would be free otherwise
        clears = [self._queue.unsettle] if self._cold else []
        return self._sampler(clears, lambda: owners[0].replay(), launches, launch.reset)

    def _checked(self, launch: Launch, calls: Sequence[Callable[[], Any]], unrolled: int) -> tuple[Any, list[Any]]:
        """The checked graph of the calls, and the tensors that the first of them returned.

        The results of a call outside of the graph stay meanwhile, unless they are large: no result of the graph can
        then lie where they do, and count as an argument that is returned.
        """
        returned = _tensors(self._queue.torch, launch.call())
        places = _places(returned)
        if sum(tensor.untyped_storage().nbytes() for tensor in returned) > _MOST_HELD_BYTES:
            returned.clear()
        graph, results = self._captured(calls, unrolled)
        self._check(launch, graph, _new_tensors(results, places))
        return graph, results

    def _captured(self, calls: Sequence[Callable[[], Any]], unrolled: int) -> tuple[Any, list[Any]]:
        torch = self._queue.torch
        try:
            graph = torch.cuda.CUDAGraph(keep_graph=True)  # torch 2.8 and later: the nodes can be counted
        except TypeError:
            graph = torch.cuda.CUDAGraph()
        device, before = self._queue.device, torch.cuda.current_stream(self._queue.device)
        stream = torch.cuda.Stream(device) if before == torch.cuda.default_stream(device) else before
        stream.wait_stream(before)  # the default stream cannot be captured
        with torch.cuda.device(device), torch.cuda.stream(stream):
            try:
                results = _capture_calls(graph, calls, unrolled)
            except RuntimeError as error:
                _leave_capture(torch)
                first = error.__context__ or error  # what ended the capture, before its end was an error too
                raise CaptureError(f"the launch cannot be captured: {first}".splitlines()[0]) from error
        nodes = TorchDevice.graph_nodes(torch, graph.raw_cuda_graph()) if hasattr(graph, "raw_cuda_graph") else None
        if nodes is not None and nodes < unrolled:
            raise EmptyCaptureError(f"{unrolled} captured launches are {nodes} nodes: the work is done elsewhere")
        # With `keep_graph` torch leaves this to the caller, so that the graph can be looked at before.
        if hasattr(graph, "instantiate"):
            graph.instantiate()
        return graph, _tensors(torch, results[0])

    def _check(self, launch: Launch, graph: Any, results: Sequence[Any]) -> None:
        """Check that a replay writes the outputs: only elements that an eager call leaves poisoned may stay so."""
        outputs = [t for t in (*launch.outputs, *results) if t.is_floating_point() and t.element_size() > 1]
        _poison(outputs)
        graph.replay()
        unwritten = _count_unwritten(outputs)
        if unwritten == 0:
            return
        if launch.outputs:
            _poison(outputs)
            launch.call()
            if unwritten <= _count_unwritten(launch.outputs):
                return
        elif unwritten < sum(tensor.numel() for tensor in outputs):
            return  # the results hold some NaN of their own
        raise EmptyCaptureError(f"a replay of the captured launch leaves {unwritten} elements of its outputs unwritten")


def estimate_ms(queue: DelayedQueue, launch: Launch) -> float:
    """Roughly the milliseconds of one launch: a few calls between two events, or one long one, without a flush.

    The calls are repeated behind longer delays until the host stays ahead of the device. A callable that takes the host
    0.1 ms looks as long as that otherwise, and its kernel gets event pairs: on an H200, kernels of 11 to 16 us were
    compared by times that were 2.3 to 3.4 us too long.
    Calls that took longer than any delay are not repeated: no delay would hide the host, and a kernel of seconds, whose
    delay is over while it runs, would run dozens of times.
    """
    calls = 1
    while True:
        with queue.round():
            start, end = queue.event(), queue.event()
            start.record()
            for _ in range(calls):
                launch.call()
            end.record()
        took_ms = float(start.elapsed_time(end))
        if queue.again and took_ms <= LONGEST_DELAY_MS:
            continue
        if calls > 1 or took_ms > _LONG_MS:
            return took_ms / calls
        calls = _ESTIMATE_CALLS


def _capture_calls(graph: Any, calls: Sequence[Callable[[], Any]], unrolled: int) -> list[Any]:
    with without_gc():
        # Not by `torch.cuda.graph`, which empties torch's cache of memory before each capture (torch 2.13).
        graph.capture_begin()
        try:
            return [calls[turn % len(calls)]() for turn in range(unrolled)]
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of an empty graph, and the caller counts the nodes itself
                graph.capture_end()


def _leave_capture(torch: Any) -> None:
    """Restore torch's random generator: a failed capture leaves it in capture mode, which one good capture ends."""
    with contextlib.suppress(RuntimeError):
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        torch.empty(1, device="cuda").zero_()
        graph.capture_end()


def _tensors(torch: Any, result: Any) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result] if _has_memory(result) else []
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in _tensors(torch, item)]
    return []


def _has_memory(tensor: Any) -> bool:
    try:
        tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _places(tensors: Sequence[Any]) -> frozenset[int]:
    return frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors)


def _new_tensors(tensors: Sequence[Any], places: frozenset[int]) -> list[Any]:
    """The tensors whose memory lies in none of the places of what a call outside of any graph returned.

    What lies in the same place in both is no result of the graph: an argument that the launch returns as it is, which
    has to keep its values.
    """
    return [tensor for tensor in tensors if not _places([tensor]) & places]


def _poison(tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        tensor.fill_(math.nan)


def _count_unwritten(tensors: Sequence[Any]) -> int:
    return sum(int(tensor.isnan().sum()) for tensor in tensors)


def flush_bytes(l2_bytes: int, allowed_bytes: int | None = None) -> int:
    """The bytes that are written so that L2 holds nothing of a launch's data: twice the L2.

    Where a tune may take no more than so much, it is at most half of that, and no less than the L2 all the same.
    """
    wanted = max(_FLUSH_FACTOR * l2_bytes, _LEAST_FLUSH_BYTES)
    return wanted if allowed_bytes is None else min(wanted, max(l2_bytes, allowed_bytes // 2))


_L2_COVERED = 2.5  # times the L2: bytes that the other sets must touch before a set is used again
_LEAST_SETS = 2
_PLACES = 8  # sets wherever there is memory for them: the mean over eight places has about a third of one's deviation
_MEMORY_SHARE = 0.25  # share of the free device memory that further sets may take
_MOST_SETS = 32_768  # copying so many takes about a second; a launch that touches a few bytes would need millions


def sets_needed(touched_bytes: int, l2_bytes: int | None, free_bytes: int | None = None) -> int | None:
    """Number of argument sets to take in turn, the first included.

    At least what keeps L2 cold, and up to eight where they fit in a quarter of the free memory; without `free_bytes`
    only the former. None if not even those fit, if they are more than `_MOST_SETS`, or if the size of the cache is not
    known: it must then be flushed instead. `touched_bytes` are those that one launch reads and writes, `l2_bytes` the
    size of the device's last cache.
    """
    if not l2_bytes:
        return None
    if touched_bytes <= 0:
        return 1
    least = max(_LEAST_SETS, math.ceil(_L2_COVERED * l2_bytes / touched_bytes) + 1)
    if least > _MOST_SETS:
        return None
    if free_bytes is None:
        return least
    fitting = int(_MEMORY_SHARE * free_bytes / touched_bytes) + 1
    return max(least, min(_PLACES, fitting)) if least <= fitting else None


def timer_of(mode: str, name: str) -> Timer:
    """The clock of a GPU for a mode that another process has chosen."""
    clock, _, cache = mode.partition("-")
    return GraphTimer(name, cold=cache == "cold") if clock == "graph" else EventTimer(name, cache=cache)  # type: ignore[arg-type]


def choose_gpu_timer(name: str, launch: Launch, *, cold: bool = True, capture: bool = True) -> Timer:
    """The clock for a problem on a GPU, chosen by its default config, whose launch has run once.

    A launch that is shorter than 0.2 ms and can be captured is timed by replays of a graph, any other launch by event
    pairs. L2 is made cold by taking the launch's argument sets in turn, or by a flush where there is only one set.
    `cold` is whether L2 is to hold none of the launch's data; `capture` is False after a candidate could not be
    captured.
    """
    several_sets = bool(launch.others)
    graphs = capture and launch.reset is None and (several_sets or not cold)
    if graphs and estimate_ms(DelayedQueue(name), launch) < REPLAY_MS:
        timer = GraphTimer(name, cold=cold)
        try:
            timer.prepare(launch)
        except CaptureError as error:
            warn("%s: timed by event pairs instead", error)
        else:
            return timer
    return EventTimer(name, cache=("cold" if several_sets else "flushed") if cold else "warm")
