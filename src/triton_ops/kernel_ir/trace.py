"""The trace of programs that walk through a kernel: loads, stores, products, arithmetic, summed by operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.values import Value, Vector

Weights: TypeAlias = NDArray[np.float64]
_LINE_BYTES = 128
_SECTOR_BYTES = 32


@dataclass
class AccessTrace:
    """One load, store or atomic operation; `Access` describes what is not described here.

    Attributes:
        pointer: Where it went when it was first reached.
        executions: How often each program reaches it.
        elements: Elements that each program moves by it, over all executions, without those that masks leave out.
        still: The loops around it, of which a turn does not change where it goes.
    """

    kind: str
    pointer: Value
    item_bytes: int
    element: str
    loops: tuple[int, ...]
    descriptor: bool
    executions: Weights
    elements: Weights
    tile: int
    distinct: float
    lines: float
    sectors: float
    run_bytes: float
    still: set[int] = field(default_factory=set)


@dataclass
class DotTrace:
    """One product of two tiles.

    Attributes:
        shape: Batch, rows, columns, length of the sum.
        sources: For each operand the load that it comes from; None if it was computed.
        executions: How often each program reaches it.
    """

    shape: tuple[int, int, int, int]
    element: str
    loops: tuple[int, ...]
    sources: tuple[int | None, int | None]
    executions: Weights


@dataclass
class ReductionTrace:
    """One reduction of a tile along one of its axes."""

    shape: tuple[int, ...]
    axis: int
    executions: Weights


@dataclass
class LoopTrace:
    """One loop; `LoopWork` describes what is not described here.

    Attributes:
        entries: How often each program enters it.
        turns: How often each program runs its body, over all entries.
    """

    loops: tuple[int, ...]
    entries: Weights
    turns: Weights
    stages: int | None = None
    flags: tuple[str, ...] = ()
    by_data: bool = False
    written: bool = False


@dataclass
class Arithmetic:
    """Floating-point operations on single elements within one loop, over all executions, by program."""

    plain: Weights
    special: Weights


@dataclass
class Trace:
    """The operations met on the way through a kernel.

    Attributes:
        arithmetic: By the loop around it; 0 outside of loops.
        reductions: How often each program reduces or scans a tile.
        reduced: The reductions among these, by the number of the operation.
        notes: What could not be told, in words.
    """

    programs: int
    accesses: dict[int, AccessTrace] = field(default_factory=dict)
    dots: dict[int, DotTrace] = field(default_factory=dict)
    loops: dict[int, LoopTrace] = field(default_factory=dict)
    arithmetic: dict[int, Arithmetic] = field(default_factory=dict)
    reductions: Weights = field(init=False)
    reduced: dict[int, ReductionTrace] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reductions = np.zeros(self.programs)

    def note(self, remark: str) -> None:
        """Keep a remark, once."""
        self.notes[remark] = None

    def computed(self, loop: int, weight: Weights, elements: int, special: bool) -> None:
        """Count an operation on this many elements, a `special` one such as an exponential apart."""
        if loop not in self.arithmetic:
            self.arithmetic[loop] = Arithmetic(np.zeros(self.programs), np.zeros(self.programs))
        counts = self.arithmetic[loop]
        if special:
            counts.special += weight * elements
        else:
            counts.plain += weight * elements

    def multiplied(self, number: int, weight: Weights, product: DotTrace) -> None:
        """Count a product."""
        self.dots.setdefault(number, product).executions += weight

    def accessed(
        self, number: int, weight: Weights, where: AccessTrace, mask: Value | None, elements: Weights | None = None
    ) -> None:
        """Count an access.

        Args:
            number: The operation.
            weight: How often each program runs it here.
            where: The access as it is met here, without counts.
            mask: The elements that are moved; None for all.
            elements: Elements of each program, where they are known otherwise.
        """
        moved_elements = count_elements(where.pointer, mask, self.programs) if elements is None else elements
        first = self.accesses.get(number)
        if first is None:
            first = self.accesses[number] = where
            if elements is None:
                _measure_lines(first, mask, moved_elements)
        first.executions += weight
        first.elements += weight * moved_elements


def count_elements(pointer: Value, mask: Value | None, programs: int) -> Weights:
    """Elements that each program moves; those at one address, along an axis of a broadcast, count once."""
    count = np.ones(programs) if mask is None or mask.base is None else mask.base.astype(float)
    masks = mask.axes if mask is not None and len(mask.axes) == len(pointer.type.shape) else ()
    for at, extent in enumerate(pointer.type.shape):
        if pointer.known and pointer.axes[at] is None:
            continue
        axis = masks[at] if masks else None
        count = count * (extent if axis is None else axis.sum(axis=1))
    return count


def _measure_lines(access: AccessTrace, mask: Value | None, moved_elements: Weights) -> None:
    """Tell the lines and runs of an access by the program that moves most."""
    pointer, at = access.pointer, int(np.argmax(moved_elements))
    access.tile = int(
        np.prod([1, *(n for n, axis in zip(pointer.type.shape, _varying_axes(pointer), strict=True) if axis)])
    )
    if pointer.base is None:
        access.lines = access.sectors = float(access.tile)
        access.run_bytes = float(access.item_bytes)
        return
    masks: Sequence[Vector | None] = mask.axes if mask is not None and mask.known else ()
    rows = [
        _row(axis, masks[k] if len(masks) == len(pointer.axes) else None, at) for k, axis in enumerate(pointer.axes)
    ]
    present = [row for row in rows if row is not None and len(row)]
    if not present:
        access.lines, access.sectors, access.run_bytes = 1.0, 1.0, float(access.item_bytes)
        return
    steps = [_usual_step(row) for row in present]
    near = min(range(len(present)), key=lambda k: steps[k])
    apart = [len(np.unique(row)) for row in present]
    others = float(np.prod([1, *(count for k, count in enumerate(apart) if k != near)]))
    row, first = present[near], int(pointer.base[at])
    breaks = int((np.abs(np.diff(row)) != 1).sum())
    access.lines = others * _units(first, row, access.item_bytes, _LINE_BYTES)
    access.sectors = others * _units(first, row, access.item_bytes, _SECTOR_BYTES)
    access.run_bytes = access.item_bytes * len(row) / (breaks + 1)
    access.distinct = float(np.prod(apart)) / float(np.prod([len(row) for row in present]))


def _units(first: int, row: Vector, item_bytes: int, unit_bytes: int) -> int:
    items = max(1, unit_bytes // item_bytes)
    return len(np.unique((first % items + row - row.min()) // items))


def _varying_axes(pointer: Value) -> list[bool]:
    return [not pointer.known or axis is not None for axis in pointer.axes]


def _row(axis: Vector | None, mask: Vector | None, program: int) -> Vector | None:
    """The summand of one program's elements along an axis, those of a mask alone."""
    if axis is None:
        return None
    row: Vector = axis[program if len(axis) > 1 else 0]
    if mask is None:
        return row
    members: NDArray[np.bool_] = mask[program if len(mask) > 1 else 0].astype(bool)
    return row[members] if len(members) == len(row) else row


def _usual_step(row: Vector) -> float:
    """The usual distance of neighbours; the largest for a row of one."""
    return float(np.median(np.abs(np.diff(row)))) if len(row) > 1 else float("inf")
