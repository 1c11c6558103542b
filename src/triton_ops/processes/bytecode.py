"""Bytecode for child processes, where Python keeps none of what they import.

Containers are often built without it (PYTHONDONTWRITEBYTECODE, pip's --no-compile, uv's default), and then every
process compiles the thousand modules of torch again: a worker takes 3.4 s to its first answer instead of 1.3 s, on two
cores (benchmarks/start_up.py). The children of a tune share a folder of this user's instead, and take 1.6 s. It is
filled by what they import, and, so that the first one gains by it too, in parallel with what this process has imported.

The folder is not the one of the records, which may be shared: bytecode is code, and is taken from its owner only.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import platformdirs

from triton_ops._files import writable
from triton_ops.hardware import usable_cpus

_HEAVY = "torch"  # of what is imported, all that it is worth it for
_MOST_HELPERS = 8  # which compile torch's modules in a quarter of a second: before a child gets to them
_PRIVATE = 0o700
_FILL = "import sys, compileall; sys.pycache_prefix = sys.argv.pop(1); compileall.main()"


@lru_cache(maxsize=1)
def folder() -> Path | None:
    """Where child processes keep bytecode; None where Python keeps it, or there is nowhere else."""
    spec = find_spec(_HEAVY)
    if spec is None or spec.cached is None or spec.origin is None or Path(spec.cached).exists():
        return None
    if not sys.dont_write_bytecode and sys.pycache_prefix is None and writable(Path(spec.origin).parent):
        return None  # the first import keeps it
    path = Path(platformdirs.user_cache_dir("triton-ops")) / "bytecode"
    try:
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        mine = not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()
    except OSError:
        return None
    return path if mine and writable(path) else None


@contextlib.contextmanager
def being_filled() -> Iterator[None]:
    """Inside, the folder, if there is one, is filled with the bytecode of what this process has imported.

    Cost: none where there is no folder; a fourth of a second of at most 8 CPUs for torch the first time.
    """
    helpers = [] if (to := folder()) is None else list(_helpers(to))
    try:
        yield
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()


def _helpers(to: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Processes that each compile a part, the last imported first: a child begins at the other end."""
    files = [file for file in map(_source, reversed(list(sys.modules.values()))) if file]
    count = max(1, min(_MOST_HELPERS, usable_cpus() // 2))
    for part in range(count):
        with tempfile.TemporaryFile() as listed, contextlib.suppress(OSError):
            listed.write("\n".join(files[part::count]).encode())
            listed.seek(0)
            yield subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _FILL, str(to), "-qq", "-i", "-"],
                stdin=listed,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


def _source(module: object) -> str | None:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return origin if isinstance(origin, str) and origin.endswith(".py") else None
