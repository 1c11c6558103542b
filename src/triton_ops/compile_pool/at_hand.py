"""The compiling processes of one pool: each of its threads uses one at a time, and leaves it to whichever is next.

So a pool that compiles few configs at a time has few processes, however many threads wait for their turns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from triton_ops.compile_pool.compiling_process import CompilingProcess


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

    def have_one(self, make: Callable[[], CompilingProcess]) -> None:
        """Make a process if none waits, as `process` does."""
        self.process(make)
        self.leave()

    def leave(self) -> None:
        """This thread uses its process no more, if it has one."""
        own: CompilingProcess | None = getattr(self._own, "process", None)
        self._own.process = None
        if own is not None:
            self._waiting.append(own)

    def forget(self) -> None:
        """This thread's process has ended."""
        self._own.process = None
