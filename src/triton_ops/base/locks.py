"""Locks of folders: one holder at a time among all threads and processes of a machine.

A lock is `flock` on a file that stays, or on the folder itself where no file of this package belongs. The operating
system frees it when its holder dies, so that a killed process leaves no lock behind, and a forked child does not keep
the lock of its parent.

Whoever can open a lock's file can hold the lock, even without permission to write. The file's permissions are
therefore those of the folder: 0600 where only the owner may write, 0660 where the group may, all less the umask. A lock
that another user could hold all the same is not waited for without limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from triton_ops.base.files import kind_of, may_be_anyones


class ForkSafeLock:
    """A lock for a `with` statement that does not fork; by `threading.RLock` a thread may enter again.

    The thread that holds a lock during a fork does not exist in the child, where an ordinary lock would stay locked for
    ever. What this lock guards must therefore be whole between any two steps of its holder.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]] = threading.Lock) -> None:
        self._make = make
        self._lock = make()
        _guards.add(self)

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)

    def free(self) -> None:
        """Forget who holds the lock."""
        self._lock = self._make()


_guards: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _free_in_child() -> None:
    for guard in list(_guards):
        guard.free()


os.register_at_fork(after_in_child=_free_in_child)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
SHARED_WAIT_S = 600.0  # the limit for a lock that another user could hold without having anything to do here
_log = logging.getLogger("triton_ops")


@dataclass(eq=False)
class _Lock:
    """A lock that this process holds, with that of the thread whose turn it is."""

    descriptor: int
    turn: threading.Lock


_locks: weakref.WeakSet[_Lock] = weakref.WeakSet()
_turns: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
"""The queue of this process's threads for each lock: a lock among processes is only looked at again and again."""


@contextlib.contextmanager
def locked(
    folder: Path,
    name: str | None = "lock",
    *,
    wait_s: float | None = None,
    poll_s: float = 0.05,
    waiting: Callable[[], None] = lambda: None,
) -> Iterator[bool]:
    """Hold a lock of an existing folder inside the block; gives whether it is held.

    It is not held where it cannot be: no locks on that file system, no permission, no space for its file, or a wait
    that was too long. That is a warning, once for each lock and reason, and the block goes on without it. There is none
    where this process may not write the folder at all, since nothing in it is changed then.

    Locks of different names are independent; the file is `.name`. None locks the folder itself, which every reader of
    the folder can do, and some network file systems cannot. Without `wait_s` there is no limit of the wait, but 600 s
    where another user could hold the lock who has no permission to write here. If there is another holder, `waiting` is
    called once.
    """
    path = folder if name is None else folder / f".{name}"
    try:
        descriptor = os.open(path, _FOLDER) if name is None else _open_file(path)
        lock = _lock(path, descriptor, wait_s, poll_s, waiting)
    except OSError as error:
        if os.access(folder, os.W_OK):
            _tell_once(str(path), error.strerror or str(error))
        yield False
        return
    try:
        yield True
    finally:
        _release(lock)


def _lock(path: Path, descriptor: int, wait_s: float | None, poll_s: float, waiting: Callable[[], None]) -> _Lock:
    """The lock of an open file or folder, once it is this process's; TimeoutError if another kept it for too long."""
    try:
        turn = _turns.setdefault(str(path), threading.Lock())
        patience = _Patience(descriptor, wait_s, waiting)
        if not turn.acquire(blocking=False):
            patience.look()
            if not turn.acquire(timeout=patience.left_s):
                raise patience.over
    except BaseException:
        os.close(descriptor)
        raise
    lock = _Lock(descriptor, turn)
    _locks.add(lock)
    try:
        while not _try(descriptor):
            patience.look()
            time.sleep(poll_s)
    except BaseException:
        _release(lock)
        raise
    return lock


class _Patience:
    """The wait for another holder, from the first look that finds one."""

    def __init__(self, descriptor: int, wait_s: float | None, waiting: Callable[[], None]) -> None:
        by_others = wait_s is None and may_be_anyones(os.fstat(descriptor))
        self._wait_s = SHARED_WAIT_S if by_others else wait_s
        self._waiting = waiting
        self._start_s: float | None = None

    def look(self) -> None:
        """Note that there is another holder, and raise TimeoutError if there has been one for too long."""
        if self._start_s is None:
            self._start_s = time.monotonic()
            self._waiting()
        if self.left_s == 0:
            raise self.over

    @property
    def left_s(self) -> float:
        """Seconds that are left; -1 is no limit."""
        if self._wait_s is None or self._start_s is None:
            return -1
        return max(0.0, self._start_s + self._wait_s - time.monotonic())

    @property
    def over(self) -> TimeoutError:
        return TimeoutError(errno.ETIMEDOUT, f"another process or thread has held it for {self._wait_s or 0:g} s")


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_file(path: Path) -> int:
    """The descriptor of a lock's file, which is made if it is missing; nothing is ever written into it."""
    private = 0o600
    permissions = stat.S_IMODE(os.stat(path.parent).st_mode)  # noqa: PTH116 - beside the other calls of `os`
    mode = private | (0o060 if permissions & stat.S_IWGRP else 0) | (0o066 if permissions & stat.S_IWOTH else 0)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(path, flags, mode)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}, not a regular file")
    if mode == private and status.st_uid == os.geteuid() and may_be_anyones(status):
        with contextlib.suppress(OSError):  # a file of an earlier folder, which others could write
            os.fchmod(descriptor, private)
    return descriptor


def _release(lock: _Lock) -> None:
    descriptor, lock.descriptor = lock.descriptor, -1
    with contextlib.suppress(OSError):  # closing frees the lock, whatever the file system says
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that is being forked may hold a copy of the descriptor
    os.close(descriptor)
    _locks.discard(lock)
    lock.turn.release()


def _let_go_in_child() -> None:
    """Close the locks of the parent in a forked child: they stay the parent's, and its threads do not exist here."""
    for lock in [lock for lock in _locks if lock.descriptor >= 0]:
        os.close(lock.descriptor)
        lock.descriptor = -1
    _locks.clear()
    _turns.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@lru_cache(maxsize=256)
def _tell_once(path: str, reason: str) -> None:
    _log.warning("%s cannot be locked (%s): going on without the lock", path, reason)
