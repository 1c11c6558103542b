"""Device time of short launches: many of them unrolled in one CUDA graph, an event pair around each replay.

One launch of a few microseconds is as long as the events' resolution and the launch overhead; a graph of many has
neither. What was captured is checked, since a launch that does not reach the graph replays in no time and would win.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triton_ops.hardware import graph_nodes
from triton_ops.measure.gpu import DelayedQueue, pending
from triton_ops.measure.pace import DUTY
from triton_ops.measure.timer import Launch, Pending, Sampler

REPLAY_MS = 0.2  # a replay lasts at least this long: 200 times the events' resolution, 30 times the graph's own launch
_MOST_UNROLLED = 1024
_ESTIMATE_CALLS = 5


class CaptureError(Exception):
    """A launch cannot be captured in a graph: it, and whatever it is compared with, must be timed another way."""


class EmptyCaptureError(Exception):
    """What was captured is not the launch's work: it is done elsewhere, and no clock on this stream would see it."""


class GraphTimer:
    """Replays of unrolled launches: for launches below 0.2 ms.

    Where a launch has further argument sets, every launch of a replay has another set than the ones before it, so L2 is
    cold; with a single set L2 is as the launch before left it.

    Args:
        device: `cuda` or `cuda:N`.
        cold: Whether to rotate through the launches' argument sets.
        duty: Share of the time that the device may work; see `pace.py`.
    """

    def __init__(self, device: str = "cuda", *, cold: bool = True, duty: float = DUTY) -> None:
        self._queue = DelayedQueue(device, duty)
        self._cold = cold

    @property
    def mode(self) -> str:
        """`graph-cold` or `graph-warm`."""
        return "graph-cold" if self._cold else "graph-warm"

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """A sampler of one checked graph.

        Raises:
            CaptureError: The launch needs a reset, or cannot be captured.
            EmptyCaptureError: Its work is not in what was captured.
        """
        if launch.reset is not None:
            raise CaptureError("a launch that writes its inputs cannot be repeated inside one graph")
        calls = launch.calls if self._cold else (launch.call,)
        unrolled = launches or self._unrolled(launch, len(calls))
        graph, results = self._captured(calls, unrolled)
        self._check(launch, graph, results)

        def sample(count: int) -> Pending:
            pairs = [(self._queue.event(), self._queue.event()) for _ in range(count)]
            for start, end in pairs:
                start.record()
                graph.replay()
                end.record()
            return pending(pairs, unrolled)

        return Sampler(sample, unrolled)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Queue behind a delay; waits for the device at the end."""
        with self._queue.round():
            yield

    def _unrolled(self, launch: Launch, sets: int) -> int:
        """Launches per replay: as many as fill it, and at least one per argument set, or the cache would stay warm."""
        wanted = math.ceil(REPLAY_MS / max(estimate_ms(self._queue, launch), 1e-4))
        return min(max(wanted, sets), max(_MOST_UNROLLED, sets))

    def _captured(self, calls: Sequence[Callable[[], Any]], unrolled: int) -> tuple[Any, list[Any]]:
        """The graph, and the tensors that the captured calls returned."""
        torch = self._queue.torch
        graph = _new_graph(torch)
        stream = torch.cuda.Stream(self._queue.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.device(self._queue.device), torch.cuda.stream(stream):
            try:
                results = _capture(graph, calls, unrolled)
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
        """A replay must write the outputs: nothing may stay poisoned that an eager call does not leave so."""
        outputs = [t for t in (*launch.outputs, *results) if t.is_floating_point() and t.element_size() > 1]
        _poison(outputs)
        graph.replay()
        left = _unwritten(outputs)
        if left == 0:
            return
        if launch.outputs:
            _poison(outputs)
            launch.call()
            if left <= _unwritten(launch.outputs):
                return
        elif left < sum(tensor.numel() for tensor in outputs):
            return  # results that hold NaN by right
        raise EmptyCaptureError(f"a replay of the captured launch leaves {left} elements of its outputs unwritten")


def estimate_ms(queue: DelayedQueue, launch: Launch) -> float:
    """Milliseconds of one launch, roughly: a few calls between two events, cache as it is."""
    with queue.round():
        start, end = queue.event(), queue.event()
        start.record()
        for _ in range(_ESTIMATE_CALLS):
            launch.call()
        end.record()
    return float(start.elapsed_time(end)) / _ESTIMATE_CALLS


def node_count(torch: Any, graph: Any) -> int | None:
    """How many nodes a captured graph has; None if this torch does not show the graph, or the driver does not tell."""
    return graph_nodes(torch, graph.raw_cuda_graph()) if hasattr(graph, "raw_cuda_graph") else None


def _capture(graph: Any, calls: Sequence[Callable[[], Any]], unrolled: int) -> list[Any]:
    """What the calls returned while they were captured on the current stream."""
    graph.capture_begin()
    try:
        return [calls[turn % len(calls)]() for turn in range(unrolled)]
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the graph is empty: the caller counts its nodes
            graph.capture_end()


def _leave_capture(torch: Any) -> None:
    """Put torch's random generator back: a capture that fails leaves it in capture mode, and the next one ends that."""
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
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [found for item in result for found in _tensors(torch, item)]
    return []


def _poison(tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        tensor.fill_(math.nan)


def _unwritten(tensors: Sequence[Any]) -> int:
    return sum(int(tensor.isnan().sum()) for tensor in tensors)
