"""`triton-ops engine`: commands that the distribution `triton-ops-serving` brings, found by its entry point."""

from __future__ import annotations

from importlib.metadata import entry_points

from triton_ops.exceptions import MissingDependencyError


def __getattr__(name: str) -> object:
    for entry in entry_points(group="triton_ops.commands", name="engine"):
        return getattr(entry.load(), name)
    raise MissingDependencyError.absent("triton-ops-serving", "the command `engine`")
