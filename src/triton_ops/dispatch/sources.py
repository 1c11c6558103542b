"""Sources of winners for this process: the lockfile in use, and the folders of records."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from triton_ops import settings
from triton_ops.base import Guard
from triton_ops.dispatch.ladder import Ladder
from triton_ops.dispatch.ledger import forget_decisions
from triton_ops.dispatch.policy import DEFAULT, ERROR, confine
from triton_ops.exceptions import CacheError, LockfileError, SettingsError
from triton_ops.records import (
    RECORDS,
    FollowedLockfile,
    Lockfile,
    MemoryStore,
    Record,
    Store,
    cache_folder,
    may_have_records,
    read_lockfile,
    store_in,
)

_log = logging.getLogger("triton_ops")
_guard = Guard()  # a lockfile that is being written is waited for while it is held


@dataclass(frozen=True)
class _InUse:
    """A lockfile that launches use, or one that is followed, and whether they use nothing else."""

    lockfile: Lockfile | FollowedLockfile | None = None
    only: bool = False

    def ladder(self, store: Store[Record], folder: str | None) -> Ladder:
        """The ladder over this lockfile and a store."""
        if not isinstance(self.lockfile, FollowedLockfile):
            return Ladder(store, folder, self.lockfile, only_lockfile=self.only)
        lockfile = self.lockfile.read()
        self.lockfile.follow(_look_again)
        return Ladder(store, folder, lockfile, only_lockfile=self.only, refused=self.lockfile.refused)


class _Sources:
    """The lockfile of this process, and one ladder for each folder of records."""

    def __init__(self) -> None:
        self.in_use: _InUse | None = None  # None until something was asked for; the environment then decides
        self.ladders: dict[str, Ladder] = {}
        self.generation = 0


_sources = _Sources()


def use_lockfile(lockfile: Lockfile | str | os.PathLike[str] | None, *, only: bool = False) -> Lockfile | None:
    """Let the launches of this process take their configs from a lockfile first; returns the lockfile.

    Args:
        lockfile: The lockfile, or its path; None uses none, whatever `TRITON_OPS_LOCKFILE` says.
        only: Whether records are not asked: what the lockfile does not pin then runs its default config, or does as
            `on_miss` says.

    Returns:
        The lockfile that is used now; None if none is.

    Raises:
        LockfileError: The file cannot be read, was edited by hand, or is of another version.

    Kernels that were launched before keep their configs until their caches are cleared.
    """
    content = None if lockfile is None else _read(lockfile)
    _use(_InUse(content, only))
    return content


@contextmanager
def replaying(lockfile: Lockfile | str | os.PathLike[str], *, on_miss: str = "default") -> Iterator[Lockfile]:
    """Inside, every launch of this process takes its config from the lockfile, and nothing tunes or asks a record.

    What the lockfile does not pin runs its default config, and says so. It holds for all threads; kernels that were
    launched before are decided anew, at the beginning and at the end.

    Args:
        lockfile: The lockfile, or its path.
        on_miss: `default`, or `error`: what the lockfile does not pin raises `UntunedError`.

    Returns:
        A context manager, which gives the lockfile.

    Raises:
        LockfileError: The file cannot be read, was edited by hand, or is of another version.
        SettingsError: `on_miss` is another word.
    """
    if on_miss not in (DEFAULT, ERROR):
        raise SettingsError(f"on_miss is {on_miss!r}; a replay takes {DEFAULT} or {ERROR}", hint="choose one of these")
    content = _read(lockfile)
    before, limit = _use(_InUse(content, only=True)), confine(on_miss)
    forget_decisions()
    try:
        yield content
    finally:
        _use(before)
        confine(limit)
        forget_decisions()


def _read(lockfile: Lockfile | str | os.PathLike[str]) -> Lockfile:
    """The lockfile that is given, itself or by its path."""
    if isinstance(lockfile, Lockfile):
        return lockfile
    if not isinstance(lockfile, (str, os.PathLike)):
        raise LockfileError(f"{lockfile!r} is no lockfile", hint="give its path, or what read_lockfile returns")
    return read_lockfile(lockfile)


def _use(in_use: _InUse | None) -> _InUse | None:
    """Look winners up there from now on; returns where they were looked up before."""
    with _guard:
        before, _sources.in_use = _sources.in_use, in_use
        _sources.ladders.clear()
        _sources.generation += 1
    return before


def ladder_of(cache_dir: str | Path | None = None) -> Ladder:
    """The ladder over the lockfile in use and the records of a folder; None takes the folder of the environment.

    A folder that cannot be used counts as empty, with a warning.
    """
    folder = cache_folder(cache_dir)
    with _guard:
        if _sources.in_use is None:
            _sources.in_use = _environments()
        if (ladder := _sources.ladders.get(folder)) is not None:
            return ladder
        ladder = _made(folder, _sources.in_use)
        # A folder that is made later is seen then; a forked child follows a lockfile that was refused by itself.
        if may_have_records(folder) and not ladder.refused:
            _sources.ladders[folder] = ladder
        return ladder


def _look_again() -> None:
    """Have every call decided again: the lockfile in use was refused before, and is read now."""
    with _guard:
        _sources.ladders.clear()
    forget_decisions()


def _made(folder: str, in_use: _InUse) -> Ladder:
    try:
        if may_have_records(folder):
            return in_use.ladder(store_in(folder), folder)
    except CacheError as error:
        _log.warning("records are not used: %s", error)
    return in_use.ladder(MemoryStore(RECORDS), None)


def _environments() -> _InUse:
    for name, meant in settings.misspelt().items():
        _log.warning("the variable %s is not read; %s is meant?", name, meant)
    replay = settings.replay()
    path = settings.lockfile() if replay is None else replay
    if path is None:
        return _InUse()
    name = "TRITON_OPS_LOCKFILE" if replay is None else "TRITON_OPS_REPLAY"
    return _InUse(FollowedLockfile(path, f"the lockfile that {name} names"), only=replay is not None)
