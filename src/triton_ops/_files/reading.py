"""Reading of files in folders of this package, each up to a size that its kind of file never has."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from triton_ops._files.opening import open_regular

LONGEST_LINE_BYTES = 4 << 20  # a trial's line has about 1 KB, a head's with 10,000 listed configs about 1 MB
LARGEST_LOG_BYTES = 1 << 30  # an exhaustive run of 10^6 configs
_LAST_BYTES = 64 << 10


def read_file(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """The content of a regular file.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The file cannot be read, is larger than `limit_bytes`, or is refused by the rule of `opening`.
    """
    descriptor = open_regular(path)
    try:
        return read_all(descriptor, limit_bytes)
    finally:
        os.close(descriptor)


def read_all(descriptor: int, limit_bytes: int) -> bytes:
    """What can be read from a descriptor until its end.

    Raises:
        OSError: It cannot be read, or there are more than `limit_bytes`.
    """
    size = os.fstat(descriptor).st_size
    parts, left = [], limit_bytes + 1 if size <= limit_bytes else 0
    while left > 0 and (part := os.read(descriptor, min(left, max(size + 1, 1 << 16)))):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes, the most that is read")
    return b"".join(parts)


def holds(path: str, content: bytes) -> bool:
    """Whether a file has exactly this content, which was read and judged before.

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
    writer's only the beginning is given, so that it is no line of any kind.

    Raises:
        OSError: The file cannot be read, is larger than `limit_bytes`, or is refused by the rule of `opening`.
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
    """The last line of a file that ends in a line break, read from the end; empty if there is none.

    Raises:
        OSError: The file cannot be read, or is refused by the rule of `opening`.
    """
    with contextlib.suppress(FileNotFoundError), os.fdopen(open_regular(path), "rb") as file:
        size, wanted = file.seek(0, os.SEEK_END), _LAST_BYTES
        while True:
            file.seek(max(size - wanted, 0))
            lines = file.read(wanted).split(b"\n")[:-1]
            whole = lines if wanted >= size else lines[1:]
            if any(whole) or wanted >= min(size, LONGEST_LINE_BYTES):
                return next((line for line in reversed(whole) if line), b"")
            wanted *= 8
    return b""
