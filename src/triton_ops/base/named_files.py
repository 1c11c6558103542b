"""Files that a person has named on the command line or in a call: any path that this user may open.

Links are followed, save those that another user has planted. What is no regular file is written to or read from where
that makes sense, as with `/dev/stdout` and pipes, and is refused otherwise; nothing is ever put in its place.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from pathlib import Path

from triton_ops.base.files import atomic_write, kind_of, read_all, sweep, written_by_others

LARGEST_NAMED_BYTES = 1 << 30
_OPEN = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|\d+))/fd/(\d+)")
_MOST_LINKS = 40  # as many as Linux follows
_GZIP = 31  # zlib's number for gzip
_SMALL_BYTES = 4 << 20
_DENSEST = 64  # JSON of this package shrinks to a tenth or a thirtieth
_MOST_UNPACKED_BYTES = 1 << 30


def read_named(path: Path, limit_bytes: int = LARGEST_NAMED_BYTES, *, unpack: bool = False) -> bytes:
    """The content of a regular file or of a pipe, wherever it is, unpacked by `unpacked` if that is wanted.

    OSError: it is larger than `limit_bytes`, is a device, a socket or a folder, or is a FIFO to which no process
    writes.
    """
    _refuse_others(os.stat(path))  # noqa: PTH116 - beside the other calls of `os`
    descriptor = os.open(path, os.O_RDONLY | _OPEN)
    try:
        status = os.fstat(descriptor)
        _refuse_others(status)
        if not stat.S_ISFIFO(status.st_mode):
            content = read_all(descriptor, limit_bytes)
        else:
            content = _read_pipe(descriptor, limit_bytes)
    finally:
        os.close(descriptor)
    return unpacked(content) if unpack else content


def write_named(path: Path, content: str | bytes) -> None:
    """Write a file that a person has named, text as UTF-8.

    A regular file is replaced as a whole and keeps its permissions; of a link, the file at its end is. A FIFO that is
    being read, a terminal and another character device are written to. OSError: it is a folder, a block device or a
    socket, a FIFO that no process reads, or a link that another user has put into a folder that others may write; or
    its name is `-`.
    """
    if str(path) == "-":  # elsewhere it means the output; a file of this name would surprise, and is hard to remove
        raise OSError(errno.EINVAL, "the standard output is /dev/stdout here")
    data = content.encode("utf-8") if isinstance(content, str) else content
    target = _end_of_links(path)
    try:
        status = os.stat(target)  # noqa: PTH116 - beside the other calls of `os`
    except FileNotFoundError:
        _replace(target, data, None)
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if _DESCRIPTOR.fullmatch(str(target)) or stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):
        _write_into(target, data)
    elif stat.S_ISREG(status.st_mode):
        _replace(target, data, status)
    else:
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}, which cannot hold a file")


def unpacked(content: bytes) -> bytes:
    """Gzipped bytes, unpacked up to 4 MiB or 64 times their size, and to 1 GiB, else ValueError; others as they are."""
    if content[:2] != b"\x1f\x8b":
        return content
    most = min(max(_SMALL_BYTES, _DENSEST * len(content)), _MOST_UNPACKED_BYTES)
    limit, parts, rest = most, [], content
    while rest:
        member = zlib.decompressobj(_GZIP)
        try:
            part = member.decompress(rest, limit + 1)
        except zlib.error as error:
            raise ValueError(f"its gzip data are damaged: {error}") from error
        limit -= len(part)
        if limit < 0:
            raise ValueError(f"its gzip data unpack to more than {most} bytes")
        if not member.eof:
            raise ValueError("its gzip data are cut off")
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


def _refuse_others(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISFIFO(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}, not a regular file")


def _read_pipe(descriptor: int, limit_bytes: int) -> bytes:
    """The bytes of a pipe until its last writer closes it; who has no writer at all is not waited for."""
    try:
        first = os.read(descriptor, min(limit_bytes, 1 << 16))
    except BlockingIOError:
        first = b""
    else:
        if not first:
            raise OSError(errno.EPIPE, "it is a FIFO that no process writes to")
    os.set_blocking(descriptor, True)
    return first + read_all(descriptor, limit_bytes - len(first))


def _end_of_links(path: Path) -> Path:
    """The path after its links were followed, as far as one of `/dev/fd`; its folders may be links too."""
    for _ in range(_MOST_LINKS):
        folder = Path(os.path.realpath(path.parent))
        path = folder / path.name
        if _DESCRIPTOR.fullmatch(str(path)) or not path.is_symlink():
            return path
        above, link = folder.stat(), path.lstat()
        if written_by_others(above) and link.st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, f"it is a link of user {link.st_uid} in a folder that others may write")
        path = folder / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _replace(target: Path, data: bytes, status: os.stat_result | None) -> None:
    sweep(target.parent, only=target.name)
    atomic_write(target, data, like=status)


def _write_into(target: Path, data: bytes) -> None:
    """Write into what is no regular file, or into an open descriptor of this process."""
    number = _DESCRIPTOR.fullmatch(str(target))
    try:
        descriptor = os.dup(int(number[1])) if number else os.open(target, os.O_WRONLY | _OPEN)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is a FIFO that no process reads") from error
        raise
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if not number:
            os.set_blocking(descriptor, True)
        remainder = memoryview(data)
        while remainder:
            remainder = remainder[file.write(remainder) or 0 :]
