"""The report of a run log that somebody is still writing: made anew when the file has changed, and not too often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triton_ops._page import json_text
from triton_ops.exceptions import RunLogError
from triton_ops.history.run_log import read_run
from triton_ops.report.facts import Report
from triton_ops.report.page.build import live_page, run_data

PAUSE_S = 1.0  # between two readings of the file, at least
_REST = 9  # times the seconds of the last reading: a long run costs a tenth of a CPU, however long it is
_LOOK_S = 0.2


class GrowingReport:
    """The report of a run as far as its log goes, for any number of threads.

    Args:
        path: The run log.
        clock: A monotonic clock in seconds.
        spent: Seconds of a CPU that this thread has used.

    Attributes:
        followed: Whether a page asked for news.
        told_the_end: Whether somebody was given the last answer.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._path = path
        self._clock = clock
        self._spent = spent
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._seen: tuple[int, ...] | None = None
        self._run: dict[str, Any] = {}
        self._text = ""
        self._version = 0
        self._next_s = clock()
        self.followed = threading.Event()
        self.told_the_end = threading.Event()

    def end(self) -> None:
        """Say that nobody writes any more: the next reading is the last one, and whoever waits is answered."""
        self._over.set()

    def page(self) -> str | None:
        """The page as it is now; None while the file cannot be read as a run log."""
        with self._lock:
            self._refresh()
            return live_page(self._run, self._version) if self._version else None

    def newer(self, seen: int, most_s: float) -> str | None:
        """The run as JSON for the page, as soon as there is another version than the one that a page shows.

        Args:
            seen: The version that the page shows.
            most_s: Seconds to wait.

        Returns:
            The JSON, the last one with `over`; None if there is nothing new.
        """
        self.followed.set()
        until_s = self._clock() + most_s
        while True:
            over = self._over.is_set()  # asked before the file is read, so that the last answer holds all of it
            with self._lock:
                self._refresh(now=over)
                version, text = self._version, self._text
            if version and (over or version != seen):
                if over:
                    self.told_the_end.set()
                return f'{{"version":{version},"over":{str(over).lower()},"run":{text}}}'
            if over or self._clock() >= until_s:
                return None
            self._over.wait(_LOOK_S)

    def _refresh(self, *, now: bool = False) -> None:
        """Read the file if it has changed; without `now`, only after the pause.

        A file that cannot be read, as while it is replaced, leaves what was read before.
        """
        state = self._state()
        if state is None or state == self._seen or (self._clock() < self._next_s and not now):
            return
        self._seen, before_s = state, self._spent()
        try:
            self._run = run_data(Report(read_run(self._path)))
        except RunLogError:
            return
        finally:
            self._next_s = self._clock() + max(PAUSE_S, _REST * (self._spent() - before_s))
        self._text = json_text(self._run)
        self._version += 1

    def _state(self) -> tuple[int, ...] | None:
        """What changes when the file does; None if it is not there."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
