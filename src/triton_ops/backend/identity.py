"""The identity of a kernel: its source with everything that it refers to, and the versions of what compiles it.

A stored winner holds as long as the identity is equal.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from triton_ops.backend.source import source_of
from triton_ops.backend.toolchain import toolchain


def function_identity(function: Callable[..., Any]) -> dict[str, str]:
    """The identity of a Python callable: source, Python, torch, packages, and the compiler if it uses Triton."""
    source = source_of(function)
    found = {"source": source.fingerprint, "python": platform.python_version(), **source.packages, **_torch()}
    compiler = toolchain() if "triton" in source.packages else {}
    return {**found, **compiler, **_unknown({"source": source.unknown})}


def triton_identity(function: Any, grid: Callable[..., Any], *, interpreted: bool) -> dict[str, str]:
    """The identity of a Triton kernel: its source, the source of its grid, and the versions of what compiles it."""
    source, launch = source_of(function), source_of(grid)
    packages = {name: version for name, version in source.packages.items() if name != "triton"}
    return {
        "source": source.fingerprint,
        "grid": launch.fingerprint,
        **packages,
        **toolchain(),
        **({"interpreted": "yes"} if interpreted else {}),
        **_unknown({"source": source.unknown, "grid": launch.unknown}),
    }


def _unknown(found: Mapping[str, str | None]) -> dict[str, str]:
    """The reasons why something cannot be told apart, as one entry; no entry if there is none."""
    reasons = [f"{name}: {why}" for name, why in found.items() if why is not None]
    return {"unknown": "; ".join(reasons)} if reasons else {}


@lru_cache(maxsize=1)
def _torch() -> Mapping[str, str]:
    try:
        return {"torch": importlib.metadata.version("torch")}
    except importlib.metadata.PackageNotFoundError:
        return {}
