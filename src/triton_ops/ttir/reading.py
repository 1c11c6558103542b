"""The work of one launch, read from its TTIR.

Two walks through the kernel tell them: one of some programs from all over the grid, with whole tensors, for sizes,
masks and turns of loops; one of many programs that follow each other, for what programs of one wave have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from triton_ops.ttir.chains import Made, chains
from triton_ops.ttir.evaluate import evaluated
from triton_ops.ttir.launch_work import Access, Argument, LaunchWork, LoopWork, Product, Reduction
from triton_ops.ttir.liveness import most_alive
from triton_ops.ttir.scope import Programs, UntoldError
from triton_ops.ttir.syntax import Module, UnreadableError, parsed_module, parsed_type
from triton_ops.ttir.trace import AccessTrace, DotTrace, Trace
from triton_ops.ttir.values import Value, Vector, same, uniform, unknown

_LOOKED_AT, _FEWEST = 64, 8  # programs of the first walk
_MOST_ELEMENTS = 1 << 17  # of them together, of one range: with more, each step takes a millisecond
_BESIDE = 4096  # programs of the second walk
_MOST_PROGRAMS = 1 << 31
_RANGES = re.compile(r"tt\.make_range \{end = (\d+)")


@dataclass(frozen=True, kw_only=True)
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
    longest = max((int(n) for n in _RANGES.findall(text)), default=1)
    some = Programs(_spread_ids(count, max(_FEWEST, min(_LOOKED_AT, _MOST_ELEMENTS // longest))), grid, True, contents)
    many = Programs(np.arange(min(count, _BESIDE), dtype=np.int64), grid, False, contents)
    try:
        whole, beside = (evaluated(module, p, _values(module, operands, len(p.ids))) for p in (some, many))
    except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableError(f"it has an operation in a form that is not known here: {error!r}") from error
    return replace(_summary((whole, beside), chains(module), grid, operands), alive=most_alive(module))


def _spread_ids(count: int, most: int) -> Vector:
    """Programs from all over the grid: all of a small one, else one of each of equal parts."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    at = np.arange(most)
    within = (at * 0.6180339887498949) % 1.0  # evenly spread, and in step with no number of tiles
    return ((at + within) * count / most).astype(np.int64)


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


def _summary(
    traces: tuple[Trace, Trace], made: Mapping[int, Made], grid: tuple[int, int, int], operands: Sequence[Operand]
) -> LaunchWork:
    """The work, from the walk of whole tensors, the one of neighbouring programs, and how operands were made."""
    whole, beside = traces
    loops = {number: at for at, number in enumerate(sorted(whole.loops))}
    places = {number: at for at, number in enumerate(sorted(whole.accesses))}
    dots = {number: at for at, number in enumerate(sorted(whole.dots))}
    counted = beside if beside.programs == grid[0] * grid[1] * grid[2] else whole  # how often is exact for all programs
    outside = whole.arithmetic.get(0)
    return LaunchWork(
        grid=grid,
        looked_at=beside.programs,
        arguments=tuple(Argument(one.name, one.bytes) for one in operands),
        loops=tuple(_loop(whole, counted, number, loops) for number in sorted(whole.loops)),
        accesses=tuple(_access((whole, counted, beside), number, loops, places) for number in sorted(whole.accesses)),
        products=tuple(
            replace(
                _product(whole.dots[number], counted.dots.get(number), loops, places),
                after=tuple(sorted(dots[earlier] for earlier in made[number].after if earlier in dots)),
                computed=made[number].computed,
            )
            for number in sorted(whole.dots)
        ),
        plain=0.0 if outside is None else float(outside.plain.mean()),
        special=0.0 if outside is None else float(outside.special.mean()),
        reductions=float(whole.reductions.mean()),
        reduced=tuple(
            Reduction(shape=one.shape, axis=one.axis, executions=float(one.executions.mean()))
            for _, one in sorted(whole.reduced.items())
        ),
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
        written=found.written,
        plain=0.0 if counted is None else float(counted.plain.mean()),
        special=0.0 if counted is None else float(counted.special.mean()),
    )


def _access(
    traces: tuple[Trace, Trace, Trace], number: int, loops: Mapping[int, int], places: Mapping[int, int]
) -> Access:
    """One access, from the walk of whole tensors, the one that counts, and the one of neighbouring programs."""
    whole, counted, beside = traces
    found = whole.accesses[number]
    root, executions = found.pointer.root, float(counted.accesses.get(number, found).executions.mean())
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
        sectors=found.sectors,
        run_bytes=found.run_bytes,
        descriptor=found.descriptor,
        still=bool(found.loops) and found.loops[-1] in found.still,
        repeats=_repeats(found, whole),
        known=found.pointer.known,
        again=places.get(_fullest(beside, number), -1),
        shared=_shared(beside, number),
    )


def _repeats(found: AccessTrace, trace: Trace) -> float:
    """How often a program goes to the same places, by the turns of the loops that do not change them."""
    turns = 1.0
    for loop in found.still:
        around = trace.loops[loop]
        turns *= max(1.0, float(around.turns.sum() / max(around.entries.sum(), 1e-9)))
    return turns


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


def _fullest(beside: Trace, number: int) -> int:
    """The access that goes to the same places and is met most often, of equal ones the first; -1 if it is this one.

    A first chunk that is loaded before the loop over all of them is a part of what the loop loads. If the loop were the
    repetition, of two chunks only one would count.
    """
    here = beside.accesses.get(number)
    if here is None or here.pointer.base is None:
        return -1
    alike = [other for other in sorted(beside.accesses) if _alike(beside.accesses[other], here)]
    fullest = max(alike, key=lambda other: float(beside.accesses[other].executions.sum()))
    return -1 if fullest == number else fullest


def _alike(one: AccessTrace, other: AccessTrace) -> bool:
    """Whether two accesses begin at the same places, with tiles of the same size."""
    return one.kind == other.kind and one.tile == other.tile and same(one.pointer, other.pointer)


def _different(base: Vector, reached: NDArray[np.bool_], size: int) -> float:
    """Different places of `size` programs that follow each other: the mean of some such groups."""
    groups = len(base) // size
    starts = sorted({0, groups // 2 * size if groups > 2 else 0, (groups - 1) * size})
    counts = [len(np.unique(base[start : start + size][reached[start : start + size]])) for start in starts]
    return sum(counts) / len(counts)
