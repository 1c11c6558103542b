"""Folders of this package: what is opened in them, by one rule, and one holder of each of their locks at a time.

The rule: what lies in a folder is believed if only those whom the folder's owner has admitted could have put it there.

- In a folder that everybody may write, such as one of mode 1777, a file or subfolder must belong to this user, to root,
  or to the folder's owner. In any other folder the owner or the owner's group has placed it, and its owner does not
  matter.
- In a folder that its group or everybody may write, no link is followed. Nothing is ever written through a link, nor,
  in such a folder, to a file that has a second name.
- Only regular files are opened. A FIFO, a device or a socket is refused before it is opened, and could not block.

All refusals are `OSError` with the reason in `strerror`, so that they count as a file that cannot be read or written.

A lock is `flock` on a file that stays, or on the folder itself where no file of this package belongs. The operating
system frees it when its holder dies, so that a killed process leaves no lock behind, and a forked child does not keep
the lock of its parent. Whoever can open a lock's file can hold the lock, even without permission to write. The file's
permissions are therefore those of the folder: 0600 where only the owner may write, 0660 where the group may, all less
the umask. A lock that another user could hold all the same is not waited for without limit.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import re
import select
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_ops.base.texts import warn_once
from triton_ops.exceptions import CacheError
from triton_ops.settings import expanded

with contextlib.suppress(ImportError):
    import fcntl  # not on Windows
_POSIX = hasattr(os, "geteuid")  # elsewhere bits of a mode do not say who may write, and nobody owns a file by number
MOST_LINKS = 40  # as many as Linux follows
OTHERS = stat.S_IWGRP | stat.S_IWOTH if _POSIX else 0


def flags(*names: str) -> int:
    """The flags of `os.open` with these names; those that this system lacks are left out."""
    return sum(getattr(os, f"O_{name}", 0) for name in (*names, "CLOEXEC", "BINARY"))


def user() -> int:
    """The number of this process's user; 0, which owns all files, on Windows."""
    return os.geteuid() if _POSIX else 0


def at_fork(forget: Callable[[], object]) -> None:
    """Have a forked child call `forget`; without forks nothing is to do."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


_ALWAYS, _NO_LINK = flags("NONBLOCK", "NOCTTY"), flags("NOFOLLOW")
_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a block device", stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFREG: "a file",
}  # fmt: skip


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file that the rule of this module lets this process open, or OSError.

    Its folder is judged as it stands; see `Folder.within` for a folder below another. With `O_CREAT` among the flags a
    missing file is made, which all may read and write, less the umask.
    """
    folder = os.stat(os.path.dirname(path) or ".")  # noqa: PTH116, PTH120 - the way of every record that is read
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
    follow = not writes and not folder.st_mode & OTHERS
    try:
        _judge(os.stat(path, follow_symlinks=follow), folder, writes)  # noqa: PTH116
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | _ALWAYS | (0 if follow else _NO_LINK), 0o666)
    try:
        # Another file may have taken the name since it was judged.
        _judge(os.fstat(descriptor), folder, writes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def kind_of(status: os.stat_result) -> str:
    """The kind of a file in words, such as `a FIFO`."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "of a kind without a name")


def may_be_anyones(status: os.stat_result) -> bool:
    """True if another user than this one and root may open a file, or owns it."""
    return _POSIX and (bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)) or status.st_uid not in (user(), 0))


def _judge(status: os.stat_result, folder: os.stat_result, writes: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}, not a regular file")
    _judge_owner(status, folder)
    if writes and status.st_nlink > 1 and folder.st_mode & OTHERS:
        raise PermissionError(errno.EPERM, f"it has {status.st_nlink} hard links, in a folder that others may write")


def _judge_owner(status: os.stat_result, folder: os.stat_result, name: str | None = None) -> None:
    if folder.st_mode & OTHERS & stat.S_IWOTH and status.st_uid not in (user(), 0, folder.st_uid):
        reason = f"it belongs to user {status.st_uid}, in a folder that everybody may write"
        raise PermissionError(errno.EPERM, reason, name)


_no_syncs = False


def sync(descriptor: int) -> None:
    """Wait until what was written to a file or a folder is on disk."""
    if not _no_syncs:
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, _FOLDER)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)


def left_behind(
    folder: Path, names: re.Pattern[str], is_kind: Callable[[int], bool], older_than_s: float, now_s: float | None
) -> Iterator[Path]:
    """The entries of a folder that this user's processes made and cannot be using any more; none if not listed.

    The pattern matches whole names that no other program gives; the mode of an entry, links not followed, says whether
    it may be one, as `stat.S_ISREG` does.
    """
    oldest_s = (time.time() if now_s is None else now_s) - older_than_s
    try:
        entries = [name for name in os.listdir(folder) if names.fullmatch(name)]  # noqa: PTH208 - names only
    except OSError:
        return
    for name in entries:
        try:
            status = os.lstat(folder / name)
        except OSError:  # another process removes it
            continue
        if is_kind(status.st_mode) and status.st_uid == user() and status.st_mtime < oldest_s:
            yield folder / name


class OwnFile(io.RawIOBase):
    """A file that this process holds open by its number for long, as long as no other file has that number.

    A program may close all files that it does not know, as daemons do. What it opens then gets their numbers, and is
    neither read, written nor closed here. A file is told by its device and inode; all ends of a pipe are one.
    """

    def __init__(self, number: int) -> None:
        self._number, self._place = number, _place_of(number)
        self._open = [True]  # of several threads that close it, one takes this out

    @property
    def held(self) -> bool:
        """Tell whether it is still open, under its number."""
        with contextlib.suppress(OSError):
            return bool(self._open) and _place_of(self._number) == self._place
        return False

    def fileno(self) -> int:
        """Its number, for one use; a `BrokenPipeError` if it is closed, or another file has the number."""
        if not self.held:
            raise BrokenPipeError(errno.EPIPE, "it was closed")
        return self._number

    def ready(self, event: int, ms: float) -> bool:
        """Wait so long for an event as of `select.poll`, or its other side's end; `OSError` as `fileno`."""
        poll = select.poll()  # the program may have had more files open than `select` knows
        poll.register(self.fileno(), event)
        return bool(poll.poll(ms))

    def readable(self) -> bool:
        """Say that it can be read, for readers of lines."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, or wait for something."""
        return os.readv(self.fileno(), [buffer])

    def close(self) -> None:
        """Close it; a second time, or in another thread meanwhile, does nothing."""
        held = self.held
        with contextlib.suppress(IndexError):
            self._open.pop()
            if held:
                os.close(self._number)
        super().close()


def _place_of(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino


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


at_fork(_free_in_child)


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - like Python's, in whose place it stands
        """Python's without its lock: until 3.11 all objects share one, which a child forked meanwhile finds held.

        Threads that ask at once may each compute the value; all get the one that is there first.
        """

        # Python 3.12 has no lock there either: python/cpython#87634.

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))


_FOLDER = os.O_RDONLY | flags("DIRECTORY")
SHARED_WAIT_S = 600.0  # the limit for a lock that another user could hold without having anything to do here


_lock_files: set[OwnFile] = set()  # of the locks that this process holds, or waits for
_turns: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
"""The queue of this process's threads for each lock: who looks again and again comes after all who ask at once."""


def _take(
    turn: threading.Lock, file: OwnFile, wait_s: float | None, poll_s: float, waiting: Callable[[], None]
) -> None:
    """Wait until the lock of an open file or folder is this thread's; TimeoutError if it took too long."""
    if wait_s is None and may_be_anyones(os.fstat(file.fileno())):
        wait_s = SHARED_WAIT_S
    has_turn = turn.acquire(blocking=False)
    try:
        # `waiting` is called only where another one holds the lock.
        if has_turn and _try(file):
            return
        start_s = time.monotonic()
        waiting()
        has_turn = has_turn or turn.acquire(timeout=-1 if wait_s is None else wait_s)
        # Polled, since a `flock` that waits has no time limit.
        while not (has_turn and _try(file)):
            if wait_s is not None and time.monotonic() - start_s >= wait_s:
                raise TimeoutError(errno.ETIMEDOUT, f"another process or thread has held it for {wait_s:g} s")
            time.sleep(poll_s)
    except BaseException:
        if has_turn:
            turn.release()
        raise


def _try(file: OwnFile) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_file(path: Path) -> int:
    """The descriptor of a lock's file, which is made if it is missing; nothing is ever written into it."""
    private = 0o600
    permissions = stat.S_IMODE(os.stat(path.parent).st_mode)  # noqa: PTH116 - beside the other calls of `os`
    mode = private | (0o060 if permissions & stat.S_IWGRP else 0) | (0o066 if permissions & stat.S_IWOTH else 0)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags("NOFOLLOW", "NONBLOCK", "NOCTTY"), mode)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}, not a regular file")
    if mode == private and status.st_uid == user() and may_be_anyones(status):
        with contextlib.suppress(OSError):  # a file of an earlier folder, which others could write
            os.fchmod(descriptor, private)
    return descriptor


def _release(file: OwnFile) -> None:
    with contextlib.suppress(OSError):  # closing frees the lock, whatever the file system says
        fcntl.flock(file, fcntl.LOCK_UN)  # a child that is being forked may hold a copy of the descriptor
    _lock_files.discard(file)
    file.close()


def _let_go_in_child() -> None:
    """Close the locks of the parent in a forked child: they stay the parent's, and its threads do not exist here."""
    _turns.clear()
    while _lock_files:
        _lock_files.pop().close()


at_fork(_let_go_in_child)


_TOKEN = "[0-9a-f]{16}"  # with it, a name is of this module, and of no other program
_LEFT_BEHIND_S = 3600.0  # a write takes milliseconds; a file of this age has no writer any more


class Folder:
    """A folder by its path, which need not exist."""

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """True if the path leads to a folder; False too where that cannot be told, for which `Path.is_dir` raises."""
        return os.path.isdir(self.path)  # noqa: PTH112

    @property
    def writable(self) -> bool:
        """True if files can be made in it now; a file is made to find out, since permission bits can mislead."""
        import tempfile  # it takes milliseconds, and no launch asks

        try:
            with tempfile.TemporaryFile(dir=self.path):  # without a name, where the file system has such files
                return True
        except OSError:
            return False

    def within(self, root: Path) -> Path:
        """The path, which lies below `root`, after every folder between the two was judged by this module's rule.

        A folder that does not exist yet is no objection. `root` itself is believed: somebody has chosen it. OSError: a
        part of the way is a link that another user could have placed, is no folder, or belongs to a user who is not
        expected there.
        """
        path = Path(self.path)
        above, way = os.stat(root), root  # noqa: PTH116 - beside the other calls of `os`
        for name in path.relative_to(root).parts:
            way /= name
            try:
                status = os.stat(way, follow_symlinks=not above.st_mode & OTHERS)  # noqa: PTH116
            except FileNotFoundError:
                return path
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, f"it is {kind_of(status)}, not a folder", str(way))
            _judge_owner(status, above, str(way))
            above = status
        return path

    def is_within(self, root: Path) -> bool:
        """Tell whether a folder may be believed that lies below `root`, by `within`."""
        with contextlib.suppress(OSError):
            return bool(self.within(root))
        return False

    def ensure(self, below: Path | None = None) -> Path:
        """The path with `~` expanded, made if it is missing, and its name on disk; CacheError if it cannot be made.

        With `below` the folders between the two are judged first; OSError as of `within`.
        """
        path = expanded(self.path) if below is None else self.within(below)
        folder = Folder(path)
        if folder.exists:
            return path
        folder.check_home()
        try:
            folder.make()
        except (FileExistsError, NotADirectoryError) as error:
            message = f"{path} cannot be a cache folder: it, or a folder above it, is a file"
            raise CacheError(message, hint="name another folder, or remove the file") from error
        except OSError as error:
            hint = "name a folder that can be written, for example with TRITON_OPS_CACHE_DIR"
            raise CacheError(f"{path} cannot be made: {error.strerror or error}", hint=hint) from error
        return path

    def make(self) -> None:
        """Make it, and those above it that are missing, each with its name on disk."""
        path = Path(self.path)
        missing = [path, *(above for above in path.parents if not Folder(above).exists)]
        for folder in reversed(missing):  # `parents=True` calls itself for each: a thousand are too many
            folder.mkdir(exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)

    def fill(self, files: Iterable[tuple[str, str]]) -> None:
        """Make it with files, each by name and text, as a whole or not at all; one that is there stays as it is."""
        import shutil  # no launch makes a folder

        path = Path(self.path)
        for old in left_behind(path.parent, re.compile(rf"\..+-{_TOKEN}"), stat.S_ISDIR, _LEFT_BEHIND_S, None):
            shutil.rmtree(old, ignore_errors=True)
        fresh = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
        fresh.mkdir()
        try:
            for name, text in files:
                (fresh / name).write_text(text, encoding="utf-8")
            fresh.rename(self.path)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            if not self.exists:  # else another process was first
                raise

    def check_home(self) -> None:
        """Raise CacheError if it is what stands for the cache folder of a user without a home folder."""
        if Path(self.path).is_relative_to(os.devnull):
            message = "there is no home folder to keep records in"
            raise CacheError(message, hint="set TRITON_OPS_CACHE_DIR, XDG_CACHE_HOME or HOME")

    def sweep(self, now_s: float | None = None, *, only: str = "") -> None:
        """Remove half-written files that killed processes of this user left in it over an hour ago.

        A folder that cannot be listed or written is left as it is. In one that is not this package's, `only` names the
        one file whose half-written forms are meant.
        """
        names = rf"\.{re.escape(only) or '.+'}-{_TOKEN}\.tmp"
        for path in left_behind(Path(self.path), re.compile(names), stat.S_ISREG, _LEFT_BEHIND_S, now_s):
            with contextlib.suppress(OSError):  # another process removes it, or this user may not
                os.unlink(path)  # noqa: PTH108 - beside the other calls of `os`

    @staticmethod
    def skip_syncs() -> None:
        """From now on leave it to the system when what this process writes reaches the disk.

        It is for a process whose files nobody needs after its end, since another one keeps what they hold. Each wait
        for a disk takes some milliseconds.
        """
        global _no_syncs
        _no_syncs = True

    @contextlib.contextmanager
    def locked(
        self, name: str | None = "lock", *, wait_s: float | None = None, poll_s: float = 0.05,
        waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[bool]:  # fmt: skip
        """Hold a lock of the folder, which exists, inside the block; gives whether it is held.

        It is not held where it cannot be: no locks on that file system, no permission, no space for its file, or a wait
        that was too long. That is a warning, once for each lock and reason, and the block goes on without it. There is
        none where this process may not write the folder at all, since nothing in it is changed then.

        Locks of different names are independent; the file is `.name`. None locks the folder itself, which every reader
        of the folder can do, and some network file systems cannot. Without `wait_s` there is no limit of the wait, but
        600 s where another user could hold the lock who has no permission to write here. If there is another holder,
        `waiting` is called once.
        """
        if not _POSIX:
            warn_once("locks are for Linux and macOS: here, processes that tune at once do not wait for each other")
            yield False
            return
        path = Path(self.path) if name is None else Path(self.path) / f".{name}"
        try:
            file = OwnFile(os.open(path, _FOLDER) if name is None else _open_file(path))
            _lock_files.add(file)
            turn = _turns.setdefault(str(path), threading.Lock())
            try:
                _take(turn, file, wait_s, poll_s, waiting)
            except BaseException:
                _release(file)
                raise
        except OSError as error:
            if os.access(self.path, os.W_OK):
                warn_once(f"{path} cannot be locked ({error.strerror or error}): going on without the lock")
            yield False
            return
        try:
            yield True
        finally:
            _release(file)
            turn.release()
