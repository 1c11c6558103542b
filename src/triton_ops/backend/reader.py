"""Reads a callable with everything that it refers to, into parts that together name its meaning.

Functions and classes are read before other values, so that a container which the code changes is known before it is
looked into. Nothing here depends on addresses, on the order of a set, or on the process.

The wrapper that torch puts around a function looks like the function itself (`functools.wraps`), and runs other code.
Facts used, of torch 2.13; what another version does not tell makes a callable unknown. The wrapper is a function of the
module `torch._dynamo.eval_frame`, and its variable `self` is the context of the compilation. A compiled module is an
`OptimizedModule` with the context in `dynamo_ctx`. The context's `callback` leads to the backend through
`_torchdynamo_orig_backend`, earlier `_torchdynamo_orig_callable`. The backend that `torch.compile` makes has `config`
(Inductor), or `compiler_fn` and `kwargs` (others). The module `torch._inductor.config` gives all settings by
`get_config_copy`, and its `_config` has an entry with the default of each; torch before 2.6 has neither.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from triton_ops.backend.origins import (
    INTERPRETED,
    Home,
    Layers,
    compile_options,
    function_layers,
    is_triton,
    text_of,
)
from triton_ops.base import fingerprint

_MODULE = "torch._dynamo.eval_frame"
_INDUCTOR_SETTINGS = "torch._inductor.config"
_ORIGINAL = "_torchdynamo_orig_callable"
_ASKED = ("fullgraph", "_dynamic", "_shapes_spec", "_hooks")  # attributes of a context that change what is compiled


def compilation_of(value: Any) -> Mapping[str, object] | None:
    """The callable that `value` compiles, and the request; None if torch's compiler did not make `value`.

    Raises `LookupError` if it did, and this version of torch does not tell how it was asked to.
    """
    if isinstance(value, types.FunctionType):
        if value.__globals__.get("__name__") != _MODULE or _ORIGINAL not in vars(value):
            return None
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=False))
        return {"of": vars(value)[_ORIGINAL], **_request(cells["self"].cell_contents if "self" in cells else None)}
    if type(value).__module__ == _MODULE and "_orig_mod" in getattr(value, "_modules", ()):
        return {"of": value._modules["_orig_mod"], **_request(vars(value).get("dynamo_ctx"))}
    return None


def _request(context: object) -> dict[str, Any]:
    if not hasattr(context, "callback"):
        raise LookupError("this version of torch does not tell how `torch.compile` was asked to compile it")
    attributes = {name.strip("_"): getattr(context, name, None) for name in _ASKED}
    changed = _changed_settings()
    return {"context": type(context).__name__, **attributes, **_backend(context.callback), "changed": changed}


def _changed_settings() -> dict[str, Any]:
    """The settings of Inductor that differ from their defaults, by name; none where Inductor is not imported."""
    if (settings := sys.modules.get(_INDUCTOR_SETTINGS)) is None:
        return {}
    entries, snapshot = getattr(settings, "_config", {}), getattr(settings, "get_config_copy", None)
    if snapshot is None:
        raise LookupError("this version of torch does not tell which settings of Inductor were changed")
    return {name: value for name, value in sorted(snapshot().items()) if value != entries[name].default}


def _backend(callback: object) -> dict[str, Any]:
    """The innermost backend; not its name, which of an object may be its address."""
    layers = "_torchdynamo_orig_backend", _ORIGINAL
    while (inner := next(filter(None, (getattr(callback, name, None) for name in layers)), None)) is not None:
        callback = inner
    if hasattr(callback, "config"):
        return {"backend": type(callback).__name__, "options": callback.config}
    if hasattr(callback, "compiler_fn"):
        return {"backend": callback.compiler_fn, "options": getattr(callback, "kwargs", None)}
    return {"backend": callback}


_BY_ANY_NAME = {"getattr", "vars", "__dict__"}  # beside these, it cannot be seen which names of a module are used
_MARKS = ("_dynamo_", "_torchdynamo")  # torch's compiler leaves them on what it has met
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)


class UsedValue(NamedTuple):
    """A value that the code of a function refers to, under the name that the code calls it.

    `holder` is a cell, or the names of a module or function, in which it stands as `key`; None for a default.
    """

    name: str
    value: Any
    holder: Any = None
    key: str = ""


def used_values(function: types.FunctionType, home: Home) -> Iterator[UsedValue]:
    """Defaults, attributes, closure variables, and the globals that the code, or code nested in it, names."""
    names = sorted(set(names_in(function.__code__)))
    for number, value in enumerate(function.__defaults__ or ()):
        yield UsedValue(f"default[{number}]", value)
    for holder in (function.__kwdefaults__ or {}, vars(function)):
        names_of_users = (name for name in sorted(holder) if name != "__wrapped__" and not name.startswith(_MARKS))
        yield from (UsedValue(name, holder[name], holder, name) for name in names_of_users)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        if cell != types.CellType():  # which is empty
            yield from _with_attributes(UsedValue(name, cell.cell_contents, cell, "cell_contents"), names, home)
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            use = UsedValue(name, function.__globals__[name], function.__globals__, name)
            yield from _with_attributes(use, names, home)


def _with_attributes(use: UsedValue, names: list[str], home: Home) -> Iterator[UsedValue]:
    yield use
    module = use.value
    if isinstance(module, types.ModuleType) and not home.only_names(module.__name__):
        if home.holds(module.__name__) and not _BY_ANY_NAME.isdisjoint(names):
            names = sorted(name for name in vars(module) if name[:2] != "__")
        yield from _in_module(use.name, module, names, {module.__name__})


def _in_module(path: str, module: types.ModuleType, names: list[str], paths: set[str]) -> Iterator[UsedValue]:
    for name in names:
        if isinstance(value := vars(module).get(name), types.ModuleType):
            if value.__name__ not in paths and value.__name__.startswith(f"{module.__name__}."):
                yield from _in_module(f"{path}.{name}", value, names, paths | {value.__name__})
        elif name in vars(module):
            yield UsedValue(f"{path}.{name}", value, vars(module), name)


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> list[str]:
    """Names that the code looks up as globals, and not only as attributes: `time.sleep` is no global `sleep`."""
    looked_up = (each for each in dis.get_instructions(code) if "GLOBAL" in each.opname or each.opname == "LOAD_NAME")
    inner = (_global_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return sorted({each.argval for each in looked_up}.union(*inner))


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names that the code, or code nested in it, looks up as globals or attributes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The values in the body of a class; functions that a decorator generated are left out."""
    if issubclass(cls, Enum):
        yield from ((f"member {item.name}", item.value) for item in cls)
    for name, member in vars(cls).items():
        if isinstance(member, property):
            yield from ((f"{name}{n or ''}", item) for n, item in enumerate((member.fget, member.fset)) if item)
        elif isinstance(member, functools.cached_property):
            yield name, member.func
        elif isinstance(member, (staticmethod, classmethod, types.FunctionType)):
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if code is None or not code.co_filename.startswith("<string>"):  # such as a dataclass's __init__
                yield name, member
        elif isinstance(member, _DESCRIPTORS) or name.startswith(("__", "_abc_")):
            continue
        elif not (issubclass(cls, Enum) and (name.startswith("_") or name in cls.__members__)):
            yield name, member


def attributes(values: Mapping[str, object], cls: type) -> Iterator[tuple[str, object]]:
    """An object's attributes by name, without those that were computed from others, or marks of torch's compiler."""
    for name in sorted(values):
        if not name.startswith(_MARKS) and not isinstance(getattr(cls, name, None), functools.cached_property):
            yield name, values[name]


def parts_of_object(value: object) -> Iterator[tuple[str, object]]:
    """The parts that an object is made of, as `copy` and `pickle` see it; raises where its type does not tell."""
    # From protocol 2 on, an object of a class with `__slots__` gives account too.
    reducer = copyreg.dispatch_table.get(type(value))
    reduction = value.__reduce_ex__(2) if reducer is None else reducer(value)
    if isinstance(reduction, str):
        yield "name", reduction
        return
    make, arguments, state, items, pairs = (*reduction, *[None] * (5 - len(reduction)))[:5]
    if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
        yield "made by", make
    yield from ((f"given[{number}]", part) for number, part in enumerate(arguments))
    # A pair is the state in `__dict__` and that in slots (PEP 307).
    for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if part is not None:
            yield "state", part
    yield from ((f"[{number}]", item) for number, item in enumerate(items or ()))
    yield from ((f"[{number}]", pair) for number, pair in enumerate(pairs or ()))


def found_by_name(value: object) -> str | None:
    """The module and name under which a value can be found again; None if there is no such place."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    return f"{module}.{name}" if getattr(sys.modules.get(module), name, None) is value else None


MOST_VALUES = 20_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range)
_ITEMS = (list, deque, bytearray)
_CHANGEABLE = (*_ITEMS, dict, set)
_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, staticmethod, classmethod,
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
        """Tell whether the very same object is there still."""
        if isinstance(self.holder, (dict, types.MappingProxyType)):
            return self.holder.get(self.name, _ABSENT) is self.value
        return getattr(self.holder, self.name, _ABSENT) is self.value


class Reader:
    """Collects the parts of one fingerprint, by the name under which each was reached.

    `unknown` is what could not be told apart, and why; None if all could. `interpreted` is whether a kernel that runs
    as Python was met, `fixed` whether nothing was met that can change in place, such as a list or an object.
    `values_read` are where values were read that can be given other values.
    """

    def __init__(self, home: Home) -> None:
        self.parts: dict[str, str] = {}
        self.unknown: str | None = None
        self.packages: dict[str, str] = {}
        self.interpreted = False
        self.fixed = True
        self.values_read: list[ReadValue] = []
        self._home = home
        self._places: dict[int, tuple[Any, str]] = {}  # by identity; holds the objects, so that no identity returns
        self._labels: dict[int, tuple[Any, str]] = {}  # likewise, of functions and classes
        self._working_memory: set[int] = set()
        self._code: deque[Any] = deque()
        self._values: deque[tuple[str, Any]] = deque()

    def read(self, name: str, value: object) -> None:
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

    def _add(self, name: str, value: object) -> None:
        if type(value) in _PLAIN:
            self.parts[name] = repr(value)
        elif self._home.by_content and self._home.only_names(module := _module_of(value)):
            self.parts[name] = module.partition(".")[0]
            self._note_package(module)
        elif isinstance(value, types.ModuleType):
            self.parts[name] = "module" if self._home.by_content else value.__name__
            self._note_package(value.__name__)
        elif isinstance(value, _FUNCTIONS) or is_triton(value):
            self._add_function(name, value)
        elif isinstance(value, type):
            self.parts[name] = self._read_later(value)
        else:
            self._values.append((name, value))

    def _add_function(self, name: str, function: object) -> None:
        labels: list[str] = []
        for layer in function_layers(function):
            if self._read_compilation(name, layer):
                continue
            owner = getattr(layer, "__self__", None)
            if isinstance(layer, types.MethodType) or isinstance(owner, _CHANGEABLE):
                self._add(f"{name}.self", owner)
            if is_triton(layer) and isinstance(values := getattr(layer, "values", None), dict):  # of heuristics
                self._add_items(f"{name}.heuristics", values)
            self.interpreted |= type(layer).__name__ == INTERPRETED
            if is_triton(layer):  # options may be given by a call of `triton.jit`, which its source does not show
                self.parts.update((f"{name}.{option}", text) for option, text in compile_options(layer))
            if isinstance(layer, types.FunctionType) and self._counts(layer):
                labels.append(self._read_later(layer))
        self.parts[name] = ", ".join(labels) or self._home.label(layer)
        self._note_package(getattr(layer, "__module__", None))

    def _read_compilation(self, name: str, value: object) -> bool:
        """Read what torch's compiler was given, and how it was asked to compile it; whether it made `value`."""
        try:
            request = compilation_of(value)
        except LookupError as error:
            self._give_up(name, str(error))
            return True
        if request is not None:
            self._add_items(f"{name}.compiled", request)
        return request is not None

    def _read_later(self, code: object) -> str:
        if id(code) not in self._labels:
            self._labels[id(code)] = (code, self._new_label(code))
            self._code.append(code)
        return self._labels[id(code)][1]

    def _read_function(self, function: types.FunctionType) -> None:
        text = text_of(function.__code__)
        name = self._read_later(function)
        self.parts[name] = text.syntax
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            self.values_read.append(ReadValue(function, part, getattr(function, part)))
        for use, target, holder, key in used_values(function, self._home):
            if holder is not None:
                self.values_read.append(ReadValue(holder, key, target))
            self._read_reference(f"{name}.{use}", target, holder, use in text.mutations)

    def _read_reference(self, name: str, value: object, holder: object, is_changed: bool) -> None:
        if is_changed and isinstance(value, (*_CHANGEABLE, *_PLAIN)):
            self.parts[name] = _WORKING_MEMORY
            if isinstance(value, _CHANGEABLE):
                self._working_memory.add(id(value))
        elif self._is_value_of_library(holder, value):
            self.parts[name] = self._home.label(value)
        else:
            self._add(name, value)

    def _read_class(self, cls: type) -> None:
        if issubclass(cls, BaseException) or not self._home.holds(cls.__module__):
            self._note_package(cls.__module__)  # and how an error reads does not change what is computed
            return
        name = self._read_later(cls)
        self.parts[name] = "class"
        for part, member in members(cls):
            self.values_read.append(ReadValue(vars(cls), part, vars(cls).get(part, _ABSENT)))
            if not isinstance(member, types.FunctionType) or self._counts(member):
                self._add(f"{name}.{part}", member)
        for position, base in enumerate(cls.__bases__):
            self._add(f"{name}.base[{position}]", base)

    def _read_value(self, name: str, value: Any) -> None:
        if isinstance(value, Enum):
            self.parts[name] = f"{self._home.label(type(value))}.{value.name}"
            self._add(f"{name}.value", value.value)
        elif isinstance(value, functools.partial):
            self.parts[name] = self._home.label(value)
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
        elif id(value) in self._places:
            self.parts[name] = f"as {self._places[id(value)][1]}"
        else:
            self.fixed = False
            self._places[id(value)] = (value, name)
            self._read_changeable(name, value)

    def _read_changeable(self, name: str, value: object) -> None:
        if id(value) in self._working_memory:
            self.parts[name] = _WORKING_MEMORY
        elif (shape := self._array(value)) is not None:
            self.parts[name] = shape
            self._note_package(type(value).__module__)
        elif isinstance(value, (dict, types.MappingProxyType, *_ITEMS)):
            self.parts[name] = f"{self._home.label(type(value))} of {len(value)}"
            self._add_items(name, value if isinstance(value, Mapping) else enumerate(value))
        elif isinstance(value, set):
            self._read_set(name, value)
        else:
            self._read_object(name, value)
            return
        self._add_attributes(name, getattr(value, "__dict__", {}), type(value))

    def _read_set(self, name: str, members: Iterable[object]) -> None:
        self.parts[name] = f"set of {sorted(map(self._digest, members))}"

    def _read_object(self, name: str, value: object) -> None:
        cls = type(value)
        self.parts[name] = f"{self._home.label(cls)} object"
        self._note_package(cls.__module__)
        if self._read_compilation(name, value):
            return
        if not _STATELESS.isdisjoint({cls.__module__, cls.__module__.partition(".")[0]}) or cls.__name__ == "Generator":
            return
        if (public := found_by_name(value)) is not None and not self._home.holds(cls.__module__):
            self.parts[name] = public
            return
        try:
            state = list(parts_of_object(value))
        except Exception as error:  # noqa: BLE001 - whatever the object's own code raises
            self._give_up(name, f"a {self._home.label(cls)} gives no account of its state: {error}")
            return
        for part, content in state:
            if isinstance(content, dict) and part == "state":
                self._add_attributes(name, content, cls)
            else:
                self._add(f"{name}.{part}", content)

    def _add_attributes(self, name: str, values: Mapping[str, object], cls: type) -> None:
        for attribute, value in attributes(values, cls):
            self._add_held(f"{name}.{attribute}", value)

    def _add_items(self, name: str, items: Mapping[Any, object] | Iterable[tuple[object, object]]) -> None:
        self.parts.setdefault(name, "")
        for number, (key, value) in enumerate(items.items() if isinstance(items, Mapping) else items):
            if number > MOST_VALUES:
                self._give_up(name, f"it holds more than {MOST_VALUES} values")
                return
            self._add_held(f"{name}[{repr(key) if type(key) in _PLAIN else self._digest(key)}]", value)

    def _add_held(self, name: str, value: object) -> None:
        """Add a value that an object or a container holds."""
        if isinstance(value, types.ModuleType) and self._home.holds(value.__name__):
            self._read_module(name, value)
        else:
            self._add(name, value)

    def _read_module(self, name: str, module: types.ModuleType) -> None:
        """A module of the user's that is held as a value: which of its names are used cannot be seen."""
        self.parts[name] = module.__name__
        if id(module) in self._places:
            return
        self._places[id(module)] = (module, name)
        self.fixed = False
        for attribute, value in sorted(vars(module).items()):
            if attribute[:2] != "__":
                self._add(f"{name}.{attribute}", value)

    def _digest(self, value: object) -> str:
        if type(value) in _PLAIN:
            return repr(value)
        inner = Reader(self._home)
        inner._places = dict(self._places)
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

    def _new_label(self, value: object) -> str:
        """The value's label, numbered if another one, such as a second lambda, has it already."""
        label, number = self._home.label(value), 1
        name = f"<{label}>"
        while name in self.parts:
            number += 1
            name = f"<{label}#{number}>"
        self.parts[name] = ""
        return name

    def _counts(self, function: types.FunctionType) -> bool:
        own = str(function.__globals__.get("__name__"))  # of a wrapper `__module__` is that of what it wraps
        module = own if own.startswith("triton_ops.") else str(function.__module__)
        return self._home.holds(module, function.__code__.co_filename)

    def _is_value_of_library(self, holder: object, value: object) -> bool:
        """Tell whether a value is an attribute of an installed module, and not a function, a class, or plain."""
        if isinstance(value, (*_FUNCTIONS, type, types.ModuleType)) or type(value) in _PLAIN or is_triton(value):
            return False
        module = holder.get("__name__") if isinstance(holder, dict) else None
        return isinstance(module, str) and not self._home.holds(module)

    def _note_package(self, module: object) -> None:
        if isinstance(module, str) and (version := self._home.version_of(module)) is not None:
            self.packages[module.partition(".")[0]] = version

    def _array(self, value: Any) -> str | None:
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            return None
        stride = getattr(value, "strides", None)
        if hasattr(value, "untyped_storage"):
            stride = value.stride() if str(value.layout) == "torch.strided" else value.layout
        device = getattr(getattr(value, "device", None), "type", "")
        grad = getattr(value, "requires_grad", "")
        return f"{self._home.label(type(value))} {tuple(value.shape)} {value.dtype} {stride} {device} {grad}"


def _module_of(value: object) -> str:
    """The module of a module, and of what can be found by its name; empty for another value."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, (*_FUNCTIONS, type)) or is_triton(value) or found_by_name(value):
        return str(getattr(Layers.unwrap(value), "__module__", ""))
    return ""
