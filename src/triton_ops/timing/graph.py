"""Device time of short launches: many of them unrolled in one CUDA graph, an event pair around each replay.

A launch of a few microseconds is no longer than the events' resolution and the launch overhead, which both disappear in
a graph of many launches. Every captured graph is checked: a launch that is missing in its graph would replay in no time
and win.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triton_ops.device import graph_nodes
from triton_ops.timing.events import DUTY, LONGEST_DELAY_MS, DelayedQueue, pending
from triton_ops.timing.timer import Launch, Pending, Sampler, without_gc

REPLAY_MS = 0.2  # the least length of a replay: 200 times the events' resolution, 30 times the graph's own launch
_MOST_UNROLLED = 1024
_ESTIMATE_CALLS = 5
_MOST_HELD_BYTES = 256 << 20  # of an eager call's results, while the same call is captured


class CaptureError(Exception):
    """A launch cannot be captured in a graph: the launch and its rivals must all be timed another way."""


class EmptyCaptureError(Exception):
    """A captured graph lacks the launch's work, which runs elsewhere: no clock on this stream would see the work."""


class GraphTimer:
    """Replays of unrolled launches: for launches below 0.2 ms.

    A launch with further argument sets takes them in turn during a replay, so L2 is cold. With a single set L2 holds
    whatever the launch before left there.

    Args:
        device: `cuda` or `cuda:N`.
        cold: Whether to take the argument sets of a launch in turn.
        duty: Share of the time that the device may work; see `pace.py`.
    """

    def __init__(self, device: str = "cuda", *, cold: bool = True, duty: float = DUTY) -> None:
        self._queue = DelayedQueue(device, duty)
        self._cold = cold

    @property
    def mode(self) -> str:
        """The mode is `graph-cold` or `graph-warm`."""
        return "graph-cold" if self._cold else "graph-warm"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler that replays one checked graph.

        Raises:
            CaptureError: The launch needs a reset, or cannot be captured.
            EmptyCaptureError: The captured graph lacks the launch's work.
        """
        if launch.reset is not None:
            raise CaptureError("a launch that writes its inputs cannot be repeated inside one graph")
        calls = launch.calls if self._cold else (launch.call,)
        unrolled = launches or self._unrolled(launch, len(calls))
        graph, results = self._checked(launch, calls, unrolled)
        owners = graph, launch, results  # the graph works in their memory, which would be free otherwise
        if self._cold:  # the first use allocates
            self._queue.unsettle()

        def sample(samples: int) -> Pending:
            pairs = [(self._queue.event(), self._queue.event()) for _ in range(samples)]
            for start, end in pairs:
                if self._cold:
                    self._queue.unsettle()
                start.record()
                owners[0].replay()
                self._queue.watch(start)
                end.record()
            return pending(pairs, unrolled)

        return Sampler(sample, unrolled)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Queue the round behind a delay, and wait for the device at the end."""
        with self._queue.round():
            yield

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

    def _unrolled(self, launch: Launch, sets: int) -> int:
        """Launches per replay: enough for `REPLAY_MS`, and one per argument set, without which L2 would stay warm."""
        count = math.ceil(REPLAY_MS / max(estimate_ms(self._queue, launch), 1e-4))
        return min(max(count, sets), max(_MOST_UNROLLED, sets))

    def _captured(self, calls: Sequence[Callable[[], Any]], unrolled: int) -> tuple[Any, list[Any]]:
        torch = self._queue.torch
        graph = _new_graph(torch)
        stream = torch.cuda.Stream(self._queue.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.device(self._queue.device), torch.cuda.stream(stream):
            try:
                results = _capture_calls(graph, calls, unrolled)
            except RuntimeError as error:
                _leave_capture(torch)
                raise CaptureError(f"the launch cannot be captured: {str(error).splitlines()[0]}") from error
        nodes = node_count(torch, graph)
        if nodes is not None and nodes < unrolled:
            raise EmptyCaptureError(f"{unrolled} captured launches are {nodes} nodes: the work is done elsewhere")
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
    """Roughly the milliseconds of one launch: a few calls between two events, without a flush of the cache.

    The calls are repeated behind longer delays until the host stays ahead of the device. A callable that takes the host
    0.1 ms looks as long as that otherwise, and its kernel gets event pairs: on an H200, kernels of 11 to 16 us were
    compared by times that were 2.3 to 3.4 us too long.
    Calls that took longer than any delay are not repeated: no delay would hide the host, and a kernel of seconds, whose
    delay is over while it runs, would run dozens of times.
    """
    while True:
        with queue.round():
            start, end = queue.event(), queue.event()
            start.record()
            for _ in range(_ESTIMATE_CALLS):
                launch.call()
            end.record()
        took_ms = float(start.elapsed_time(end))
        if not queue.again or took_ms > LONGEST_DELAY_MS:
            return took_ms / _ESTIMATE_CALLS


def node_count(torch: Any, graph: Any) -> int | None:
    """The number of nodes of a captured graph; None if this torch or the driver does not tell."""
    return graph_nodes(torch, graph.raw_cuda_graph()) if hasattr(graph, "raw_cuda_graph") else None


def _capture_calls(graph: Any, calls: Sequence[Callable[[], Any]], unrolled: int) -> list[Any]:
    with without_gc():
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


def _new_graph(torch: Any) -> Any:
    try:
        return torch.cuda.CUDAGraph(keep_graph=True)  # torch 2.8 and later: the nodes can be counted
    except TypeError:
        return torch.cuda.CUDAGraph()


def _tensors(torch: Any, result: Any) -> list[Any]:
    """The tensors in a result that have memory of their own: none of sparse ones, whose parts have it."""
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
    """The addresses of the memory of tensors."""
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
