"""Processes that are no children of the program that starts them: those that wait for a task which may never come.

A program may wait for all of its children, and would wait for these too. The parent of such a process is its keeper,
which the program has started and which has left it at once. The keeper says how the process ended, and ends it when the
program ends or changes, when it is told to, and after some time unless it is told that the task has come.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from triton_ops.base import Process, cached_property
from triton_ops.processes import child

_LOOK_MS = 500.0  # between two looks whether the program has closed the connection
_NUMBER = struct.Struct("<q")  # what a keeper tells: the number of the process, and later its exit code


class Apart:
    """The handle of such a process, with what its user needs of a `Popen`.

    `words` and `leftovers` are as in `child.command`, and `output`, `files` and `env` as in `Popen`. A program that
    adopts orphans, as the first one of a container does, becomes the parent of the keeper.

    Cost: the start of an interpreter, 20 ms.
    """

    def __init__(
        self, module: str, *words: object, leftovers: child.Leftovers, life_s: float, output: int,
        files: Sequence[int], env: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._connection, theirs = child.socket_pair()
        self.returncode: int | None = None
        with theirs:
            # It returns at once: the interpreter forks, and ends before it imports anything (`_APART`).
            subprocess.run(
                child.command(module, *words, leftovers=leftovers, keeper=(theirs.fileno(), life_s)),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(*files, theirs.fileno()), env=env,
                start_new_session=True, check=False,
            )  # fmt: skip

    @cached_property
    def pid(self) -> int:
        """Its number, which is no other process's as long as this handle is not closed; 0 if it could not begin."""
        return max(0, self._told() or 0)

    def poll(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = self._told(waits=False) if self.pid else -signal.SIGKILL
        return self.returncode

    def wait(self) -> None:
        """Wait until it has ended, and close the connection with its keeper."""
        if self.poll() is None:
            self.returncode = self._told()
        self._connection.close()

    def stay(self) -> bool:
        """Have it stay for a task; False if it has ended, or if this program may not look at it, as under Landlock."""
        with contextlib.suppress(OSError):
            os.write(self._connection.fileno(), b"s")
            is_told = bool(Process(self.pid).rights["ns/user"]) or not Process.numbers_are_own()
            return self.poll() is None and is_told
        return False

    def kill(self) -> None:
        """Have its keeper kill it with all that it has started."""
        # A copy of the descriptor, since a socket object closes the one that it was given.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)

    def _told(self, *, waits: bool = True) -> int | None:
        """The next number that the keeper tells; that of a kill if the keeper is gone.

        Unless it `waits` for a number, None if there is none yet.
        """
        content = b""
        with contextlib.suppress(OSError):  # the keeper was killed, or this handle was closed
            while not self._connection.ready(select.POLLIN, _LOOK_MS if waits else 0.0):
                if not waits:
                    return None
            content = os.read(self._connection.fileno(), _NUMBER.size)
        return int(_NUMBER.unpack(content)[0]) if content else -signal.SIGKILL


def main() -> None:
    """Run a program in a process of its own, and be its keeper."""
    manner = json.loads(sys.argv[1])
    descriptor, life_s, module = manner["keeper"]
    # Before the fork, so that an early end of the child is kept for `sigtimedwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    if not (pid := os.fork()):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.close(descriptor)
        os.setsid()
        importlib.import_module(module).main()
        return
    try:
        os.dup2(descriptor, 0)
        os.closerange(1, child.MOST)  # an open end here would keep pipes open
        _keep(pid, socket.socket(fileno=0), child.Program(*manner["program"]), time.monotonic() + life_s)
    finally:
        child.Leftovers.own().clear_away(pid)
        os._exit(0)


def _keep(pid: int, connection: socket.socket, program: child.Program, until: float) -> None:
    """Tell the number of a process and how it ends; return when it is to be killed, or when nobody needs its number."""
    connection.setblocking(False)
    connection.send(_NUMBER.pack(pid))
    has_ended = False
    while not program.changed and time.monotonic() < until:
        # It is not reaped (WNOWAIT), so that its number stays its own until its group is cleared away.
        if not has_ended and (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            has_ended = True
            connection.send(_NUMBER.pack(ended.si_status * (1 if ended.si_code == os.CLD_EXITED else -1)))
        with contextlib.suppress(BlockingIOError):
            if not connection.recv(1):
                return
            until = math.inf
        signal.sigtimedwait({signal.SIGCHLD}, child.WATCH_S)
