"""Lockfiles that this process follows at their paths, the user's or a package's."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from triton_ops.exceptions import LockfileError
from triton_ops.records.lock_entry import LockEntry
from triton_ops.records.lockfile import Lockfile, read_lockfile, state_of
from triton_ops.values import Key

_FIRST_LOOK_S = 0.1
_MOST_LOOK_S = 1.0  # between two looks at a file that stays as it was refused
_log = logging.getLogger("triton_ops")


class FollowedLockfile:
    """The lockfile at a path. A file that is refused is one warning for each time that it was changed."""

    def __init__(self, path: str | os.PathLike[str], warning: str) -> None:
        self._path, self._warning = path, warning
        self._lockfile: Lockfile | None = None
        self._refused_state: tuple[int, ...] | None = None
        self._follower: threading.Thread | None = None
        self.refused = ""  # why there is no lockfile; empty if it was read, or not tried yet

    def read(self) -> Lockfile | None:
        """The lockfile, read once; None if it is refused. Cost: one `stat` where it is as it was when refused."""
        if self._lockfile is None and (state := state_of(self._path)) != self._refused_state:
            try:
                self._lockfile, self.refused = read_lockfile(self._path), ""
            except LockfileError as error:
                self._refused_state, self.refused = state, str(error)
                _log.warning("%s is not used: %s", self._warning, error)
        return self._lockfile

    @staticmethod
    def shared() -> tuple[Lockfile, ...]:
        """The lockfiles of packages, in the order in which they were shared."""
        lockfiles = tuple(_lockfiles.values())  # another thread may import a package that shares one meanwhile
        return tuple(lock for each in lockfiles if (lock := each.read()) is not None)

    @staticmethod
    def shared_entries(key: Key) -> Iterator[LockEntry]:
        """The entries of packages for the kernel and the device of a key, whatever their problem."""
        for lock in FollowedLockfile.shared():
            devices = {device.alias: device for device in lock.devices}
            for entry in lock.entries:
                if entry.kernel == key.kernel and devices[entry.device].why_not(key.device) is None:
                    yield entry

    def follow(self, on_reading: Callable[[], object]) -> None:
        """While the file is refused and somebody holds this object, have a thread look at it; then call `on_reading`.

        In a forked child, where the thread is not, a further call starts another.
        """
        if self._lockfile is None and (self._follower is None or not self._follower.is_alive()):
            look = partial(_follow, weakref.ref(self), on_reading)
            self._follower = threading.Thread(target=look, name="triton-ops lockfile", daemon=True)
            try:
                self._follower.start()
            except RuntimeError:  # the system has no thread left; the next call tries again
                self._follower = None


def _follow(followed: weakref.ref[FollowedLockfile], on_reading: Callable[[], object]) -> None:
    pause_s = _FIRST_LOOK_S
    while (here := followed()) is not None:
        if here.read() is not None:
            _log.warning("%s is used now", here._warning)
            on_reading()
            return
        del here
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _MOST_LOOK_S)


_lockfiles: dict[str, FollowedLockfile] = {}


def share_lockfile(path: str | os.PathLike[str]) -> None:
    """Let the launches of this process also take configs from the lockfile at `path`, after records of their problem.

    A package calls it with a lockfile of its own kernels when it is imported. The file is read when a launch first asks
    for it. One that cannot be read is one warning, and counts as empty until it is changed.

    Args:
        path: The lockfile, as `triton-ops lock` writes it. An entry answers on its device only.
    """
    where = os.path.abspath(os.fspath(path))  # noqa: PTH100 - text, as the folders of records
    _lockfiles.setdefault(where, FollowedLockfile(where, "a package's lockfile"))


@contextmanager
def without_shared_lockfiles() -> Iterator[None]:
    """Let no lockfile of a package answer meanwhile, as where none is shared: for measurements of a search alone."""
    before = dict(_lockfiles)
    _lockfiles.clear()
    try:
        yield
    finally:
        _lockfiles.update(before)
