"""Kernels below decorators: Triton's `Heuristics` and `Autotuner` have the kernel that they decorate in `fn`."""

from __future__ import annotations

import copy
from typing import Any

from triton_ops.backend.signatures import parameters_of
from triton_ops.backend.unwrap import unwrap


def layers(function: Any) -> list[Any]:
    """A kernel with the kernels below its decorators, the innermost last."""
    layers = [function]
    while hasattr(inner := getattr(layers[-1], "fn", None), "run"):
        layers.append(inner)
    return layers


def without_autotune(function: Any) -> Any:
    """A kernel with its other decorators, which see the values of the config too."""
    if hasattr(function, "configs"):
        return without_autotune(function.fn)
    inner = getattr(function, "fn", None)
    if not hasattr(inner, "run") or (below := without_autotune(inner)) is inner:
        return function
    made = copy.copy(function)
    made.fn = below
    return made


def heuristics(function: Any) -> set[str]:
    """The parameters that `@triton.heuristics` gives their values."""
    return {name for layer in layers(function)[:-1] for name in getattr(layer, "values", ())}


def required(function: Any) -> list[str]:
    """The parameters that must be given."""
    parameters = parameters_of(unwrap(function)).values()
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def is_gluon(function: Any) -> bool:
    """Whether it is a kernel of Gluon."""
    innermost = layers(function)[-1]
    return bool(hasattr(innermost, "is_gluon") and innermost.is_gluon())
