"""Tunes that a launch waits for, one at a time on a device, and comparisons that run beside the launches of a default.

The imports of a worker are most of what a first tune takes. So one starts when a kernel is decorated that tunes and has
no record. Compilers start once the process uses a GPU, and then the worker too if none was started: many records are
read only then, since many processes import kernels and launch none.

A comparison in the background is a whole tune of the effort `expected`, in a thread. The thread uses no device and no
memory of the caller's, so that it disturbs no capture of a CUDA graph: a worker makes tensors like those of the call,
as a later tune of a noted problem does. The launches go on meanwhile, and one of them stands still for the race alone.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from triton_ops import evaluation
from triton_ops.backend import Layers, Operation, TritonCompiler, TritonProcess
from triton_ops.base import ForkSafeLock
from triton_ops.compilation import CompilePool
from triton_ops.dispatch.calls import example_of
from triton_ops.dispatch.decision import Decision, within
from triton_ops.dispatch.ladder import BACKGROUND, EXPECTED, RACE, TUNE, TUNER, pinned, policy_of, tune_request
from triton_ops.exceptions import SpaceError, TritonKernelError, TuningFailedError, UntunedError
from triton_ops.processes import Threads
from triton_ops.records import cache_folder, may_have_records, store_in
from triton_ops.request import Effort, TuneOptions, TuneProblem, TuneRequest
from triton_ops.values import TuningResult

if TYPE_CHECKING:
    from triton_ops.dispatch.deciding import KernelCall

TURN_S = 30.0  # for another thread of this process that tunes, or another process of the job that looks a winner up
_STILL_S = 0.05  # that a launch stands still for a race, which lasts as long
_PATIENCE_S = 10.0  # until a launch stands still
_MOST_BYTES = 1 << 20  # of a tensor whose whole numbers are copied: offsets and indices decide what a launch does
_MOST_RECORDS = 50  # that are read when a kernel is decorated: 0.5 ms each
_MOST_AT_ONCE = 100  # comparisons that have not ended: each has a thread, and copies of whole numbers

_awaited: dict[str, tuple[str | None, TuneOptions]] = {}  # by name the kernels that may tune, before a GPU is used
_beginning = ForkSafeLock()
_tuning: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
_comparisons: dict[str, Comparison] = {}  # by the ids of keys
writes_a_part: WeakSet[Any] = WeakSet()  # kernels whose tune has failed with what they only write as outputs


def whole_or_part(
    kernel: Any, requests: Sequence[TuneRequest], tune: Callable[[TuneRequest], TuningResult]
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


def await_tune(kernel: Any, on_miss: str | None, options: TuneOptions) -> None:
    """Have a worker started, now or once this process uses a GPU, if a launch of the kernel may be the first to tune.

    None is any kernel.
    """
    call_then = getattr(getattr(sys.modules.get("torch"), "cuda", None), "_lazy_call", None)
    if call_then is not None:
        function = Layers.unwrap(kernel) if kernel is not None else None
        name = "" if function is None else f"{function.__module__}:{function.__name__}"
        is_first, _awaited[name] = not _awaited, (on_miss, options)
        may_start(name, on_miss, options, most_records=_MOST_RECORDS)
        if is_first:
            call_then(partial(_uses_gpu, os.getpid()))  # at once if a GPU is used already


def _uses_gpu(pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        with suppress(RuntimeError):  # no thread is left, and torch would raise it
            threading.Thread(target=_start_early, name="triton-ops early start", daemon=True).start()


def _start_early() -> None:
    if any(may_start(name, *each) for name, each in tuple(_awaited.items())):  # until one does
        CompilePool.start_server(TritonCompiler.needs_on, "cuda")
        TritonProcess.warm_up(launches=True, is_child=False)  # for the launch that follows the tune


def may_start(kernel: str, on_miss: str | None, options: TuneOptions, *, most_records: int | None = None) -> bool:
    """Start a worker if launches of a kernel tune and no record of it is there; an empty name is that of any.

    None is started where there are more than `most_records`, of any kernels.
    """
    with suppress(TritonKernelError, OSError):  # the launch that meets it again says so
        tunes = policy_of(on_miss, TUNE) in (TUNE, RACE) and not Effort.of(options).expected_gain and not pinned()
        folder = cache_folder(options.cache_dir) if tunes and options.isolate is not False else None
        records = store_in(folder) if folder and may_have_records(folder) else ()
        if folder and not any(kernel in it.key.kernel or number == most_records for number, it in enumerate(records)):
            return evaluation.start_one_early()
    return False


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

    def now(self) -> Any:
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
    device: str, kernel: Any, requests: Sequence[TuneRequest], options: TuneOptions, place: Mapping[str, Any]
) -> TuningResult | str:
    """The result of a tune, or why there is none: an error would keep the frames and tensors of who raises it."""
    try:
        with _alone_on(device, -1):
            silent = importlib.import_module(TUNER).Silent()
            return whole_or_part(kernel, requests, lambda each: tune_request(each, options, listener=silent, **place))
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


ForkSafeLock.at_fork(_tuning.clear)  # whoever holds a lock, or compares, is not there
ForkSafeLock.at_fork(_comparisons.clear)
