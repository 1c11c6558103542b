"""All that a process has started, wherever it went: into another group or session, or away from its parent.

A process that this package starts has a mark in its environment, which its children, and theirs, inherit. Whoever ends
the process ends all that have its mark, and their children. What has emptied its environment and left its parent is a
child of the process that was started here (`child.py`), as long as that lives. All of this needs Linux's `/proc`, of
the namespace that this process is in; elsewhere only the process group ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from triton_ops import _proc

_MOST_S = 2.0  # waited for processes that were killed to be gone
_LOOK_S = 0.005


def new_mark() -> str:
    """A mark that no other process has."""
    return os.urandom(8).hex()


def end_family(mark: str) -> None:
    """Kill all processes with a mark and their children, but not this process, until there is none.

    Cost: 10 µs for each process of this user, twice.
    """
    until = time.monotonic() + _MOST_S
    while (found := members(mark)) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def members(mark: str) -> set[int]:
    """The processes with a mark and their children, without this one and without those that have ended."""
    processes, sought = _own_processes(), mark.encode()
    found = further = {pid for pid in processes if sought in _proc.environment(pid)} - {os.getpid()}
    if found:
        parents = {pid: _proc.parent(pid) for pid in processes}
        while further:
            further = {pid for pid, parent in parents.items() if parent in further} - found - {os.getpid()}
            found |= further
    return {pid for pid in found if not _proc.ended(pid)}


def _own_processes() -> list[int]:
    if not _proc.is_own():
        return []
    me = os.geteuid()
    try:
        with os.scandir(_proc.PLACE) as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit() and _belongs_to(entry, me)]
    except OSError:
        return []


def _belongs_to(entry: os.DirEntry[str], user: int) -> bool:
    try:
        return entry.stat().st_uid == user
    except OSError:
        return False
