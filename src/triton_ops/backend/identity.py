"""The identity of a kernel: its source with everything that it refers to, and the versions of what compiles it.

A stored winner holds as long as the identity is equal.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from triton_ops._files import read_named
from triton_ops._hashing import fingerprint
from triton_ops.backend.source import source_of
from triton_ops.backend.toolchain import toolchain


def function_identity(function: Callable[..., Any]) -> dict[str, str]:
    """The identity of a Python callable: source, Python, torch, packages, and the compiler if it uses Triton."""
    source = source_of(function)
    found = {"source": source.fingerprint, "python": platform.python_version(), **source.packages, **_torch()}
    compiler = toolchain() if "triton" in source.packages else {}
    return {**found, **compiler, **_as_python(source.interpreted), **_unknown({"source": source.unknown})}


def triton_identity(
    function: Any,
    grid: Callable[..., Any] | None,
    *,
    interpreted: bool,
    parts: Mapping[str, Any] = MappingProxyType({}),
    files: Iterable[str] = (),
) -> dict[str, str]:
    """The identity of a Triton kernel: its source, the source of its grid, and the versions of what compiles it.

    Args:
        function: The JIT function.
        grid: The grid function; None if it does not count.
        interpreted: Whether it runs as Python.
        parts: What else decides what a launch does, such as hooks, by name.
        files: Files that take the place of what the compiler makes; they count by their content.
    """
    counted = {**parts, **({} if grid is None else {"grid": grid})}
    source, others = source_of(function), {name: source_of(part) for name, part in counted.items()}
    contents = {f"file {path}": _content(path) for path in files}
    packages = {name: version for name, version in source.packages.items() if name != "triton"}
    return {
        "source": source.fingerprint,
        **{name: other.fingerprint for name, other in others.items()},
        **contents,
        **packages,
        **toolchain(),
        **_as_python(interpreted),
        **_unknown({"source": source.unknown, **{n: o.unknown for n, o in others.items()}}),
    }


def _as_python(interpreted: bool) -> dict[str, str]:
    """The entry of a kernel that runs as Python, whose times say nothing of a GPU; no entry for any other."""
    return {"interpreted": "yes"} if interpreted else {}


def _unknown(found: Mapping[str, str | None]) -> dict[str, str]:
    """The reasons why something cannot be told apart, as one entry; no entry if there is none."""
    reasons = [f"{name}: {why}" for name, why in found.items() if why is not None]
    return {"unknown": "; ".join(reasons)} if reasons else {}


def _content(path: str) -> str:
    try:
        return fingerprint(read_named(Path(path)).decode(errors="replace"))
    except OSError:
        return "missing"


@lru_cache(maxsize=1)
def _torch() -> Mapping[str, str]:
    try:
        return {"torch": importlib.metadata.version("torch")}
    except importlib.metadata.PackageNotFoundError:
        return {}
