"""Lockfiles that packages bring with them, with the winners of their kernels: read once, and never changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from triton_ops.cache.key import Key
from triton_ops.cache.lock_entry import LockEntry
from triton_ops.cache.lockfile import Lockfile, read_lockfile
from triton_ops.exceptions import LockfileError

_log = logging.getLogger("triton_ops")
_shared: dict[str, None] = {}


def share_lockfile(path: str | os.PathLike[str]) -> None:
    """Let the launches of this process also take configs from the lockfile at `path`, after records of their problem.

    A package calls it with a lockfile of its own kernels when it is imported. The file is read when a launch first asks
    for it. One that cannot be read is one warning, and counts as empty.

    Args:
        path: The lockfile, as `triton-ops lock` writes it. An entry answers on its device only.
    """
    _shared[os.path.abspath(os.fspath(path))] = None  # noqa: PTH100 - text, as the folders of records


def shared_lockfiles() -> tuple[Lockfile, ...]:
    """The lockfiles of packages, in the order in which they were shared."""
    paths = tuple(_shared)  # another thread may import a package that shares one while these are read
    return tuple(lock for path in paths if (lock := _read(path)) is not None)


@contextmanager
def without_shared_lockfiles() -> Iterator[None]:
    """Let no lockfile of a package answer meanwhile, as where none is shared: for measurements of a search alone."""
    before = dict(_shared)
    _shared.clear()
    try:
        yield
    finally:
        _shared.update(before)


def shared_entries(key: Key) -> Iterator[LockEntry]:
    """The entries of packages for the kernel and the device of a key, whatever their problem."""
    for lock in shared_lockfiles():
        devices = {device.alias: device for device in lock.devices}
        for entry in lock.entries:
            if entry.kernel == key.kernel and devices[entry.device].why_not(key.device) is None:
                yield entry


@lru_cache(maxsize=64)
def _read(path: str) -> Lockfile | None:
    try:
        return read_lockfile(path)
    except LockfileError as error:
        _log.warning("a package's lockfile is not used: %s", error)
        return None
