"""Measurements on one GPU take turns, whichever process of this user measures: two at a time would disturb each other.

A turn is a lock on a file that is named after the GPU. It is held for one measurement, a trial or a comparison, and not
for a whole tune, so that several processes that tune on one GPU get on side by side. The operating system ends the turn
of a process that dies. Work on a CPU takes no turns.

Where another user has made the folder first, or has held a lock for longer than any measurement, there are no turns:
a warning says so once.

The driver tells which processes have worked on a GPU, with the share of its multiprocessors' time. Not counted are this
process, those that started it, and processes of this package that take turns with it. A process number says something
only where the driver counts processes as this system does: in a container it may tell the host's numbers, or none. So
nobody is named before this process has been seen at work under its own number.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from triton_ops import settings
from triton_ops.base import CodeFolder, Folder, Process, require
from triton_ops.device.datasheets import DeviceSpec
from triton_ops.device.vendors import ProcessUse
from triton_ops.exceptions import CacheError, DeviceError

_log = logging.getLogger("triton_ops")
_POLL_S = 0.005  # a trial takes tens of milliseconds
_WORTH_A_LINE_S = 1.0
_mine = threading.local()
_given_up: set[str] = set()


def turn_key(device: DeviceSpec, device_name: str) -> str:
    """The name under which measurements on a device take turns: the GPU's UUID, else its place; empty for a CPU."""
    if device.kind == "cpu":
        return ""
    properties: Any = require("torch", "asking the GPU").cuda.get_device_properties(device_name)
    if uuid := str(getattr(properties, "uuid", "")):
        return f"GPU-{uuid.removeprefix('GPU-')}"
    place = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    return "-".join(str(part) for part in ["GPU", *place])


@dataclass
class Turns:
    """The turns of one tune or comparison on a device; `wait` is for the first: later ones always are waited for."""

    device_name: str
    wait: bool = True
    waited_s: float = 0.0
    _had_one: bool = False
    _has_warned: bool = field(default=False, repr=False)

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Hold the turn of the device with this key inside the block; without effect for an empty key.

        A thread that has the turn already keeps it. Where no file can be locked, a warning says so, and the measurement
        goes on; this process asks for no turn under that key again. A `DeviceError` if another process measures, and
        `wait` is false.
        """
        keys: set[str] = _mine.__dict__.setdefault("keys", set())
        folder = None if not key or key in keys | _given_up else _folder()
        if folder is None:
            yield
            return
        start = time.monotonic()
        with Folder(folder).locked(f"{key}.lock", poll_s=_POLL_S, waiting=self._waits) as is_locked:
            if not is_locked:
                _given_up.add(key)
            self._had_one = True
            self.waited_s += time.monotonic() - start
            keys.add(key)
            try:
                yield
            finally:
                keys.discard(key)

    def _waits(self) -> None:
        if not self.wait and not self._had_one:
            raise DeviceError(
                f"another process measures on {self.device_name}",
                self.device_name,
                self.device_name,
                hint="leave --no-wait (wait=False) out to wait for it",
            )
        if not self._has_warned and not self._had_one:
            _log.warning("another process measures on %s; waiting for a turn", self.device_name)
            self._has_warned = True

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the waits: empty if they were short."""
        if self.waited_s < _WORTH_A_LINE_S:
            return ()
        return (f"waited {self.waited_s:.1f} s for turns on {self.device_name}, on which others measured",)


def takes_turns(pid: int) -> bool:
    """Check whether a process of this package takes turns: it was started for that, or holds or awaits a turn.

    A process of another user does not tell, and counts as one that takes none.
    """
    if f"{settings.FAMILY}=".encode() in Process(pid).environment:
        return True
    folder = str(settings.lock_dir())
    return any(os.path.dirname(path) == folder for path in Process(pid).open_files)  # noqa: PTH120


def _folder() -> Path | None:
    """The folder of the locks; None, and a warning, where it cannot be made or is another user's."""
    place = settings.lock_dir()
    try:
        return CodeFolder(place).private() if place == settings.OWN_LOCKS else Folder(place).ensure()
    except CacheError as error:
        _tell_once(error.message)
    except OSError as error:
        _tell_once(f"{error.filename or place}: {error.strerror}; TRITON_OPS_LOCK_DIR names another folder")
    return None


@lru_cache(maxsize=64)
def _tell_once(why: str) -> None:
    _log.warning("measurements take no turns: %s", why)


_LEAST_SHARE = 0.05  # a desktop draws its windows with a few percent
_EACH_S = 0.1  # the driver takes a sample six times a second at most
_HIDDEN = "the driver does not show this process under its own number, as in a container: others cannot be told from it"


@runtime_checkable
class TellsProcesses(Protocol):
    """Sensors that tell which processes work on the GPU."""

    def used_by(self, since_us: int) -> tuple[ProcessUse, ...]:
        """The processes in samples later than `since_us`, by `time.time`; a `DeviceError` if the GPU does not tell."""


class Others:
    """The use of one GPU by other processes; not safe to share among threads.

    Sensors that tell nothing of processes leave the use unknown. Others count from `since_s` on, seconds since 1970;
    None is now. `is_ours` tells whether a process is one that this one started, or one that takes turns with it.
    """

    def __init__(
        self, sensors: object, since_s: float | None = None, *, clock: Callable[[], float] = time.time,
        is_ours: Callable[[int], bool] | None = None,
    ) -> None:  # fmt: skip
        self._source = sensors if isinstance(sensors, TellsProcesses) else None
        self._clock, self._is_ours = clock, is_ours or _is_ours
        self._unknown = _HIDDEN if self._source is not None else "its sensors do not tell which processes use it"
        self._early: dict[int, ProcessUse] = {}  # told, and not yet asked for
        self.begin(since_s)

    @property
    def unknown(self) -> str:
        """The reason why nothing is known of others so far; empty if it is known."""
        return self._unknown

    def begin(self, since_s: float | None = None) -> None:
        """Count from now on, or from a moment before."""
        self._asked_s = self._clock() if since_s is None else since_s
        self._since_us = int(self._asked_s * 1e6)
        self._early.clear()

    def seen(self) -> tuple[ProcessUse, ...]:
        """The other processes that have worked on the GPU since this was asked before, the busiest first.

        A process that has ended by now is left out: it cannot be told from a tune that has given its turn away.

        Cost: one question to the driver, ten times a second at most.
        """
        now_s = self._clock()
        if self._source is None or now_s - self._asked_s < _EACH_S:
            return ()
        self._asked_s = now_s
        try:
            samples = self._source.used_by(self._since_us)
        except DeviceError as error:
            self._source, self._unknown = None, error.message
            return ()
        self._since_us = max([self._since_us, *(sample.at_us for sample in samples)])
        if any(sample.pid == os.getpid() for sample in samples):
            self._unknown = ""
        for sample in samples:
            before = self._early.get(sample.pid)
            if sample.share >= _LEAST_SHARE and (before is None or before.share < sample.share):
                self._early[sample.pid] = sample
        if self._unknown:
            return ()
        uses = [use for pid, use in self._early.items() if not self._is_ours(pid)]
        self._early.clear()
        return tuple(sorted(uses, key=lambda use: -use.share))

    def in_words(self) -> str:
        """As `seen`, in words: `process 4711 (python3) used 40% of the GPU`; empty for none."""
        each = [
            f"process {use.pid} ({Process(use.pid).name or 'of another user'}) used {use.share:.0%}"
            for use in self.seen()
        ]
        return f"{' and '.join(each)} of the GPU" if each else ""


def _is_ours(pid: int) -> bool:
    return pid == os.getpid() or pid in Process(os.getpid()).ancestors or Process(pid).ended or takes_turns(pid)
