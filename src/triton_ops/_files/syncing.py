"""Waits for the disk, which a process leaves out whose files are copies of what another one keeps."""

from __future__ import annotations

import os

_skipped = False


def skip_syncs() -> None:
    """From now on leave it to the system when what this process writes reaches the disk.

    It is for a process whose files nobody needs after its end, since another one keeps what they hold. Each wait for a
    disk takes some milliseconds.
    """
    global _skipped
    _skipped = True


def sync(descriptor: int) -> None:
    """Wait until what was written to a file or a folder is on disk.

    Raises:
        OSError: It cannot be written.
    """
    if not _skipped:
        os.fsync(descriptor)
