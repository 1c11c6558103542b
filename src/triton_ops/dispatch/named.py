"""A decorated kernel found again by the name that it has in its module, as pickles of it are read."""

from __future__ import annotations

import importlib
import pickle
from typing import Any


def named(module: str, name: str) -> Any:
    """The decorated kernel that stands under a name in a module, below heuristics around it; None if there is none."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    while found is not None and not hasattr(found, "configs"):
        found = getattr(found, "fn", None)
    return found


def by_name(kernel: Any) -> tuple[Any, tuple[str, str]]:
    """What a pickle holds of a decorated kernel.

    Raises:
        PicklingError: The kernel is not what stands under its name in its module.
    """
    function = kernel.base_fn
    if named(function.__module__, function.__qualname__) is not kernel:
        raise pickle.PicklingError(
            f"the decorated kernel {function.__module__}:{function.__qualname__} cannot be pickled: another object "
            "stands under that name"
        )
    return named, (function.__module__, function.__qualname__)
