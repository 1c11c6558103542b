"""The work of one launch, read from its TTIR: some figures for each loop, each product and each access to memory.

Two walks through the kernel tell them: one of some programs from all over the grid, with whole tensors, for sizes,
masks and turns of loops; one of many programs that follow each other, for what programs of one wave have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from triton_ops.ttir.evaluate import evaluated
from triton_ops.ttir.scope import Programs, UntoldError
from triton_ops.ttir.syntax import Module, UnreadableError, parsed_module, parsed_type
from triton_ops.ttir.trace import AccessTrace, DotTrace, Trace
from triton_ops.ttir.values import Value, Vector, uniform, unknown

_LOOKED_AT = 64  # programs of the first walk
_BESIDE = 4096  # programs of the second walk
_MOST_PROGRAMS = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Access:
    """One load, store or atomic operation, with figures of the average program.

    Attributes:
        kind: `load`, `store` or `atomic`.
        argument: The operand of the kernel that it goes to, counted from 0; -1 if that is unknown.
        element: Type of an element, as TTIR names it.
        item_bytes: Size of an element.
        loop: The loop around, by its place among the loops; -1 outside of loops.
        executions: How often a program reaches it.
        tile: Elements of one execution without a mask.
        elements: Elements that a program moves by it in all.
        distinct: Share of the elements of one execution that lie at different addresses.
        lines: 128-byte lines of one execution.
        run_bytes: Bytes that follow each other in memory.
        descriptor: Whether a tensor descriptor says where the block lies.
        still: Whether a turn of the loop around does not change where it goes.
        repeated: Whether a turn of some loop further out does not change where it goes.
        known: Whether its addresses are known.
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
    run_bytes: float
    descriptor: bool
    still: bool
    repeated: bool
    known: bool
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
        rows: Rows of the result.
        columns: Columns of the result.
        inner: Length of the sums.
        element: Type of the operands, as TTIR names it.
        loop: The loop around, by its place among the loops; -1 outside of loops.
        executions: How often a program reaches it.
        loads: For each operand the access that it comes from, by its place; -1 if it was computed.
    """

    batch: int
    rows: int
    columns: int
    inner: int
    element: str
    loop: int
    executions: float
    loads: tuple[int, int]

    @property
    def flops(self) -> float:
        """Floating-point operations of a program by it in all."""
        return 2.0 * self.batch * self.rows * self.columns * self.inner * self.executions


@dataclass(frozen=True, kw_only=True)
class LoopWork:
    """One loop.

    Attributes:
        parent: The loop around, by its place among the loops; -1 outside of loops.
        entries: How often a program enters it.
        turns: How often a program runs its body, over all entries.
        most: The same of the program that runs it most often.
        stages: Stages of its pipeline that the kernel asks for; None if it leaves them to the launch.
        flags: What else the kernel asks of it: `flatten`, `warp_specialize`.
        by_data: Whether its end depends on data.
        plain: Floating-point operations on single elements in its body, over all turns.
        special: The same of exponentials, divisions, square roots and the like.
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


@dataclass(frozen=True)
class Argument:
    """One operand of the kernel.

    Attributes:
        name: The parameter's name; empty if it is not known.
        bytes: Of a tensor the bytes that it spans in memory; 0 if that is not known.
    """

    name: str = ""
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class LaunchWork:
    """The work of one launch; its figures are those of the average program.

    Attributes:
        grid: Programs along x, y and z.
        looked_at: Programs that follow each other and were looked at for what they share.
        arguments: The operands of the kernel that are known, in order.
        loops: The loops, in the order of the text.
        accesses: The accesses to memory, in the order of the text.
        products: The products of tiles, in the order of the text.
        plain: Floating-point operations on single elements outside of loops.
        special: The same of exponentials, divisions, square roots and the like.
        notes: What could not be told, in words.
    """

    grid: tuple[int, int, int]
    looked_at: int
    arguments: tuple[Argument, ...]
    loops: tuple[LoopWork, ...]
    accesses: tuple[Access, ...]
    products: tuple[Product, ...]
    plain: float
    special: float
    notes: tuple[str, ...] = ()

    @property
    def programs(self) -> int:
        """Number of programs."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def flops(self) -> float:
        """Floating-point operations of all products of the launch."""
        return self.programs * sum(product.flops for product in self.products)

    def moved_bytes(self, *kinds: str) -> float:
        """Bytes that all programs move by accesses of these kinds, before any cache."""
        return self.programs * sum(access.bytes for access in self.accesses if access.kind in kinds)


@dataclass(frozen=True)
class KernelWork:
    """The work of one config: of each of its launches, or why it cannot be told.

    Attributes:
        launches: The launches in order; empty if the work cannot be told.
        silent: Why it cannot be told; empty if it can.
    """

    launches: tuple[LaunchWork, ...] = ()
    silent: str = ""


@dataclass(frozen=True)
class Operand:
    """What is known of one operand of the kernel before a launch.

    Attributes:
        name: The parameter's name.
        bytes: Of a tensor the bytes that it spans in memory; 0 if that is not known.
        number: Its value, if it is a whole number; None for anything else.
        strides: Of a tensor descriptor made on the host: its tensor's, in elements.
        extents: Of a tensor descriptor made on the host: its tensor's shape.
        content: Of a tensor of whole numbers: its elements in the order of memory, if they are known.
    """

    name: str = ""
    bytes: int = 0
    number: int | None = None
    strides: tuple[int, ...] = ()
    extents: tuple[int, ...] = ()
    content: NDArray[np.int64] | None = None


def launch_work(text: str, grid: tuple[int, int, int], operands: Sequence[Operand]) -> LaunchWork:
    """The work of a launch.

    Args:
        text: The kernel's TTIR.
        grid: Programs along x, y and z.
        operands: One for each operand of the kernel's function, in order; missing ones count as unknown.

    Cost: about 10 ms for a kernel of 100 operations.

    Raises:
        UnreadableError: The text is of no form that is known here.
        UntoldError: The work cannot be told, with the reason.
    """
    count = grid[0] * grid[1] * grid[2]
    if not 0 < count < _MOST_PROGRAMS:
        raise UntoldError(f"its grid has {count} programs")
    module = parsed_module(text)
    contents = {at: one.content for at, one in enumerate(operands) if one.content is not None and len(one.content)}
    some = Programs(_spread_ids(count), grid, True, contents)
    many = Programs(np.arange(min(count, _BESIDE), dtype=np.int64), grid, False, contents)
    try:
        whole, beside = (evaluated(module, p, _values(module, operands, len(p.ids))) for p in (some, many))
    except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableError(f"it has an operation in a form that is not known here: {error!r}") from error
    return _summary(whole, beside, grid, operands)


def _spread_ids(count: int) -> Vector:
    """Programs from all over the grid: all of a small one, else one of each of equal parts."""
    if count <= _LOOKED_AT:
        return np.arange(count, dtype=np.int64)
    at = np.arange(_LOOKED_AT)
    within = (at * 0.6180339887498949) % 1.0  # evenly spread, and in step with no number of tiles
    return ((at + within) * count / _LOOKED_AT).astype(np.int64)


def _values(module: Module, operands: Sequence[Operand], count: int) -> list[Value]:
    """The kernel's operands: pointers and descriptors by their place, whole numbers by value, others unknown."""
    found: list[Value] = []
    for at, (_, kind) in enumerate(module.kernel.arguments):
        given = operands[at] if at < len(operands) else Operand()
        if kind.pointer or kind.descriptor:
            made = uniform(kind, np.zeros(count, dtype=np.int64), root=at)
            found.append(_described(made, given, count) if kind.descriptor else made)
        elif kind.whole and given.number is not None:
            found.append(uniform(kind, np.full(count, given.number, dtype=np.int64)))
        else:
            found.append(unknown(kind))
    return found


def _described(made: Value, given: Operand, count: int) -> Value:
    """A descriptor that the host has made."""
    kind = parsed_type("i64")

    def numbers(several: Sequence[int]) -> tuple[Value, ...]:
        return tuple(uniform(kind, np.full(count, number, dtype=np.int64)) for number in several)

    return replace(made, strides=numbers(given.strides), extents=numbers(given.extents))


def _summary(whole: Trace, beside: Trace, grid: tuple[int, int, int], operands: Sequence[Operand]) -> LaunchWork:
    loops = {number: at for at, number in enumerate(sorted(whole.loops))}
    places = {number: at for at, number in enumerate(sorted(whole.accesses))}
    counted = beside if beside.programs == grid[0] * grid[1] * grid[2] else whole  # how often is exact for all programs
    outside = whole.arithmetic.get(0)
    return LaunchWork(
        grid=grid,
        looked_at=beside.programs,
        arguments=tuple(Argument(one.name, one.bytes) for one in operands),
        loops=tuple(_loop(whole, counted, number, loops) for number in sorted(whole.loops)),
        accesses=tuple(
            _access(whole.accesses[number], counted.accesses.get(number), loops, _shared(beside, number))
            for number in sorted(whole.accesses)
        ),
        products=tuple(
            _product(whole.dots[number], counted.dots.get(number), loops, places) for number in sorted(whole.dots)
        ),
        plain=0.0 if outside is None else float(outside.plain.mean()),
        special=0.0 if outside is None else float(outside.special.mean()),
        notes=tuple(whole.notes),
    )


def _around(around: Sequence[int], loops: Mapping[int, int]) -> int:
    return loops[around[-1]] if around else -1


def _loop(trace: Trace, exact: Trace, number: int, loops: Mapping[int, int]) -> LoopWork:
    found, counted = trace.loops[number], trace.arithmetic.get(number)
    times = exact.loops.get(number, found)
    return LoopWork(
        parent=_around(found.loops, loops),
        entries=float(times.entries.mean()),
        turns=float(times.turns.mean()),
        most=float(times.turns.max()),
        stages=found.stages,
        flags=found.flags,
        by_data=found.by_data,
        plain=0.0 if counted is None else float(counted.plain.mean()),
        special=0.0 if counted is None else float(counted.special.mean()),
    )


def _access(
    found: AccessTrace, exact: AccessTrace | None, loops: Mapping[int, int], shared: tuple[float, ...]
) -> Access:
    root, executions = found.pointer.root, float((exact or found).executions.mean())
    of_each = float(found.elements.sum() / max(found.executions.sum(), 1e-9))
    return Access(
        kind=found.kind,
        argument=-1 if root is None or root < 0 else root,
        element=found.element,
        item_bytes=found.item_bytes,
        loop=_around(found.loops, loops),
        executions=executions,
        tile=found.tile,
        elements=of_each * executions,
        distinct=found.distinct,
        lines=found.lines,
        run_bytes=found.run_bytes,
        descriptor=found.descriptor,
        still=bool(found.loops) and found.loops[-1] in found.still,
        repeated=any(loop in found.still for loop in found.loops[:-1]),
        known=found.pointer.known,
        shared=shared,
    )


def _product(found: DotTrace, exact: DotTrace | None, loops: Mapping[int, int], places: Mapping[int, int]) -> Product:
    batch, rows, columns, inner = found.shape
    left, right = (-1 if source is None else places.get(source, -1) for source in found.sources)
    return Product(
        batch=batch, rows=rows, columns=columns, inner=inner, element=found.element, loop=_around(found.loops, loops),
        executions=float((exact or found).executions.mean()), loads=(left, right),
    )  # fmt: skip


def _shared(beside: Trace, number: int) -> tuple[float, ...]:
    """Different places of 1, 2, 4, … programs that follow each other, and of all that were looked at."""
    found, programs = beside.accesses.get(number), beside.programs
    sizes = [1 << power for power in range(programs.bit_length()) if 1 << power < programs]
    if found is None or found.pointer.base is None:
        return tuple(float(size) for size in (*sizes, programs))
    base = found.pointer.base
    return tuple(_different(base, found.executions > 0, size) for size in (*sizes, programs))


def _different(base: Vector, reached: NDArray[np.bool_], size: int) -> float:
    """Different places of `size` programs that follow each other: the mean of some such groups."""
    groups = len(base) // size
    starts = sorted({0, groups // 2 * size if groups > 2 else 0, (groups - 1) * size})
    counts = [len(np.unique(base[start : start + size][reached[start : start + size]])) for start in starts]
    return sum(counts) / len(counts)
