"""Reads a callable with everything that it refers to, into parts that together name its meaning.

Functions and classes are read before other values, so that a container which the code changes is known before it is
looked into. Nothing here depends on addresses, on the order of a set, or on the process.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, MethodWrapperType, ModuleType
from typing import Any, NamedTuple

from triton_ops._hashing import fingerprint
from triton_ops.backend.members import attributes, found_by_name, members, state_of, used_values
from triton_ops.backend.syntax import text_of
from triton_ops.backend.torch_compile import compilation_of
from triton_ops.backend.unwrap import INTERPRETED, compile_options, is_triton, layers
from triton_ops.backend.users_code import is_users, label, version_of

MOST_VALUES = 20_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range)
_ITEMS = (list, deque, bytearray)
_CHANGEABLE = (*_ITEMS, dict, set)
_FUNCTIONS = (
    FunctionType, BuiltinFunctionType, MethodType, MethodWrapperType, staticmethod, classmethod,
    functools._lru_cache_wrapper, type(str.upper), type(object.__init__),
)  # fmt: skip
# Whose state does not change what is computed, or is another one at every call.
_STATELESS = {"_thread", "threading", "logging", "random", "_random", "contextvars", "_contextvars", "numpy.random"}
_WORKING_MEMORY = "changed by the code"
_ABSENT = object()


class ReadValue(NamedTuple):
    """A value that was read, and where: while all of them are in their places, reading again gives the same."""

    holder: Any
    name: str
    value: Any

    def holds(self) -> bool:
        """Whether the very same object is there still."""
        if isinstance(self.holder, (dict, MappingProxyType)):
            return self.holder.get(self.name, _ABSENT) is self.value
        return getattr(self.holder, self.name, _ABSENT) is self.value


class Reader:
    """Collects the parts of one fingerprint.

    Attributes:
        parts: What counts, by the name under which it was reached.
        unknown: What could not be told apart, and why; None if all could.
        packages: Installed packages that are used, with their versions.
        interpreted: Whether a kernel that runs as Python was met.
        fixed: Whether nothing was met that can change in place, such as a list or an object.
        values_read: Where the values were read that can be given other values.
    """

    def __init__(self, home: str) -> None:
        self.parts: dict[str, str] = {}
        self.unknown: str | None = None
        self.packages: dict[str, str] = {}
        self.interpreted = False
        self.fixed = True
        self.values_read: list[ReadValue] = []
        self._home = home
        self._seen: dict[int, tuple[Any, str]] = {}  # by identity; holds the objects, so that no identity returns
        self._labels: dict[int, tuple[Any, str]] = {}  # likewise, of functions and classes
        self._changed: set[int] = set()
        self._code: deque[Any] = deque()
        self._values: deque[tuple[str, Any]] = deque()

    def read(self, name: str, value: Any) -> None:
        """Read `value`, which is called `name`, and all that it refers to."""
        self._add(name, value)
        while self._code or self._values:
            if len(self.parts) > MOST_VALUES:
                self._give_up(name, f"it refers to more than {MOST_VALUES} values")
                return
            if self._code:
                code = self._code.popleft()
                (self._read_class if isinstance(code, type) else self._read_function)(code)
            else:
                self._read_value(*self._values.popleft())

    def _add(self, name: str, value: Any) -> None:
        if type(value) in _PLAIN:
            self.parts[name] = repr(value)
        elif isinstance(value, ModuleType):
            self.parts[name] = value.__name__
            self._used(value.__name__)
        elif isinstance(value, _FUNCTIONS) or is_triton(value):
            self._add_function(name, value)
        elif isinstance(value, type):
            self.parts[name] = self._read_later(value)
        else:
            self._values.append((name, value))

    def _add_function(self, name: str, function: Any) -> None:
        told: list[str] = []
        for layer in layers(function):
            if self._read_compilation(name, layer):
                continue
            if isinstance(layer, MethodType) or isinstance(owner := getattr(layer, "__self__", None), _CHANGEABLE):
                owner = layer.__self__
                self._add(f"{name}.self", owner)
            if is_triton(layer) and isinstance(values := getattr(layer, "values", None), dict):  # of heuristics
                self._add_items(f"{name}.heuristics", values)
            self.interpreted |= type(layer).__name__ == INTERPRETED
            if is_triton(layer):  # options may be given by a call of `triton.jit`, which its source does not show
                self.parts.update((f"{name}.{option}", text) for option, text in compile_options(layer))
            if isinstance(layer, FunctionType) and self._counts(layer):
                told.append(self._read_later(layer))
        self.parts[name] = ", ".join(told) or label(layer)
        self._used(getattr(layer, "__module__", None))

    def _read_compilation(self, name: str, value: Any) -> bool:
        """Read what torch's compiler was given, and how it was asked to compile it; whether it made `value`."""
        try:
            found = compilation_of(value)
        except LookupError as error:
            self._give_up(name, str(error))
            return True
        if found is not None:
            self._add_items(f"{name}.compiled", found)
        return found is not None

    def _read_later(self, code: Any) -> str:
        """The label under which a function or class is, or will be, among the parts."""
        if id(code) not in self._labels:
            self._labels[id(code)] = (code, self._new_label(code))
            self._code.append(code)
        return self._labels[id(code)][1]

    def _read_function(self, function: FunctionType) -> None:
        text = text_of(function.__code__)
        name = self._read_later(function)
        self.parts[name] = text.syntax
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            self.values_read.append(ReadValue(function, part, getattr(function, part)))
        for used, found, holder, key in used_values(function, self._is_users):
            if holder is not None:
                self.values_read.append(ReadValue(holder, key, found))
            self._read_reference(f"{name}.{used}", found, holder, used in text.changed)

    def _read_reference(self, name: str, found: Any, holder: Any, changed: bool) -> None:
        if changed and isinstance(found, (*_CHANGEABLE, *_PLAIN)):
            self.parts[name] = _WORKING_MEMORY
            if isinstance(found, _CHANGEABLE):
                self._changed.add(id(found))
        elif self._is_value_of_library(holder, found):
            self.parts[name] = label(found)
        else:
            self._add(name, found)

    def _read_class(self, cls: type) -> None:
        if issubclass(cls, BaseException) or not self._is_users(cls.__module__):
            self._used(cls.__module__)  # and how an error reads does not change what is computed
            return
        name = self._read_later(cls)
        self.parts[name] = "class"
        for part, found in members(cls):
            self.values_read.append(ReadValue(vars(cls), part, vars(cls).get(part, _ABSENT)))
            if not isinstance(found, FunctionType) or self._counts(found):
                self._add(f"{name}.{part}", found)
        for position, base in enumerate(cls.__bases__):
            self._add(f"{name}.base[{position}]", base)

    def _read_value(self, name: str, value: Any) -> None:
        if isinstance(value, Enum):
            self._read_enum(name, value)
        elif isinstance(value, functools.partial):
            self.parts[name] = label(value)
            self._add(f"{name}.func", value.func)
            self._add_items(f"{name}.args", enumerate(value.args))
            self._add_items(f"{name}.keywords", sorted(value.keywords.items()))
        elif type(value) is tuple:
            self.parts[name] = f"tuple of {len(value)}"
            self._add_items(name, enumerate(value))
        elif type(value).__name__ == "constexpr":
            self._add(name, value.value)
        elif isinstance(value, frozenset):
            self._read_set(name, value)
        elif id(value) in self._seen:
            self.parts[name] = f"as {self._seen[id(value)][1]}"
        else:
            self.fixed = False
            self._seen[id(value)] = (value, name)
            self._read_changeable(name, value)

    def _read_enum(self, name: str, member: Enum) -> None:
        self.parts[name] = f"{label(type(member))}.{member.name}"
        self._add(f"{name}.value", member.value)

    def _read_changeable(self, name: str, value: Any) -> None:
        if id(value) in self._changed:
            self.parts[name] = _WORKING_MEMORY
        elif (described := _array(value)) is not None:
            self.parts[name] = described
            self._used(type(value).__module__)
        elif isinstance(value, (dict, MappingProxyType)):
            self.parts[name] = f"{label(type(value))} of {len(value)}"
            self._add_items(name, value.items())
        elif isinstance(value, _ITEMS):
            self.parts[name] = f"{label(type(value))} of {len(value)}"
            self._add_items(name, enumerate(value))
        elif isinstance(value, set):
            self._read_set(name, value)
        else:
            self._read_object(name, value)
            return
        self._add_attributes(name, getattr(value, "__dict__", {}), type(value))

    def _read_set(self, name: str, members: Iterable[Any]) -> None:
        """The members in an order that every process gives them."""
        digests = sorted(map(self._digest, members))
        self.parts[name] = f"set of {digests}"

    def _read_object(self, name: str, value: Any) -> None:
        cls = type(value)
        self.parts[name] = f"{label(cls)} object"
        self._used(cls.__module__)
        if self._read_compilation(name, value):
            return
        if (
            cls.__module__.partition(".")[0] in _STATELESS
            or cls.__module__ in _STATELESS
            or cls.__name__ == "Generator"
        ):
            return
        if (public := found_by_name(value)) is not None and not self._is_users(cls.__module__):
            self.parts[name] = public
            return
        try:
            state = list(state_of(value))
        except Exception as error:  # noqa: BLE001 - whatever the object's own code raises
            self._give_up(name, f"a {label(cls)} gives no account of its state: {error}")
            return
        for part, found in state:
            if isinstance(found, dict) and part == "state":
                self._add_attributes(name, found, cls)
            else:
                self._add(f"{name}.{part}", found)

    def _add_attributes(self, name: str, found: Mapping[str, Any], cls: type) -> None:
        for attribute, value in attributes(found, cls):
            if isinstance(value, ModuleType) and self._is_users(value.__name__):
                self._read_module(f"{name}.{attribute}", value)
            else:
                self._add(f"{name}.{attribute}", value)

    def _add_items(self, name: str, items: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        self.parts.setdefault(name, "")
        for number, (key, value) in enumerate(items.items() if isinstance(items, Mapping) else items):
            if number > MOST_VALUES:
                self._give_up(name, f"it holds more than {MOST_VALUES} values")
                return
            place = f"{name}[{key!r}]" if type(key) in _PLAIN else f"{name}[{self._digest(key)}]"
            if isinstance(value, ModuleType) and self._is_users(value.__name__):
                self._read_module(place, value)
            else:
                self._add(place, value)

    def _read_module(self, name: str, module: ModuleType) -> None:
        """A module of the user's that is held as a value: which of its names are used cannot be seen."""
        self.parts[name] = module.__name__
        if id(module) in self._seen:
            return
        self._seen[id(module)] = (module, name)
        self.fixed = False
        for used, found in sorted(vars(module).items()):
            if used[:2] != "__":
                self._add(f"{name}.{used}", found)

    def _digest(self, value: Any) -> str:
        if type(value) in _PLAIN:
            return repr(value)
        inner = Reader(self._home)
        inner._seen = dict(self._seen)
        inner.read("member", value)
        self.unknown = self.unknown or inner.unknown
        self.fixed = self.fixed and inner.fixed
        self.packages.update(inner.packages)
        self.interpreted |= inner.interpreted
        self.values_read += inner.values_read
        return fingerprint(inner.parts)

    def _give_up(self, name: str, why: str) -> None:
        self.fixed = False
        self.unknown = self.unknown or f"{name}: {why}"

    def _new_label(self, value: Any) -> str:
        """The value's label, numbered if another one, such as a second lambda, has it already."""
        name, number = f"<{label(value)}>", 1
        while name in self.parts:
            number += 1
            name = f"<{label(value)}#{number}>"
        self.parts[name] = ""
        return name

    def _counts(self, function: FunctionType) -> bool:
        return self._is_users(str(function.__module__), function.__code__.co_filename)

    def _is_users(self, module: str, path: str | None = None) -> bool:
        return is_users(module, path, self._home)

    def _is_value_of_library(self, holder: Any, found: Any) -> bool:
        """Whether a value is an attribute of an installed module, and not a function, a class, or plain."""
        if isinstance(found, (*_FUNCTIONS, type, ModuleType)) or type(found) in _PLAIN or is_triton(found):
            return False
        module = holder.get("__name__") if isinstance(holder, dict) else None
        return isinstance(module, str) and not self._is_users(module)

    def _used(self, module: Any) -> None:
        if isinstance(module, str) and (version := version_of(module)) is not None:
            self.packages[module.partition(".")[0]] = version


def _array(value: Any) -> str | None:
    """A tensor or an array as arguments are described; None of other values."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return None
    stride = getattr(value, "strides", None)
    if hasattr(value, "untyped_storage"):
        stride = value.stride() if str(value.layout) == "torch.strided" else value.layout
    device = getattr(getattr(value, "device", None), "type", "")
    grad = getattr(value, "requires_grad", "")
    return f"{label(type(value))} {tuple(value.shape)} {value.dtype} {stride} {device} {grad}"
