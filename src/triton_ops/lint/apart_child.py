"""The process that reads or runs kernels for another one: `python -c ... main()`."""

from __future__ import annotations

import contextlib
import os
import resource
import sys

from triton_ops import settings
from triton_ops.backend import one_line, unpack
from triton_ops.base import require
from triton_ops.exceptions import MissingDependencyError, TargetError, TritonKernelError
from triton_ops.lint.apart import LintRequest
from triton_ops.lint.engine import lint_here
from triton_ops.lint.findings import LintReport
from triton_ops.lint.run.child import run_here
from triton_ops.lint.run.record import WatchRequest
from triton_ops.lint.steps import STEPS
from triton_ops.processes import ChildsEnd, Leftovers, StepStarted, die_with, import_heavy

_MOST_BYTES = 4 << 30  # of memory that is written, for all that a file computes


def main() -> None:
    """Answer requests until the pipe is closed: with a report, an error of the lint, or the record of a run."""
    questions, answers, parent = (int(word) for word in sys.argv[2:5])
    die_with(parent, Leftovers.own(), expendable=True)
    with contextlib.suppress(MissingDependencyError):  # which is the answer to every request
        import_heavy(sys.argv[6:], "reading kernels")
    me, connection = os.getpid(), ChildsEnd(questions, answers)

    def send(message: object) -> None:
        if os.getpid() != me:  # a file has forked this process
            os._exit(1)
        connection.send(message)

    STEPS.tell = lambda step: send(StepStarted(step))
    environment, folder = dict(settings.environment()), settings.current_folder()
    while True:
        try:
            request = connection.receive()
        except EOFError:
            return
        send(run_here(request) if isinstance(request, WatchRequest) else _answer(request))
        settings.restore_environment(environment)  # for the next file
        if folder is not None:
            os.chdir(folder)


def _answer(request: LintRequest) -> LintReport | TritonKernelError:
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    STEPS.omissions = request.omissions
    request.surroundings.take()
    try:
        require("triton", "reading kernels")
        return lint_here(unpack(request.packed), rules=request.rules, gpu=request.gpu, run=request.run)
    except TritonKernelError as error:
        return error
    except (RecursionError, MemoryError) as error:
        return TargetError(f"it is nested too deeply, or too large, to be read: {one_line(error)}")
