"""A process that compiles: loads one kernel once, then turns configs into `Compiled`, one after another.

Started by `runner.compile`, with every GPU hidden; what compilers print goes nowhere. When its parent is gone, however
that ended, it ends itself with whatever it started, such as a ptxas that does not come back.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from triton_ops.analysis import examine
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend.offline import described
from triton_ops.exceptions import TargetError
from triton_ops.hardware import Target
from triton_ops.runner.locate import Location
from triton_ops.runner.reload import reloaded

working: list[int] = []
"""The process that this one compiles for; empty in a process that does not compile for another one."""

_LOOK_S = 0.25  # how often a process asks whether its parent is still there
_NICENESS = 5  # compilers give way to the process that measures


@dataclass(frozen=True)
class Start:
    """What a compiling process needs to know, sent once.

    Attributes:
        location: The JIT function.
        arguments: Pickled `Arguments`, tensors as stand-ins; read after the kernel's modules are loaded.
        target: What to compile for.
    """

    location: Location
    arguments: bytes
    target: Target


def main() -> None:
    """Answer until the connection ends: first None or the reason why the kernel cannot be loaded, then configs."""
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    working.append(parent)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a compiler that aborts is a result, not a file of gigabytes
    os.nice(_NICENESS)
    start: Start = connection.recv()
    try:
        kernel, arguments = _loaded(start)
    except TargetError as error:
        connection.send(error)
        return
    connection.send(None)
    while True:
        try:
            config = connection.recv()
        except EOFError:
            return
        connection.send(examine(kernel, config, arguments, start.target))


def _loaded(start: Start) -> tuple[TritonKernel, Arguments]:
    kernel = TritonKernel(reloaded(start.location), _no_grid)
    try:
        return kernel, described(pickle.loads(start.arguments))
    except Exception as error:
        raise TargetError(
            f"the arguments of {kernel.name} cannot be made in another process: {type(error).__name__}: {error}"
        ) from error


def _no_grid(_meta: Any) -> tuple[int, ...]:
    raise AssertionError("nothing is launched here")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
