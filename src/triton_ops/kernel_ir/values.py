"""The values of a kernel for many programs at once, without its data: whole numbers, truth values and addresses.

A whole number is a vector over programs. A tensor of whole numbers is a vector over programs plus one vector per axis,
base[p] + Σ axis_k[p, i_k], which is what offsets of tiles are; no array of two axes of a tensor is ever made. A mask is
in the same way a product of one vector per axis. Elements whose value cannot be said in this form are unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.ttir_syntax import Type

Vector: TypeAlias = NDArray[np.int64]
"""Over programs, or over programs (or 1) and the elements of an axis."""
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
"""The comparisons by the end of a predicate such as `slt`."""
_FARTHEST = 1 << 40  # products of numbers that stand in for data stay below this


@dataclass(frozen=True)
class Value:
    """A value of the kernel, for all programs that are looked at.

    Attributes:
        base: What all its elements have in common, by program; None if the value is unknown. For truth values 0 or 1.
        axes: For each axis what its elements add, of shape (programs or 1, extent); None for an axis along which all
            elements are equal. For truth values 0 or 1 that multiply.
        root: The argument that a pointer or a descriptor points into; None if that is unknown.
        made_up: Whether numbers stand in for data that only a launch would show.
        source: The operation that loaded the elements, if they were only moved since.
        strides: Of a descriptor: how far apart in memory neighbours along each axis are, in elements.
        extents: Of a descriptor: the extents of the whole tensor.
        written: Whether the text has it as a number, which the compiler knows too.
    """

    type: Type
    base: Vector | None = None
    axes: tuple[Vector | None, ...] = ()
    root: int | None = None
    made_up: bool = False
    source: int | None = None
    strides: tuple[Value, ...] = ()
    extents: tuple[Value, ...] = ()
    written: bool = False

    @property
    def known(self) -> bool:
        """Check whether every element has a number."""
        return self.base is not None

    @property
    def varying(self) -> list[int]:
        """The axes along which elements differ."""
        return [at for at, axis in enumerate(self.axes) if axis is not None]


def unknown(kind: Type, **facts: Any) -> Value:
    """A value of which only the type is known."""
    return Value(kind, None, (None,) * len(kind.shape), **facts)


def uniform(kind: Type, base: Vector, **facts: Any) -> Value:
    """A value whose elements are all equal."""
    return Value(kind, base, (None,) * len(kind.shape), **facts)


def add(kind: Type, one: Value, other: Value, sign: int = 1) -> Value:
    """The sum or the difference of two values; a pointer keeps what it points into."""
    made_up, root = one.made_up or other.made_up, one.root
    if one.base is None or other.base is None:
        return unknown(kind, root=root, made_up=made_up)
    axes = tuple(
        _joined(np.add, a, None if b is None else sign * b)
        for a, b in zip(_axes(one, kind), _axes(other, kind), strict=True)
    )
    return Value(kind, one.base + sign * other.base, axes, root, made_up)


def multiply(kind: Type, one: Value, other: Value) -> Value:
    """The product of two values, of which at most one varies along more than one axis."""
    made_up = one.made_up or other.made_up
    if one.base is None or other.base is None:
        return unknown(kind, made_up=made_up)
    if one.varying and other.varying:
        return elementwise(kind, np.multiply, one, other)
    many, single = (one, other) if one.varying else (other, one)
    factor = single.base
    assert factor is not None
    axes = tuple(None if axis is None else _limit(axis * factor[:, None], made_up) for axis in _axes(many, kind))
    return Value(kind, _limit(one.base * other.base, made_up), axes, None, made_up)


def elementwise(kind: Type, function: Callable[..., Any], *operands: Value) -> Value:
    """A function of the elements of values that together vary along one axis at most; unknown for any others."""
    made_up = any(value.made_up for value in operands)
    varying = {axis for value in operands for axis in value.varying}
    if len(varying) > 1 or any(value.base is None for value in operands):
        return unknown(kind, made_up=made_up)
    if not varying:
        elements = np.asarray(function(*(value.base for value in operands)), dtype=np.int64)
        return uniform(kind, elements, made_up=made_up)
    (at,) = varying
    whole = [_along(value, at) for value in operands]
    elements = np.asarray(function(*whole), dtype=np.int64)
    axes = [elements if axis == at else None for axis in range(len(kind.shape))]
    neutral = np.ones_like if kind.truth else np.zeros_like
    return Value(kind, neutral(operands[0].base), tuple(axes), None, made_up)


def conjunction(kind: Type, one: Value, other: Value) -> Value:
    """The conjunction of two truth values; what is unknown counts as true."""
    made_up = one.made_up or other.made_up
    if one.base is None or other.base is None:
        known_one = one if other.base is None else other
        return replace(known_one, type=kind, axes=_axes(known_one, kind), made_up=made_up)
    axes = tuple(_joined(np.multiply, a, b) for a, b in zip(_axes(one, kind), _axes(other, kind), strict=True))
    return Value(kind, one.base * other.base, axes, None, made_up)


def merge(condition: Vector, one: Value, other: Value) -> Value:
    """For each program `one` if its condition is 1, else `other`."""
    if one is other:
        return one
    made_up = one.made_up or other.made_up
    if one.base is None or other.base is None or one.root != other.root:
        return unknown(one.type, root=one.root if one.root == other.root else None, made_up=made_up)
    choose = condition.astype(bool)
    neutral = 1 if one.type.truth else 0
    axes = tuple(
        None
        if a is None and b is None
        else np.where(choose[:, None], neutral if a is None else a, neutral if b is None else b)
        for a, b in zip(one.axes, other.axes, strict=True)
    )
    base = np.where(choose, one.base, other.base)
    return replace(one, base=base, axes=axes, made_up=made_up, source=None, written=False)


def advance(value: Value, steps: Vector, first: Value, second: Value) -> Value | None:
    """`value` after `steps` turns of a loop, in one of which it goes from `first` to `second`.

    None if its elements do not move evenly: it then is no linear function of the turn.
    """
    if value.base is None or first.base is None or second.base is None:
        return None
    axes: list[Vector | None] = []
    for own, before, after in zip(value.axes, first.axes, second.axes, strict=True):
        if before is after or (before is not None and after is not None and np.array_equal(before, after)):
            axes.append(own)
        elif value.type.truth:
            return None
        else:
            step = (0 if after is None else after) - (0 if before is None else before)
            axes.append((0 if own is None else own) + step * steps[:, None])
    if value.type.truth and not np.array_equal(first.base, second.base):
        return None
    return replace(value, base=value.base + (second.base - first.base) * steps, axes=tuple(axes), written=False)


def equal(one: Value, other: Value) -> bool:
    """Check whether two values are known and equal; one element is not a tile that begins there."""
    if one.base is None or other.base is None or one.root != other.root or not np.array_equal(one.base, other.base):
        return False
    return len(one.axes) == len(other.axes) and all(
        a is b or (a is not None and b is not None and np.array_equal(a, b))
        for a, b in zip(one.axes, other.axes, strict=True)
    )


def _axes(value: Value, kind: Type) -> tuple[Vector | None, ...]:
    """The value's axes as those of a value of this type, of which a scalar has none."""
    return value.axes if len(value.axes) == len(kind.shape) else (None,) * len(kind.shape)


def _joined(work: Callable[[Vector, Vector], Vector], one: Vector | None, other: Vector | None) -> Vector | None:
    """The axis of a result, where one of both operands may have none."""
    if one is None or other is None:
        return other if one is None else one
    return work(one, other)


def _along(value: Value, axis: int) -> Vector:
    """All elements along one axis, of shape (programs, extent or 1), or of one row if all programs have the same."""
    assert value.base is not None
    base = value.base[:1] if (value.base == value.base[0]).all() else value.base
    if not value.axes or (own := value.axes[axis]) is None:
        return base[:, None]
    return base[:, None] * own if value.type.truth else base[:, None] + own


def _limit(numbers: Vector, made_up: bool) -> Vector:
    return numbers % _FARTHEST if made_up else numbers
