"""File access in the folders of this package, by one rule of what is opened.

The rule: what lies in a folder is believed if only those whom the folder's owner has admitted could have put it there.

- In a folder that everybody may write, such as one of mode 1777, a file or subfolder must belong to this user, to root,
  or to the folder's owner. In any other folder the owner or the owner's group has placed it, and its owner does not
  matter.
- In a folder that its group or everybody may write, no link is followed. Nothing is ever written through a link, nor,
  in such a folder, to a file that has a second name.
- Only regular files are opened. A FIFO, a device or a socket is refused before it is opened, and could not block.

All refusals are `OSError` with the reason in `strerror`, so that they count as a file that cannot be read or written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from triton_ops._paths import expanded
from triton_ops.base.folders import left_behind
from triton_ops.base.sealed_json import sealed, storable
from triton_ops.exceptions import CacheError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ALWAYS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFREG: "a file",
}


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """The descriptor of a regular file that the rule of this module lets this process open, or OSError.

    Its folder is judged as it stands; see `folder_within` for a folder below another. With `O_CREAT` among the flags a
    missing file is made, of that mode less the umask.
    """
    folder = os.stat(os.path.dirname(path) or ".")  # noqa: PTH116, PTH120 - the way of every record that is read
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
    follow = not writes and not folder.st_mode & _OTHERS
    try:
        _judge(os.stat(path, follow_symlinks=follow), folder, writes)  # noqa: PTH116
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | _ALWAYS | (0 if follow else os.O_NOFOLLOW), mode)
    try:
        _judge(os.fstat(descriptor), folder, writes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def folder_within(root: Path, path: Path) -> Path:
    """`path`, a folder below `root`, after every folder between the two was judged by the rule of this module.

    A folder that does not exist yet is no objection. `root` itself is believed: somebody has chosen it. OSError: a part
    of the way is a link that another user could have placed, is no folder, or belongs to a user who is not expected
    there.
    """
    above, way = os.stat(root), root  # noqa: PTH116 - beside the other calls of `os`
    for name in path.relative_to(root).parts:
        way /= name
        try:
            status = os.stat(way, follow_symlinks=not above.st_mode & _OTHERS)  # noqa: PTH116
        except FileNotFoundError:
            return path
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"it is {kind_of(status)}, not a folder", str(way))
        _judge_owner(status, above, str(way))
        above = status
    return path


def is_folder(path: str | os.PathLike[str]) -> bool:
    """True if a path leads to a folder; False too where that cannot be told, for which `Path.is_dir` raises."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: str | os.PathLike[str]) -> bool:
    """True if a path leads to a regular file; False too where that cannot be told, for which `Path.is_file` raises."""
    return os.path.isfile(path)  # noqa: PTH113


def kind_of(status: os.stat_result) -> str:
    """The kind of a file in words, such as `a FIFO`."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "of a kind without a name")


def may_be_anyones(status: os.stat_result) -> bool:
    """True if another user than this one and root may open a file, or owns it."""
    return bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)) or status.st_uid not in (os.geteuid(), 0)


def written_by_others(folder: os.stat_result) -> bool:
    """True if the group of a folder, or everybody, may write the folder."""
    return bool(folder.st_mode & _OTHERS)


def _judge(status: os.stat_result, folder: os.stat_result, writes: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}, not a regular file")
    _judge_owner(status, folder)
    if writes and status.st_nlink > 1 and folder.st_mode & _OTHERS:
        raise PermissionError(errno.EPERM, f"it has {status.st_nlink} names in a folder that others may write")


def _judge_owner(status: os.stat_result, folder: os.stat_result, name: str | None = None) -> None:
    if folder.st_mode & stat.S_IWOTH and status.st_uid not in (os.geteuid(), 0, folder.st_uid):
        reason = f"it belongs to user {status.st_uid}, in a folder that everybody may write"
        raise PermissionError(errno.EPERM, reason, name)


LONGEST_LINE_BYTES = 4 << 20  # a trial's line has about 1 KB, a head's with 10,000 listed configs about 1 MB
LARGEST_LOG_BYTES = 1 << 30  # an exhaustive run of 10^6 configs
_LAST_BYTES = 64 << 10


def read_file(path: str | os.PathLike[str], limit_bytes: int = LARGEST_LOG_BYTES) -> bytes:
    """The content of a regular file; OSError if the rule of this module refuses it, or it is larger."""
    descriptor = open_regular(path)
    try:
        return read_all(descriptor, limit_bytes)
    finally:
        os.close(descriptor)


def read_all(descriptor: int, limit_bytes: int) -> bytes:
    """The bytes of a descriptor until its end; OSError if there are more than `limit_bytes`."""
    size = os.fstat(descriptor).st_size
    parts, remainder = [], limit_bytes + 1 if size <= limit_bytes else 0
    while remainder > 0 and (part := os.read(descriptor, min(remainder, max(size + 1, 1 << 16)))):
        parts.append(part)
        remainder -= len(part)
    if remainder <= 0:
        raise OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes, the most that is read")
    return b"".join(parts)


def holds(path: str, content: bytes) -> bool:
    """True if a file has exactly this content, which was read and judged before.

    Cost: about 10 µs, since the file is opened without being asked what it is. What is no regular file has other
    content, and blocks nothing.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(content) + 1) == content
    except OSError:
        return False
    finally:
        os.close(descriptor)


def whole_lines(path: Path, limit_bytes: int = LARGEST_LOG_BYTES) -> Iterator[bytes]:
    """The lines of a file that end in a line break, without it; none if the file is missing.

    A last line without a line break was torn by a killed writer, and is left out. Of a line that is longer than any
    writer's only the beginning is given, so that it is no line of any kind. OSError as of `read_file`.
    """
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > limit_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes, the most that is read")
        while line := file.readline(LONGEST_LINE_BYTES):
            ended = line.endswith(b"\n")
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE_BYTES)
            if rest and line != b"\n":
                yield line[:-1] if ended else line


def last_line(path: Path) -> bytes:
    """The last line of a file that ends in a line break, read from the end; empty if there is none."""
    with contextlib.suppress(FileNotFoundError), os.fdopen(open_regular(path), "rb") as file:
        size, length = file.seek(0, os.SEEK_END), _LAST_BYTES
        while True:
            file.seek(max(size - length, 0))
            lines = file.read(length).split(b"\n")[:-1]
            whole = lines if length >= size else lines[1:]
            if any(whole) or length >= min(size, LONGEST_LINE_BYTES):
                return next((line for line in reversed(whole) if line), b"")
            length *= 8
    return b""


_no_syncs = False


def skip_syncs() -> None:
    """From now on leave it to the system when what this process writes reaches the disk.

    It is for a process whose files nobody needs after its end, since another one keeps what they hold. Each wait for a
    disk takes some milliseconds.
    """
    global _no_syncs
    _no_syncs = True


def sync(descriptor: int) -> None:
    """Wait until what was written to a file or a folder is on disk."""
    if not _no_syncs:
        os.fsync(descriptor)


_PROBE = ".probe-"
_TOKEN = "[0-9a-f]{16}"  # with it, a name is of this module, and of no other program
_LEFT_BEHIND_S = 3600.0  # a write takes milliseconds; a file of this age has no writer any more


def ensure_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder with `~` expanded, made if it is missing, and its name on disk; CacheError if it cannot be made."""
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
    """Make a folder, and those above it that are missing, each with its name on disk."""
    missing = [path, *(above for above in path.parents if not is_folder(above))]
    for folder in reversed(missing):  # `parents=True` calls itself for each: a thousand are too many
        folder.mkdir(exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def check_home(folder: Path) -> None:
    """Raise CacheError if `folder` is what stands for the cache folder of a user without a home folder."""
    if folder.is_relative_to(os.devnull):
        raise CacheError(
            "there is no home folder to keep records in", hint="set TRITON_OPS_CACHE_DIR, XDG_CACHE_HOME or HOME"
        )


def writable(folder: Path) -> bool:
    """True if files can be made in `folder` now; a file is made to find out, since permission bits can mislead."""
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
    no other. A link is replaced, and not followed. The new file has the permissions of `like` and, where this user may
    set them, its owner and group; None obeys the umask.
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

    A folder that cannot be listed or written is left as it is. In one that is not this package's, `only` names the one
    file whose half-written forms are meant.
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


_log = logging.getLogger("triton_ops")


def append_line(path: Path, line: str, durable: bool = True) -> None:
    """Append one line to `path`; with `durable` the line is on disk when this returns.

    If the file ends in a torn line of a killed writer, a line break is written before the new line. OSError: the part
    that was written is a torn last line.
    """
    if "\n" in line:
        raise ValueError("a line cannot contain a line break")
    content = line.encode() + b"\n"
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b") as file:
        torn, fresh = False, file.seek(0, os.SEEK_END) == 0
        if not fresh:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        file.write((b"\n" if torn else b"") + content)
        file.flush()
        if durable:
            sync(file.fileno())
    if durable and fresh:
        sync_folder(path.parent)


class AppendedFile:
    """A file of JSON lines, each with its checksum, to which entries are appended; a failed write is a warning.

    Its folder is made with the first line; without a path nothing is written. The loss is the consequence of a file
    that cannot be written, for the warning. The root is the cache folder that holds the file; the folders between are
    judged before the first line is written. None where the file's own folder was chosen by somebody. With `gaps`
    entries may be written after one that could not be; else nothing further is, since a file with a gap would be worse
    than one that ends.
    """

    def __init__(self, path: Path | None, loss: str, root: Path | None = None, *, gaps: bool = False) -> None:
        self.path = path
        self._loss, self._root, self._gaps = loss, root, gaps
        self._broken = False

    @property
    def written(self) -> Path | None:
        """The file that others can read; None if there is none, or a line was lost."""
        return None if self._broken else self.path

    @staticmethod
    def append_at(path: Path, size: int, content: bytes) -> bool:
        """Append bytes, on disk when this returns, to a file of so many bytes; False if it has another size."""
        try:
            descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            return False
        with os.fdopen(descriptor, "ab") as file:
            if os.fstat(file.fileno()).st_size != size:
                return False
            file.write(content)
            file.flush()
            sync(file.fileno())
        return True

    def append(self, entry: Mapping[str, Any], durable: bool = True) -> None:
        """Append an entry as one line; with `durable` it is on disk when this returns."""
        if (self._broken and not self._gaps) or self.path is None:
            return
        try:
            if self._root is not None:
                folder_within(self._root, self.path.parent)
            ensure_folder(self.path.parent)
            append_line(self.path, _text(entry), durable)
            self._broken = False
        except (OSError, CacheError) as error:
            warned, self._broken = self._broken, True
            reason = getattr(error, "strerror", None) or error
            level = logging.DEBUG if warned else logging.WARNING
            _log.log(level, "%s cannot be written (%s): %s", self.path, reason, self._loss)


def _text(entry: Mapping[str, Any]) -> str:
    """The line of an entry. What JSON cannot hold, as half of a character in a message, is replaced."""
    try:
        text = json.dumps(sealed(entry), ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        text = json.dumps(sealed(storable(entry)), ensure_ascii=False, allow_nan=False)
    return text
