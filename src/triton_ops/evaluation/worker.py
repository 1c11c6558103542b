"""The program of a worker process: it loads a task, tries configs and answers; a crash or hang here ends one trial.

Questions come through a pipe, and the process ends when the pipe is closed. The output of user code goes to stderr; the
parent keeps the last lines of stderr.
"""

from __future__ import annotations

import gc
import linecache
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.backend import is_installed, one_line, take_allocator, unpack, warm_up
from triton_ops.base import require
from triton_ops.device import make_ready, stay_on
from triton_ops.evaluation.finals import FinalRequest
from triton_ops.evaluation.idle_worker import Rest
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.process_state import ProcessState
from triton_ops.evaluation.station import Inline, StationFacts
from triton_ops.exceptions import KernelTypeError, TritonKernelError
from triton_ops.processes import (
    ChildsEnd,
    Leftovers,
    StepStarted,
    Surroundings,
    die_with,
    import_heavy,
    strays,
)
from triton_ops.space import Config
from triton_ops.values import Trial


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The question to load a task.

    Attributes:
        packed: An `Assignment` as bytes.
        changes: New values of some of its fields, by name.
        allocator: The allocator that the user has given to Triton, packed; None if there is none.
        imports: Packages that its compilations need and that a worker need not have imported, such as one that has
            served other tunes.
        surroundings: Search path, `sys.argv` and bytecode settings for the user's code; the worker has imported its own
            modules before it takes them over.
    """

    packed: bytes
    changes: dict[str, Any]
    allocator: bytes | None = None
    imports: tuple[str, ...] = ()
    surroundings: Surroundings = field(default_factory=Surroundings.here)


@dataclass(frozen=True)
class Attempt:
    """The question to try a config; `best` is the best trial so far."""

    config: Config
    best: Trial | None


@dataclass(frozen=True)
class WorkerAnswer:
    """The answer to a question.

    Attributes:
        value: A trial, an outcome, or None.
        unloadable: Whether the error says that the task cannot be made in another process.
    """

    value: Any = None
    facts: StationFacts | None = None
    error: TritonKernelError | None = None
    unloadable: bool = False


def answers(question: Any, message: Any) -> bool:
    """True if a message of a worker answers a question; one that does may still be untrue."""
    if not isinstance(message, WorkerAnswer) or not isinstance(message.facts, StationFacts | None):
        return False
    if message.error is not None:
        return isinstance(message.error, TritonKernelError)
    if isinstance(question, Attempt):
        return isinstance(message.value, Trial) and message.value.config == question.config
    return isinstance(message.value, Outcome) if isinstance(question, FinalRequest) else True


def main() -> None:
    """Import packages, then answer questions until the pipe is closed."""
    questions, answers, parent = (int(word) for word in sys.argv[2:5])
    die_with(parent, Leftovers.own(), expendable=True)
    device = sys.argv[5]
    _import(sys.argv[6:], device)
    connection = ChildsEnd(questions, answers)
    serve(connection.receive, connection.send, device)


def _import(packages: Sequence[str], device: str) -> None:
    """Import packages; meanwhile threads ready the GPU's driver, and Triton if it is among them.

    From then on the GPU is the current one, so that nothing that runs here makes a context on another one.
    """
    if device.startswith("cuda"):
        threading.Thread(target=make_ready, args=(device,), daemon=True).start()
    if "triton" in packages:
        warm_up(launches=True)
    import_heavy(packages, "what is going to be tuned")
    stay_on(device)


def serve(receive: Callable[[], Any], send: Callable[[Any], None], device: str) -> None:
    """Answer the questions that `receive` gives, until it raises EOFError; `device` is the GPU of this process."""
    station: Inline | None = None
    own_modules, state, context = frozenset(sys.modules), ProcessState.here(), copy_context()
    while True:
        try:
            question = receive()
        except EOFError:
            return
        if isinstance(question, Rest):
            station = None
            _give_up(own_modules)
            answer = WorkerAnswer(value=state.changed() or ("a process" if strays() else ""))
        elif isinstance(question, Setup):
            stay_on(device)  # code of the task before may have chosen another
            context = copy_context()  # what is set for one task, such as Triton's allocator, ends with it
            station, answer = context.run(_set_up, question, lambda step: send(StepStarted(step)))
        else:
            answer = context.run(_answer, station, question)
        send(answer)


def _give_up(own_modules: Collection[str]) -> None:
    """Free the GPU's memory, and forget the user's modules, so that the next task imports them as they are then."""
    for name in [name for name in sys.modules if name not in own_modules and not is_installed(name)]:
        del sys.modules[name]
    linecache.clearcache()
    gc.collect()
    if "torch" in sys.modules and (cuda := require("torch", "freeing memory").cuda).is_initialized():
        cuda.empty_cache()


def _set_up(question: Setup, tell: Callable[[str], None]) -> tuple[Inline | None, WorkerAnswer]:
    if question.imports:
        import_heavy(question.imports, "what is going to be tuned")
    question.surroundings.take()
    try:
        assignment = unpack(question.packed)
        if question.allocator is not None:
            take_allocator(question.allocator)
    except KernelTypeError as error:
        return None, WorkerAnswer(error=error, unloadable=True)
    try:
        station = Inline(replace(assignment, **question.changes), tell)
    except TritonKernelError as error:
        return None, WorkerAnswer(error=error)
    return station, WorkerAnswer(facts=station.facts)


def _answer(station: Inline | None, question: Any) -> WorkerAnswer:
    if station is None:
        return WorkerAnswer(error=KernelTypeError(f"a worker without a task was asked {type(question).__name__}"))
    try:
        value: Any
        if isinstance(question, Attempt):
            value = station.attempt(question.config, question.best)
        elif isinstance(question, FinalRequest):
            value = station.finals(question)
        else:
            raise KernelTypeError(f"a worker does not know {type(question).__name__}")
    except TritonKernelError as error:
        return WorkerAnswer(error=error)
    except Exception as error:  # noqa: BLE001 - an answer must come, and the parent raises it
        return WorkerAnswer(error=TritonKernelError(f"the worker failed: {one_line(error)}"))
    return WorkerAnswer(value, station.facts)
