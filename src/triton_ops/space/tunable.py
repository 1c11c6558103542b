"""Tunables, which are axes of choice with their values in natural order, and constraints, which values must keep.

A tunable does not know the meaning of a value to a kernel, nor which values fit together; a constraint tells that: a
named rule that a config must keep, with the reason for the rule. The same object serves the space, the default config,
the checks at call time and the messages. The parameters of a predicate are the tunables that it needs, so a space can
refuse a partial config once these are chosen, and never enumerates combinations that cannot become valid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from triton_ops.base import Frozen, canonical_json
from triton_ops.exceptions import ConfigValueError, ConstraintError, EmptySpaceError, KernelTypeError
from triton_ops.space.config import Members, Value, checked_value, given_back, members_among

_MOST_VALUES = 1_000_000  # of one tunable: its values are listed in every run log


@dataclass(frozen=True)
class Tunable:
    """An axis of choice with its values, at most a million.

    It is made by `Choice`, `IntRange`, `PowerOfTwo` or `Flag`, or by a config space from a plain list. Its `members`
    are those of an `Enum`, and dtypes, whose names are among the values, by these names.
    """

    values: tuple[Value, ...]  # all different, in the order of enumeration
    ordered: bool = False  # neighbours in `values` have similar effects, as sizes have
    members: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _check_number(self.values)
        Frozen.fields(self, "members")

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    @property
    def of_numbers(self) -> bool:
        """True if the values are numbers, which have an order of their own."""
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)

    @property
    def in_order(self) -> tuple[Any, ...]:
        """Numbers in rising order, whatever theirs in a space, where the default's may come first; others as is."""
        values: tuple[Any, ...] = self.values
        return tuple(sorted(values)) if self.of_numbers else values

    def check(self, name: str) -> Tunable:
        """Check the values and return this tunable, or one with the plain values that they are."""
        if not self.values:
            raise EmptySpaceError(f"tunable {name!r} has no values", hint="give it at least one value, or leave it out")
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

    @staticmethod
    def of(name: str, source: Any) -> Tunable:
        """A tunable from a user's tunable or iterable of values, ordered if these are numbers in rising order."""
        if not isinstance(name, str):
            raise ConfigValueError(
                f"a tunable's name must be a string, not {name!r}", hint='write {"BLOCK": [64, 128]}'
            )
        if isinstance(source, Tunable):
            return source.check(name)
        if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
            message = f"tunable {name!r} is {source!r}; it must be a list of values"
            raise ConfigValueError(message, hint=f"write [{source!r}] for a single value")
        if isinstance(source, (set, frozenset)):
            message = f"tunable {name!r} is a set, whose order differs from run to run"
            raise ConfigValueError(message, hint="write a list, in the order to try")
        tunable = Tunable(_as_tuple(source)).check(name)
        return replace(tunable, ordered=tunable.of_numbers and tunable.in_order == tunable.values)


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
        raise ConfigValueError(f"IntRange step is {step}; it must be 1 or more", hint="IntRange(0, 64, 8)")
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
            message = f"PowerOfTwo bound {bound} is not a power of two"
            raise ConfigValueError(message, hint="use 1, 2, 4, 8, … for both bounds")
    return Tunable(tuple(1 << n for n in range(low.bit_length() - 1, high.bit_length())), ordered=True)


def Flag() -> Tunable:  # noqa: N802
    """A tunable with the values False and True, in this order."""
    return Tunable((False, True))


def _as_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    """`values` as a tuple, or as many of them as `Tunable` refuses, since all of them might exhaust memory."""
    if isinstance(values, range):
        _check_number(values)
    return tuple(islice(values, _MOST_VALUES + 1))


def _check_number(values: Sequence[Any]) -> None:
    if len(values) > _MOST_VALUES:
        message = f"a tunable has {len(values):,} values; at most {_MOST_VALUES:,} can be listed"
        hint = "take larger steps, or powers of two: IntRange(0, 4096, 64), PowerOfTwo(1, 4096)"
        raise ConfigValueError(message, hint=hint)


@dataclass(frozen=True)
class Constraint:
    """A rule over some tunables.

    Attributes:
        name: A short and stable name, for trials and tables.
        predicate: A function of tunables, called with keywords; true means that the config keeps the rule.
        reason: Why a config that breaks the rule is refused; `{BM}` stands for the config's value of BM.
        members: Members of an `Enum` that the predicate is given in place of their names; a space sets them.
        names: The tunables that the predicate needs; where none are named, its parameters.

    Raises:
        KernelTypeError: `predicate` is not callable, or takes `*args` or `**kwargs`, so that its tunables are unknown.
    """

    name: str
    predicate: Callable[..., bool]
    reason: str
    members: Members = field(default_factory=dict, repr=False, compare=False)
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.names or _parameter_names(self.name, self.predicate))
        Frozen.fields(self, "members")

    def kept_by(self, values: Mapping[str, Any]) -> bool:
        """True if `values`, which must have all of `names`, keep this rule; ConstraintError if the predicate raised."""
        arguments = {name: values[name] for name in self.names}
        if self.members:
            arguments = {name: given_back(value, self.members.get(name, {})) for name, value in arguments.items()}
        try:
            return bool(self.predicate(**arguments))
        except Exception as error:
            message = f"constraint {self.name!r} raised {type(error).__name__}: {error} for {arguments}"
            hint = "a predicate must answer true or false for every combination of its values"
            raise ConstraintError(message, hint=hint) from error

    def explain(self, values: Mapping[str, Any]) -> str:
        """The text `name: reason`, with the config's values filled in."""
        try:
            reason = self.reason.format(**values)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            reason = self.reason  # the braces in the reason were not meant as names
        return f"{self.name}: {reason}"


def _parameter_names(name: str, predicate: Any) -> tuple[str, ...]:
    if not callable(predicate):
        hint = "give a function of tunables: lambda BM, BN: BM * BN <= 32768"
        raise KernelTypeError(f"constraint {name!r} has the predicate {predicate!r}, which is not callable", hint=hint)
    what = f"constraint {name!r} has the predicate {predicate!r}, which does not tell its parameters"
    with KernelTypeError.when(what, "write a lambda around it, with the tunables as its parameters", ValueError):
        parameters = inspect.signature(predicate).parameters.values()
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            message = f"constraint {name!r} takes {parameter}; its parameters must be tunables by name"
            hint = "write the tunables that the rule looks at: lambda BM, BN: BM * BN <= 32768"
            raise KernelTypeError(message, hint=hint)
    return tuple(parameter.name for parameter in parameters if parameter.default is parameter.empty)
