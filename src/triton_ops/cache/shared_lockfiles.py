"""Lockfiles that packages bring with them, with the winners of their kernels: read once, and never changed."""

from __future__ import annotations

import logging
import os
from functools import lru_cache

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
    return tuple(lock for path in _shared if (lock := _read(path)) is not None)


@lru_cache(maxsize=64)
def _read(path: str) -> Lockfile | None:
    try:
        return read_lockfile(path)
    except LockfileError as error:
        _log.warning("a package's lockfile is not used: %s", error)
        return None
