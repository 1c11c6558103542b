"""The folder of bytecode for child processes, on machines where Python keeps no bytecode of installed modules.

Containers are often built without bytecode (PYTHONDONTWRITEBYTECODE, pip's --no-compile, uv's default), and some have
no folder that it could be written to. Every process then compiles the thousand modules of torch again. Children of this
package write what they import into a folder of their own instead, and later children read it from there: they start in
half the time (benchmarks/launch/start_up.py).

The folder belongs to this user alone, unlike the folder of records, which may be shared: bytecode is code, and code of
other users must not be run. The folder only saves time, so a failure to use it is no error and gives no warning.
"""

from __future__ import annotations

import os
import struct
import sys
from importlib.metadata import version
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec, source_hash
from pathlib import Path

import platformdirs

from triton_ops.base import fingerprint, private_folder, writable

_HEAVY = "torch"  # the only dependency so large that a folder of bytecode saves time
_HEADER = struct.Struct("<4sIII")  # magic number, flags, then time and size of the source or a hash of it
_HASHED, _CHECKED, _WORD = 1, 2, 0xFFFF_FFFF


def folder() -> Path | None:
    """The folder in which child processes keep bytecode; None where Python keeps it, or no folder can be made."""
    if os.name != "posix":
        return None
    try:
        spec = find_spec(_HEAVY)
        origin = None if spec is None else spec.origin
        if origin is None or _python_keeps(origin):
            return None
        home = Path(platformdirs.user_cache_dir("triton-ops-bytecode")).absolute()  # others may share `triton-ops`
        path = private_folder(home / fingerprint([origin, version(_HEAVY)]))  # each installed torch has its own
        return path if writable(path) else None
    except (ImportError, OSError, RuntimeError, ValueError):  # no home folder, or torch without an installed version
        return None


def _python_keeps(origin: str) -> bool:
    """Tell whether Python has valid bytecode of a module, or will write it on the first import."""
    if sys.flags.optimize:
        return True  # each level of optimisation has files of its own, which are not kept here
    cached = Path(cache_from_source(origin))
    nearest = next(path for path in cached.parents if path.is_dir())
    return _is_fresh(cached, Path(origin)) or (not sys.dont_write_bytecode and writable(nearest))


def _is_fresh(cached: Path, source: Path) -> bool:
    """Tell whether Python accepts the bytecode at `cached` as that of `source`, by its header of 16 bytes (PEP 552).

    An environment that was copied without the times of its files has bytecode everywhere, and Python accepts none of
    it.
    """
    if not cached.exists():
        return False
    with cached.open("rb") as file:
        magic, flags, first, second = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
    if magic != MAGIC_NUMBER:
        return False
    if flags & _HASHED:
        own_hash: bytes = first.to_bytes(4, "little") + second.to_bytes(4, "little")
        return not flags & _CHECKED or own_hash == source_hash(source.read_bytes())
    status = source.stat()
    return bool((first, second) == (int(status.st_mtime) & _WORD, status.st_size & _WORD))
