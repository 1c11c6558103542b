"""The CPUs that several compile pools share: pools whose problems are being measured go first, with equal shares.

A thread that has compiled asks for the next turn at once, before those that wait have woken. Without shares, a pool
that has all CPUs would therefore keep them as long as it has configs, and the problem on another GPU would wait for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from triton_ops.compile_pool.other_hosts import OtherHosts


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
        devices: How many devices measure at a time, each with a pool that is first.
        elsewhere: Other hosts whose CPUs compile too; None has none.

    Attributes:
        of_one: The processes that one pool is worth having: as many as there are CPUs, and at most twice its share. One
            server forks the processes of all pools, one after another, and would else be what the devices wait for.
    """

    def __init__(self, most: int, spared: int = 0, devices: int = 1, *, elsewhere: OtherHosts | None = None) -> None:
        self.most, self.elsewhere = max(1, most), elsewhere
        self.of_one = min(self.most, -(-2 * self.most // max(1, devices)))
        self._later = max(1, self.most - spared)
        self._running: Counter[Member] = Counter()
        self._waiting: Counter[Member] = Counter()
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
                    _take_one(self._running, member)
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
        self._waiting[member] += 1
        try:
            while not (self._closed or member.closed):
                if self._may_begin(member):
                    self._running[member] += 1
                    return True
                self._changed.wait()
        finally:
            _take_one(self._waiting, member)
            if self._running.total() < self.most:  # others may have waited for this one
                self._changed.notify_all()
        return False

    def _may_begin(self, member: Member) -> bool:
        """Whether there is a CPU, and nobody waits who goes before this pool: a first one, or one that has fewer."""
        if self._running.total() >= (self.most if member.first else self._later):
            return False
        own = self._running[member]
        return not any(
            other.first > member.first or (other.first == member.first and self._running[other] < own)
            for other in self._waiting
            if not other.closed
        )


def _take_one(counts: Counter[Member], member: Member) -> None:
    """Count one less; a member of which none is left is forgotten."""
    counts[member] -= 1
    if not counts[member]:
        del counts[member]
