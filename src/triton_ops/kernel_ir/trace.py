"""The trace of many programs that walk through a kernel: their numbers, and what they do, summed by operation.

A whole number is base[p] + Σ axis_k[p, i_k], a vector over programs and one for each axis of a tensor, which is what
offsets of tiles are; no array of two axes of a tensor is ever made. A mask is in the same way a product of one vector
for each axis. Elements whose value cannot be said in this form are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

    def where(self, condition: Vector, other: Value) -> Value:
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
    return {**one, **other, **{at: work(axis, other[at]) for at, axis in one.items() if at in other}}


def _along(value: Value, axis: int) -> Vector:
    """All elements along one axis, of shape (programs, extent or 1), or of one row if all programs have the same."""
    assert value.base is not None
    base = value.base[:1] if (value.base == value.base[0]).all() else value.base
    if (own := value.axes.get(axis)) is None:
        return base[:, None]
    return base[:, None] * own if value.truth else base[:, None] + own


def _limited(numbers: Vector, made_up: bool) -> Vector:
    # Numbers in the place of data wrap round, so that no product of them leaves int64.
    return numbers % FARTHEST if made_up else numbers


DTYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "tf32": "float32", "f64": "float64", "i8": "int8",
    "f8E4M3FN": "float8_e4m3fn", "f8E4M3FNUZ": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Access:
    """One load, store or atomic operation, with figures of the average program.

    Attributes:
        repeats: How often a program goes to the same places by it, because turns of loops around do not change them.
        again: The access that goes to the same places of the same argument, by its place, and is reached more often, or
            as often and earlier; -1 if none does.
        shared: Different places to which 1, 2, 4, … programs go that follow each other, when they first reach it; the
            last figure is that of the whole grid, or of the programs that were looked at.
    """

    kind: str  # `load`, `store` or `atomic`
    argument: int  # the operand of the kernel that it goes to, counted from 0; -1 if that is unknown
    element: str
    item_bytes: int
    loop: int  # the loop around, by its place among the loops; -1 outside of loops
    executions: float
    tile: int  # elements of one execution without a mask
    elements: float  # elements that a program moves by it in all
    distinct: float  # share of the elements of one execution that lie at different addresses
    lines: float  # 128-byte lines of one execution
    sectors: float  # 32-byte sectors of one execution, the least that L2 moves
    run_bytes: float  # bytes that follow each other in memory
    descriptor: bool  # whether a tensor descriptor says where the block lies
    repeats: float
    known: bool  # whether its addresses are known
    again: int
    shared: tuple[float, ...]
    anew: float = 0.0  # share of its places to which `again` does not go: the edge of a tile of neighbours

    @property
    def bytes(self) -> float:
        """Bytes that a program moves by it in all."""
        return self.elements * self.item_bytes


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of two tiles.

    Attributes:
        after: The products of the same turn of the loop around that its operands wait for, by their places.
        computed: Whether its operands are computed in the loop around, from products or from what was loaded.
        made_of: The accesses of the same turn that its operands come from or are computed from, by their places.
        beside: Whether a sum as large as its result is kept beside it, to which what is computed of it is added.
    """

    batch: int  # products of one execution
    rows: int
    columns: int
    inner: int  # length of the sums
    element: str
    loop: int  # the loop around, by its place among the loops; -1 outside of loops
    executions: float
    loads: tuple[int, int]  # for each operand the access that it comes from, by its place; -1 if it was computed
    after: tuple[int, ...] = ()
    computed: bool = False
    made_of: tuple[int, ...] = ()
    beside: bool = False

    @property
    def dtype(self) -> str:
        """The long name of the operands' dtype, or TTIR's where there is none."""
        return DTYPES.get(self.element, self.element)

    @property
    def item_bytes(self) -> int:
        """Size of an element of the operands."""
        return Type((), self.element).item_bytes

    @property
    def flops(self) -> float:
        """Floating-point operations of a program by it in all."""
        return 2.0 * self.batch * self.rows * self.columns * self.inner * self.executions


@dataclass(frozen=True, kw_only=True)
class LoopWork:
    """One loop; turns are those of a program over all entries, `most` those of the program that has most."""

    parent: int  # the loop around, by its place among the loops; -1 outside of loops
    entries: float
    turns: float
    most: float
    stages: int | None  # stages of its pipeline that the kernel asks for; None if it leaves them to the launch
    by_data: bool  # whether its end depends on data
    plain: float  # floating-point operations on single elements in its body, over all turns
    special: float  # the same of exponentials, divisions, square roots and the like
    written: bool = False  # whether its bounds are numbers in the text, so that the compiler knows its turns


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """One reduction or scan of a tile along one of its axes.

    A scan has the number of its `operands`, and of the `operations` that make one element of two.
    """

    shape: tuple[int, ...]
    axis: int
    executions: float
    operands: int = 1
    operations: int = 0
    scans: bool = False


Weights: TypeAlias = NDArray[np.float64]
_LINE_BYTES = 128
_SECTOR_BYTES = 32


@dataclass
class AccessTrace:
    """An access by program, whose loop is told by its number, without the figures that only the whole trace tells."""

    figures: Access
    root: int | None
    pointer: Value  # where it went when it was first reached, in the argument `root`, None if that is unknown
    rank: int  # number of axes of the tile
    executions: Weights
    elements: Weights  # over all executions, without those that masks leave out
    still: set[int] = field(default_factory=set)  # the loops around it, of which a turn does not change where it goes


@dataclass
class LoopTrace:
    """A loop by program, whose parent is told by its number; turns are those over all entries."""

    figures: LoopWork
    entries: Weights
    turns: Weights


@dataclass
class Trace:
    """The operations met on the way through a kernel, by the number of the operation.

    Attributes:
        dots: The products by program, whose loop and loads are told by the numbers of their operations.
        arithmetic: By the loop around, 0 outside of loops: plain and special operations on single elements of floating
            point, by program.
    """

    programs: int
    accesses: dict[int, AccessTrace] = field(default_factory=dict)
    dots: dict[int, tuple[Product, Weights]] = field(default_factory=dict)
    loops: dict[int, LoopTrace] = field(default_factory=dict)
    arithmetic: dict[int, Weights] = field(default_factory=dict)
    reductions: Weights = field(default_factory=lambda: np.zeros(1))  # how often each program reduces or scans a tile
    reduced: dict[int, tuple[Reduction, Weights]] = field(default_factory=dict)  # the reductions among these
    notes: dict[str, None] = field(default_factory=dict)  # what could not be told, in words

    def arithmetic_of(self, loop: int) -> tuple[float, float]:
        """The plain and the special operations of the average program in a loop; 0 outside of loops."""
        counts = self.arithmetic.get(loop, np.zeros((2, 1)))
        return float(counts[0].mean()), float(counts[1].mean())


def count_elements(pointer: Value, shape: Sequence[int], mask: Value, programs: int) -> Weights:
    """Elements that each program moves; those at one address, along an axis of a broadcast, count once."""
    count = np.ones(programs) if mask.base is None else mask.base.astype(float)
    for at, extent in enumerate(shape):
        if pointer.base is None or at in pointer.axes:
            axis = mask.axes.get(at)
            count = count * (extent if axis is None else axis.sum(axis=1))
    return count


def measured_lines(figures: Access, pointer: Value, shape: Sequence[int], mask: Value, elements: Weights) -> Access:
    """The figures with the lines and runs of the program that moves most."""
    varying = range(len(shape)) if pointer.base is None else sorted(pointer.axes)
    tile = int(np.prod([1, *(shape[axis] for axis in varying)]))
    if pointer.base is None:
        return replace(figures, tile=tile, lines=float(tile), sectors=float(tile))
    at = int(np.argmax(elements))
    rows = [_row(pointer.axes[axis], mask.axes.get(axis) if mask.base is not None else None, at) for axis in varying]
    present = [row for row in rows if len(row)]
    if not present:
        return replace(figures, tile=tile)
    # the usual distance of neighbours; the largest for a row of one
    steps = [float(np.median(np.abs(np.diff(row)))) if len(row) > 1 else float("inf") for row in present]
    near = min(range(len(present)), key=lambda k: steps[k])
    apart = [len(np.unique(row)) for row in present]
    others = float(np.prod([1, *(count for k, count in enumerate(apart) if k != near)]))
    row, first = present[near], int(pointer.base[at])
    return replace(
        figures,
        tile=tile,
        lines=others * _units(first, row, figures.item_bytes, _LINE_BYTES),
        sectors=others * _units(first, row, figures.item_bytes, _SECTOR_BYTES),
        run_bytes=figures.item_bytes * len(row) / (int((np.abs(np.diff(row)) != 1).sum()) + 1),
        distinct=float(np.prod(apart)) / float(np.prod([len(row) for row in present])),
    )


def _units(first: int, row: Vector, item_bytes: int, unit_bytes: int) -> int:
    items = max(1, unit_bytes // item_bytes)
    return len(np.unique((first % items + row - row.min()) // items))


def _row(axis: Vector, mask: Vector | None, program: int) -> Vector:
    """The summand of one program's elements along an axis, those of a mask alone."""
    row: Vector = axis[program if len(axis) > 1 else 0]
    if mask is None:
        return row
    members: NDArray[np.bool_] = mask[program if len(mask) > 1 else 0].astype(bool)
    return row[members] if len(members) == len(row) else row
