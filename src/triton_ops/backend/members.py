"""The values that functions, classes and objects hold, by name, in an order that is the same in every process."""

from __future__ import annotations

import copyreg
import dis
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import CellType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

_BY_ANY_NAME = {"getattr", "vars", "__dict__"}  # beside these, it cannot be seen which names of a module are used
_MARKS = (
    "_dynamo_",
    "_torchdynamo",
)  # torch's compiler leaves them on what it has met
_DESCRIPTORS = (MemberDescriptorType, GetSetDescriptorType)


class UsedValue(NamedTuple):
    """A value that the code of a function refers to.

    Attributes:
        name: What the code calls it.
        value: The value.
        holder: Where it stands: a cell, or the names of a module or function. None for a default.
        key: Its name there.
    """

    name: str
    value: Any
    holder: Any = None
    key: str = ""


def used_values(function: FunctionType, is_users: Callable[[str], bool]) -> Iterator[UsedValue]:
    """Defaults, attributes, closure variables, and the globals that the code, or code nested in it, names."""
    names = sorted(set(names_in(function.__code__)))
    for number, value in enumerate(function.__defaults__ or ()):
        yield UsedValue(f"default[{number}]", value)
    for holder in (function.__kwdefaults__ or {}, vars(function)):
        yield from (UsedValue(name, holder[name], holder, name) for name in sorted(holder) if _is_told(name))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        if _assigned(cell):
            yield from _with_attributes(UsedValue(name, cell.cell_contents, cell, "cell_contents"), names, is_users)
    for name in sorted(set(_global_names(function.__code__))):
        if name in function.__globals__:
            found = UsedValue(name, function.__globals__[name], function.__globals__, name)
            yield from _with_attributes(found, names, is_users)


def _is_told(name: str) -> bool:
    """Whether an attribute of a function is the user's, not one of `functools.wraps` or of torch's compiler."""
    return name != "__wrapped__" and not name.startswith(_MARKS)


def _with_attributes(found: UsedValue, names: list[str], is_users: Callable[[str], bool]) -> Iterator[UsedValue]:
    yield found
    module = found.value
    if isinstance(module, ModuleType):
        if is_users(module.__name__) and not _BY_ANY_NAME.isdisjoint(names):
            names = sorted(name for name in vars(module) if name[:2] != "__")
        yield from _in_module(found.name, module, names, {module.__name__})


def _in_module(path: str, module: ModuleType, names: list[str], seen: set[str]) -> Iterator[UsedValue]:
    """The values that the code may mean by `module.name`, also in modules below `module`."""
    for name in names:
        value = vars(module).get(name)
        if isinstance(value, ModuleType):
            if value.__name__ not in seen and value.__name__.startswith(f"{module.__name__}."):
                yield from _in_module(f"{path}.{name}", value, names, seen | {value.__name__})
        elif name in vars(module):
            yield UsedValue(f"{path}.{name}", value, vars(module), name)


def _assigned(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - the only way to ask
    except ValueError:
        return False
    return True


def _global_names(code: CodeType) -> Iterator[str]:
    """Names that the code looks up as globals, and not only as attributes: `time.sleep` is no global `sleep`."""
    for instruction in dis.get_instructions(code):
        if "GLOBAL" in instruction.opname or instruction.opname == "LOAD_NAME":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def names_in(code: CodeType) -> Iterator[str]:
    """The names that the code, or code nested in it, looks up as globals or attributes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The values in the body of a class; functions that a decorator generated are left out."""
    if issubclass(cls, Enum):
        yield from ((f"member {found.name}", found.value) for found in cls)
    for name, member in vars(cls).items():
        if isinstance(member, property):
            yield from ((f"{name}{n or ''}", found) for n, found in enumerate((member.fget, member.fset)) if found)
        elif isinstance(member, functools.cached_property):
            yield name, member.func
        elif isinstance(member, (staticmethod, classmethod, FunctionType)):
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if code is None or not code.co_filename.startswith("<string>"):  # such as a dataclass's __init__
                yield name, member
        elif (
            not isinstance(member, _DESCRIPTORS) and not name.startswith(("__", "_abc_")) and not _is_of_enum(cls, name)
        ):
            yield name, member


def _is_of_enum(cls: type, name: str) -> bool:
    return issubclass(cls, Enum) and (name.startswith("_") or name in cls.__members__)


def attributes(found: Mapping[str, Any], cls: type) -> Iterator[tuple[str, Any]]:
    """An object's attributes by name, without those that were computed from others, or marks of torch's compiler."""
    for name in sorted(found):
        if not name.startswith(_MARKS) and not isinstance(getattr(cls, name, None), functools.cached_property):
            yield name, found[name]


def state_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts that an object is made of, as `copy` and `pickle` see it; nothing is copied.

    Raises:
        Exception: Its type does not tell, as of an open file.
    """
    known = copyreg.dispatch_table.get(type(value))
    found = value.__reduce_ex__(2) if known is None else known(value)
    if isinstance(found, str):
        yield "name", found
        return
    make, given, state, items, pairs = (*found, *[None] * (5 - len(found)))[:5]
    if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
        yield "made by", make
    yield from ((f"given[{number}]", part) for number, part in enumerate(given))
    for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if part is not None:
            yield "state", part
    yield from ((f"[{number}]", item) for number, item in enumerate(items or ()))
    yield from ((f"[{number}]", pair) for number, pair in enumerate(pairs or ()))


def found_by_name(value: Any) -> str | None:
    """The module and name under which a value can be found again; None if there is no such place."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    return f"{module}.{name}" if getattr(sys.modules.get(module), name, None) is value else None
