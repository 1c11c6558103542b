"""The program of a process that holds one compiled model.

What the compiler writes to stderr is kept, and goes with the next answer: Inductor's autotune tables are told nowhere
else.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any

from triton_ops.backend import one_line, unpack
from triton_ops.base import require
from triton_ops.compile_modes.inductor_logs import CompilerLog
from triton_ops.compile_modes.mode_contender import ModeContender, status_of
from triton_ops.compile_modes.mode_process import LOADING, Failed, Load, Reply, Visit
from triton_ops.compile_modes.model_workload import ModelWorkload
from triton_ops.device import make_ready, stay_on
from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import ChildsEnd, Leftovers, StepStarted, die_with, import_heavy

_MOST_LINES = 20_000


class KeptLines(io.TextIOBase):
    """A text stream that keeps what is written to it, and passes it on.

    Args:
        beyond: Where it is passed on to.
    """

    def __init__(self, beyond: Any) -> None:
        self._beyond = beyond
        self._text: list[str] = []
        self._reported = 0

    def write(self, text: str) -> int:
        """Keep `text`, and pass it on."""
        if len(self._text) < _MOST_LINES:
            self._text.append(text)
        with contextlib.suppress(OSError):  # the parent has closed its end
            self._beyond.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream beyond."""
        with contextlib.suppress(OSError):
            self._beyond.flush()

    def log(self) -> CompilerLog:
        """Read what the compiler has said so far."""
        return CompilerLog.read("".join(self._text).splitlines())

    def fresh(self) -> tuple[str, ...]:
        """The lines since this was last asked."""
        new, self._reported = "".join(self._text[self._reported :]).splitlines(), len(self._text)
        return tuple(new)


def main() -> None:
    """Import packages, then answer questions until the pipe is closed."""
    questions, answers, parent = (int(word) for word in sys.argv[2:5])
    die_with(parent, Leftovers.own())
    lines = KeptLines(sys.stderr)
    sys.stderr = lines  # before torch is imported, whose log handlers take the stream of that moment
    if sys.argv[5].startswith("cuda"):
        make_ready(sys.argv[5])
    import_heavy(sys.argv[6:], "compiling a model")
    stay_on(sys.argv[5])
    connection = ChildsEnd(questions, answers)
    serve(connection.receive, connection.send, lines)


def serve(receive: Callable[[], Any], send: Callable[[Any], None], lines: KeptLines) -> None:
    """Answer the questions that `receive` gives, until it raises EOFError."""
    contender: ModeContender | None = None
    while True:
        try:
            question = receive()
        except EOFError:
            return
        value: object
        try:
            if isinstance(question, Load):
                contender = _loaded(question, lambda step: send(StepStarted(step)), lines)
                value = contender.ready()
            elif isinstance(question, Visit) and contender is not None:
                value = contender.visit(question.samples)
            else:
                raise TypeError(f"a process without a model was asked {type(question).__name__}")
        except TritonKernelError as error:
            value = Failed(status_of(error), error.message, error=error)
        except Exception as error:  # noqa: BLE001 - an answer must come: it is the row of this mode
            value = Failed(status_of(error), one_line(error))
        send(Reply(value, lines.fresh()))


def _loaded(question: Load, tell: Callable[[str], None], lines: KeptLines) -> ModeContender:
    tell(LOADING)
    question.surroundings.take()
    torch: Any = require("torch", "compiling a model")
    manner = question.manner
    if manner.threads is not None:
        torch.set_num_threads(manner.threads)
    if manner.matmul_precision not in ("", torch.get_float32_matmul_precision()):
        torch.set_float32_matmul_precision(manner.matmul_precision)
    torch.manual_seed(manner.seed)
    make, loss = unpack(question.packed)
    workload: ModelWorkload = make()
    stay_on(workload.device_name)  # a factory chooses it
    return ModeContender(workload, loss, question.mode, manner, tell, lines.log)
