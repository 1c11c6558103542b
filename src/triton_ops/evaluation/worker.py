"""The worker process: loads a task, tries its configs, and answers; a crash or a hang here ends one trial.

Questions come through a pipe, and the end of that pipe is the end of the process. What user code prints goes to
stderr, which the parent keeps the last lines of.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

from triton_ops.backend import one_line, unpack, warm_up
from triton_ops.evaluation.finals import Final
from triton_ops.evaluation.station import Inline, StationFacts
from triton_ops.exceptions import KernelTypeError, TritonKernelError
from triton_ops.hardware import make_ready
from triton_ops.processes.child import Surroundings, die_with, import_heavy
from triton_ops.processes.process import FRAME, Began
from triton_ops.space import Config
from triton_ops.trial import Trial


@dataclass(frozen=True)
class Setup:
    """Load this task.

    Attributes:
        packed: An `Assignment` as bytes.
        changes: Fields of it that have other values by now.
        surroundings: What its code sees; the worker's own modules are imported before.
    """

    packed: bytes
    changes: dict[str, Any]
    surroundings: Surroundings = field(default_factory=Surroundings.here)


@dataclass(frozen=True)
class Attempt:
    """Try this config; `best` is the best so far."""

    config: Config
    best: Trial | None


@dataclass(frozen=True)
class Answer:
    """What was asked for, and what the worker knows by now.

    Attributes:
        value: A trial, an outcome, or None.
        facts: Of the worker's station.
        error: Raised instead of an answer.
        unloadable: Whether the error is that the task cannot be made in another process.
    """

    value: Any = None
    facts: StationFacts | None = None
    error: TritonKernelError | None = None
    unloadable: bool = False


def main() -> None:
    """Answer questions until there are no more."""
    questions, answers, parent = (int(word) for word in sys.argv[2:5])
    die_with(parent)
    with contextlib.suppress(OSError):  # where memory runs out, the worker should go, not the caller
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _import(sys.argv[6:], sys.argv[5])
    with os.fdopen(questions, "rb") as stream:
        serve(lambda: _received(stream), Connection(answers, readable=False).send)


def _received(stream: BinaryIO) -> Any:
    """The next question.

    Raises:
        EOFError: There are no more.
    """
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        raise EOFError
    return pickle.loads(stream.read(FRAME.unpack(head)[0]))


def _import(packages: Sequence[str], device: str) -> None:
    """Import packages, and do what else takes its time meanwhile."""
    if device.startswith("cuda"):
        threading.Thread(target=make_ready, args=(device,), daemon=True).start()
    if "triton" in packages:
        warm_up(launches=True)
    import_heavy(packages, "what is going to be tuned")


def serve(receive: Callable[[], Any], send: Callable[[Any], None]) -> None:
    """Answer what `receive` gives, until it has no more."""
    station: Inline | None = None
    while True:
        try:
            question = receive()
        except EOFError:
            return
        if isinstance(question, Setup):
            station, answer = _set_up(question, lambda what: send(Began(what)))
        else:
            answer = _answer(station, question)
        send(answer)


def _set_up(question: Setup, tell: Callable[[str], None]) -> tuple[Inline | None, Answer]:
    question.surroundings.take()
    try:
        assignment = unpack(question.packed)
    except KernelTypeError as error:
        return None, Answer(error=error, unloadable=True)
    try:
        station = Inline(replace(assignment, **question.changes), tell)
    except TritonKernelError as error:
        return None, Answer(error=error)
    return station, Answer(facts=station.facts)


def _answer(station: Inline | None, question: Any) -> Answer:
    if station is None:
        return Answer(error=KernelTypeError(f"a worker without a task was asked {type(question).__name__}"))
    try:
        value: Any
        if isinstance(question, Attempt):
            value = station.attempt(question.config, question.best)
        elif isinstance(question, Final):
            value = station.finals(question)
        else:
            raise KernelTypeError(f"a worker does not know {type(question).__name__}")
    except TritonKernelError as error:
        return Answer(error=error)
    except Exception as error:  # noqa: BLE001 - an answer must come, and the parent raises it
        return Answer(error=TritonKernelError(f"the worker failed: {one_line(error)}"))
    return Answer(value, station.facts)
