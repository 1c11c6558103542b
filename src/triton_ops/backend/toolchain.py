"""The versions of Triton and ptxas, which turn a kernel into machine code, and the environment that steers them.

Triton calls the ptxas that `TRITON_PTXAS_PATH` names, else its own, and another one for Blackwell. torch's compiler
names the one that came with torch when it compiles its first kernel, in the middle of a process: a winner that was
found before is to be found after it too. So that one is not told from Triton's own, and processes that this one starts
use Triton's own.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from triton_ops.settings import triton_options, triton_program

_PTXAS = ("ptxas", "ptxas-blackwell")
_ANSWER_S = 30  # a ptxas that says nothing for so long never will


def toolchain() -> dict[str, str]:
    """Versions of Triton and ptxas, and the variables of the environment that change what Triton generates.

    Cost: 10 ms at first, most of it for two programs that tell their version, then 15 µs.
    """
    steered = _environment()
    named = tuple(map(triton_program, _PTXAS))
    return {"triton": _version(), "ptxas": _ptxas(named), **({"environment": steered} if steered else {})}


def _environment() -> str:
    """What is set of the variables that Triton itself counts when it looks for a kernel in its cache, and of others."""
    library = importlib.import_module("triton._C.libtriton")
    counted: Mapping[str, str] = library.get_cache_invalidating_env_vars()
    return " ".join(f"{name}={value}" for name, value in sorted({**triton_options(), **counted}.items()))


@lru_cache(maxsize=1)
def _version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # a copy that no installer has made
        return str(importlib.import_module("triton").__version__)


@lru_cache(maxsize=16)
def _ptxas(named: tuple[str | None, ...]) -> str:
    """The versions of the programs that Triton would call, each once; `none` where there is none, as on AMD's GPUs."""
    found: list[str] = []
    for name, path in zip(_PTXAS, named, strict=True):
        candidates = [*([Path(path)] if path else []), *own_program(name)]
        found += [version for version in map(version_told, candidates) if version][:1]
    return ", ".join(dict.fromkeys(found)) or "none"


def own_program(name: str) -> list[Path]:
    """The program of a name that is installed with Triton: it serves if the one that is named cannot be run."""
    spec = find_spec("triton")
    return [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "backends/nvidia/bin" / name]


def version_told(path: Path) -> str | None:
    """The version that a ptxas tells; None if the program is not there, or tells none."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"release [\d.]+, V([\d.]+)", done.stdout) or re.search(r"release ([\d.]+)", done.stdout)
    return match.group(1) if match else None
