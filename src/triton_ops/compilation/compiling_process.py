"""The pool's side of its compiling processes.

A pool that compiles few configs at a time has few processes, however many threads wait for their turns.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton_ops.compilation.compiler import LauncherRequest, Start, WorkRequest
from triton_ops.compilation.fork_server import ForkServer, last_line
from triton_ops.exceptions import CacheError, TargetError
from triton_ops.kernel_ir import KernelWork
from triton_ops.processes import OUTSIDE, AwakeClock, GarbledError
from triton_ops.values import Compiled

_ANSWERS: dict[type, tuple[type, ...]] = {
    Start: (type(None), TargetError),
    LauncherRequest: (type(None),),
    WorkRequest: (KernelWork, str),
}  # to any other question, a config, what became of it
_EXIT_S = 2.0  # a connection may be closed a moment before its process ends


class CompilingProcess:
    """One compiling process, which answers one question at a time."""

    def __init__(self, server: ForkServer) -> None:
        self._child = server.fork()
        self.closed = False

    def ask(self, question: Any, timeout_s: float) -> Any:
        """The answer of the process to a question; seconds in which this process was paused do not count.

        Raises `GarbledError` for what is no answer to this question, `TimeoutError` for one that does not come in time,
        and `EOFError` or `OSError` where the process is gone.
        """
        self._child.errors.seek(0)
        self._child.errors.truncate()
        clock = AwakeClock()
        self._child.channel.send(question, clock, timeout_s)
        answer = self._child.channel.receive(clock, timeout_s)
        if not isinstance(answer, _ANSWERS.get(type(question), (Compiled, CacheError, TargetError))):
            raise GarbledError.other(answer)
        return answer

    def last_words(self) -> str:
        """The end of the process in words: its signal or exit code, and the last line it wrote to stderr."""
        code = self._child.wait(_EXIT_S)
        self.kill()
        if code is None:
            how = "is gone"
        else:
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += ", as the system does when memory runs out"
        line = last_line(self._child.errors)
        return f"the compiler's process {how}" + (f": {line}" if line else "")

    @property
    def ended_from_outside(self) -> bool:
        """Tell whether a signal of people or systems ended the process, or its fork server: no crash of a compiler."""
        return -(self._child.wait(0) or 0) in OUTSIDE or self._child.lost

    def signal(self, number: int) -> None:
        """Send a signal to the process and to everything that it has started."""
        self._child.signal(number)

    def kill(self) -> None:
        """Kill the process with everything that it has started, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._child.wait(_EXIT_S)

    def close(self) -> None:
        """Kill the process, and close its connection and its file here."""
        self.closed = True
        self.kill()
        self._child.channel.close()
        self._child.errors.close()


class WaitingProcesses:
    """Processes that wait for their next question; safe among threads."""

    def __init__(self) -> None:
        self._waiting: deque[CompilingProcess] = deque()

    @contextmanager
    def one(self, make: Callable[[], CompilingProcess]) -> Iterator[CompilingProcess]:
        """A process that nobody else uses inside of the block: the one that was used last, else a new one.

        After the block it waits for the next question, unless it was closed.
        """
        try:
            process = self._waiting.pop()
        except IndexError:
            process = make()
        try:
            yield process
        finally:
            if not process.closed:
                self._waiting.append(process)
