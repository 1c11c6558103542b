"""Configs: one value for every tunable.

A config holds the name of a member, `module:Class.NAME`, or of a dtype, `torch:float16` or `triton.language:fp16`, as
every file, key and message does. Wherever a user's code is called, a kernel, a constraint or whoever reads a result,
the member itself is given back. Dtypes are members here too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from inspect import getattr_static
from typing import Any, TypeAlias, cast

from triton_ops.base import canonical_json
from triton_ops.exceptions import ConfigValueError

Member: TypeAlias = "Any"
"""A member of an `Enum`, a `torch.dtype`, or a dtype of Triton."""

Members: TypeAlias = "Mapping[str, Mapping[str, Member]]"
"""For each tunable the members among its values, by their names in a config."""

_TRITON = "triton.language"


def is_member(value: Any) -> bool:
    """True if a value is a dtype, or a member of an `Enum` that is no number or string by its class."""
    return _dtype_name(value) is not None or (isinstance(value, Enum) and not isinstance(value, (int, float, str)))


def member_name(tunable: str, member: Member) -> str:
    """The name of a member in a config; ConfigValueError if the member cannot be found again by it."""
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


def member_named(text: Any) -> Member | None:
    """The member that a text names, `module:Class.NAME` or a dtype, of a module that is imported; None if none."""
    module, colon, path = text.partition(":") if isinstance(text, str) else ("", "", "")
    class_name, dot, name = path.rpartition(".")
    if not (colon and dot):
        values = vars(sys.modules[module]).values() if module in ("torch", _TRITON) and module in sys.modules else ()
        return next((one for one in values if _dtype_name(one) == text), None)
    kind: Any = sys.modules.get(module)
    for part in class_name.split("."):
        kind = getattr_static(kind, part, None)  # a module could answer with an import
    return kind.__members__.get(name) if isinstance(kind, type) and issubclass(kind, Enum) else None


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
        return f"the module {kind.__module__} has no {kind.__qualname__}, or another one"
    return None if kind.__members__.get(str(member.name)) is member else "it is a combination of members"


def _value_text(value: Any) -> str:
    try:
        return canonical_json(value)
    except (TypeError, ValueError):
        return type(value).__qualname__


Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


DEEPEST = 16  # levels of tuples in a value; no kernel takes such a value, and no file holds it


def checked_value(name: str, value: Any, depth: int = 1) -> Value:
    """Return `value` if it can be hashed, compared, and stored as JSON without loss, or the plain value that it is.

    A NumPy scalar, a member of `IntEnum` or `StrEnum`, and whatever else is a number or a string by its class becomes
    that number or string; a `torch.device` and a dtype become their names, and a member of another `Enum` its name with
    its module. Any other value is a ConfigValueError.
    """
    if _is_storable(type(value), value):
        return cast("Value", value)
    if isinstance(value, tuple):
        if depth > DEEPEST:
            message = f"tunable {name!r} has a value that is nested deeper than {DEEPEST} levels"
            hint = "list flatter tuples, or names, and look up the object where it is used"
            raise ConfigValueError(message, hint=hint)
        return tuple(checked_value(name, item, depth + 1) for item in value)
    plain = member_name(name, value) if is_member(value) else _plain(value)
    if plain is not value:
        return checked_value(name, plain)
    raise ConfigValueError(
        f"tunable {name!r} has the value {value!r} of type {type(value).__name__}; "
        "allowed are None, bool, int of 64 bits, finite float, str, members of an Enum, dtypes, and tuples of these",
        hint=_way_out(value),
    )


def _is_storable(kind: type, value: Any) -> bool:
    if kind is int:
        return bool(-(2**63) <= value < 2**64)  # the range of integers that every JSON reader accepts
    if kind is str:  # UTF-8 cannot hold half of a character
        return bool(value.isascii()) or not any("\ud800" <= letter <= "\udfff" for letter in value)
    return value is None or kind is bool or (kind is float and math.isfinite(value))


def _plain(value: Any) -> Any:
    """The plain number or string that `value` is by its class; `value` itself if it is none, or is plain already."""
    kind = type(value)
    # `str` of a member of a class of `str` and `Enum` is `Class.NAME`; `str.__str__` is its text
    for base, plain in ((int, int), (float, float), (str, str.__str__)):
        if isinstance(value, base) and kind is not base and kind is not bool:
            return plain(value)
    if kind.__module__ == "numpy" and hasattr(value, "item") and value.shape == () and value.size == 1:
        item = value.item()
        return value if type(item) is kind else item  # some of NumPy's types have no plain counterpart
    if (kind.__module__, kind.__name__) == ("torch", "device"):
        return str(value)
    return value


def _way_out(value: Any) -> str:
    if isinstance(value, float):
        return "list finite numbers; None can stand for a limit that is not set"
    if isinstance(value, str):
        return "list whole characters: no file can hold the half of one"
    if isinstance(value, list):
        return "use a tuple instead of a list"
    return "list names or numbers, and look up the object where it is used"


class Config(Mapping[str, Value]):
    """An immutable mapping from tunable name to value.

    Two configs are equal if their canonical JSON is equal: the order of names does not matter, and `True` and `1`
    differ. Iteration keeps the order in which the names were given. A config is safe to share among threads and to
    pickle.

    Args:
        values: Names to values; a value is None, a boolean, a number, a text, a dtype, a member of an `Enum`, or a
            tuple.
        **more: Further values by name; each replaces the value of the same name in `values`.

    Raises:
        ConfigValueError: A name is no text, or a value cannot be stored.
    """

    __slots__ = ("_plain", "_text", "_values")

    _values: dict[str, Any]
    _text: str | None
    _plain: Config | None

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        entries = {**(values or {}), **more}
        for name in entries:
            if not isinstance(name, str):
                raise ConfigValueError(f"a tunable's name must be a string, not {name!r}", hint="Config(BLOCK=64)")
        object.__setattr__(self, "_values", {name: checked_value(name, value) for name, value in entries.items()})
        object.__setattr__(self, "_text", None)
        object.__setattr__(self, "_plain", None)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Config:
        """A config from decoded JSON, in which tuples have become lists; ConfigValueError if it is none."""
        if type(values) is not dict and not isinstance(values, Mapping):  # asking for an abstract class is slow
            raise ConfigValueError(f"{values!r} is no config", hint='write {"BM": 64}')
        return cls({name: as_tuples(value) if type(value) is list else value for name, value in values.items()})

    @property
    def text(self) -> str:
        """Canonical JSON: the identity of the config, and the last tie-break between equally fast configs."""
        if self._text is None:  # made when it is first asked for: many configs are only read
            object.__setattr__(self, "_text", canonical_json(self._values))
        return cast("str", self._text)

    @property
    def plain(self) -> Config:
        """This config with the names of members in place of the members that `with_members` has given back."""
        return self._plain or self

    def with_members(self, members: Members) -> Config:
        """An equal config with members of an `Enum` in place of their names, to call a user's code with.

        Files, other processes and messages get the names.
        """
        values = {name: given_back(value, members.get(name, {})) for name, value in self._values.items()}
        if all(value is self._values[name] for name, value in values.items()):
            return self
        config = object.__new__(Config)
        for slot, value in (("_values", values), ("_text", self.text), ("_plain", self.plain)):
            object.__setattr__(config, slot, value)
        return config

    def with_named_members(self) -> Config:
        """This config with the members that it names in full, as records do: no others are known without a space."""
        members = {name: {value: member_named(value)} for name, value in self._values.items()}
        return self.with_members({name: one for name, one in members.items() if None not in one.values()})

    @classmethod
    def with_own_members(cls, values: Mapping[str, Any]) -> Config:
        """A config with the members of an `Enum` among its values as they are, to call a user's code with."""
        return cls(values).with_members({name: members_among([value], name) for name, value in values.items()})

    def __getitem__(self, name: str) -> Value:
        return cast("Value", self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Config):
            return self.text == other.text
        return NotImplemented

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Config cannot be changed; make a new one")

    def __reduce__(self) -> tuple[type[Config], tuple[dict[str, Value]]]:
        return Config, (dict(self.plain._values),)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.plain._values.items()) or "(empty)"

    def __repr__(self) -> str:
        return f"Config({self.plain._values!r})"

    @staticmethod
    def encode(value: Any) -> dict[str, Value]:
        """A config as a plain dict, for an encoder that meets an unknown type; TypeError for anything else."""
        if isinstance(value, Config):
            return dict(value.plain)
        raise TypeError(f"a value of type {type(value).__name__} has no JSON form")

    @staticmethod
    def decode(kind: type, value: Any) -> Config:
        """A config from decoded JSON, for a decoder that meets an unknown type; TypeError for others."""
        if kind is Config:
            return Config.from_json(value)
        raise TypeError(f"no {kind.__name__} can be made from JSON")


def as_tuples(value: Any) -> Any:
    """The value with tuples in place of lists, since JSON has no tuples."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
