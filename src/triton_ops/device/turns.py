"""Measurements on one GPU take turns, whichever process of this user measures: two at a time would disturb each other.

A turn is a lock on a file that is named after the GPU. It is held for one measurement, a trial or a comparison, and not
for a whole tune, so that several processes that tune on one GPU get on side by side. The operating system ends the turn
of a process that dies. Work on a CPU takes no turns.

Where another user has made the folder first, or has held a lock for longer than any measurement, there are no turns:
a warning says so once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.base import ensure_folder, locked, private_folder, require
from triton_ops.base import proc as _proc
from triton_ops.device.spec import DeviceSpec
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
    """The turns of one tune or comparison on a device.

    Attributes:
        device_name: Torch's name of the device, for messages.
        wait: Whether the first turn is waited for; later ones always are, since the run has begun.
    """

    device_name: str
    wait: bool = True
    waited_s: float = 0.0
    _had_one: bool = False
    _has_warned: bool = field(default=False, repr=False)

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Hold the turn of the device with this key inside the block; without effect for an empty key.

        A thread that has the turn already keeps it. Where no file can be locked, a warning says so, and the
        measurement goes on; this process asks for no turn under that key again.

        Raises:
            DeviceError: Another process measures, and `wait` is false.
        """
        keys: set[str] = _mine.__dict__.setdefault("keys", set())
        folder = None if not key or key in keys | _given_up else _folder()
        if folder is None:
            yield
            return
        start = time.monotonic()
        with locked(folder, f"{key}.lock", poll_s=_POLL_S, waiting=self._waits) as is_locked:
            if not is_locked:
                _given_up.add(key)
            self._took(time.monotonic() - start)
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

    def _took(self, waited_s: float) -> None:
        self._had_one = True
        self.waited_s += waited_s

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
    if f"{settings.FAMILY}=".encode() in _proc.environment(pid):
        return True
    folder = str(settings.lock_dir())
    return any(os.path.dirname(path) == folder for path in _proc.open_files(pid))  # noqa: PTH120


def _folder() -> Path | None:
    """The folder of the locks; None, and a warning, where it cannot be made or is another user's."""
    place = settings.lock_dir()
    try:
        return private_folder(place) if place == settings.OWN_LOCKS else ensure_folder(place)
    except CacheError as error:
        _tell_once(error.message)
    except OSError as error:
        _tell_once(f"{error.filename or place}: {error.strerror}; TRITON_OPS_LOCK_DIR names another folder")
    return None


@lru_cache(maxsize=64)
def _tell_once(why: str) -> None:
    _log.warning("measurements take no turns: %s", why)
