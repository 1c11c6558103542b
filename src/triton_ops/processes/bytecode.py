"""Bytecode for child processes, on machines where Python keeps no bytecode of installed modules.

Containers are often built without bytecode (PYTHONDONTWRITEBYTECODE, pip's --no-compile, uv's default). Every process
then compiles the thousand modules of torch again: a worker takes 3.4 s to its first answer instead of 1.3 s, on two
cores (benchmarks/launch/start_up.py). With a folder of bytecode that the children of a tune share, a worker takes 1.6 s. The
children write into the folder what they import; helpers also compile the modules that this process has imported, so
that the first child is faster too.

The folder belongs to this user alone, unlike the folder of records, which may be shared: bytecode is code, and code of
other users must not be run. The folder only saves time, so a failure to use it is no error and gives no warning.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec, source_hash
from pathlib import Path
from types import ModuleType

import platformdirs

from triton_ops.base import fingerprint, private_folder, usable_cpus, writable

_HEAVY = "torch"  # the only dependency so large that a folder of bytecode saves time
_MOST_HELPERS = 8  # so many compile torch's modules in a quarter of a second, before a child imports them
_HEADER = struct.Struct("<4sIII")  # magic number, flags, then time and size of the source or a hash of it
_HASHED, _CHECKED, _WORD = 1, 2, 0xFFFF_FFFF
_HELPER = Path(__file__).with_name("bytecode_helper.py")


def folder() -> Path | None:
    """The folder in which child processes keep bytecode; None where Python keeps it, or no folder can be made."""
    if os.name != "posix":
        return None
    try:
        spec = find_spec(_HEAVY)
        origin = None if spec is None else spec.origin
        if origin is None or _kept_by_python(origin):
            return None
        home = Path(platformdirs.user_cache_dir("triton-ops-bytecode")).absolute()  # others may share `triton-ops`
        path = private_folder(home / fingerprint([origin, version(_HEAVY)]))  # each installed torch has its own
        return path if writable(path) else None
    except (ImportError, OSError, RuntimeError, ValueError):  # no home folder, or torch without an installed version
        return None


@contextlib.contextmanager
def being_filled() -> Iterator[None]:
    """While the context is open, helpers fill the folder with bytecode of the modules that this process has imported.

    Cost: none where there is no folder; a fourth of a second of at most 8 CPUs for torch the first time.
    """
    with contextlib.ExitStack() as helpers:
        if (to := folder()) is not None and sys.executable:
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                _start(to, helpers)
        yield


def _kept_by_python(origin: str) -> bool:
    """Whether Python has valid bytecode of a module, or will write it on the first import."""
    if sys.flags.optimize:
        return True  # each level of optimisation has files of its own, which are not kept here
    cached = Path(cache_from_source(origin))
    nearest = next(path for path in cached.parents if path.is_dir())
    return _fresh(cached, Path(origin)) or (not sys.dont_write_bytecode and writable(nearest))


def _fresh(cached: Path, source: Path) -> bool:
    """Whether Python accepts the bytecode at `cached` as that of `source`, by its header of 16 bytes (PEP 552).

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
        kept: bytes = first.to_bytes(4, "little") + second.to_bytes(4, "little")
        return not flags & _CHECKED or kept == source_hash(source.read_bytes())
    found = source.stat()
    return bool((first, second) == (int(found.st_mtime) & _WORD, found.st_size & _WORD))


def _start(to: Path, helpers: contextlib.ExitStack) -> None:
    """Start helpers that each compile a part of the modules, the last imported first, unlike a child's imports."""
    installed = (f"{sysconfig.get_path('stdlib')}{os.sep}", f"{_site()}{os.sep}")
    sources = filter(None, map(_source, reversed(list(sys.modules.values()))))
    files = [os.fsencode(source) for source in sources if source.startswith(installed)]
    count = max(1, min(_MOST_HELPERS, usable_cpus() // 2))
    for part in range(count):
        with tempfile.TemporaryFile() as listed:
            listed.write(b"\n".join(files[part::count]))
            listed.seek(0)
            helper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(_HELPER), str(to), str(os.getpid())],
                stdin=listed,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        helpers.callback(helper.wait)
        helpers.callback(helper.kill)
        threading.Thread(target=helper.wait, daemon=True).start()  # reaps the helper when it is done


def _site() -> Path:
    """The folder in which torch is installed."""
    spec = find_spec(_HEAVY)
    return Path(spec.origin).parents[1] if spec is not None and spec.origin is not None else Path(os.devnull)


def _source(module: object) -> str | None:
    """A module's source file; read without attribute access, which would import a lazily loaded module."""
    if not isinstance(module, ModuleType):
        return None
    spec = object.__getattribute__(module, "__dict__").get("__spec__")
    origin = spec.origin if isinstance(spec, ModuleSpec) else None
    return origin if isinstance(origin, str) and origin.endswith(".py") else None
