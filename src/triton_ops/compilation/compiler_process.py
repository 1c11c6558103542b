"""The processes that compile: what they are asked, and what they answer.

Each process leads a process group of its own, so that it can be killed together with a compiler that hangs, and so that
Ctrl-C in the terminal reaches only the process that tunes. The processes are forked from a separate program, `main`
here, and not from the process that tunes: they run no script of the user's and never have a GPU context. What compilers
print to stdout is discarded.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from triton_ops import kernel_ir
from triton_ops.backend import CandidateError, Compiler, CompilerNeeds, PackedCompiler
from triton_ops.exceptions import CacheError, TargetError, TritonKernelError
from triton_ops.processes import ForkedProcess, ForkRequests, ForkServer, GarbledError, Surroundings
from triton_ops.space import Config
from triton_ops.values import Compiled, Status

_NICENESS = 5  # compilers give way to the process that measures
compiles_for: list[int] = []
"""The id of the process for which this process compiles; empty in a process that does not compile for another one."""


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

    def answer(self, compiler: Compiler) -> kernel_ir.KernelWork:
        """What the compiler says."""
        return compiler.work(self.config, self.contents)


@dataclass(frozen=True)
class ClassRequest:
    """The question for the class of a compiled config, as of `CompilePool.bit_class`."""

    config: Config

    def answer(self, compiler: Compiler) -> kernel_ir.BitClass:
        """What the compiler says."""
        return compiler.bit_class(self.config)


_READING = (WorkRequest, ClassRequest)
"""Questions whose answer may be a text: why it cannot be told."""


def main() -> None:
    """The program of the fork server: ready what compilers need, then answer questions until the socket is closed."""
    requests = ForkRequests()
    compiles_for.append(requests.parent)
    os.nice(_NICENESS)
    pickle.loads(bytes.fromhex(sys.argv[4])).ready()
    gc.freeze()  # forked processes then do not copy the imported objects
    requests.answer(serve)


def serve(connection: Any) -> None:
    """Load the compiler, of which the first answer tells: None, or why it cannot be; then answer each question."""
    start: Start = connection.receive()
    start.surroundings.take()
    try:
        compiler = start.packed.load()
    except TritonKernelError as error:
        # One type, by which the pool tells this answer from others.
        connection.send(error if isinstance(error, TargetError) else TargetError(error.message, hint=error.hint))
        return
    connection.send(None)
    for question in connection.messages():
        connection.send(_answer(question, compiler))


def _answer(question: Config | LaunchRequest | WorkRequest | ClassRequest, compiler: Compiler) -> Any:
    if isinstance(question, LaunchRequest):
        with suppress(Exception):  # the process that launches meets the same error, and reports it
            compiler.ready_launch(question.config)
        return None
    try:
        if isinstance(question, _READING):
            return question.answer(compiler)
        return compiler.compile(question)
    except (CacheError, TargetError) as error:
        return error.message if isinstance(question, _READING) else error
    except Exception as error:  # noqa: BLE001 - a front end may raise anything: no crash of its process
        failure = CandidateError.of(error, Status.COMPILE)
        return Compiled(question, failure.status, str(failure)) if isinstance(question, Config) else str(failure)


def compiler_server(needs: Hashable) -> ForkServer:
    """A fork server of compiling processes with these needs."""
    return ForkServer(
        "triton_ops.compilation.compiler_process", pickle.dumps(needs).hex(), changes=CompilerNeeds.environment()
    )


ANSWERS: dict[type, Callable[[], tuple[type, ...]]] = {
    Start: lambda: (type(None), TargetError), LaunchRequest: lambda: (type(None),),
    WorkRequest: lambda: (kernel_ir.KernelWork, str),  # its import takes NumPy
    ClassRequest: lambda: (kernel_ir.BitClass, str),
    Config: lambda: (Compiled, CacheError, TargetError),
}  # fmt: skip


def ask(process: ForkedProcess, question: Any, timeout_s: float) -> Any:
    """The answer of a process; as of `ForkedProcess.ask`, and `GarbledError` for an answer to another question."""
    answer = process.ask(question, timeout_s)
    if not isinstance(answer, ANSWERS[type(question)]()):
        raise GarbledError.other(answer)
    return answer
