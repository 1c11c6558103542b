"""A Triton JIT function taken apart, and made again in another process.

Facts used, from Triton 3.6 to 3.9: a `JITFunction` and a `ConstexprFunction` keep their function in `fn`, and their
other parameters of creation under their own names, `repr` under `_repr`; Gluon's class is a subclass of `JITFunction`.
They read their source with `inspect`, which asks `linecache`. A JIT function has the source that it read in `raw_src`,
from `starting_line_number` on. `cache_key` names it in the disk cache and is kept in `hash`, which is None before; the
name holds the constants of the module of a function that it calls only if that function had been named before, and
while an error leaves `cache_key`, `hash` is no name.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import sys
from typing import Any

from triton_ops.backend.members import used_values
from triton_ops.backend.unwrap import INTERPRETED

_KINDS = {"JITFunction", INTERPRETED}
_MOST_SETTLED = 4096
_settled: dict[int, str] = {}  # by identity: the name that a function got after those that it calls


def is_jit_function(value: Any) -> bool:
    """Whether `value` is a JIT function of Triton or Gluon, told without importing Triton."""
    return hasattr(value, "fn") and not _KINDS.isdisjoint(cls.__name__ for cls in type(value).__mro__)


def is_jit_or_constexpr_function(value: Any) -> bool:
    """Whether Triton made `value` of a Python function, to be called in kernels."""
    return is_jit_function(value) or (type(value).__name__ == "ConstexprFunction" and hasattr(value, "fn"))


def settled(kernel: Any) -> Any:
    """`kernel`, which Triton now names as it does in every other process that has called this.

    Left to itself, Triton's name for a JIT function depends on what was compiled before in the process, so that a
    binary that one process has compiled is not found by another.

    Raises:
        Exception: Whatever Triton raises when it reads the source.
    """
    _settle(kernel, set())
    return kernel


def _settle(kernel: Any, begun: set[int]) -> None:
    before = getattr(kernel, "hash", None)
    if id(kernel) in begun or not hasattr(kernel, "hash") or (before and _settled.get(id(kernel)) == before):
        return
    begun.add(id(kernel))
    for used in used_values(kernel.fn, lambda _: False):
        if is_jit_or_constexpr_function(used.value):
            _settle(used.value, begun)
    kernel.hash = None
    try:
        found = str(kernel.cache_key)
    except BaseException:
        kernel.hash = before
        raise
    if len(_settled) >= _MOST_SETTLED:
        _settled.clear()
    _settled[id(kernel)] = found


def reduced_by_name(kernel: Any) -> tuple[Any, ...] | None:
    """How `pickle` finds a JIT function again under its name; None if its module has something else under the name."""
    module, name = kernel.fn.__module__, kernel.fn.__name__
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not kernel:
        return None
    return _named, (module, name)


def reduced_by_value(kernel: Any) -> tuple[Any, ...]:
    """How `pickle` makes a JIT function again of its Python function, its options and its source."""
    kind, file = type(kernel), kernel.fn.__code__.co_filename
    return _made, (kind.__module__, kind.__name__, kernel.fn, _options(kernel), file, _lines(file, kernel))


def _options(kernel: Any) -> dict[str, Any]:
    """The arguments that a JIT function was made with, without its Python function."""
    parameters = [p for p in inspect.signature(type(kernel).__init__).parameters if p not in ("self", "fn")]
    values = {p: getattr(kernel, "_repr" if p == "repr" else p, None) for p in parameters}
    return {name: value for name, value in values.items() if value is not None}


def _lines(file: str, kernel: Any) -> list[str]:
    """The lines of the kernel's file as they were when the kernel was made; the file may have changed since."""
    lines = linecache.getlines(file)
    if not hasattr(kernel, "raw_src"):  # an interpreted function does not keep its source
        return lines
    first, own = max(kernel.starting_line_number - 1, 0), list(kernel.raw_src)
    if lines[first : first + len(own)] == own:
        return lines
    padded = [*lines, *["\n"] * (first + len(own) - len(lines))]
    return [*padded[:first], *own, *padded[first + len(own) :]]


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _made(module: str, kind: str, function: Any, options: dict[str, Any], file: str, lines: list[str]) -> Any:
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)  # the source need not be a file that exists here
    return getattr(importlib.import_module(module), kind)(function, **options)
