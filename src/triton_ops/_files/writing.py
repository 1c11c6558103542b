"""Folders, and files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from pathlib import Path

from triton_ops._files.left_behind import left_behind
from triton_ops._files.opening import is_folder
from triton_ops._files.syncing import sync
from triton_ops._paths import expanded
from triton_ops.exceptions import CacheError

_PROBE = ".probe-"
_TOKEN = "[0-9a-f]{16}"  # with it, a name is of this module, and of no other program
_LEFT_BEHIND_S = 3600.0  # a write takes milliseconds; a file of this age has no writer any more


def ensure_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder with `~` expanded; it is made if it is missing, and its name is on disk when this returns.

    Raises:
        CacheError: The path is a file, or the folder cannot be made.
    """
    path = expanded(folder)
    if is_folder(path):
        return path
    check_home(path)
    try:
        make_folders(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise CacheError(
            f"{path} cannot be a cache folder: it, or a part of it, is a file",
            hint="name another folder, or remove the file",
        ) from error
    except OSError as error:
        raise CacheError(
            f"{path} cannot be made: {error.strerror or error}",
            hint="name a folder that can be written, for example with TRITON_OPS_CACHE_DIR",
        ) from error
    return path


def make_folders(path: Path) -> None:
    """Make a folder, and those above it that are missing, each with its name on disk.

    Raises:
        OSError: One of them is a file, or cannot be made.
    """
    missing = [path, *(above for above in path.parents if not is_folder(above))]
    for folder in reversed(missing):  # `parents=True` calls itself for each: a thousand are too many
        folder.mkdir(exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def check_home(folder: Path) -> None:
    """Raise if `folder` is what stands for the cache folder of a user without a home folder.

    Raises:
        CacheError: It is.
    """
    if folder.is_relative_to(os.devnull):
        raise CacheError(
            "there is no home folder to keep records in", hint="set TRITON_OPS_CACHE_DIR, XDG_CACHE_HOME or HOME"
        )


def writable(folder: Path) -> bool:
    """Whether files can be made in `folder` now; a file is made to find out, since permission bits can mislead."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))  # a file without a name
        return True
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            return False
    probe = folder / f"{_PROBE}{secrets.token_hex(8)}"  # the file system has no files without a name
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        probe.unlink()
        return True
    except OSError:
        return False


def atomic_write(path: Path, content: str | bytes, like: os.stat_result | None = None) -> None:
    """Replace the content of `path`, text as UTF-8. A reader sees the old file or the new one, never a part.

    It is on disk before the name points to it, and so is the name when this returns. A failure leaves the old file, and
    no other. A link is replaced, and not followed.

    Args:
        path: The file.
        content: The new content.
        like: Permissions and, where this user may set them, owner and group of the new file; None obeys the umask.

    Raises:
        OSError: The folder cannot be written, or the disk is full.
    """
    # Files of `tempfile` can be read by their owner only, but a cache that root has made serves other users too.
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(8)}.tmp")
    try:
        with fresh.open("xb") as file:
            if like is not None:
                _make_like(file.fileno(), like)
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            sync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        raise
    sync_folder(path.parent)


def sweep(folder: Path, now_s: float | None = None, *, only: str = "") -> None:
    """Remove probes and half-written files that killed processes of this user left in `folder` over an hour ago.

    Args:
        folder: The folder; one that cannot be listed or written is left as it is.
        now_s: Seconds since 1970; None asks the clock.
        only: The name of the one file whose half-written forms are meant, in a folder that is not this package's.
    """
    names = rf"\.{re.escape(only)}-{_TOKEN}\.tmp" if only else rf"\.probe-{_TOKEN}|\..+-{_TOKEN}\.tmp"
    for path in left_behind(folder, re.compile(names), stat.S_ISREG, _LEFT_BEHIND_S, now_s):
        with contextlib.suppress(OSError):  # another process removes it, or this user may not
            os.unlink(path)  # noqa: PTH108 - beside the other calls of `os`


def _make_like(descriptor: int, like: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # only root gives files away
        os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
