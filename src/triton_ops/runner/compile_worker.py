"""A process that compiles: loads one kernel once, then turns configs into `Compiled`, one after another.

Started by `runner.compile`, with every GPU hidden; what compilers print goes nowhere. When its parent is gone, however
that ended, it ends itself with whatever it started, such as a ptxas that does not come back.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from triton_ops._optional import require
from triton_ops.analysis import examine
from triton_ops.backend import Arguments, TritonKernel, unpack
from triton_ops.backend.offline import described
from triton_ops.exceptions import CacheError, TargetError, TritonKernelError
from triton_ops.hardware import Target
from triton_ops.runner.child import Surroundings, die_with
from triton_ops.runner.locate import Location
from triton_ops.runner.reload import reloaded

working: list[int] = []
"""The process that this one compiles for; empty in a process that does not compile for another one."""

_NICENESS = 5  # compilers give way to the process that measures


@dataclass(frozen=True)
class Start:
    """What a compiling process needs to know, sent once.

    Attributes:
        kernel: Where the JIT function stands, or itself as bytes.
        text: What it must be there: `TritonKernel.text`.
        arguments: Pickled `Arguments`, tensors as stand-ins; read after the kernel's modules are loaded.
        target: What to compile for.
        surroundings: What its code sees; this process' own modules are imported before.
    """

    kernel: Location | bytes
    text: str
    arguments: bytes
    target: Target
    surroundings: Surroundings = field(default_factory=Surroundings.here)


def main() -> None:
    """Answer until the connection ends: first None or the reason why the kernel cannot be loaded, then configs."""
    connection, parent = Connection(int(sys.argv[2])), int(sys.argv[3])
    working.append(parent)
    die_with(parent)
    os.nice(_NICENESS)
    for name in ("torch", "triton"):
        require(name, "compiling")
    start: Start = connection.recv()
    start.surroundings.take()
    try:
        kernel, arguments = _loaded(start)
    except TritonKernelError as error:
        connection.send(error if isinstance(error, TargetError) else TargetError(error.message, hint=error.hint))
        return
    connection.send(None)
    while True:
        try:
            config = connection.recv()
        except EOFError:
            return
        try:
            connection.send(examine(kernel, config, arguments, start.target))
        except CacheError as error:
            connection.send(error)


def _loaded(start: Start) -> tuple[TritonKernel, Arguments]:
    found = unpack(start.kernel) if isinstance(start.kernel, bytes) else reloaded(start.kernel)
    kernel = TritonKernel(found, _no_grid)
    if kernel.text != start.text:
        raise TargetError(
            f"{kernel.name} is another kernel in another process, or has other constants",
            hint="let its module define the same whenever it is imported",
        )
    try:
        return kernel, described(pickle.loads(start.arguments))
    except Exception as error:
        raise TargetError(
            f"the arguments of {kernel.name} cannot be made in another process: {type(error).__name__}: {error}"
        ) from error


def _no_grid(_meta: Any) -> tuple[int, ...]:
    raise AssertionError("nothing is launched here")
