"""The CPUs that several compile pools share: who has to be quick goes first, and equals have equal shares.

A thread that has compiled asks for the next turn at once. If whoever comes first took it, a pool that has all CPUs
would keep them as long as it has configs, and the problem on another GPU would wait for its end. A turn is therefore
given to a thread that waits, and that one alone is woken: a hundred that look whether it is their turn keep the
interpreter from those that measure.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from triton_ops.compile_pool.other_hosts import OtherHosts


class Member(Protocol):
    """A compile pool that shares CPUs with others.

    Attributes:
        first: Whether its problem is measured now, so that its configs go before those of pools that are not first.
        closed: Whether it compiles nothing more.
        hurried: Says whether proposals wait in it, which go before other pools' previews.
    """

    first: bool
    closed: bool
    hurried: Callable[[], bool]


class _Waiter:
    """A thread that waits for its turn."""

    def __init__(self) -> None:
        self.begins = False
        self._told = threading.Lock()
        self._told.acquire()

    def tell(self, begins: bool) -> None:
        self.begins = begins
        self._told.release()

    def wait(self) -> bool:
        self._told.acquire()
        return self.begins


class SharedCpus:
    """A number of compilations that may run at a time, over all pools that share these CPUs; safe among threads.

    Args:
        most: How many compilations run at a time.
        spared: How many of these are left to pools that are first.
        devices: How many devices measure at a time, each with a pool that is first.
        elsewhere: Other hosts whose CPUs compile too; None has none.

    Attributes:
        share: The CPUs for each device.
        of_one: The processes that one pool is worth having: as many as there are CPUs, and at most twice its share. One
            server forks the processes of all pools, one after another, and would else be what the devices wait for.
    """

    def __init__(self, most: int, spared: int = 0, devices: int = 1, *, elsewhere: OtherHosts | None = None) -> None:
        self.most, self.elsewhere = max(1, most), elsewhere
        self.share = max(1, self.most // max(1, devices))
        self.of_one = min(self.most, -(-2 * self.most // max(1, devices)))
        self._later = max(1, self.most - spared)
        self._running: Counter[Member] = Counter()
        self._waiting: dict[Member, deque[_Waiter]] = {}
        self._guard = threading.Lock()
        self._closed = False

    @contextmanager
    def turn(self, member: Member) -> Iterator[bool]:
        """Wait for a CPU, and hold it inside the block; gives whether there is one: not once it is closed."""
        waiter = _Waiter()
        with self._guard:
            self._waiting.setdefault(member, deque()).append(waiter)
            self._give()
        begun = waiter.wait()
        try:
            yield begun
        finally:
            if begun:
                with self._guard:
                    self._running[member] -= 1
                    self._give()

    def promote(self, member: Member) -> None:
        """Put a pool first: its problem is measured now."""
        with self._guard:
            member.first = True
            self._give()

    def look(self) -> None:
        """Look again whether a pool was closed, whose threads wait no more then."""
        with self._guard:
            self._give()

    def close(self) -> None:
        """Let nothing more begin; whoever waits is told."""
        with self._guard:
            self._closed = True
            self._give()

    def _give(self) -> None:
        """Give the CPUs that are free to those whose turn it is, and have the threads of closed pools go on."""
        for over in [each for each in self._waiting if self._closed or each.closed]:
            for waiter in self._waiting.pop(over):
                waiter.tell(begins=False)
        while (member := self._next()) is not None:
            self._running[member] += 1
            waiting = self._waiting[member]
            waiting.popleft().tell(begins=True)
            if not waiting:
                del self._waiting[member]
        self._running += Counter()  # forgets pools of which nothing runs

    def _next(self) -> Member | None:
        """Whose turn it is: of pools that are first, then of those with proposals, the one that has the fewest CPUs."""
        taken = self._running.total()
        able = [each for each in self._waiting if taken < (self.most if each.first else self._later)]
        return min(able, key=lambda each: (not each.first, not each.hurried(), self._running[each]), default=None)
