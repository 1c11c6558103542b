"""The trace of programs that walk through a kernel: loads, stores, products, arithmetic, summed by operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.values import Value, Vector

DTYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "tf32": "float32", "f64": "float64", "i8": "int8",
    "f8E4M3FN": "float8_e4m3fn", "f8E4M3FNUZ": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Access:
    """One load, store or atomic operation, with figures of the average program.

    Attributes:
        kind: `load`, `store` or `atomic`.
        argument: The operand of the kernel that it goes to, counted from 0; -1 if that is unknown.
        loop: The loop around, by its place among the loops; -1 outside of loops.
        tile: Elements of one execution without a mask.
        elements: Elements that a program moves by it in all.
        distinct: Share of the elements of one execution that lie at different addresses.
        lines: 128-byte lines of one execution.
        sectors: 32-byte sectors of one execution, the least that L2 moves.
        run_bytes: Bytes that follow each other in memory.
        descriptor: Whether a tensor descriptor says where the block lies.
        still: Whether a turn of the loop around does not change where it goes.
        repeats: How often a program goes to the same places by it, because turns of loops around do not change them.
        known: Whether its addresses are known.
        again: The access that goes to the same places of the same argument, by its place, and is reached more often, or
            as often and earlier; -1 if none does.
        shared: Different places to which 1, 2, 4, … programs go that follow each other, when they first reach it; the
            last figure is that of the whole grid, or of the programs that were looked at.
    """

    kind: str
    argument: int
    element: str
    item_bytes: int
    loop: int
    executions: float
    tile: int
    elements: float
    distinct: float
    lines: float
    sectors: float
    run_bytes: float
    descriptor: bool
    still: bool
    repeats: float
    known: bool
    again: int
    shared: tuple[float, ...]

    @property
    def bytes(self) -> float:
        """Bytes that a program moves by it in all."""
        return self.elements * self.item_bytes


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of two tiles.

    Attributes:
        batch: Products of one execution.
        inner: Length of the sums.
        loop: The loop around, by its place among the loops; -1 outside of loops.
        loads: For each operand the access that it comes from, by its place; -1 if it was computed.
        after: The products of the same turn of the loop around that its operands wait for, by their places.
        computed: Whether its operands are computed in the loop around, from products or from what was loaded.
    """

    batch: int
    rows: int
    columns: int
    inner: int
    element: str
    loop: int
    executions: float
    loads: tuple[int, int]
    after: tuple[int, ...] = ()
    computed: bool = False

    @property
    def dtype(self) -> str:
        """The long name of the operands' dtype, or TTIR's where there is none."""
        return DTYPES.get(self.element, self.element)

    @property
    def flops(self) -> float:
        """Floating-point operations of a program by it in all."""
        return 2.0 * self.batch * self.rows * self.columns * self.inner * self.executions


@dataclass(frozen=True, kw_only=True)
class LoopWork:
    """One loop; turns are those of a program over all entries, `most` those of the program that has most.

    Attributes:
        parent: The loop around, by its place among the loops; -1 outside of loops.
        stages: Stages of its pipeline that the kernel asks for; None if it leaves them to the launch.
        flags: What else the kernel asks of it: `flatten`, `warp_specialize`.
        by_data: Whether its end depends on data.
        plain: Floating-point operations on single elements in its body, over all turns.
        special: The same of exponentials, divisions, square roots and the like.
        written: Whether its bounds are numbers in the text, so that the compiler knows its turns.
    """

    parent: int
    entries: float
    turns: float
    most: float
    stages: int | None
    flags: tuple[str, ...]
    by_data: bool
    plain: float
    special: float
    written: bool = False


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """One reduction of a tile along one of its axes."""

    shape: tuple[int, ...]
    axis: int
    executions: float


Weights: TypeAlias = NDArray[np.float64]
_LINE_BYTES = 128
_SECTOR_BYTES = 32
UNTOLD_ACCESS: dict[str, Any] = {
    "argument": -1, "loop": -1, "executions": 0.0, "tile": 1, "elements": 0.0, "distinct": 1.0, "lines": 1.0,
    "sectors": 1.0, "descriptor": False, "still": False, "repeats": 1.0, "known": False, "again": -1, "shared": (),
}  # fmt: skip
"""The figures of an access before anything is told of it."""


@dataclass
class AccessTrace:
    """An access by program, without those of its figures that only the whole trace tells.

    Attributes:
        pointer: Where it went when it was first reached, in the argument `root`, None if that is unknown.
        rank: Number of axes of the tile.
        elements: Over all executions, without those that masks leave out.
        still: The loops around it, of which a turn does not change where it goes.
    """

    figures: Access
    root: int | None
    pointer: Value
    rank: int
    loops: tuple[int, ...]
    executions: Weights
    elements: Weights
    still: set[int] = field(default_factory=set)


@dataclass
class DotTrace:
    """A product by program; `sources` are the loads that its operands come from, None for what was computed."""

    figures: Product
    loops: tuple[int, ...]
    sources: tuple[int | None, int | None]
    executions: Weights


@dataclass
class LoopTrace:
    """A loop by program; turns are those over all entries."""

    figures: LoopWork
    loops: tuple[int, ...]
    entries: Weights
    turns: Weights


@dataclass
class Trace:
    """The operations met on the way through a kernel, by the number of the operation.

    Attributes:
        arithmetic: By the loop around, 0 outside of loops: plain and special operations on single elements of floating
            point, by program.
        reductions: How often each program reduces or scans a tile.
        reduced: The reductions among these.
        notes: What could not be told, in words.
    """

    programs: int
    accesses: dict[int, AccessTrace] = field(default_factory=dict)
    dots: dict[int, DotTrace] = field(default_factory=dict)
    loops: dict[int, LoopTrace] = field(default_factory=dict)
    arithmetic: dict[int, Weights] = field(default_factory=dict)
    reductions: Weights = field(init=False)
    reduced: dict[int, tuple[Reduction, Weights]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reductions = np.zeros(self.programs)

    def arithmetic_of(self, loop: int) -> tuple[float, float]:
        """The plain and the special operations of the average program in a loop; 0 outside of loops."""
        counts = self.arithmetic.get(loop, np.zeros((2, 1)))
        return float(counts[0].mean()), float(counts[1].mean())


def count_elements(pointer: Value, shape: Sequence[int], mask: Value, programs: int) -> Weights:
    """Elements that each program moves; those at one address, along an axis of a broadcast, count once."""
    count = np.ones(programs) if mask.base is None else mask.base.astype(float)
    for at, extent in enumerate(shape):
        if not pointer.known or at in pointer.axes:
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
    rows = [_row(pointer.axes[axis], mask.axes.get(axis) if mask.known else None, at) for axis in varying]
    present = [row for row in rows if len(row)]
    if not present:
        return replace(figures, tile=tile)
    # the usual distance of neighbours; the largest for a row of one
    steps = [float(np.median(np.abs(np.diff(row)))) if len(row) > 1 else float("inf") for row in present]
    near = min(range(len(present)), key=lambda k: steps[k])
    apart = [len(np.unique(row)) for row in present]
    others = float(np.prod([1, *(count for k, count in enumerate(apart) if k != near)]))
    row, first = present[near], int(pointer.base[at])
    breaks = int((np.abs(np.diff(row)) != 1).sum())
    return replace(
        figures,
        tile=tile,
        lines=others * _units(first, row, figures.item_bytes, _LINE_BYTES),
        sectors=others * _units(first, row, figures.item_bytes, _SECTOR_BYTES),
        run_bytes=figures.item_bytes * len(row) / (breaks + 1),
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
