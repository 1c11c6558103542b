"""A Triton JIT function taken apart, and made again in another process.

Facts used, from Triton 3.6 to 3.9: a `JITFunction` and a `ConstexprFunction` keep their function in `fn`, and their
other parameters of creation under their own names, `repr` under `_repr`; they read their source with `inspect`, which
asks `linecache`.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
from typing import Any


def is_jit_function(value: Any) -> bool:
    """Whether `value` is a Triton JIT function, told without importing Triton."""
    return type(value).__name__ in ("JITFunction", "InterpretedFunction") and hasattr(value, "fn")


def is_jit_or_constexpr_function(value: Any) -> bool:
    """Whether Triton made `value` of a Python function, to be called in kernels."""
    return is_jit_function(value) or (type(value).__name__ == "ConstexprFunction" and hasattr(value, "fn"))


def jit_options(kernel: Any) -> dict[str, Any]:
    """What a JIT function was made with, beside its Python function."""
    parameters = [p for p in inspect.signature(type(kernel).__init__).parameters if p not in ("self", "fn")]
    values = {p: getattr(kernel, "_repr" if p == "repr" else p, None) for p in parameters}
    return {name: value for name, value in values.items() if value is not None}


def named(module: str, name: str) -> Any:
    """What a module holds under a name; the module is imported if it is not yet."""
    return getattr(importlib.import_module(module), name)


def made_jit_function(
    module: str, kind: str, function: Any, options: dict[str, Any], file: str, lines: list[str]
) -> Any:
    """A JIT function made again; its source need not be a file that can be read here."""
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return getattr(importlib.import_module(module), kind)(function, **options)
