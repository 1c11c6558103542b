"""The place of one process that a tune has left idle, for the next tune of this program if it follows soon.

What is kept must do for the next tune as a new one would: it is taken for the same needs only, and in the same
environment and folder as it was started in, which it has inherited.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from triton_ops import settings

_IDLE_S = 15.0

Kept = TypeVar("Kept")


class IdleSlot(Generic[Kept]):
    """One process that waits; safe to share among threads. It is ended with this process at the latest.

    Args:
        end: Ends what is kept.
    """

    def __init__(self, end: Callable[[Kept], object]) -> None:
        self._end = end
        self._guard = threading.Lock()
        self._kept: Kept | None = None
        self._needs: Hashable = None
        self._timer: threading.Timer | None = None
        self._resting: threading.Thread | None = None
        atexit.register(self.drop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.abandon)

    def put(
        self, kept: Kept, needs: Hashable, rest: Callable[[], bool] = lambda: True, idle_s: float = _IDLE_S
    ) -> None:
        """Keep a process for a while, in place of the one that is there.

        Args:
            kept: The process.
            needs: What it has, and the next must ask for.
            rest: Has it give up what it holds, in a thread of its own; it is ended if the answer is False.
            idle_s: Seconds after which it is ended.
        """
        resting = threading.Thread(target=self._rested, args=(kept, rest), name="triton-ops rest", daemon=True)
        timer = threading.Timer(idle_s, self._late, args=(kept,))
        timer.daemon = True
        with self._guard:
            before = self._emptied()
            self._kept, self._needs, self._timer, self._resting = kept, (needs, _inherited()), timer, resting
        resting.start()
        timer.start()
        if before is not None:
            self._end(before)

    def take(self, needs: Hashable) -> Kept | None:
        """The process, if there is one with these needs, once it rests."""
        with self._guard:
            resting = self._resting
        if resting is not None:
            resting.join()
        with self._guard:
            return self._emptied() if self._needs == (needs, _inherited()) else None

    def holds(self, kept: Kept) -> bool:
        """Whether it is this process that waits here."""
        return self._kept is kept

    def drop(self) -> None:
        """End the process, if there is one."""
        with self._guard:
            kept = self._emptied()
        if kept is not None:
            self._end(kept)

    def abandon(self) -> None:
        """Forget the process, which is the parent's: in a forked child."""
        self._guard = threading.Lock()
        self._kept = self._needs = self._timer = self._resting = None

    def _rested(self, kept: Kept, rest: Callable[[], bool]) -> None:
        if not rest():
            self._late(kept)

    def _late(self, kept: Kept) -> None:
        """End a process if it is the one that still waits here."""
        with self._guard:
            found = self._emptied() if self._kept is kept else None
        if found is not None:
            self._end(found)

    def _emptied(self) -> Kept | None:
        kept = self._kept
        self._kept = self._needs = self._resting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return kept


def _inherited() -> Hashable:
    """What a new process would inherit now, as far as it decides what is compiled and where it is kept."""
    try:
        return settings.environment(), os.getcwd()  # noqa: PTH109 - as text
    except OSError:  # the folder is gone
        return settings.environment(), None
