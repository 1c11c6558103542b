"""Worker processes of a process, found from outside; a module without torch, for programs that start in no time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path


def workers_of(parent: int) -> list[int]:
    """Worker processes of a process that are alive."""
    return [pid for pid in _children(parent) if b"triton_ops.evaluation.worker" in _command(pid)]


def _children(parent: int) -> Iterator[int]:
    """Processes that a process has started, and that have not ended."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent and fields[0] != "Z":
                    yield int(entry.name)


def _command(pid: int) -> bytes:
    """The command of a process; one that is just being started has none for a moment."""
    with contextlib.suppress(OSError):  # it has ended
        for _ in range(100):
            if words := Path(f"/proc/{pid}/cmdline").read_bytes():
                return words
            time.sleep(0.01)
    return b""
