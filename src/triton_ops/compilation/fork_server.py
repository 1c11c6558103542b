"""Fork servers: processes that import what compilers need, once, and fork compiling processes.

The fork server never sees a GPU and never runs the user's code, so it has one thread when it forks. Each process that
it forks leads a process group of its own, and has a connection to the pool and a file for its stderr. This module is
the pool's side; the fork server's program is `main` in `compiler.py`.

Pools that are open at the same time and need the same packages and target fork from one server. It is idle when the
last of them has given it back.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import IO, TypeAlias

from triton_ops.backend import compiler_environment
from triton_ops.base import TemporaryFolder
from triton_ops.device import Target
from triton_ops.processes import (
    OUTSIDE,
    AwakeClock,
    Channel,
    IdleProcesses,
    Leftovers,
    command,
    end_family,
    environment,
    file_without_a_name,
    new_mark,
    socket_pair,
)

FORK, CODE = b"f", b"c"
"""The two questions: fork a process, which gets the two descriptors sent along; tell the exit code of a process."""
QUESTION, ANSWER = struct.Struct("<cq"), struct.Struct("<q")
"""A question with the id of a process, 0 with `FORK`; and its answer, the id of the new process or the exit code."""
RUNNING = 1 << 20  # the answer in place of an exit code while a process runs; no exit code is so large
_START_TIMEOUT_S = 120.0  # the first answer waits for the imports, on a slow disk and with all cores busy
_EXIT_S = 2.0  # the socket may be closed a moment before its process ends
_EXIT_CHECK_S = 0.005  # between two questions for the exit code of a process that is about to end


class ForkServer:
    """The pool's handle of the fork server; safe to share among threads.

    `imports` is a package that it imports beside Triton, or empty. `OSError` or `DeviceError` if no process can be
    started.
    """

    def __init__(self, imports: str, target: Target) -> None:
        self._lock = threading.Lock()
        self._family = new_mark()
        self._ended_here = False
        with contextlib.ExitStack() as undo:
            self._temporary = TemporaryFolder()  # of all compilers
            undo.callback(self._temporary.remove)
            self._errors = undo.enter_context(file_without_a_name())
            ours, theirs = socket_pair()
            self._socket = undo.enter_context(ours)
            with theirs:
                self._process = subprocess.Popen(
                    command(
                        "triton_ops.compilation.compiler", theirs.fileno(), os.getpid(), imports, target.arch,
                        leftovers=Leftovers(self._family, self._temporary.path),
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    pass_fds=(theirs.fileno(),),
                    env=environment(compiler_environment(), self._family, self._temporary.path),
                    start_new_session=True,
                )  # fmt: skip
            undo.pop_all()

    def fork(self) -> Child:
        """A new process, which waits for questions on its connection.

        Raises:
            OSError: No more files can be opened.
            EOFError: The fork server is gone, or has not finished its imports in time; `last_line` tells more.
        """
        with contextlib.ExitStack() as undo:
            errors = undo.enter_context(file_without_a_name())
            here, there = map(undo.enter_context, socket_pair())
            with there:
                pid = self._ask(FORK, 0, (there.fileno(), errors.fileno()))
            undo.pop_all()
        descriptor = here.detach()
        return Child(self, pid, Channel(descriptor, descriptor), errors)

    def code_of(self, pid: int) -> int | None:
        """The exit code of a process, or minus the number of the signal that ended it; None while it runs."""
        answer = self._ask(CODE, pid)
        return None if answer == RUNNING else answer

    def last_line(self) -> str:
        """The last line that the fork server itself wrote to stderr; empty if it wrote nothing."""
        return last_line(self._errors)

    def kill(self) -> None:
        """Kill the fork server and wait until it is gone; the processes that it has forked end a moment later.

        A question that is under way ends with EOFError.
        """
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                self._ended_here = True
                end_family(self._family)  # what hides its mark is found below the process only while that lives
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Kill the fork server with all that it has started; close its socket, and remove its files."""
        self.kill()
        end_family(self._family)
        self._temporary.remove()
        with self._lock:  # a thread that waits for an answer first learns that there is none
            self._socket.close()
            self._errors.close()

    @property
    def alive(self) -> bool:
        """Tell whether the fork server runs."""
        return self._process.poll() is None

    @property
    def ended_from_outside(self) -> bool:
        """Tell whether a signal that people and systems send has ended the fork server, and not this process."""
        return not self._ended_here and -(self._process.poll() or 0) in OUTSIDE

    def _ask(self, question: bytes, about: int, descriptors: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                socket.send_fds(self._socket, [QUESTION.pack(question, about)], descriptors)
                return self._answer()
            except TimeoutError:
                self.kill()  # a late answer must not be taken for the answer to the next question
            except (OSError, EOFError):
                with contextlib.suppress(subprocess.TimeoutExpired):  # how it ended is asked for later
                    self._process.wait(_EXIT_S)
                self.kill()
        raise EOFError("the process that starts compilers is gone")

    def _answer(self) -> int:
        """The answer to the question that was sent; `TimeoutError` if it is late, else `EOFError` or `OSError`."""
        arrived = select.poll()
        arrived.register(self._socket, select.POLLIN)
        if not AwakeClock().wait(arrived, _START_TIMEOUT_S):
            raise TimeoutError
        answer = self._socket.recv(ANSWER.size)
        if len(answer) < ANSWER.size:
            raise EOFError
        return int(ANSWER.unpack(answer)[0])


class Child:
    """The pool's handle of one process that the fork server has forked.

    Its stderr is in `errors`; `lost` is whether the fork server was found to be gone, with which its processes end.
    """

    def __init__(self, server: ForkServer, pid: int, channel: Channel, errors: IO[bytes]) -> None:
        self.channel, self.errors = channel, errors
        self._fork_server, self._pid = server, pid
        self._code: int | None = None
        self.lost = False

    def wait(self, seconds: float) -> int | None:
        """Wait for the end of the process; its exit code, or minus the number of the signal that ended it.

        None if it still runs after so many seconds, or if the fork server is gone and cannot tell.
        """
        clock = AwakeClock()
        while self._code is None and not self.lost:
            try:
                self._code = self._fork_server.code_of(self._pid)
            except EOFError:
                self.lost = True
            if clock.now() >= seconds:
                break
            if self._code is None:
                time.sleep(_EXIT_CHECK_S)
        return self._code

    def signal(self, number: int) -> None:
        """Send a signal to the process and to everything that it has started; to nothing once its end is known."""
        if self._code is None and not self.lost:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def last_line(output: IO[bytes], most_bytes: int = 400) -> str:
    """The last line in a file, from its last `most_bytes` bytes; empty if the file is."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - most_bytes))
    lines = output.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


ServerNeeds: TypeAlias = tuple[str, Target]  # what it imports beside Triton, and what it compiles for

_MOST = 2  # such as one with torch and one without
_idle: IdleProcesses[ForkServer] = IdleProcesses(methodcaller("close"), _MOST)
holds, drop_idle_servers = _idle.holds, _idle.drop


@dataclass(eq=False)
class _Loan:
    """A fork server that pools use now; `pools` is their number."""

    server: ForkServer
    needs: ServerNeeds
    inherited: Hashable
    pools: int = 1


_guard = threading.Lock()
_loans: list[_Loan] = []


def borrow(needs: ServerNeeds, make: Callable[[], ForkServer]) -> ForkServer:
    """A fork server with these needs: one that other pools use, or one that was left, or else a new one."""
    here = _idle.inherited()
    with _guard:
        for each in _loans:
            if (each.needs, each.inherited) == (needs, here) and each.server.alive:
                each.pools += 1
                return each.server
        server = _idle.take(needs)
        if server is not None and not server.alive:
            server.close()
            server = None
        server = server or make()
        _loans.append(_Loan(server, needs, here))
        return server


def give_back(server: ForkServer) -> None:
    """A pool needs a server no more; after the last one, it is left to the next pool, or closed if it has ended."""
    with _guard:
        loan = next((each for each in _loans if each.server is server), None)
        if loan is None:
            return
        loan.pools -= 1
        if loan.pools:
            return
        _loans.remove(loan)
    if server.alive:
        _idle.put(server, loan.needs, loan.needs)
    else:
        server.close()


def is_shared(server: ForkServer) -> bool:
    """Tell whether several pools use a server now."""
    with _guard:
        return any(each.server is server and each.pools > 1 for each in _loans)


def _forget() -> None:
    """Forget the servers, in a forked child, whose parent's they are."""
    global _guard, _loans
    _guard, _loans = threading.Lock(), []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
