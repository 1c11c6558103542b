"""Descriptors for the processes that this package starts: none of them is a standard stream's.

In a program that has closed its standard streams, as a daemon does, new files get the numbers 0, 1 and 2. A child would
lose them to its own standard streams, and what this program prints would be written into them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import socket
import tempfile
from typing import IO

from triton_ops import _proc

_FIRST = 3
_MOST = 65_536


def pipe() -> tuple[int, int]:
    """A pipe: a descriptor to read from, and one to write to."""
    read, write = _moved(*os.pipe())
    return read, write


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two sockets that are connected with each other."""
    ours, theirs = socket.socketpair()
    one, other = _moved(ours.detach(), theirs.detach())
    return socket.socket(fileno=one), socket.socket(fileno=other)


def file_without_a_name() -> IO[bytes]:
    """A temporary file that is gone when it is closed."""
    with tempfile.TemporaryFile() as file:
        return os.fdopen(_other(file.fileno()), "w+b")


def file_in_memory() -> int:
    """The descriptor of an empty file in memory without a name; -1 where the system has none."""
    try:
        return _moved(os.memfd_create("triton_ops"))[0]
    except (AttributeError, OSError):
        return -1


def close_all() -> None:
    """Close all descriptors of this process; where none are listed, those up to a number that programs hardly reach."""
    for descriptor in _proc.own_descriptors() or range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MOST)):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _moved(*descriptors: int) -> list[int]:
    """Descriptors for the same files in place of these, none of which is a standard stream's."""
    moved: list[int] = []
    try:
        moved.extend(map(_other, descriptors))
    except OSError:
        for descriptor in moved:
            os.close(descriptor)
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return moved


def _other(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
