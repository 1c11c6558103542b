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
from typing import Any, ClassVar, Generic, TypeVar

from triton_ops import settings

Process = TypeVar("Process")


@dataclass(eq=False)
class _Place(Generic[Process]):
    """One process that waits: what it has and has inherited, whose place it takes, its timer, its thread of rest."""

    process: Process
    equipment: Hashable
    around: Hashable
    where: Hashable
    timer: threading.Timer
    rest_thread: threading.Thread


class IdleProcesses(Generic[Process]):
    """Some processes that wait; safe to share among threads. They are ended with this process at the latest.

    Of `most` at a time, the oldest gives its place to a further one.
    """

    IDLE_S: ClassVar = 15.0

    def __init__(self, end: Callable[[Process], object], most: int) -> None:
        self._end, self._most = end, most
        self._guard = threading.Lock()
        self._places: list[_Place[Process]] = []
        self._closed = False
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.abandon)

    @staticmethod
    def inherited() -> Hashable:
        """The inheritance of a process that began now, as far as it decides what is compiled and where it is kept."""
        return settings.environment(), settings.current_folder()

    def put(
        self,
        process: Process,
        equipment: Hashable,
        where: Hashable,
        rest: Callable[[], bool] = lambda: True,
        idle_s: float = IDLE_S,
    ) -> None:
        """Keep a process for a while, in place of another one there, or of the oldest if there are too many.

        Its equipment is what it has, such as packages that it has imported; `where` is what only one idle process is to
        occupy, such as a device. `rest` has it give up what it holds, in a thread of its own; it is ended if the answer
        is False, and after `idle_s` seconds.
        """
        rest_thread = threading.Thread(target=self._rest, args=(process, rest), name="triton-ops rest", daemon=True)
        timer = threading.Timer(idle_s, self._late, args=(process,))
        timer.daemon = True
        place = _Place(process, equipment, self.inherited(), where, timer, rest_thread)
        with self._guard:
            late = self._closed
            over = [] if late else [each for each in self._places if each.where == where]
            if not late and len(self._places) - len(over) >= self._most:
                over.append(next(each for each in self._places if each not in over))
            for each in over:
                self._empty(each)
            if not late:
                try:
                    timer.start()
                    rest_thread.start()
                except RuntimeError:  # the system has no thread left, and nothing would end it
                    timer.cancel()
                    late = True
                else:
                    self._places.append(place)
        for each in over:
            self._end(each.process)
        if late:
            self._end(process)

    def take(self, needs: Hashable, serves: Callable[[Any, Any], bool] = operator.eq) -> Process | None:
        """The process that does for these needs, if there is one, once it rests.

        `serves` tells whether what a process has, its first argument, does for what is needed.
        """
        around = self.inherited()
        with self._guard:
            place = next(
                (each for each in self._places if each.around == around and serves(each.equipment, needs)), None
            )
        if place is None:
            return None
        place.rest_thread.join()
        with self._guard:
            return self._empty(place)

    def holds(self, process: Process) -> bool:
        """Tell whether this process waits here."""
        return any(each.process is process for each in tuple(self._places))

    def waits(self, needs: Hashable, serves: Callable[[Any, Any], bool] = operator.eq) -> bool:
        """Tell whether a process waits here that `take` would give."""
        around = self.inherited()
        return any(each.around == around and serves(each.equipment, needs) for each in tuple(self._places))

    def drop(self) -> None:
        """End all processes that wait."""
        with self._guard:
            processes = [self._empty(each) for each in tuple(self._places)]
        for process in processes:
            if process is not None:
                self._end(process)

    def close(self) -> None:
        """End all processes that wait, and from now on each that is put here: this process is about to end."""
        with self._guard:
            self._closed = True
        self.drop()

    def abandon(self) -> None:
        """Forget the processes, which are the parent's: in a forked child."""
        self._guard = threading.Lock()
        self._places = []

    def _rest(self, process: Process, rest: Callable[[], bool]) -> None:
        if not rest():
            self._late(process)

    def _late(self, process: Process) -> None:
        with self._guard:
            place = next((each for each in self._places if each.process is process), None)
            abandoned = None if place is None else self._empty(place)
        if abandoned is not None:
            self._end(abandoned)

    def _empty(self, place: _Place[Process]) -> Process | None:
        """The process of a place that is given up; None if somebody was faster. The guard is held."""
        if place not in self._places:
            return None
        self._places.remove(place)
        place.timer.cancel()
        return place.process
