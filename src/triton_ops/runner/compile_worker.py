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
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend.offline import described
from triton_ops.exceptions import CacheError, TargetError
from triton_ops.hardware import Target
from triton_ops.runner.child import die_with, search_path, take_path
from triton_ops.runner.locate import Location
from triton_ops.runner.reload import reloaded

working: list[int] = []
"""The process that this one compiles for; empty in a process that does not compile for another one."""

_NICENESS = 5  # compilers give way to the process that measures


@dataclass(frozen=True)
class Start:
    """What a compiling process needs to know, sent once.

    Attributes:
        location: The JIT function.
        arguments: Pickled `Arguments`, tensors as stand-ins; read after the kernel's modules are loaded.
        target: What to compile for.
        path: Where the kernel's modules are found; this process' own are imported before.
    """

    location: Location
    arguments: bytes
    target: Target
    path: list[str] = field(default_factory=search_path)


def main() -> None:
    """Answer until the connection ends: first None or the reason why the kernel cannot be loaded, then configs."""
    connection, parent = Connection(int(sys.argv[2])), int(sys.argv[3])
    working.append(parent)
    die_with(parent)
    os.nice(_NICENESS)
    for name in ("torch", "triton"):
        require(name, "compiling")
    start: Start = connection.recv()
    take_path(start.path)
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
        try:
            connection.send(examine(kernel, config, arguments, start.target))
        except CacheError as error:
            connection.send(error)


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
