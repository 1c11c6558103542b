"""Members of an `Enum`, and dtypes of torch and of Triton, as values of tunables.

A config holds the name of a member, `module:Class.NAME`, or of a dtype, `torch:float16` or `triton.language:fp16`, as
every file, key and message does. Wherever a user's code is called, a kernel, a constraint or whoever reads a result,
the member itself is given back. Dtypes are members here too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from inspect import getattr_static
from typing import Any, TypeAlias

from triton_ops.base import canonical_json
from triton_ops.exceptions import ConfigValueError

Member: TypeAlias = "Any"
"""A member of an `Enum`, a `torch.dtype`, or a dtype of Triton."""

Members: TypeAlias = "Mapping[str, Mapping[str, Member]]"
"""For each tunable the members among its values, by their names in a config."""

_TRITON = "triton.language"
_FLOAT = re.compile(r"^(b?)fp?(?=\d)")  # Triton's `fp32` and `bf16` are its `float32` and `bfloat16`
_NAMED = re.compile(r"(torch|triton\.language):(\w+)|[\w.]+:(\w+(?:\.\w+)+)")


def is_member(value: Any) -> bool:
    """True if a value is a dtype, or a member of an `Enum` that is no number or string by its class."""
    return _dtype_name(value) is not None or (isinstance(value, Enum) and not isinstance(value, (int, float, str)))


def member_name(tunable: str, member: Member) -> str:
    """The name of a member in a config: `module:Class.NAME`, or that of a dtype.

    Raises:
        ConfigValueError: The member cannot be found again by that name.
    """
    if (dtype := _dtype_name(member)) is not None:
        return dtype
    kind = type(member)
    if (why := _why_not_found(kind, member)) is not None:
        raise ConfigValueError(
            f"tunable {tunable!r} has the value {member!r}, which cannot be found again by its name: {why}",
            hint=f"define {kind.__name__} at the top of a module, or list the values, [m.value for m in "
            f"{kind.__name__}], and write {kind.__name__}(value) where it is used",
        )
    return f"{kind.__module__}:{kind.__qualname__}.{member.name}"


def _dtype_name(value: Any) -> str | None:
    """The name of a dtype in a config; None for anything else. Neither torch nor Triton is imported to tell."""
    kind = type(value)
    if (kind.__module__, kind.__qualname__) == ("torch", "dtype"):
        return str(value).replace(".", ":")
    if (kind.__module__, kind.__qualname__) == ("triton.language.core", "dtype"):
        return f"{_TRITON}:{value.name}"
    return None


def _dtype_named(module: str, text: str) -> Member | None:
    values = vars(sys.modules[module]).values() if module in ("torch", _TRITON) and module in sys.modules else ()
    return next((one for one in values if _dtype_name(one) == text), None)


def member_named(text: Any) -> Member | None:
    """The member that a text names, `module:Class.NAME` or a dtype, of a module that is imported; None if none."""
    module, colon, path = text.partition(":") if isinstance(text, str) else ("", "", "")
    class_name, dot, name = path.rpartition(".")
    if not (colon and dot):
        return _dtype_named(module, text)
    kind: Any = sys.modules.get(module)
    for part in class_name.split("."):
        kind = getattr_static(kind, part, None)  # a module could answer with an import
    return kind.__members__.get(name) if isinstance(kind, type) and issubclass(kind, Enum) else None


def members_named(config: Mapping[str, Any]) -> dict[str, dict[str, Member]]:
    """The members that a config names in full, as records do: where its space is not asked, no others are known."""
    pairs = {name: (value, member_named(value)) for name, value in config.items()}
    return {name: {value: member} for name, (value, member) in pairs.items() if member is not None}


def source_of(value: Any) -> str:
    """A value of a config as Python's source: `tl.float32`, `torch.float16`, `Mode.FAST`, else its `repr`."""
    if isinstance(value, tuple):
        return f"({', '.join(map(source_of, value))}{',' * (len(value) == 1)})"
    match = _NAMED.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return repr(value)
    module, dtype, member = match.groups()
    if module == _TRITON:
        return "tl." + _FLOAT.sub(r"\1float", dtype)
    return f"torch.{dtype}" if module else str(member)


def members_among(values: Iterable[Any], tunable: str) -> dict[str, Member]:
    """The members among the values of a tunable, those in tuples too, by their names in a config."""
    return {member_name(tunable, member): member for member in _members(values)}


def given_back(value: Any, members: Mapping[str, Member]) -> Any:
    """A value of a config with the members in place of their names."""
    if isinstance(value, tuple):
        items = tuple(given_back(item, members) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return members.get(value, value) if isinstance(value, str) else value


def named_shortly(value: Any, members: Mapping[str, Member], values: Iterable[Any] = ()) -> Any:
    """A text that names a member, in full or as `FAST`, `Mode.FAST` or `float16`, as the member; others as they are.

    None is the text `none` where the tunable's `values` hold that, and not None: a command line reads both alike. Of a
    list, each item.
    """
    if isinstance(value, list):
        return [named_shortly(item, members, values) for item in value]
    if value is None and "none" in (texts := list(values)) and None not in texts:
        return "none"
    if not isinstance(value, str):
        return value
    matches = [
        member
        for name, member in members.items()
        if value == name or f".{name.partition(':')[2]}".endswith(f".{value}")
    ]
    return matches[0] if len(matches) == 1 else value


def values_of_members(members: Mapping[str, Member]) -> dict[str, str]:
    """The values of members as text, for fingerprints; of a value that has no JSON form the name of its class."""
    return {name: _value_text(member.value) for name, member in members.items() if isinstance(member, Enum)}


def _members(values: Iterable[Any]) -> Iterator[Member]:
    for value in values:
        if is_member(value):
            yield value
        elif isinstance(value, tuple):
            yield from _members(value)


def _why_not_found(kind: type[Enum], member: Enum) -> str | None:
    if "<locals>" in kind.__qualname__:
        return f"{kind.__qualname__} is made inside a function"
    value: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        value = getattr(value, part, None)
    if value is not kind:
        return f"{kind.__module__} has another {kind.__qualname__}, or none"
    return None if kind.__members__.get(str(member.name)) is member else "it is a combination of members"


def _value_text(value: Any) -> str:
    try:
        return canonical_json(value)
    except (TypeError, ValueError):
        return type(value).__qualname__
