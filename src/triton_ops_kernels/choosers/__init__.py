"""Choosers that come with the package, for operations of torch: made when they are first asked for.

The first implementation of each is torch's own function. Implementations of this package, and other ways to ask torch
for the same result, stand beside it, each with a predicate.
"""

from __future__ import annotations

import importlib
from functools import lru_cache

from triton_ops.base import require
from triton_ops.dispatch import Chooser
from triton_ops.exceptions import TargetError

_MODULES = {
    **dict.fromkeys(("matmul", "linear", "bmm", "scaled_mm"), "products"),
    "conv2d": "convolution",
    "softmax": "rows",
    "sdpa": "attention",
}


def names() -> tuple[str, ...]:
    """The names that `chooser` knows."""
    return tuple(_MODULES)


@lru_cache(maxsize=len(_MODULES))
def chooser(name: str) -> Chooser:
    """The chooser of a name: `matmul`, `linear`, `bmm`, `scaled_mm`, `conv2d`, `softmax` or `sdpa`.

    It is the same object at every call, so that what is registered with it is found by all.

    Args:
        name: One of these words.

    Returns:
        The chooser; it is called as torch's function of that name is.

    Raises:
        TargetError: There is none of this name.
        MissingDependencyError: Torch is not installed.

    Cost: the first call imports torch, and Triton where it is installed.
    """
    if name not in _MODULES:
        raise TargetError(f"no chooser is called {name!r}; there are {', '.join(_MODULES)}", hint="use one of these")
    require("torch", "a chooser of its operations")
    implementations: Chooser = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), f"{name}_chooser")()
    return implementations


def __getattr__(name: str) -> Chooser:
    """A chooser as an attribute, as TARGETs of the command line name it."""
    if name in _MODULES:
        return chooser(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
