"""The compiling processes: each loads one compiler once, then turns its configs into `Compiled`, one after another.

They are forked from a fork server, whose program is `main` here and which sees no GPU. What compilers print to stdout
is discarded.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Compiler, PackedCompiler
from triton_ops.exceptions import CacheError, TargetError, TritonKernelError
from triton_ops.processes import ForkRequests, Surroundings
from triton_ops.space import Config

compiles_for: list[int] = []
"""The id of the process for which this process compiles; empty in a process that does not compile for another one."""

_NICENESS = 5  # compilers give way to the process that measures


@dataclass(frozen=True, kw_only=True)
class Start:
    """The first message to a compiling process, which imports its own modules before it takes over the surroundings."""

    packed: PackedCompiler
    surroundings: Surroundings


@dataclass(frozen=True)
class LaunchRequest:
    """The question to make launches ready; `config` is one that was compiled, and serves for all of the kernel."""

    config: Config


@dataclass(frozen=True)
class WorkRequest:
    """The question for the work of a config's launches, as of `CompilePool.read`."""

    config: Config
    contents: Mapping[str, Sequence[int]]


def main() -> None:
    """The program of the fork server: ready what compilers need, then answer questions until the socket is closed."""
    requests = ForkRequests()
    compiles_for.append(requests.parent)
    os.nice(_NICENESS)
    needs = pickle.loads(bytes.fromhex(sys.argv[4]))
    needs.ready()
    gc.freeze()  # forked processes then do not copy the imported objects
    requests.answer(serve)


def serve(connection: Any) -> None:
    """Load the compiler, then answer questions until the connection is closed.

    The first answer says how the loading ended: None, or the error because of which no question can be answered.
    """
    start: Start = connection.receive()
    start.surroundings.take()
    try:
        compiler = start.packed.load()
    except TritonKernelError as error:
        connection.send(error if isinstance(error, TargetError) else TargetError(error.message, hint=error.hint))
        return
    connection.send(None)
    while True:
        try:
            question = connection.receive()
        except EOFError:
            return
        connection.send(_answer(question, compiler))


def _answer(question: Config | LaunchRequest | WorkRequest, compiler: Compiler) -> Any:
    if isinstance(question, WorkRequest):
        return compiler.work(question.config, question.contents)
    if isinstance(question, LaunchRequest):
        with contextlib.suppress(Exception):  # the process that launches meets the same error, and reports it
            compiler.ready_launch(question.config)
        return None
    try:
        return compiler.compile(question)
    except (CacheError, TargetError) as error:
        return error
