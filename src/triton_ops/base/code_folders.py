"""Folders of files that are executed: nobody else may write there, or put another folder in their place.

Compilers and assemblers leave their temporary files where they are killed. Each child process that may be killed is
therefore given a folder of its own for them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import platformdirs

from triton_ops.base.folders import MOST_LINKS, OTHERS, Folder, flags, left_behind, user
from triton_ops.base.texts import warn, warn_once
from triton_ops.exceptions import CacheError
from triton_ops.settings import cache_folder

with contextlib.suppress(ImportError):  # not on Windows
    import fcntl
    import grp
    import pwd

_NAME = re.compile(r"triton-ops-run-[0-9a-f]{16}")
_YOUNG_S = 60.0  # between the making of a folder and its lock lie microseconds
_PATIENCE_S = 5.0  # for processes that are just ending
_PAUSE_S = 0.01


_own_locks: list[int] = []  # the locks of this process's own folder, which end with the process


class TemporaryFolder:
    """A private folder in `tempfile.gettempdir()` for one child process, which makes it with `make`.

    It is not made here, since a kill would leave it before anybody is there to remove it. Folders of this user
    that are a minute old and that no process holds are removed first. On a file system without locks none are. Where no
    folder can be made the path is None.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        with contextlib.suppress(OSError):
            place = Path(tempfile.gettempdir())
            sweep_temporary(place)
            if os.access(place, os.W_OK | os.X_OK):
                self.path = place / f"triton-ops-run-{os.urandom(8).hex()}"

    def remove(self) -> None:
        """Remove the folder with all that is in it; a second call does nothing."""
        path, self.path = self.path, None
        if path is not None:
            self.discard(path)

    @staticmethod
    def make(path: Path) -> bool:
        """In a child, make the folder at such a path, and hold its lock as long as this process lives.

        Gives whether it was made: the disk may be full, and another user, who can read the names that processes are
        started with, may have made it first.
        """
        try:
            path.mkdir(mode=0o700)
        except OSError:
            return False
        with contextlib.suppress(OSError):  # the file system has no locks for folders
            _own_locks.append(_lock(path))
        return True

    @classmethod
    def own(cls) -> Path:
        """A folder of this process's own, removed by later processes, for one that is ended by a kill."""
        path = cls().path
        return path if path is not None and cls.make(path) else Path(tempfile.mkdtemp(prefix="triton-ops-"))

    @staticmethod
    def discard(path: Path) -> None:
        """Remove such a folder, of this or another process; any other path is left alone.

        Processes that are just ending may still put files there, so that several passes may be needed; after 5 s the
        rest is left to the next sweep.
        """
        if not _NAME.fullmatch(path.name):
            return
        until = time.monotonic() + _PATIENCE_S
        while True:
            _remove(path)
            if not os.path.lexists(path) or time.monotonic() > until:
                return
            time.sleep(_PAUSE_S)


def sweep_temporary(place: Path, now_s: float | None = None) -> None:
    """Remove the folders in `place` that killed processes of this user left there."""
    for path in left_behind(place, _NAME, stat.S_ISDIR, _YOUNG_S, now_s):
        with contextlib.suppress(OSError):  # another process holds it
            descriptor = _lock(path)
            try:
                _remove(path)
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a folder as far as this user may, however deep it is; links are not followed."""
    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # it calls itself for each level before Python 3.13: python/cpython#89727
        subprocess.run(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL, check=False)


def _lock(path: Path) -> int:
    """A descriptor that holds a folder's lock until it is closed; OSError if another process holds that."""
    descriptor = os.open(path, os.O_RDONLY | flags("DIRECTORY", "NOFOLLOW"))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class CodeFolder:
    """A folder of files that are executed, by its path; it need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def private(self) -> Path:
        """The path, absolute and without links, of which only this user can write or replace the folder.

        Missing folders are made with mode 0700, whatever the umask. Every folder and link on the way is judged before
        what lies behind it is looked at or made: it must belong to this user or to root, and nobody else may write it,
        save for a folder with the sticky bit, in which nobody can replace what is another's. A group without other
        members, as many systems give to each user, is nobody else. In the last folder nobody else may write at all. Any
        fault is an OSError.
        """
        here = _safe_folder(self.path)
        if here.lstat().st_uid != user() or here.lstat().st_mode & OTHERS:
            raise PermissionError(errno.EPERM, "another user could write it", str(here))
        return here

    @staticmethod
    @contextlib.contextmanager
    def held(cache_dir: str | Path | None, name: Path, loss: str, wait: str) -> Iterator[Path]:
        """A private folder of this name in the folder of records, which is made, while no other process has it.

        Where it is not private, a warning says the `loss`, and a temporary one serves, which is removed at the end.
        While another process has it, the `wait` is said once.
        """
        root = Folder(cache_folder(cache_dir)).ensure()
        try:
            path = CodeFolder(root / name).private()
        except OSError as error:
            warn("%s keeps no compiled code (%s): %s", error.filename, error.strerror, loss)
            with contextlib.ExitStack() as undo:
                undo.callback(TemporaryFolder.discard, place := TemporaryFolder.own())
                yield place
            return
        with Folder(path.parent).locked(f"{path.name}.lock", waiting=lambda: warn(wait)):
            yield path

    def trusted(self, name: str) -> Path:
        """The folder of a cache that executes what it holds: this one, unless another user could put something there.

        Then a folder of that name among this user's own caches takes its place, which is said once.
        Unlike a private folder it may be written by a group without other members, since other programs make it; it is
        made if another user could make it first. CacheError: neither that nor the folder for temporary files is this
        user's alone.
        """
        path = self.path
        try:
            full = path.absolute()
            # Of a missing folder the nearest one above is judged: whoever may write there could make it first.
            nearest = next(each for each in (full, *full.parents) if os.path.lexists(each))
            if nearest != full and not _open_to_others(_safe_folder(nearest).lstat(), sticky=False):
                return path
            if _open_to_others(_safe_folder(full).lstat(), sticky=False):
                raise PermissionError(errno.EPERM, "another user could write it", str(full))
            return path
        except OSError as error:
            substitute = _substitute(name)
            why = f"{error.filename or path}: {error.strerror}"
            warn_once(f"{why}: no code is loaded from {path}, and {substitute} is used instead")
            return substitute


def _substitute(name: str) -> Path:
    try:
        return CodeFolder(Path(platformdirs.user_cache_dir("triton-ops-code")).absolute() / name).private()
    except (OSError, RuntimeError):  # no home folder, or another user's
        with contextlib.suppress(OSError):
            return CodeFolder(_own_temporary() / name).private()
    raise CacheError(
        "there is no folder for compiled code that only this user can write: neither in the home folder nor in TMPDIR",
        hint="name one with XDG_CACHE_HOME or TMPDIR",
    )


_own_temporary = lru_cache(maxsize=1)(TemporaryFolder.own)


def _safe_folder(path: Path) -> Path:
    """The folder at a path, links followed, made if it is missing; OSError if another user could replace it."""
    here = Path(path.anchor)
    for here in _way(path):
        try:
            status = here.lstat()
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # another process of this user is quicker, or another user
                here.mkdir(mode=0o700)
            status = here.lstat()
        if status.st_uid not in (0, user()) or (stat.S_ISDIR(status.st_mode) and _open_to_others(status)):
            raise PermissionError(errno.EPERM, "another user could write or replace it", str(here))
    return here


def _way(path: Path) -> Iterator[Path]:
    """The root, and each folder and link behind which the next one lies; the last one is the folder itself.

    A folder is looked at after it was yielded, so that it may be made then.
    """
    here, names, links = Path(path.anchor), list(reversed(path.parts[1:])), 0
    yield here
    while names:
        name = names.pop()
        if name == "..":
            here = here.parent
            yield here
            continue
        yield here / name
        if not (here / name).is_symlink():
            here /= name
            continue
        target, links = (here / name).readlink(), links + 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        here = Path(target.anchor) if target.is_absolute() else here
        names += reversed(target.parts[target.is_absolute() :])
        yield here


def _open_to_others(status: os.stat_result, *, sticky: bool = True) -> bool:
    """True if somebody else may rename or remove what is this user's in a folder; without `sticky`, or add to it."""
    if sticky and status.st_mode & stat.S_ISVTX:
        return False
    by_others = status.st_mode & OTHERS
    return bool(by_others & stat.S_IWOTH or (by_others and not _is_own_group(status.st_gid)))


def _is_own_group(group: int) -> bool:
    """True if a group is this user's alone: the user's first group, of the same name, without further members."""
    try:
        person, entry = pwd.getpwuid(user()), grp.getgrgid(group)
    except KeyError:  # no entry of the user or the group, as in containers
        return False
    return person.pw_gid == group and entry.gr_name == person.pw_name and set(entry.gr_mem) <= {person.pw_name}
