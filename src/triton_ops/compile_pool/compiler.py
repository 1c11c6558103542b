"""Processes that compile: each loads one kernel once, then turns configs into `Compiled`, one after another.

They are forked from a process that `fork_server` starts with every GPU hidden; what compilers print goes nowhere.
When the process that one came from is gone, however that ended, it ends itself with whatever it started, such as a
ptxas that does not come back.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from triton_ops.analysis import examine
from triton_ops.backend import warm_up
from triton_ops.backend.offline import AheadOfTime, rehearse
from triton_ops.compile_pool.fork_server import ANSWER, FORK, QUESTION, RUNNING
from triton_ops.compile_pool.packed_kernel import PackedKernel
from triton_ops.exceptions import CacheError, TargetError, TritonKernelError
from triton_ops.hardware import named_target
from triton_ops.processes.child import Surroundings, die_with, import_heavy
from triton_ops.space import Config

working: list[int] = []
"""The process that this one compiles for; empty in a process that does not compile for another one."""

_LOOK_S = 0.25  # how often it looks whether its parent is still there, should another process hold the connection
_NICENESS = 5  # compilers give way to the process that measures


@dataclass(frozen=True)
class Start:
    """What a compiling process needs to know, sent once.

    Attributes:
        packed: The kernel, its arguments and its target.
        surroundings: What its code sees; this process' own modules are imported before.
    """

    packed: PackedKernel
    surroundings: Surroundings


@dataclass(frozen=True)
class Launcher:
    """Asks for what a launching process needs beside a compiled config; it is the same for all configs."""

    config: Config


def main() -> None:
    """Import what compilers need, then fork one for every question that asks for it, until there are no more."""
    questions, parent = socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
    working.append(parent)
    os.nice(_NICENESS)
    warming = warm_up(launches=False)
    import_heavy(filter(None, ("triton", sys.argv[4])), "compiling")
    with contextlib.suppress(Exception):  # what is wrong with Triton, the first config will tell
        rehearse(named_target(sys.argv[5]))
    warming.join()  # one thread forks
    gc.freeze()  # and what is forked does not copy what there is
    # Not `die_with`: on Linux that ends a process with the thread that started it, which may be any one.
    while os.getppid() == parent:
        if select.select([questions], [], [], _LOOK_S)[0] and not _answered(questions):
            return


def _answered(questions: socket.socket) -> bool:
    """Answer one question of `fork_server.py`; whether there may be more."""
    content, descriptors, _, _ = socket.recv_fds(questions, QUESTION.size, 2)
    if len(content) < QUESTION.size:
        return False
    what, pid = QUESTION.unpack(content)
    if what == FORK:
        fork_server = os.getpid()
        answer = os.fork()
        if not answer:
            questions.close()
            _begin(fork_server, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
    else:
        found, status = os.waitpid(pid, os.WNOHANG)
        answer = os.waitstatus_to_exitcode(status) if found else RUNNING
    questions.sendall(ANSWER.pack(answer))
    return True


def _begin(fork_server: int, connection: int, errors: int) -> NoReturn:
    """What a forked process does, to its end."""
    code = 1
    try:
        os.setsid()
        os.dup2(errors, 2)
        die_with(fork_server)
        serve(Connection(connection))
        code = 0
    except BaseException as error:  # noqa: BLE001 - the end of this process; what forked it must not go on in it
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve(connection: Connection[Any, Any]) -> None:
    """Answer until the connection ends: first None or the reason why the kernel cannot be loaded, then questions."""
    start: Start = connection.recv()
    start.surroundings.take()
    try:
        ahead = start.packed.load()
    except TritonKernelError as error:
        connection.send(error if isinstance(error, TargetError) else TargetError(error.message, hint=error.hint))
        return
    connection.send(None)
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(_answer(question, ahead))


def _answer(question: Config | Launcher, ahead: AheadOfTime) -> Any:
    if isinstance(question, Launcher):
        with contextlib.suppress(Exception):  # what fails is met again, and told, by whoever launches
            ahead.build_launcher(question.config)
        return None
    try:
        seen = examine(ahead, question)
        return replace(seen, launch=ahead.program_key(seen.config, seen.resources if seen.launchable else None))
    except CacheError as error:
        return error
