"""Problems that no record answered while something was serving: noted without waiting, ranked, and tuned later.

`Misses.note` appends to a queue in memory and returns. A thread of its own writes what has come together to one file in
the cache folder, less and less often; nothing of it can hold up a launch, and what cannot be written is given up.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from triton_ops.base import AppendedFile, Count, Folder, NotNegative, Sealed, StoredFile, at_fork, canonical_json, warn
from triton_ops.records.record import NotedCall, time_now
from triton_ops.records.store import readable
from triton_ops.values import Key

FILE = "misses.jsonl"
MOST_PROBLEMS = 1000  # in the file, after it was gone through
_LARGEST_BYTES = 4 << 20  # it is gone through when it is larger: about 4,000 lines
_READ_BYTES = 8 * _LARGEST_BYTES  # it grows until one of its writers goes through it
_WAITING = 10_000  # notes that wait to be written; further ones push out the oldest
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
_UNREAD = "their problems are not in the list; delete those lines, or the file, if nobody needs them"
_LOSS = "problems that are not served meanwhile will not be in the list"


class Miss(msgspec.Struct, frozen=True, kw_only=True, rename={"last": "at"}):
    """A problem that nothing answered; each line of the file counts the askings that were written at once."""

    key: Key
    count: Count  # how often it was asked for
    expected_ms: NotNegative | None = None  # of one launch; None if nobody could tell
    first: str = ""  # UTC, as `last`
    last: str = ""
    call: NotedCall | None = None  # the first, of a decorated kernel; None if it cannot be described

    @property
    def as_json(self) -> dict[str, object]:
        """The miss as JSON values, for commands."""
        return {"id": self.key.id, **msgspec.to_builtins(msgspec.structs.asdict(self))}


class Harvest:
    """The misses of one process, on their way to the file of a cache folder; safe to share among threads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._queue: deque[tuple[Key, float | None, NotedCall | None]] = deque(maxlen=_WAITING)
        self._file = AppendedFile(self.path, _LOSS, gaps=True)
        self._wake = threading.Event()
        self._writing = threading.Lock()
        self._starting = threading.Lock()
        self._started = False

    def note(self, key: Key, expected_ms: float | None = None, call: NotedCall | None = None) -> None:
        """Note that nothing answered `key`. Cost: 1 µs; 0.1 ms for the first, which starts the thread that writes."""
        # A deque's `append` is atomic: a launch takes no lock here.
        self._queue.append((key, expected_ms, call))
        if not self._started:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def _start(self) -> None:
        """Start the thread that writes; where none can be started, the next note tries again."""
        # A launch never waits here: another thread that starts the writer is enough.
        if self._starting.acquire(blocking=False):
            try:
                if not self._started:
                    threading.Thread(target=self._write_now_and_then, name="triton-ops misses", daemon=True).start()
                self._started = True
            except RuntimeError:
                pass  # at the latest the end of the process writes what waits
            finally:
                self._starting.release()

    def flush(self) -> None:
        """Write what is waiting; what cannot be written is lost, with one warning until something is written again."""
        with self._writing:
            now, lines = time_now(), []
            while self._queue:
                key, expected_ms, call = self._queue.popleft()
                lines.append(Miss(key=key, count=1, expected_ms=expected_ms, last=now, call=call))
            for miss in _together(lines):
                try:
                    self._file.append(_line(miss), durable=False)
                except TypeError as error:  # noqa: PERF203 - a value in the key is none that JSON has
                    warn("a miss of %s cannot be noted: %s", miss.key.kernel, error)
            size = 0
            with contextlib.suppress(OSError):  # it could not be written, or is being shortened
                size = self.path.stat().st_size if lines else 0
            if size > _LARGEST_BYTES:
                Misses(self.path.parent).shorten()

    def _write_now_and_then(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            self._wake.wait()
            threading.Event().wait(wait_s)  # further notes come together meanwhile
            # Before the queue is read, so that a note that comes meanwhile wakes the thread once more.
            self._wake.clear()
            self.flush()
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


_harvests: dict[Path, Harvest] = {}


class Misses:
    """The misses in a cache folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, key: Key, expected_ms: float | None = None, call: NotedCall | None = None) -> None:
        """Note that nothing answered `key`, and never wait or raise; `expected_ms` of a launch is None if unknown."""
        if (harvest := _harvests.get(self._folder)) is None:
            # Two threads may have made one each; both take the first.
            harvest = _harvests.setdefault(self._folder, Harvest(self._folder))
        harvest.note(key, expected_ms, call)

    def read(self) -> list[Miss]:
        """Each problem once, those first that cost most: count times expected time.

        Where nobody could tell the time, the median of the known ones is taken. Lines that cannot be read are left out
        with one warning, and so is a file that cannot be read.
        """
        path = self._folder / FILE
        try:
            lines = list(readable(path, StoredFile(path).lines(_READ_BYTES), Miss, loss=_UNREAD))
        except OSError as error:
            warn("%s cannot be read: %s", path, error.strerror or error)
            return []
        misses = _together(lines)
        cost = self.costs(misses)
        return sorted(misses, key=lambda miss: (-cost[miss.key.id], miss.key.id))

    @staticmethod
    def costs(misses: Sequence[Miss]) -> dict[str, float]:
        """The cost of each miss, by the id of its key: count times expected milliseconds, as `read` takes them."""
        usual_ms = median([miss.expected_ms for miss in misses if miss.expected_ms is not None] or [1.0])
        return {it.key.id: it.count * (usual_ms if it.expected_ms is None else it.expected_ms) for it in misses}

    def forget(self, key_ids: Iterable[str]) -> int:
        """Take the problems with these key ids out of the file, and return how many were in it."""
        ids = set(key_ids)
        with Folder(self._folder).locked("misses.lock"):
            misses = self.read()
            rest = [miss for miss in misses if miss.key.id not in ids]
            if len(rest) < len(misses):
                _rewrite(self._folder / FILE, rest)
        return len(misses) - len(rest)

    def clear(self) -> list[Miss]:
        """Empty the list, and return what was in it. A file in which no line can be read is left as it is."""
        with Folder(self._folder).locked("misses.lock"):
            if misses := self.read():
                _rewrite(self._folder / FILE, [])
        return misses

    def shorten(self) -> None:
        """Write each problem once, and only those that cost most; misses noted meanwhile may be lost. Never waits."""
        with Folder(self._folder).locked("misses.lock", wait_s=0.0) as is_locked:
            if is_locked:
                _rewrite(self._folder / FILE, self.read()[:MOST_PROBLEMS])


def flush_misses() -> None:
    """Write what every harvest of this process has waiting. It happens by itself when the process ends."""
    for harvest in tuple(_harvests.values()):
        harvest.flush()


def _rewrite(path: Path, misses: list[Miss]) -> None:
    try:
        StoredFile(path).replace("".join(f"{canonical_json(Sealed(_line(miss)))}\n" for miss in misses))
    except OSError as error:
        warn("%s cannot be written: %s", path, error.strerror or error)


def _line(miss: Miss) -> dict[str, object]:
    return {name: value for name, value in msgspec.to_builtins(miss).items() if (name, value) != ("call", None)}


def _together(lines: Iterable[Miss]) -> list[Miss]:
    misses: dict[str, Miss] = {}
    for line in lines:
        before = misses.get(line.key.id)
        first = line.first or line.last
        misses[line.key.id] = Miss(
            key=line.key,
            count=line.count + (before.count if before else 0),
            expected_ms=before.expected_ms if before and line.expected_ms is None else line.expected_ms,
            first=min(first, before.first) if before else first,
            last=max(line.last, before.last) if before else line.last,
            call=(before.call if before else None) or line.call,
        )
    return list(misses.values())


atexit.register(flush_misses)
at_fork(_harvests.clear)  # the parent writes what it noted; its thread is not here
