"""The numbers of one term for many programs at once: a vector over programs, and one for each axis of a tensor.

A whole number is base[p] + Σ axis_k[p, i_k], which is what offsets of tiles are; no array of two axes of a tensor is
ever made. A mask is in the same way a product of one vector for each axis. Elements whose value cannot be said in this
form are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.int64]
"""Over programs, or over programs (or 1) and the elements of an axis."""
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
"""The comparisons by the end of a predicate such as `slt`."""
FARTHEST = 1 << 40  # numbers that stand in for data, and their products, stay below this


@dataclass(frozen=True)
class Value:
    """A value of the kernel, for all programs that are looked at.

    Attributes:
        base: What all its elements have in common, by program; None if the value is unknown. For truth values 0 or 1.
        axes: By the axis along which elements differ what they add, of shape (programs or 1, extent). For truth values
            0 or 1 that multiply.
        made_up: Whether numbers stand in for data that only a launch would show.
    """

    base: Vector | None = None
    axes: Mapping[int, Vector] = field(default_factory=dict)
    made_up: bool = False
    truth: bool = False

    @property
    def known(self) -> bool:
        """Check whether every element has a number."""
        return self.base is not None

    def plus(self, other: Value, factor: int = 1) -> Value:
        """The sum of a number and a multiple of another."""
        made_up = self.made_up or other.made_up
        if self.base is None or other.base is None:
            return Value(made_up=made_up)
        base, axes = other.base, other.axes
        if factor != 1:
            base = _limited(factor * base, made_up)
            axes = {at: _limited(factor * axis, made_up) for at, axis in axes.items()}
        return Value(self.base + base, _joined(np.add, self.axes, axes), made_up)

    def times(self, other: Value) -> Value:
        """The product of two numbers; unknown if together they vary along more than one axis, each along one."""
        made_up = self.made_up or other.made_up
        if self.base is None or other.base is None:
            return Value(made_up=made_up)
        if self.axes and other.axes:
            return elementwise(np.multiply, self, other)
        many, factor = (self, other.base) if self.axes else (other, self.base)
        axes = {at: _limited(axis * factor[:, None], made_up) for at, axis in many.axes.items()}
        return Value(_limited(self.base * other.base, made_up), axes, made_up)

    def and_also(self, other: Value) -> Value:
        """The conjunction of two truth values; what is unknown counts as true."""
        made_up = self.made_up or other.made_up
        if self.base is None or other.base is None:
            return replace(self if other.base is None else other, made_up=made_up)
        return Value(self.base * other.base, _joined(np.multiply, self.axes, other.axes), made_up, truth=True)

    def or_else(self, condition: Vector, other: Value) -> Value:
        """This value for programs for which the condition is 1, else the other; known if those that are needed are."""
        choice = condition.astype(bool)
        if choice.all() or not choice.any():
            return self if choice.all() else other
        made_up = self.made_up or other.made_up
        if self.base is None or other.base is None:
            return Value(made_up=made_up)
        neutral = np.int64(self.truth)
        axes = {
            at: np.where(choice[:, None], self.axes.get(at, neutral), other.axes.get(at, neutral))
            for at in {**self.axes, **other.axes}
        }
        return Value(np.where(choice, self.base, other.base), axes, made_up, self.truth)

    def equals(self, other: Value) -> bool:
        """Check whether both are known and equal."""
        if self.base is None or other.base is None or not np.array_equal(self.base, other.base):
            return False
        return self.axes.keys() == other.axes.keys() and all(
            axis is other.axes[at] or np.array_equal(axis, other.axes[at]) for at, axis in self.axes.items()
        )


def elementwise(function: Callable[..., Any], *operands: Value, truth: bool = False) -> Value:
    """A function of the elements of values that together vary along one axis at most; unknown for any others."""
    made_up = any(value.made_up for value in operands)
    varying = {axis for value in operands for axis in value.axes}
    if len(varying) > 1 or any(value.base is None for value in operands):
        return Value(made_up=made_up, truth=truth)
    if not varying:
        elements = np.asarray(function(*(value.base for value in operands)), dtype=np.int64)
        return Value(elements, {}, made_up, truth)
    (at,) = varying
    elements = np.asarray(function(*(_along(value, at) for value in operands)), dtype=np.int64)
    neutral = np.ones_like if truth else np.zeros_like
    return Value(neutral(operands[0].base), {at: elements}, made_up, truth)


def _joined(
    work: Callable[[Vector, Vector], Vector], one: Mapping[int, Vector], other: Mapping[int, Vector]
) -> dict[int, Vector]:
    """The axes of a result, of which one operand alone may have some."""
    both = {at: work(axis, other[at]) for at, axis in one.items() if at in other}
    return {**one, **other, **both}


def _along(value: Value, axis: int) -> Vector:
    """All elements along one axis, of shape (programs, extent or 1), or of one row if all programs have the same."""
    assert value.base is not None
    base = value.base[:1] if (value.base == value.base[0]).all() else value.base
    own = value.axes.get(axis)
    if own is None:
        return base[:, None]
    return base[:, None] * own if value.truth else base[:, None] + own


def _limited(numbers: Vector, made_up: bool) -> Vector:
    return numbers % FARTHEST if made_up else numbers
