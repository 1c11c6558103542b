"""What one host tells another of a config that it has compiled, and the versions that must be equal on both."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass

from triton_ops.values import Compiled


@dataclass(frozen=True)
class Made:
    """What was made of a config.

    Attributes:
        compiled: The compiler's result.
        keys: Triton's names for what it has put into its disk cache, one for each launch of the kernel; none if the
            config cannot be launched.
    """

    compiled: Compiled
    keys: tuple[str, ...]


def versions_here() -> dict[str, str]:
    """The versions that must be equal where something is compiled and where it runs; empty for what is missing."""
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = ""
    return {"Python": platform.python_version(), "Triton": triton}
