"""A config: one value for every tunable, frozen and hashable, with one text form for all files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from triton_ops.base import canonical_json
from triton_ops.exceptions import ConfigValueError
from triton_ops.space.tunable import DEEPEST, Members, Value, checked_value, given_back, members_among, members_named


class Config(Mapping[str, Value]):
    """An immutable mapping from tunable name to value.

    Two configs are equal if their canonical JSON is equal: the order of names does not matter, and `True` and `1`
    differ. Iteration keeps the order in which the names were given. A config is safe to share among threads and to
    pickle.

    Args:
        values: Names to values; a value is None, a boolean, a number, a text, a dtype, a member of an `Enum`, or a
            tuple.
        **more: Further values by name, which come before those of `values`.

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
                raise ConfigValueError(f"a tunable's name must be a string, not {name!r}")
        object.__setattr__(self, "_values", {name: checked_value(name, value) for name, value in entries.items()})
        object.__setattr__(self, "_text", None)
        object.__setattr__(self, "_plain", None)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Config:
        """A config from decoded JSON, in which tuples have become lists; ConfigValueError if it is none."""
        if type(values) is not dict and not isinstance(values, Mapping):  # asking for an abstract class is slow
            raise ConfigValueError(f"{values!r} is no config", hint='write {"BM": 64}')
        return cls({name: _as_tuples(value) if type(value) is list else value for name, value in values.items()})

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
        """This config with the members that it names in full, as of a record whose space is not asked."""
        return self.with_members(members_named(self))

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


def config_to_json(value: Any) -> dict[str, Value]:
    """A config as a plain dict, for an encoder that meets a type that it does not know; TypeError for anything else."""
    if isinstance(value, Config):
        return dict(value.plain)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


def config_from_json(kind: type, value: Any) -> Config:
    """A config from decoded JSON, for a decoder that meets a type that it does not know; TypeError for others."""
    if kind is Config:
        return Config.from_json(value)
    raise TypeError(f"no {kind.__name__} can be made from JSON")


def _as_tuples(value: Any, depth: int = 1) -> Any:
    if not isinstance(value, list):
        return value
    if depth > DEEPEST:
        raise ConfigValueError(f"a value is nested deeper than {DEEPEST} levels")
    return tuple(_as_tuples(item, depth + 1) for item in value)
