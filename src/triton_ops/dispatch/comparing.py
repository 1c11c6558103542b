"""Tunes that a launch waits for, one at a time on a device, and comparisons that run beside the launches of a default.

A comparison in the background is a whole tune of the effort `expected`, in a thread. The thread uses no device and no
memory of the caller's, so that it disturbs no capture of a CUDA graph: a worker makes tensors like those of the call,
as a later tune of a noted problem does. The launches go on meanwhile, and one of them stands still for the race alone.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from triton_ops import evaluation
from triton_ops.backend import Layers, Operation, TritonCompiler, TritonProcess
from triton_ops.base import ForkSafeLock, at_fork
from triton_ops.compilation import CompilePool
from triton_ops.dispatch.calls import example_of
from triton_ops.dispatch.deciding import TURN_S, KernelCall, writes_a_part
from triton_ops.dispatch.decision import Decision, within
from triton_ops.dispatch.ladder import BACKGROUND, EXPECTED, tune_request
from triton_ops.dispatch.printed import printed_listener
from triton_ops.exceptions import SpaceError, TritonKernelError, TuningFailedError, UntunedError
from triton_ops.processes import Threads
from triton_ops.request import TuneOptions, TuneProblem, TuneRequest
from triton_ops.space import ConfigSpace
from triton_ops.tuner import Silent
from triton_ops.values import TuningResult

_STILL_S = 0.05  # that a launch stands still for a race, which lasts as long
_PATIENCE_S = 10.0  # until a launch stands still
_MOST_BYTES = 1 << 20  # of a tensor whose whole numbers are copied: offsets and indices decide what a launch does
_MOST_AT_ONCE = 100  # comparisons that have not ended: each has a thread, and copies of whole numbers

_beginning = ForkSafeLock()
_tuning: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
_comparisons: dict[str, Comparison] = {}  # by the ids of keys


def whole_or_part(
    kernel: object, requests: Sequence[TuneRequest], tune: Callable[[TuneRequest], TuningResult]
) -> TuningResult:
    """The result of a tune of a kernel, for the first of its requests, or for a second one if that fails.

    A kernel that leaves a part of its outputs as it was is wrong if they count as outputs, and is tuned once more
    without them: then they are restored before every launch.
    """
    try:
        return tune(requests[0])
    except (SpaceError, TuningFailedError):
        if len(requests) == 1:
            raise
    writes_a_part.add(kernel)  # so that its other problems are tuned once
    try:
        return tune(requests[1])
    except BaseException:
        writes_a_part.discard(kernel)  # what has failed was something else
        raise


def tune_call(
    call: KernelCall, options: TuneOptions | None = None, space: ConfigSpace | None = None, **place: object
) -> TuningResult:
    """The result of a tune for a call, as of `KernelCall.tuned`."""
    if call.options.tune.isolate is not False and not call.plan.expected_gain:  # which may measure nothing
        evaluation.start_one_early(call.device)  # before all else that a first tune has to import
    options = call.options.tune.of_effort(call.plan) if options is None else options
    requests = call.requests if space is None else [replace(each, chosen=space) for each in call.requests]
    kernel = Layers.unwrap(call.function)
    place = {"listener": printed_listener(kernel, call.triton_key), "asked": call.key, "call": call.noted, **place}
    return whole_or_part(kernel, requests, lambda request: tune_request(request, options, **place))


def start_worker() -> bool:
    """Start a worker for the first tune of this process, if it has none; tell whether one starts."""
    with suppress(TritonKernelError, OSError):  # the launch that meets it again says so
        return evaluation.start_one_early()
    return False


def start_compilers() -> None:
    """Start what compiles for the first tune, and have Triton ready for the launch that follows it."""
    CompilePool.start_server(TritonCompiler.needs_on, "cuda")
    TritonProcess.warm_up(launches=True, is_child=False)


def measured(call: KernelCall, decision: Decision, policy: str, *, in_job: bool) -> Decision:
    """The decision of a miss after a tune, or for as long as a comparison goes on beside it; raises as a tune."""
    if policy == BACKGROUND:
        noted = call.noted if isinstance(call.noted, str) else None
        if refused := "the processes of a job decide alike" if in_job else call.key.unknown or noted:
            raise UntunedError(f"nothing is compared in the background: {refused}", call.name, call.called.label)
        with _beginning:  # other kernels, and so other threads, may have an equal problem
            comparison = _comparisons.get(call.key.id) or _comparisons.setdefault(call.key.id, Comparison(call))
        if (result := comparison.turn()) is None:
            return replace(decision, now=comparison.now)
        if isinstance(result, str):
            raise UntunedError(result, call.name, call.called.label)
        decision = replace(decision, policy=EXPECTED)
    else:
        with _alone_on(call.device, TURN_S):
            result = call.tuned()
    if call.tuned_as is not None:
        call.tuned_as(result)
    return decision.tuned(result)


@contextmanager
def _alone_on(device: str, timeout_s: float) -> Iterator[None]:
    """Wait for a tune of another thread on this device, whose worker then serves; not long: it may wait for this one.

    Two at a time would need two workers, which take seconds to start, and would wait for each other's turns.
    """
    lock = _tuning[device]
    is_held = lock.acquire(timeout=timeout_s)
    try:
        yield
    finally:
        if is_held:
            lock.release()


class Comparison:
    """The comparison of a problem's default with a model's first pick, in a thread, after those that began before."""

    def __init__(self, call: KernelCall) -> None:
        if sum(not one._result.done() for one in list(_comparisons.values())) >= _MOST_AT_ONCE:
            raise UntunedError(f"nothing is compared in the background: {_MOST_AT_ONCE} problems came before")
        self._result: Future[TuningResult | str] = Future()
        self._meeting = threading.Barrier(2)  # of the thread with a launch, before the race
        options = replace(call.options.tune.of_effort(call.plan), isolate=True)
        place = {"asked": call.key, "call": call.noted, "before_race": self._meet}
        tune = partial(_in_turn, call.device, Layers.unwrap(call.function), _like(call), options, place)
        work = partial(Threads.settle, self._result, tune)
        Threads.begin(threading.Thread(target=work, name="triton-ops comparison", daemon=True))

    def now(self) -> Comparison | str | None:
        """`within()`; itself, so that no known launch is direct, while a race waits for one or there is a result."""
        return self if self._result.done() or self._meeting.n_waiting else within()

    def turn(self) -> TuningResult | str | None:
        """Stand still for a race that is about to begin; the result, why there is none, or None as long as it lasts."""
        if self._meeting.n_waiting:
            self._meet(0)
            wait([self._result], timeout=_STILL_S)
        return self._result.result() if self._result.done() else None

    def _meet(self, wait_s: float = _PATIENCE_S) -> None:
        with suppress(threading.BrokenBarrierError):  # the problem has not come again, and may never
            self._meeting.wait(wait_s)


def _in_turn(
    device: str, kernel: object, requests: Sequence[TuneRequest], options: TuneOptions, place: Mapping[str, object]
) -> TuningResult | str:
    """The result of a tune, or why there is none: an error would keep the frames and tensors of who raises it."""
    try:
        with _alone_on(device, -1):
            return whole_or_part(kernel, requests, lambda each: tune_request(each, options, listener=Silent(), **place))
    except TritonKernelError as error:
        return error.message
    except BaseException as error:  # noqa: BLE001 - a launch of the default must go on
        return f"the comparison failed: {type(error).__name__}: {error}"


def _like(call: KernelCall) -> list[TuneRequest]:
    """The requests of a call, over new tensors like its own that a worker makes."""
    values = {name: example_of(value, _MOST_BYTES) for name, value in call.called.given.keyword.items()}
    requests = []
    for request in call.requests:
        operation = Operation(request.kernel.name, request.kernel, request.space, lambda: values)
        like = TuneProblem(target=operation, device=call.device).request()
        requests.append(replace(request, problem=like.problem, arguments=like.arguments))
    return requests


at_fork(_tuning.clear)  # whoever holds a lock, or compares, is not there
at_fork(_comparisons.clear)
