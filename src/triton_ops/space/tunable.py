"""A tunable: one axis of choice, with its possible values in their natural order.

A tunable does not know the meaning of a value to a kernel, nor which values fit together; constraints tell that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, TypeAlias, cast

from triton_ops.base import canonical_json
from triton_ops.exceptions import ConfigValueError, EmptySpaceError
from triton_ops.space.members import is_member, member_name, members_among

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


DEEPEST = 16  # levels of tuples in a value; no kernel takes such a value, and no file holds it
_MOST_VALUES = 1_000_000  # of one tunable: its values are listed in every run log


def checked_value(name: str, value: Any, depth: int = 1) -> Value:
    """Return `value` if it can be hashed, compared, and stored as JSON without loss, or the plain value that it is.

    A NumPy scalar, a member of `IntEnum` or `StrEnum`, and whatever else is a number or a string by its class becomes
    that number or string; a `torch.device` and a dtype become their names, and a member of another `Enum` its name with
    its module.

    Raises:
        ConfigValueError: The value cannot be stored; the error has the tunable, the value, and the allowed types.
    """
    if _is_storable(type(value), value):
        return cast("Value", value)
    if isinstance(value, tuple):
        if depth > DEEPEST:
            raise ConfigValueError(
                f"tunable {name!r} has a value that is nested deeper than {DEEPEST} levels",
                hint="list flatter tuples, or names, and look up the object where it is used",
            )
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
    if kind is str:
        return bool(value.isascii()) or _whole(value)
    return value is None or kind is bool or (kind is float and math.isfinite(value))


def _whole(text: str) -> bool:
    """True if a text has no half of a character, which UTF-8 cannot hold."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _plain(value: Any) -> Any:
    """The plain number or string that `value` is by its class; `value` itself if it is none, or is plain already."""
    kind = type(value)
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


@dataclass(frozen=True)
class Tunable:
    """An axis of choice with its values.

    A tunable is made by `Choice`, `IntRange`, `PowerOfTwo` or `Flag`, or by a config space from a plain list.

    Attributes:
        values: The possible values, all different, in the order of enumeration.
        ordered: Whether neighbours in `values` have similar effects, as sizes have.
        members: The members of an `Enum` and the dtypes whose names are among the values, by these names.

    Raises:
        ConfigValueError: There are more than a million values.
    """

    values: tuple[Value, ...]
    ordered: bool = False
    members: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _check_number(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def check(self, name: str) -> Tunable:
        """Check the values and return this tunable, or one with the plain values that they are.

        Raises:
            EmptySpaceError: The tunable has no values.
            ConfigValueError: A value cannot be stored, or is listed twice.
        """
        if not self.values:
            raise EmptySpaceError(
                f"tunable {name!r} has no values",
                hint="give it at least one value, or leave it out",
            )
        texts: set[str] = set()
        plain = tuple(checked_value(name, value) for value in self.values)
        for value in plain:
            text = canonical_json(value)  # the text tells True from 1, which are equal to Python
            if text in texts:
                raise ConfigValueError(f"tunable {name!r} lists {value!r} twice", hint="list every value once")
            texts.add(text)
        if all(value is original for value, original in zip(plain, self.values, strict=True)):
            return self
        return replace(self, values=plain, members={**self.members, **members_among(self.values, name)})


def Choice(values: Iterable[Value]) -> Tunable:  # noqa: N802 - reads as a type where spaces are written
    """An unordered choice among `values`; their order is only the order of enumeration.

    Args:
        values: None, booleans, numbers, texts, members of an `Enum`, dtypes, or tuples of these; all different.

    Returns:
        A tunable. A config space refuses values that cannot be stored, with the name of the tunable.

    Raises:
        ConfigValueError: There are more than a million values.
    """
    return Tunable(_as_tuple(values))


def IntRange(low: int, high: int, step: int = 1) -> Tunable:  # noqa: N802
    """The integers `low, low + step, …` up to and including `high`.

    Args:
        low: The least value.
        high: The largest value, if the steps meet it; below `low` there is no value.
        step: The distance of neighbours, positive.

    Returns:
        An ordered tunable: a search may take neighbours for alike.

    Raises:
        ConfigValueError: `step` is not positive, or these are more than a million integers.
    """
    if step < 1:
        raise ConfigValueError(f"IntRange step is {step}; it must be 1 or more")
    return Tunable(_as_tuple(range(low, high + 1, step)), ordered=True)


def PowerOfTwo(low: int, high: int) -> Tunable:  # noqa: N802
    """The powers of two from `low` to `high`, both included.

    Args:
        low: The least value, a power of two.
        high: The largest value, a power of two.

    Returns:
        An ordered tunable: a search may take neighbours for alike.

    Raises:
        ConfigValueError: A bound is not a positive power of two.
    """
    for bound in (low, high):
        if bound < 1 or bound & (bound - 1):
            raise ConfigValueError(
                f"PowerOfTwo bound {bound} is not a power of two",
                hint="use 1, 2, 4, 8, … for both bounds",
            )
    return Tunable(tuple(1 << n for n in range(low.bit_length() - 1, high.bit_length())), ordered=True)


def Flag() -> Tunable:  # noqa: N802
    """A tunable with the values False and True, in this order."""
    return Tunable((False, True))


def as_tunable(name: str, source: Any) -> Tunable:
    """A tunable from a user's tunable or iterable of values.

    Values that are numbers in rising order count as ordered.

    Raises:
        ConfigValueError: `source` is a single value, a string or a set, a value cannot be stored, or the name is no
            string.
        EmptySpaceError: `source` has no values.
    """
    if not isinstance(name, str):
        raise ConfigValueError(f"a tunable's name must be a string, not {name!r}", hint='write {"BLOCK": [64, 128]}')
    if isinstance(source, Tunable):
        return source.check(name)
    if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
        raise ConfigValueError(
            f"tunable {name!r} is {source!r}; it must be a list of values",
            hint=f"write [{source!r}] for a single value",
        )
    if isinstance(source, (set, frozenset)):
        raise ConfigValueError(
            f"tunable {name!r} is a set, whose order differs from run to run", hint="write a list, in the order to try"
        )
    tunable = Tunable(_as_tuple(source)).check(name)
    numbers = [value for value in tunable if isinstance(value, (int, float)) and not isinstance(value, bool)]
    rising = len(numbers) == len(tunable) and all(a < b for a, b in pairwise(numbers))
    return replace(tunable, ordered=rising)


def _as_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    """`values` as a tuple, or as many of them as `Tunable` refuses, since all of them might exhaust memory."""
    if isinstance(values, range):
        _check_number(values)
    return tuple(islice(values, _MOST_VALUES + 1))


def _check_number(values: Sequence[Any]) -> None:
    if len(values) > _MOST_VALUES:
        raise ConfigValueError(
            f"a tunable has {len(values):,} values; at most {_MOST_VALUES:,} can be listed",
            hint="take larger steps, or powers of two: IntRange(0, 4096, 64), PowerOfTwo(1, 4096)",
        )
