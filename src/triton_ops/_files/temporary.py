"""Temporary folders of child processes, removed with the process; what killed processes leave is swept by later ones.

Compilers and assemblers leave their temporary files where they are killed. Each child process that may be killed is
therefore given a folder of its own for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from pathlib import Path

from triton_ops._files.left_behind import left_behind

_NAME = re.compile(r"triton-ops-run-[0-9a-f]{16}")
_YOUNG_S = 60.0  # between the making of a folder and its lock lie microseconds
_PATIENCE_S = 5.0
_PAUSE_S = 0.01


_held_here: list[int] = []  # the locks of this process's own folder, which end with the process


class TemporaryFolder:
    """A private folder in `tempfile.gettempdir()` for one child process, which makes it with `make_temporary`.

    It is not made here: until there is somebody who removes it, nothing may be left by a kill. Folders of this user
    that are a minute old and that no process holds are removed first. On a file system without locks none are.

    Attributes:
        path: The folder; None where none can be made.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        with contextlib.suppress(OSError):
            place = Path(tempfile.gettempdir())
            sweep_temporary(place)
            if os.access(place, os.W_OK | os.X_OK):
                self.path = place / f"triton-ops-run-{secrets.token_hex(8)}"

    def remove(self) -> None:
        """Remove the folder with all that is in it; a second call does nothing."""
        path, self.path = self.path, None
        if path is not None:
            remove_temporary(path)


def make_temporary(path: Path) -> bool:
    """In a child, make the folder of a `TemporaryFolder`, and hold its lock as long as this process lives.

    Gives whether it was made: the disk may be full, and another user, who can read the names that processes are
    started with, may have made it first.
    """
    try:
        path.mkdir(mode=0o700)
    except OSError:
        return False
    with contextlib.suppress(OSError):  # the file system has no locks for folders
        _held_here.append(_held(path))
    return True


def own_temporary_folder() -> Path:
    """A folder of this process's own, removed by later processes, for one that is ended by a kill."""
    found = TemporaryFolder().path
    return found if found is not None and make_temporary(found) else Path(tempfile.mkdtemp(prefix="triton-ops-"))


def remove_temporary(path: Path) -> None:
    """Remove the folder of a `TemporaryFolder`, of this or another process; any other path is left alone.

    Processes that are just ending may still put files there, so that several passes may be needed; after 5 s the rest
    is left to the next sweep.
    """
    if not _NAME.fullmatch(path.name):
        return
    until = time.monotonic() + _PATIENCE_S
    while True:
        shutil.rmtree(path, ignore_errors=True)  # follows no link
        if not os.path.lexists(path) or time.monotonic() > until:
            return
        time.sleep(_PAUSE_S)


def sweep_temporary(place: Path, now_s: float | None = None) -> None:
    """Remove the folders in `place` that killed processes of this user left there.

    Args:
        place: A folder for temporary files; one that cannot be listed is left as it is.
        now_s: Seconds since 1970; None asks the clock.
    """
    for path in left_behind(place, _NAME, stat.S_ISDIR, _YOUNG_S, now_s):
        with contextlib.suppress(OSError):  # another process holds it
            _remove_unheld(path)


def _remove_unheld(path: Path) -> None:
    descriptor = _held(path)
    try:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _held(path: Path) -> int:
    """A descriptor that holds a folder's lock until it is closed, at the latest by the end of the process.

    Raises:
        OSError: Another process holds the lock, or the file system has no locks for folders.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
