"""The fork server: a process that imports what compilers need, and forks compiling processes; imports are done once.

The fork server never sees a GPU and never runs the user's code, so it has one thread when it forks. A process that it
forks leads a process group of its own, and has a connection to the pool and a file for what it writes to stderr.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

from triton_ops import settings
from triton_ops.backend.offline import compiler_environment
from triton_ops.hardware import Target
from triton_ops.processes.child import command

FORK, CODE = b"f", b"c"
"""Questions: for a new process with the two descriptors that come along; for the exit code of one."""
QUESTION, ANSWER = struct.Struct("<cq"), struct.Struct("<q")
RUNNING = 1 << 20  # no exit code
_START_TIMEOUT_S = 120.0  # imports, on a machine whose disk is cold and whose cores are all taken
_LOOK_S = 0.005


class ForkServer:
    """Forks processes until it is closed; safe to share among threads.

    Args:
        imports: A package to import beside Triton; empty for none.
        target: What will be compiled for.

    Raises:
        OSError, DeviceError: No process can be started.
    """

    def __init__(self, imports: str, target: Target) -> None:
        self._lock = threading.Lock()
        with contextlib.ExitStack() as undo:
            self._errors = undo.enter_context(tempfile.TemporaryFile())
            ours, theirs = socket.socketpair()
            self._socket = undo.enter_context(ours)
            self._socket.settimeout(_START_TIMEOUT_S)
            with theirs:
                self._process = subprocess.Popen(
                    command("triton_ops.compile_pool.compiler", theirs.fileno(), os.getpid(), imports, target.arch),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    pass_fds=(theirs.fileno(),),
                    env=settings.for_child(compiler_environment()),
                    start_new_session=True,
                )
            undo.pop_all()

    def fork(self) -> Child:
        """A new process that waits to be asked.

        Raises:
            OSError: No more files can be opened.
            EOFError: The fork server is gone, or did not get through its imports; `last_line` tells more.
        """
        here, there = Pipe()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        try:
            with there:
                pid = self._asked(FORK, 0, (there.fileno(), errors.fileno()))
        except BaseException:
            here.close()
            errors.close()
            raise
        return Child(self, pid, here, errors)

    def code_of(self, pid: int) -> int | None:
        """The exit code of a process, or minus its signal, as of `subprocess`; None while it runs.

        Raises:
            EOFError: The fork server is gone.
        """
        found = self._asked(CODE, pid)
        return None if found == RUNNING else found

    def last_line(self) -> str:
        """The last that the fork server itself wrote to stderr; empty if nothing."""
        return last_line(self._errors)

    def kill(self) -> None:
        """End it, and wait for that; processes it has forked end a moment later, and questions at once."""
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End it, and give back what it held here."""
        self.kill()
        with self._lock:  # who is at a question learns that there is no answer first
            self._socket.close()
            self._errors.close()

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._process.poll() is None

    def _asked(self, question: bytes, about: int, descriptors: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                socket.send_fds(self._socket, [QUESTION.pack(question, about)], descriptors)
                answer = self._socket.recv(ANSWER.size)
            except OSError:
                answer = b""
            if len(answer) < ANSWER.size:
                self.kill()  # if it is late, its answer must not be taken for the next one
                raise EOFError("the process that starts compilers is gone")
        return int(ANSWER.unpack(answer)[0])


class Child:
    """A process that the fork server has forked.

    Attributes:
        connection: To ask it questions.
        errors: What it wrote to stderr.
    """

    def __init__(self, server: ForkServer, pid: int, connection: Connection[Any, Any], errors: IO[bytes]) -> None:
        self.connection, self.errors = connection, errors
        self._fork_server, self._pid = server, pid
        self._code: int | None = None
        self._lost = False

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or minus its signal; None if it still runs after so long, or nobody can tell."""
        until = time.monotonic() + seconds
        while self._code is None and not self._lost:
            try:
                self._code = self._fork_server.code_of(self._pid)
            except EOFError:
                self._lost = True  # the fork server is gone, and takes its processes with it
            if time.monotonic() >= until:
                break
            if self._code is None:
                time.sleep(_LOOK_S)
        return self._code

    def signal(self, number: int) -> None:
        """Send it, and everything that it started, a signal; nothing once its end was seen."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def last_line(written: IO[bytes], most_bytes: int = 400) -> str:
    """The last line in a file."""
    size = written.seek(0, os.SEEK_END)
    written.seek(max(0, size - most_bytes))
    lines = written.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
