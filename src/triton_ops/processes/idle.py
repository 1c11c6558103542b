"""The places of processes that tunes have left idle, for the next tunes of this program if they follow soon.

What is kept must do for the next tune as a new one would: it is taken only for what it has, and in the same environment
and folder as it was started in, which it has inherited.
"""

from __future__ import annotations

import atexit
import operator
import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from triton_ops import settings

IDLE_S = 15.0

Kept = TypeVar("Kept")


@dataclass(eq=False)
class _Place(Generic[Kept]):
    """One process that waits: what it has and has inherited, whose place it takes, its timer, its thread of rest."""

    kept: Kept
    has: Hashable
    around: Hashable
    where: Hashable
    timer: threading.Timer
    resting: threading.Thread


class IdleProcesses(Generic[Kept]):
    """Some processes that wait; safe to share among threads. They are ended with this process at the latest.

    Args:
        end: Ends a process.
        most: How many wait at a time; a further one takes the place of the oldest.
    """

    def __init__(self, end: Callable[[Kept], object], most: int) -> None:
        self._end, self._most = end, most
        self._guard = threading.Lock()
        self._places: list[_Place[Kept]] = []
        self._closed = False
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.abandon)

    def put(
        self,
        kept: Kept,
        has: Hashable,
        where: Hashable,
        rest: Callable[[], bool] = lambda: True,
        idle_s: float = IDLE_S,
    ) -> None:
        """Keep a process for a while, in place of another one there, or of the oldest if there are too many.

        Args:
            kept: The process.
            has: What it has, such as packages that it has imported.
            where: What only one idle process is to occupy, such as a device.
            rest: Has it give up what it holds, in a thread of its own; it is ended if the answer is False.
            idle_s: Seconds after which it is ended.
        """
        resting = threading.Thread(target=self._rested, args=(kept, rest), name="triton-ops rest", daemon=True)
        timer = threading.Timer(idle_s, self._late, args=(kept,))
        timer.daemon = True
        place = _Place(kept, has, inherited(), where, timer, resting)
        with self._guard:
            late = self._closed
            over = [] if late else [each for each in self._places if each.where == where]
            if not late and len(self._places) - len(over) >= self._most:
                over.append(next(each for each in self._places if each not in over))
            for each in over:
                self._emptied(each)
            if not late:
                try:
                    timer.start()
                    resting.start()
                except RuntimeError:  # the system has no thread left, and nothing would end it
                    timer.cancel()
                    late = True
                else:
                    self._places.append(place)
        for each in over:
            self._end(each.kept)
        if late:
            self._end(kept)

    def take(self, needs: Hashable, does: Callable[[Any, Any], bool] = operator.eq) -> Kept | None:
        """The process that does for these needs, if there is one, once it rests.

        Args:
            needs: What is needed.
            does: Whether what a process has, its first argument, does for what is needed.
        """
        around = inherited()
        with self._guard:
            place = next((each for each in self._places if each.around == around and does(each.has, needs)), None)
        if place is None:
            return None
        place.resting.join()
        with self._guard:
            return self._emptied(place)

    def holds(self, kept: Kept) -> bool:
        """Whether this process waits here."""
        return any(each.kept is kept for each in tuple(self._places))

    def waits(self, needs: Hashable, does: Callable[[Any, Any], bool] = operator.eq) -> bool:
        """Whether a process waits here that `take` would give."""
        around = inherited()
        return any(each.around == around and does(each.has, needs) for each in tuple(self._places))

    def drop(self) -> None:
        """End all processes that wait."""
        with self._guard:
            found = [self._emptied(each) for each in tuple(self._places)]
        for kept in found:
            if kept is not None:
                self._end(kept)

    def close(self) -> None:
        """End all processes that wait, and from now on each that is put here: this process is about to end."""
        with self._guard:
            self._closed = True
        self.drop()

    def abandon(self) -> None:
        """Forget the processes, which are the parent's: in a forked child."""
        self._guard = threading.Lock()
        self._places = []

    def _rested(self, kept: Kept, rest: Callable[[], bool]) -> None:
        if not rest():
            self._late(kept)

    def _late(self, kept: Kept) -> None:
        """End a process if it still waits here."""
        with self._guard:
            place = next((each for each in self._places if each.kept is kept), None)
            found = None if place is None else self._emptied(place)
        if found is not None:
            self._end(found)

    def _emptied(self, place: _Place[Kept]) -> Kept | None:
        """The process of a place that is given up; None if somebody was faster. The guard is held."""
        if place not in self._places:
            return None
        self._places.remove(place)
        place.timer.cancel()
        return place.kept


def inherited() -> Hashable:
    """What a new process would inherit now, as far as it decides what is compiled and where it is kept."""
    return settings.environment(), settings.current_folder()
