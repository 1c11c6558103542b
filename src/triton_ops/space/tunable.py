"""A tunable: one axis of choice, with its possible values in their natural order.

A tunable does not know the meaning of a value to a kernel, nor which values fit together; constraints tell that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, cast

from triton_ops._hashing import canonical_json
from triton_ops.exceptions import ConfigValueError, EmptySpaceError

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


def checked_value(name: str, value: Any) -> Value:
    """Return `value` if it can be hashed, compared, and stored as JSON without loss.

    Raises:
        ConfigValueError: The value cannot be stored; the error has the tunable, the value, and the allowed types.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return cast("Value", value)
    if kind is int:
        if -(2**63) <= value < 2**64:  # the range of integers that every JSON reader accepts
            return cast("Value", value)
    elif kind is float:
        if math.isfinite(value):
            return cast("Value", value)
    elif isinstance(value, tuple):
        return tuple(checked_value(name, item) for item in value)
    raise ConfigValueError(
        f"tunable {name!r} has the value {value!r} of type {type(value).__name__}; "
        "allowed are None, bool, int of 64 bits, finite float, str, and tuples of these",
        hint="use a tuple instead of a list, int(x) for a NumPy number, and a dtype's name instead of the dtype",
    )


@dataclass(frozen=True)
class Tunable:
    """An axis of choice with its values.

    A tunable is made by `Choice`, `IntRange`, `PowerOfTwo` or `Flag`, or by a config space from a plain list.

    Attributes:
        values: The possible values, all different, in the order of enumeration.
        ordered: Whether neighbours in `values` have similar effects, as sizes have.
    """

    values: tuple[Value, ...]
    ordered: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def check(self, name: str) -> Tunable:
        """Check the values and return this tunable.

        Raises:
            EmptySpaceError: The tunable has no values.
            ConfigValueError: A value cannot be stored, or is listed twice.
        """
        if not self.values:
            raise EmptySpaceError(
                f"tunable {name!r} has no values",
                hint="give it at least one value, or leave it out",
            )
        seen: set[str] = set()
        for value in self.values:
            text = canonical_json(checked_value(name, value))  # the text tells True from 1, which are equal to Python
            if text in seen:
                raise ConfigValueError(f"tunable {name!r} lists {value!r} twice", hint="list every value once")
            seen.add(text)
        return self


def Choice(values: Iterable[Value]) -> Tunable:  # noqa: N802 - reads as a type where spaces are written
    """An unordered choice among `values`; their order is only the order of enumeration."""
    return Tunable(tuple(values))


def IntRange(low: int, high: int, step: int = 1) -> Tunable:  # noqa: N802
    """The integers `low, low + step, …` up to and including `high`.

    Raises:
        ConfigValueError: `step` is not positive.
    """
    if step < 1:
        raise ConfigValueError(f"IntRange step is {step}; it must be 1 or more")
    return Tunable(tuple(range(low, high + 1, step)), ordered=True)


def PowerOfTwo(low: int, high: int) -> Tunable:  # noqa: N802
    """The powers of two from `low` to `high`, both included.

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


def as_tunable(name: str, given: Any) -> Tunable:
    """A tunable from a user's tunable or iterable of values.

    Values that are numbers in rising order count as ordered.

    Raises:
        ConfigValueError: `given` is a single value, a string or a set, a value cannot be stored, or the name is no
            string.
        EmptySpaceError: `given` has no values.
    """
    if not isinstance(name, str):
        raise ConfigValueError(f"a tunable's name must be a string, not {name!r}", hint='write {"BLOCK": [64, 128]}')
    if isinstance(given, Tunable):
        return given.check(name)
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigValueError(
            f"tunable {name!r} is {given!r}; it must be a list of values",
            hint=f"write [{given!r}] for a single value",
        )
    if isinstance(given, (set, frozenset)):
        raise ConfigValueError(
            f"tunable {name!r} is a set, whose order differs from run to run", hint="write a list, in the order to try"
        )
    values = tuple(given)
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    rising = len(numbers) == len(values) and all(a < b for a, b in pairwise(numbers))
    return Tunable(values, ordered=rising).check(name)
