"""Lockfiles that packages bring with them, with the winners of their kernels: read once, and never changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from triton_ops.records.followed import FollowedLockfile
from triton_ops.records.lock_entry import LockEntry
from triton_ops.records.lockfile import Lockfile
from triton_ops.values import Key

_lockfiles: dict[str, FollowedLockfile] = {}


def share_lockfile(path: str | os.PathLike[str]) -> None:
    """Let the launches of this process also take configs from the lockfile at `path`, after records of their problem.

    A package calls it with a lockfile of its own kernels when it is imported. The file is read when a launch first asks
    for it. One that cannot be read is one warning, and counts as empty until it is changed.

    Args:
        path: The lockfile, as `triton-ops lock` writes it. An entry answers on its device only.
    """
    where = os.path.abspath(os.fspath(path))  # noqa: PTH100 - text, as the folders of records
    _lockfiles.setdefault(where, FollowedLockfile(where, "a package's lockfile"))


def shared_lockfiles() -> tuple[Lockfile, ...]:
    """The lockfiles of packages, in the order in which they were shared."""
    lockfiles = tuple(_lockfiles.values())  # another thread may import a package that shares one while these are read
    return tuple(lock for each in lockfiles if (lock := each.read()) is not None)


@contextmanager
def without_shared_lockfiles() -> Iterator[None]:
    """Let no lockfile of a package answer meanwhile, as where none is shared: for measurements of a search alone."""
    before = dict(_lockfiles)
    _lockfiles.clear()
    try:
        yield
    finally:
        _lockfiles.update(before)


def shared_entries(key: Key) -> Iterator[LockEntry]:
    """The entries of packages for the kernel and the device of a key, whatever their problem."""
    for lock in shared_lockfiles():
        devices = {device.alias: device for device in lock.devices}
        for entry in lock.entries:
            if entry.kernel == key.kernel and devices[entry.device].why_not(key.device) is None:
                yield entry
