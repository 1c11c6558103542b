"""The pool's side of one compiling process, which answers one question at a time.

So a pool that compiles few configs at a time has few processes, however many threads wait for their turns.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable
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

    def ask(self, question: Any, timeout_s: float) -> Any:
        """The answer of the process to a question; seconds in which this process was paused do not count.

        Raises:
            GarbledError: The process wrote what is no answer, or none to this question.
            TimeoutError: The answer did not come within `timeout_s` seconds.
            EOFError, OSError: The process is gone.
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
        """How the process ended, in words: its signal or exit code, and the last line it wrote to stderr."""
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
        """Whether a signal that people and systems send has ended the process, or the fork server and so the process.

        That is no crash of a compiler.
        """
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
        self.kill()
        self._child.channel.close()
        self._child.errors.close()


class AtHand:
    """Processes that wait, and the one that each thread uses now; safe among threads."""

    def __init__(self) -> None:
        self._waiting: deque[CompilingProcess] = deque()
        self._own = threading.local()

    def process(self, make: Callable[[], CompilingProcess]) -> CompilingProcess:
        """This thread's process: the one that it uses, else the one that was used last, else a new one.

        Raises:
            Exception: Whatever `make` raises.
        """
        own: CompilingProcess | None = getattr(self._own, "process", None)
        if own is None:
            try:
                own = self._waiting.pop()
            except IndexError:
                own = make()
            self._own.process = own
        return own

    def leave(self) -> None:
        """This thread uses its process no more, if it has one."""
        own: CompilingProcess | None = getattr(self._own, "process", None)
        self._own.process = None
        if own is not None:
            self._waiting.append(own)

    def forget(self) -> None:
        """This thread's process has ended."""
        self._own.process = None
