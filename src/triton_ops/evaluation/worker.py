"""The program of a worker process: it loads a task, tries configs and answers; a crash or hang here ends one trial.

Questions come through a pipe, and the process ends when the pipe is closed. The output of user code goes to stderr; the
parent keeps the last lines of stderr.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from types import FunctionType
from typing import Any

from triton_ops.backend import CandidateError, Origin, Packed, ScratchAllocator, TritonProcess
from triton_ops.base import StoredFile, require
from triton_ops.device import TorchDevice
from triton_ops.evaluation.idle_worker import EARLY, Rest
from triton_ops.evaluation.process_state import ProcessState
from triton_ops.evaluation.questions import Answering, Question, Setup, WorkerAnswer
from triton_ops.exceptions import KernelTypeError, TritonKernelError
from triton_ops.processes import Child, Surroundings, import_heavy, strays


def main() -> None:
    """Import packages, then answer questions until the pipe is closed."""
    child = Child()
    device = "cuda:0" if child.device == EARLY.device else child.device
    if child.early:  # for a task that may never come: no memory of the GPU, and not the program's environment
        _import(child.packages)
        if not child.await_task():
            return
        _ready(device)
    else:
        _ready(device)
        _import(child.packages)
    TorchDevice(device).stay()  # nothing that runs here makes a context on another GPU
    serve(child.messages(), child.send, device)


def _import(packages: Sequence[str]) -> None:
    """Import packages; meanwhile a thread readies Triton if it is among them."""
    if "triton" in packages:
        TritonProcess.warm_up(launches=True)
    import_heavy(packages, "what is going to be tuned")


def _ready(device: str) -> None:
    """Have a thread ready a GPU's driver."""
    if device.startswith("cuda"):
        threading.Thread(target=TorchDevice(device).make_ready, daemon=True).start()


def serve(questions: Iterable[Any], send: Callable[[object], None], device: str) -> None:
    """Answer questions until there are no more; `device` is the GPU of this process."""
    station: Answering | None = None
    modules, state, context = UsersModules(), ProcessState.here(), copy_context()
    for question in questions:
        if isinstance(question, Rest):
            station = None
            _give_up(modules)
            answer = WorkerAnswer(value=state.changed() or ("a process" if strays() else ""))
        elif isinstance(question, Setup):
            if question.imports:
                import_heavy(question.imports, "what is going to be tuned")
                state = ProcessState.here()  # no code of the user's has run, or what it changed was put back
            TorchDevice(device).stay()  # code of the task before may have chosen another
            context = copy_context()  # what is set for one task, such as Triton's allocator, ends with it
            modules.forget_unless(question.surroundings)
            station, answer = context.run(_set_up, question, lambda step: send(Child.step(step)))
            modules.note(question.surroundings)
        else:
            answer = context.run(_answer, station, question)
        send(answer)


_MOST_HELD_BYTES = 64 << 20
_MOST_LOOKED_AT = 20_000  # values of a module: some milliseconds
_MOST_BYTES = 1 << 16  # of a NumPy array that is compared
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


class UsersModules:
    """The user's modules that tasks have imported: the next task has them as long as it would import the same.

    They are imported anew where a file, the search path or `sys.argv` has changed, where a task has replaced something
    in one of them, has changed it in place or has imported another one, and where they hold much memory of the GPU.
    """

    def __init__(self) -> None:
        self._others = frozenset(sys.modules)
        self._loaded: dict[str, Any] = {}
        self._surroundings: Surroundings | None = None

    def note(self, surroundings: Surroundings) -> None:
        """Note the modules as a task with these surroundings has them once it is loaded."""
        self._loaded, self._surroundings = self._now(), surroundings

    def forget_unless(self, surroundings: Surroundings) -> None:
        """Forget all of them unless a task with these surroundings would import them as they are."""
        if surroundings != self._surroundings or self._now() != self._loaded:
            self.forget()

    def forget(self) -> None:
        """Forget all of them."""
        for name in self._names():
            del sys.modules[name]
        linecache.clearcache()

    def _names(self) -> list[str]:
        return [name for name in sys.modules if name not in self._others and not Origin.is_installed(name)]

    def _now(self) -> dict[str, object]:
        left = {name: iter(range(_MOST_LOOKED_AT)) for name in self._names()}
        files = {name: StoredFile(getattr(sys.modules[name], "__file__", None) or os.devnull) for name in left}
        return {name: (files[name].state, [(key, _state(value, left[name])) for key, value in
                                           vars(sys.modules[name]).items() if not key.startswith("__")])
                for name in left}  # fmt: skip


def _state(value: object, left: Iterator[int], inside: frozenset[int] = frozenset()) -> object:
    """What a value is, and what it holds where it is a container or of the user's; too much is equal to nothing."""
    if next(left, None) is None:
        return object()
    if type(value) in _PLAIN:
        return type(value), value
    try:
        parts = () if id(value) in inside else _parts_of(value)
        place = None if type(value) is tuple else id(value)
        return place, [_state(part, left, inside | {id(value)}) for part in parts]
    except Exception:  # noqa: BLE001 - what the user's code raises as it is looked at, or what is nested too deep
        return object()


def _parts_of(value: Any) -> Iterable[object]:
    """What a container or an object of the user's holds; of an array the content, of a tensor the number of writes."""
    kind = type(value)
    owner = value if isinstance(value, (type, FunctionType)) else kind
    if issubclass(kind, dict):
        return tuple(value.items())
    if issubclass(kind, (bytearray, list, tuple, set, frozenset, deque)):
        return tuple(value)
    if hasattr(value, "__array_interface__"):
        if value.nbytes > _MOST_BYTES or value.dtype.hasobject:
            raise ValueError("too much to compare")
        return (value.tobytes(),)
    if hasattr(value, "__dict__") and not Origin.is_installed(str(owner.__module__)):
        return tuple(vars(value).items())
    return (value._version,) if hasattr(value, "untyped_storage") and not value.is_inference() else ()


def _give_up(modules: UsersModules) -> None:
    """Free the GPU's memory, and forget modules of the user's that hold much of it."""
    gc.collect()
    if "torch" in sys.modules and (cuda := require("torch", "freeing memory").cuda).is_initialized():
        if cuda.memory_allocated() > _MOST_HELD_BYTES:
            modules.forget()
            gc.collect()
        cuda.empty_cache()


def _set_up(question: Setup, tell: Callable[[str], None]) -> tuple[Answering | None, WorkerAnswer]:
    question.surroundings.take()
    try:
        assignment = Packed.loaded(question.packed)
        if question.allocator is not None:
            ScratchAllocator.take(question.allocator)
    except KernelTypeError as error:
        return None, WorkerAnswer(error=error, unloadable=True)
    try:
        station = replace(assignment, **question.changes).station(tell)
    except TritonKernelError as error:
        return None, WorkerAnswer(error=error)
    return station, WorkerAnswer(facts=station.facts)


def _answer(station: Answering | None, question: Question) -> WorkerAnswer:
    if station is None:
        return WorkerAnswer(error=KernelTypeError(f"a worker without a task was asked {type(question).__name__}"))
    try:
        value = question.answered_by(station)
    except TritonKernelError as error:
        return WorkerAnswer(error=error)
    except Exception as error:  # noqa: BLE001 - an answer must come, and the parent raises it
        return WorkerAnswer(error=TritonKernelError(f"the worker failed: {CandidateError.one_line(error)}"))
    return WorkerAnswer(value, station.facts)
