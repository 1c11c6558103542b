"""A kernel as bytes that hold its code, so that another process makes it again without importing the user's modules.

JIT functions, their helpers, other functions and classes of the user's go by value: code, source, and the globals that
they use. A module of the user's goes as the attributes that the code names. Whatever belongs to Python, Triton, this
package or an installed package goes by its name. A tensor goes as what a compiler sees of it.

Facts used, from Triton 3.6 to 3.9: the key of a compiled kernel is made of the sources of the JIT function and of those
it calls, of their starting lines, and of the constants among their globals; a JIT function has its text from `def` on
in `src`.
"""

from __future__ import annotations

import ast
import contextlib
import io
from dataclasses import asdict
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from triton_ops.backend.base import is_tensor
from triton_ops.backend.jit_function import is_jit_or_constexpr_function, reduced_by_name, reduced_by_value
from triton_ops.backend.members import names_in
from triton_ops.backend.stand_in import StandIn
from triton_ops.backend.users_code import is_found_again, is_installed


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes an object for a process that compiles it."""

    def __init__(self, target: io.BytesIO) -> None:
        super().__init__(target, protocol=5)
        self.drawn: list[str] = []  # stays empty: no tensor's values are sent
        self.imports: set[str] = set()  # top-level packages that the other process imports
        self._kernels: dict[int, Any] = {}  # JIT functions by the identity of their Python functions
        self._modules: dict[str, _EmptyModule] = {}
        self._named: dict[str, bool] = {}  # by the name of a module: whether it is an installed one, and found there

    def sending(self) -> contextlib.AbstractContextManager[None]:
        """Nothing need be known beforehand, or forgotten afterwards."""
        return contextlib.nullcontext()

    def reducer_override(self, obj: Any) -> Any:
        """JIT functions, tensors, and what belongs to modules of the user's differ from what cloudpickle does."""
        module = module_of(obj)
        if is_jit_or_constexpr_function(obj):
            home, named = obj.fn.__module__, reduced_by_name(obj)
            if named is None or not self._goes_by_name(home):
                self._kernels[id(obj.fn)] = obj
                return reduced_by_value(obj)
            self.imports.add(home.partition(".")[0])
            return named
        if is_tensor(obj):
            return _stand_in, (asdict(StandIn.of(obj)),)
        if isinstance(obj, FunctionType) and not self._goes_by_name(module):
            return self._dynamic_function_reduce(obj)
        if isinstance(obj, type) and not self._goes_by_name(module):
            return cloudpickle.cloudpickle._dynamic_class_reduce(obj)
        self.imports.add(module.partition(".")[0])
        return super().reducer_override(obj)

    def _goes_by_name(self, module: str) -> bool:
        if module not in self._named:
            self._named[module] = is_installed(module) and is_found_again(module)
        return self._named[module]

    def _dynamic_function_reduce(self, func: FunctionType) -> Any:
        """Cloudpickle's reduction, with parts of the user's modules and the names that Triton's compiler looks up."""
        made, arguments, (plain, slots), *others = super()._dynamic_function_reduce(func)
        known = dict(slots["__globals__"])
        names = set(names_in(func.__code__))
        if (kernel := self._kernels.get(id(func))) is not None:
            variables, attributes = _names_for_triton(kernel.src)
            names |= variables | attributes
            known |= {name: func.__globals__[name] for name in variables if name in func.__globals__}
        slots["__globals__"] = {
            name: self._part(value, names) if isinstance(value, ModuleType) else value for name, value in known.items()
        }
        slots["_cloudpickle_submodules"] = []
        return (made, arguments, (plain, slots), *others)

    def _part(self, module: ModuleType, names: set[str]) -> Any:
        """A module; if it is the user's, those of its attributes that have one of these names."""
        if self._goes_by_name(module.__name__):
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
    """Attributes of a module, which are set in the other process."""

    def __init__(self, module: _EmptyModule, attributes: dict[str, Any]) -> None:
        self._module, self._attributes = module, attributes

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_attributes, (self._module, self._attributes)


def _stand_in(fields: dict[str, Any]) -> StandIn:
    return StandIn(**fields)


def _with_attributes(module: ModuleType, attributes: dict[str, Any]) -> ModuleType:
    vars(module).update(attributes)
    return module


def module_of(value: Any) -> str:
    """The name of the module that an object belongs to: of a module its own, of another object that of its type."""
    if isinstance(value, ModuleType):
        return value.__name__
    named = value if isinstance(value, (FunctionType, type)) else type(value)
    return str(getattr(value, "__module__", None) or named.__module__)


def _names_for_triton(text: str) -> tuple[set[str], set[str]]:
    """The names of variables in the text of a JIT function, and those of attributes.

    Triton also looks up annotations and defaults, which Python's code of the function does not name. An attribute may
    have the name of a global that the function does not use, such as the `sigmoid` of `tl.sigmoid`.
    """
    nodes = list(ast.walk(ast.parse(text)))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return {node.id for node in nodes if isinstance(node, ast.Name)}, attributes
