"""The CPUs that several compile pools share: the pool whose problem is being measured goes first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Member(Protocol):
    """A compile pool that shares CPUs with others.

    Attributes:
        first: Whether its configs go before those of pools that are not first.
        closed: Whether it compiles nothing more.
    """

    first: bool
    closed: bool


class SharedCpus:
    """A number of compilations that may run at a time, over all pools that share these CPUs; safe among threads.

    Args:
        most: How many compilations run at a time.
        spared: How many of these are left to pools that are first.
    """

    def __init__(self, most: int, spared: int = 0) -> None:
        self.most = max(1, most)
        self._later = max(1, self.most - spared)
        self._running = self._waiting_first = 0
        self._changed = threading.Condition()
        self._closed = False

    @contextmanager
    def turn(self, member: Member) -> Iterator[bool]:
        """Wait for a CPU, and hold it inside the block; gives whether there is one: not once it is closed."""
        with self._changed:
            begun = self._begins(member)
        try:
            yield begun
        finally:
            if begun:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def promote(self, member: Member) -> None:
        """Put a pool first: its problem is measured now."""
        with self._changed:
            member.first = True
            self._changed.notify_all()

    def look(self) -> None:
        """Have those that wait look again whether their pool was closed."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let nothing more begin; whoever waits is told."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _begins(self, member: Member) -> bool:
        while not (self._closed or member.closed):
            first = member.first
            if self._running < (self.most if first else self._later) and (first or not self._waiting_first):
                self._running += 1
                return True
            self._waiting_first += first
            try:
                self._changed.wait()
            finally:
                self._waiting_first -= first
        return False
