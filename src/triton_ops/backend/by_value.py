"""A kernel as bytes that hold its code, so that another process makes it again without importing the user's modules.

JIT functions, their helpers, other functions and classes of the user's go by value: code, source, and the globals that
they use. Of a module of the user's the attributes that the code names go. What belongs to Python, Triton, this package
or an installed package goes by its name. Of a tensor only what a compiler sees of it goes.

Facts used, from Triton 3.6 to 3.9: the key of a compiled kernel is made of the sources of the JIT function and of those
it calls, of their starting lines, and of the constants among their globals; a JIT function has the source that it read
in `raw_src`, from `starting_line_number` on, and its text from `def` on in `src`.
"""

from __future__ import annotations

import ast
import io
import linecache
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from triton_ops.backend.base import is_tensor
from triton_ops.backend.jit_function import is_jit_or_constexpr_function, jit_options, made_jit_function, named
from triton_ops.backend.offline import StandIn

_NEVER = {"triton", "torch", "triton_ops"}  # packages that go by their names wherever they stand
_STDLIB = tuple(f"{sysconfig.get_paths()[name]}/" for name in ("stdlib", "platstdlib"))
_SITE_FOLDERS = {"site-packages", "dist-packages"}


def is_installed(module: str) -> bool:
    """Whether a module belongs to Python, to Triton, to this package, or to an installed package."""
    if module.partition(".")[0] in _NEVER:
        return True
    found = sys.modules.get(module)
    if found is None or module == "__main__":
        return False
    file = getattr(found, "__file__", None)
    if file is None:
        return getattr(getattr(found, "__spec__", None), "origin", None) in ("built-in", "frozen")
    return not _SITE_FOLDERS.isdisjoint(PurePath(file).parts) or file.startswith(_STDLIB)


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes an object for a process that compiles it."""

    def __init__(self, target: io.BytesIO) -> None:
        super().__init__(target, protocol=5)
        self.drawn: list[str] = []  # of tensors no values are sent
        self.imports: set[str] = set()  # top-level packages that the other process imports
        self._kernels: dict[int, Any] = {}  # JIT functions by the identity of their Python functions
        self._modules: dict[str, _EmptyModule] = {}

    def reducer_override(self, obj: Any) -> Any:
        """JIT functions, tensors, and what belongs to modules of the user's differ from what cloudpickle does."""
        module = _module_of(obj)
        if is_jit_or_constexpr_function(obj):
            home, name = obj.fn.__module__, obj.fn.__name__
            if not (is_installed(home) and getattr(sys.modules.get(home), name, None) is obj):
                return self._jit_function(obj)
            self.imports.add(home.partition(".")[0])
            return named, (home, name)
        if is_tensor(obj):
            return _stand_in, (asdict(StandIn.of(obj)),)
        if isinstance(obj, FunctionType) and not is_installed(module):
            return self._dynamic_function_reduce(obj)
        if isinstance(obj, type) and not is_installed(module):
            return cloudpickle.cloudpickle._dynamic_class_reduce(obj)
        self.imports.add(module.partition(".")[0])
        return super().reducer_override(obj)

    def _jit_function(self, kernel: Any) -> tuple[Any, ...]:
        self._kernels[id(kernel.fn)] = kernel
        file = kernel.fn.__code__.co_filename
        kind = type(kernel)
        return made_jit_function, (
            kind.__module__, kind.__name__, kernel.fn, jit_options(kernel), file, _lines(file, kernel),
        )  # fmt: skip

    def _dynamic_function_reduce(self, func: FunctionType) -> Any:
        """As cloudpickle's, with parts of the user's modules, and names that only a compiler of Triton's looks up."""
        made, arguments, (plain, slots), *others = super()._dynamic_function_reduce(func)
        known = dict(slots["__globals__"])
        names = set(_names(func.__code__))
        if (kernel := self._kernels.get(id(func))) is not None:
            names |= _names_for_triton(kernel.src)
            known |= {name: func.__globals__[name] for name in names if name in func.__globals__}
        slots["__globals__"] = {
            name: self._part(value, names) if isinstance(value, ModuleType) else value for name, value in known.items()
        }
        slots["_cloudpickle_submodules"] = []
        return (made, arguments, (plain, slots), *others)

    def _part(self, module: ModuleType, names: set[str]) -> Any:
        """A module; of one of the user's the attributes that have one of these names."""
        if is_installed(module.__name__):
            return module
        empty = self._modules.setdefault(module.__name__, _EmptyModule(module.__name__))
        found = {name: value for name, value in vars(module).items() if name in names and value is not module}
        return _Part(empty, {
            name: self._part(value, names - {name}) if isinstance(value, ModuleType) else value
            for name, value in found.items()
        })  # fmt: skip


class _EmptyModule:
    """A module of the user's without its attributes; one object per module, so that it is made once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return ModuleType, (self._name,)


class _Part:
    """Attributes of a module, to be set on the other side."""

    def __init__(self, module: _EmptyModule, attributes: dict[str, Any]) -> None:
        self._module, self._attributes = module, attributes

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_attributes, (self._module, self._attributes)


def _stand_in(fields: dict[str, Any]) -> StandIn:
    return StandIn(**fields)


def _with_attributes(module: ModuleType, attributes: dict[str, Any]) -> ModuleType:
    vars(module).update(attributes)
    return module


def _module_of(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    named = value if isinstance(value, (FunctionType, type)) else type(value)
    return str(getattr(value, "__module__", None) or named.__module__)


def _lines(file: str, kernel: Any) -> list[str]:
    """The file's lines, as they were when the kernel was made: the file may have changed since."""
    lines = linecache.getlines(file)
    first, own = max(kernel.starting_line_number - 1, 0), list(kernel.raw_src)
    if lines[first : first + len(own)] == own:
        return lines
    padded = [*lines, *["\n"] * (first + len(own) - len(lines))]
    return [*padded[:first], *own, *padded[first + len(own) :]]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _names_for_triton(text: str) -> set[str]:
    """Names in the text of a JIT function, and attributes of these.

    Triton looks up annotations and defaults too, which Python's code of the function does not name.
    """
    nodes = list(ast.walk(ast.parse(text)))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}
