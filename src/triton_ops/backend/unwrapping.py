"""The function inside decorators, bound methods and Triton's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

INTERPRETED = "InterpretedFunction"  # the class of a kernel that runs as Python
_MOST_LAYERS = 16
_JIT_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")


def unwrap(function: Any) -> Any:
    """The plain Python function inside `@triton.jit`, `functools.wraps` and bound methods; else the object itself."""
    *_, innermost = function_layers(function)
    return innermost


def function_layers(function: Any) -> Iterator[Any]:
    """A function with the functions inside it, the innermost last."""
    layer = function
    yield layer
    for _ in range(_MOST_LAYERS):
        if isinstance(layer, (FunctionType, type)) and "__wrapped__" not in vars(layer):
            return
        inner = getattr(layer, "__wrapped__", None) or getattr(layer, "__func__", None)
        if inner is None and is_triton(layer):
            inner = layer.fn
        if inner is None:
            return
        layer = inner
        yield layer


def is_triton(value: Any) -> bool:
    """Tell whether a value is a Triton kernel, or a decorator of Triton's around one."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("fn", "run", "arg_names"))


def compile_options(kernel: Any) -> Iterator[tuple[str, str]]:
    """The options of `triton.jit` that change what is compiled, as text; those that were left out do not appear."""
    for name in _JIT_OPTIONS:
        if value := getattr(kernel, name, None):
            yield name, repr(value)
