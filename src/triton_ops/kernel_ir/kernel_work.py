"""The work of a config's launches: some figures for each loop, each product of tiles and each access to memory.

Two walks through the kernel tell them: one of some programs from all over the grid, with whole tensors, for sizes,
masks and turns of loops; one of many programs that follow each other, for what programs of one wave have in common.

The score of attention must be whole before its softmax begins, and the softmax before the second product: nothing of
one turn overlaps. A product whose operands were only loaded waits for no arithmetic, and its loads run ahead.

Operations on single elements follow each other element by element, so that what is between them needs few registers. At
a reduction or a product all elements must be there, with everything that is used later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.evaluation import Operand, Programs, evaluate
from triton_ops.kernel_ir.operations import meaning_of
from triton_ops.kernel_ir.term_walk import KernelFacts
from triton_ops.kernel_ir.trace import Access, AccessTrace, LoopWork, Product, Reduction, Trace, Vector
from triton_ops.kernel_ir.ttir_syntax import (
    Function,
    Module,
    TtirBlock,
    TtirOperation,
    UnreadableError,
    UntoldError,
    parsed_module,
)

_WORD_BYTES = 4
_FEW = 256  # of which a set is made faster than NumPy sorts them


class _Liveness:
    """The values of one function, from its end to its beginning.

    `most` are the most 32-bit words of data that a block holds at once at a reduction or a product. `loaded` are the
    most with loads that are on the way: outside of loops all up to the next reduction; in a loop, whose turns use each
    load at once, the largest or what is carried.
    """

    def __init__(self, function: Function) -> None:
        self._words: dict[str, float] = {}
        self._source: dict[str, str] = {}
        self._data: set[str] = set()  # names of what is loaded, and of what is computed from it
        self.most = 0.0
        self.loaded = 0.0
        self._backward(function.blocks, set())

    def _measure(self, blocks: Iterable[TtirBlock]) -> None:
        """Tell the size of every value; what a loop carries is as large as what its turns hand on."""
        for operation in (operation for block in blocks for operation in block.operations):
            for region in operation.regions:
                self._measure(region)
            if operation.name == "scf.for":
                last = operation.regions[0][0].operations[-1:]
                sizes = [self._words.get(name, 0.0) for one in last for name in one.operands]
                self._words.update(zip(operation.operands[4::2], sizes, strict=False))
            else:
                if operation.name in _OF_DATA or not self._data.isdisjoint(operation.operands):
                    self._data.update(operation.results)
                sizes = _sizes(operation, of_data=bool(operation.results) and operation.results[0] in self._data)
            for name in operation.results:
                self._source.pop(name, None)
            if meaning_of(operation.name).registers == "same":
                source = self._source.get(operation.operands[0], operation.operands[0])
                self._source.update(dict.fromkeys(operation.results, source))
                self._words[source] = max([self._words.get(source, 0.0), *sizes])
            self._words.update(zip(operation.results, sizes, strict=False))

    def _backward(self, blocks: Sequence[TtirBlock], later: set[str], *, turns: bool = False) -> set[str]:
        """Names that are alive before some blocks, from those alive after them.

        Blocks beside each other may use one name for different values, so each measures its own.
        """
        around = dict(self._words), dict(self._source)
        self._measure(blocks)
        alive, loads = set(later), [0.0]
        for operation in (operation for block in reversed(blocks) for operation in reversed(block.operations)):
            alive -= set(operation.results)
            if operation.name == "tt.load":
                loads.append(prod(operation.kinds[0].shape) * operation.kinds[0].item_bytes / _WORD_BYTES)
            if meaning_of(operation.name).gathers:
                self.most = max(self.most, self._held(alive | set(operation.operands)))
                self.loaded = max(self.loaded, self._with_loads(alive, loads, turns))
                loads = [0.0]
            elif operation.name == "scf.for":
                alive |= self._around(operation, alive)
            else:
                for region in operation.regions:
                    alive |= self._backward(region, alive)
            alive |= set(operation.operands)
        self.loaded = max(self.loaded, self._with_loads(alive, loads, turns))
        self._words, self._source = around
        return alive

    def _with_loads(self, alive: set[str], loads: Sequence[float], turns: bool) -> float:
        return max(self._held(alive), *loads) if turns else self._held(alive) + sum(loads)

    def _held(self, names: set[str]) -> float:
        return sum(self._words.get(name, 0.0) for name in {self._source.get(name, name) for name in names})

    def _around(self, loop: TtirOperation, later: set[str]) -> set[str]:
        """Names that are alive before the body of a loop: what its turns take from outside is so in all of them."""
        inner = list(_operations_in(loop.regions[0]))
        heads = (one.operands for one in (loop, *inner) if one.name == "scf.for")  # which name what a loop carries
        results = {name for one in inner for name in one.results}.union(*((*one[0:1], *one[4::2]) for one in heads))
        operands = {name for one in inner for name in one.operands}
        return self._backward(loop.regions[0], later | (operands - results), turns=True) - results


def _operations_in(blocks: Iterable[TtirBlock]) -> Iterator[TtirOperation]:
    for operation in (operation for block in blocks for operation in block.operations):
        yield operation
        for region in operation.regions:
            yield from _operations_in(region)


_OF_DATA = ("tt.load", "arith.cmpf", "arith.fptosi", "arith.fptoui", "tt.descriptor_load")


def _sizes(operation: TtirOperation, *, of_data: bool) -> list[float]:
    """Registers of all threads together; whole numbers of no data, truth values and pointers are made anew for use."""
    made_anew = meaning_of(operation.name).registers == "none"
    return [
        0.0
        if made_anew or (kind.whole and not of_data) or kind.truth or kind.pointer or kind.descriptor or not kind.shape
        else prod(kind.shape) * kind.item_bytes / _WORD_BYTES
        for kind in operation.kinds
    ]


@dataclass(frozen=True)
class Argument:
    """One operand of the kernel; of a tensor the bytes that it spans in memory, 0 if that is not known."""

    name: str = ""
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class LaunchWork:
    """The work of one launch; its figures are those of the average program."""

    grid: tuple[int, int, int]
    looked_at: int  # programs that follow each other and were looked at for what they share
    arguments: tuple[Argument, ...]
    loops: tuple[LoopWork, ...]
    accesses: tuple[Access, ...]
    products: tuple[Product, ...]
    plain: float  # floating-point operations on single elements outside of loops
    special: float  # the same of exponentials, divisions, square roots and the like
    notes: tuple[str, ...] = ()  # what could not be told, in words
    alive: float = 0.0  # 32-bit words that a block holds at once at a reduction or a product; 0 without one
    loaded: float = 0.0  # the same with loads that are on the way, at any place; 0 in summaries of before it was kept
    reductions: float = 0.0  # how often a program reduces or scans a tile, in loops and outside of them
    reduced: tuple[Reduction, ...] = ()  # the reductions among these; empty in summaries of before they were kept

    @staticmethod
    def of(text: str, grid: tuple[int, int, int], operands: Sequence[Operand]) -> LaunchWork:
        """The work of a launch of the kernel with this TTIR, with programs along x, y and z.

        Missing operands are unknown.

        Cost: about 10 ms for a kernel of 100 operations.

        Raises:
            UnreadableError: The text is of no form that is known here.
            UntoldError: The work cannot be told, with the reason.
        """
        count = prod(grid)
        if not 0 < count < _MOST_PROGRAMS:
            raise UntoldError(f"its grid has {count} programs")
        module = parsed_module(text)
        by_name = {
            name.lstrip("%"): (at, operands[at] if at < len(operands) else Operand())
            for at, (name, _) in enumerate(module.kernel.arguments)
        }
        longest = max((int(n) for n in _RANGES.findall(text)), default=1)
        some = Programs(_spread_ids(count, max(_FEWEST, min(_LOOKED_AT, _MOST_ELEMENTS // longest))), grid, by_name)
        many = Programs(np.arange(min(count, _BESIDE), dtype=np.int64), grid, by_name, whole=False)
        try:
            facts = KernelFacts.of(module, data=False)
            whole, beside = (evaluate(facts, programs) for programs in (some, many))
        # A later Triton may write other forms: a kernel without a model is tuned all the same.
        except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableError(f"it has an operation in a form that is not known here: {error!r}") from error
        return _summary((whole, beside), module, grid, operands)

    @property
    def programs(self) -> int:
        """Number of programs."""
        return prod(self.grid)

    @property
    def flops(self) -> float:
        """Floating-point operations of all products of the launch."""
        return self.programs * sum(product.flops for product in self.products)

    def moved_bytes(self, *kinds: str) -> float:
        """Bytes that all programs move by accesses of these kinds, before any cache."""
        return self.programs * sum(access.bytes for access in self.accesses if access.kind in kinds)


@dataclass(frozen=True)
class KernelWork:
    """The work of each launch of one config, or why it cannot be told."""

    launches: tuple[LaunchWork, ...] = ()
    silent: str = ""

    @property
    def accumulator(self) -> tuple[int, int] | None:
        """Rows and columns of the largest result of a product; None without products, or if nothing is known."""
        products = [product for launch in self.launches for product in launch.products]
        largest = max(products, key=lambda each: each.batch * each.rows * each.columns, default=None)
        return None if largest is None else (largest.batch * largest.rows, largest.columns)


_PRODUCTS = ("tt.dot", "tt.dot_scaled")
_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
_LOOPS = ("scf.for", "scf.while")
_COMPUTED = 0  # stands for arithmetic of floating point; operations are counted from 1
_Origins: TypeAlias = dict[str, frozenset[int]]
"""The products that values had to wait for in this turn, and loads, by their numbers, and `_COMPUTED`.

What is computed from the result of a product has the number below zero as well.
"""


class _ProductOrigins:
    """The origin of the operands of each product, by the product's number.

    What a turn is entered with, and what was made outside of the loop, counts as given. A function that is called is
    looked at by itself. `beside` are the products of which something as large is computed that the next turn gets.
    """

    def __init__(self, module: Module) -> None:
        self.by_product: dict[int, frozenset[int]] = {}
        self.beside: set[int] = set()
        self._sizes: dict[int, int] = {}  # of the results of products
        for function in module.functions.values():
            self._through(function.blocks, {})

    def _through(self, blocks: Iterable[TtirBlock], values: _Origins) -> frozenset[int]:
        """Look at blocks in order; how the operands of the last operation were made, together."""
        last: frozenset[int] = frozenset()
        for operation in (operation for block in blocks for operation in block.operations):
            last = _together(operation.operands, values)
            values.update(dict.fromkeys(operation.results, self._of(operation, last, values)))
        return last

    def _of(self, operation: TtirOperation, inputs: frozenset[int], values: _Origins) -> frozenset[int]:
        if operation.name in _PRODUCTS:
            self.by_product[operation.number] = _together(operation.operands[:2], values)
            self._sizes[operation.number] = prod(operation.kinds[0].shape)
            return frozenset((operation.number, _COMPUTED))
        if operation.name in _LOADS:
            return inputs | {operation.number}
        if operation.name in _LOOPS:
            inner = [self._turn(region) for region in operation.regions]
        else:
            inner = [self._through(region, values) for region in operation.regions]
        whole = all(kind.whole or kind.pointer for kind in operation.result_types or operation.types[-1:])
        computed = not whole and not operation.regions and not meaning_of(operation.name).moves
        of_products = {-one for one in inputs if one in self._sizes} if computed else ()
        return inputs.union(*inner, (_COMPUTED,) if computed else (), of_products)

    def _turn(self, blocks: Sequence[TtirBlock]) -> frozenset[int]:
        """Look at a turn of a loop, which hands on what is computed from a product where that is added to a sum."""
        values: _Origins = {}
        last = self._through(blocks, values)
        for end in (one for block in blocks for one in block.operations[-1:] if one.name == "scf.yield"):
            for name, kind in zip(end.operands, end.types, strict=False):
                numbers = {-one for one in values.get(name, ()) if one < 0}
                self.beside |= {one for one in numbers if self._sizes[one] == prod(kind.shape)}
        return last


def _together(names: Sequence[str], values: _Origins) -> frozenset[int]:
    return frozenset().union(*(values[name] for name in names if name in values))


_LOOKED_AT, _FEWEST = 64, 8  # programs of the first walk
_MOST_ELEMENTS = 1 << 17  # of them together, of one range: with more, each step takes a millisecond
_BESIDE = 4096  # programs of the second walk
_MOST_PROGRAMS = 1 << 31  # CUDA's grids have fewer along x
_RANGES = re.compile(r"tt\.make_range \{end = (\d+)")


def _spread_ids(count: int, most: int) -> Vector:
    """Programs from all over the grid: all of a small one, else one of each of equal parts."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    at = np.arange(most)
    within = (at * 0.6180339887498949) % 1.0  # evenly spread, and in step with no number of tiles
    return ((at + within) * count / most).astype(np.int64)


def _summary(
    traces: tuple[Trace, Trace], module: Module, grid: tuple[int, int, int], operands: Sequence[Operand]
) -> LaunchWork:
    """The work, from the walk of whole tensors, the one of neighbouring programs, and how operands were made."""
    (whole, beside), origins = traces, _ProductOrigins(module)
    by_product = origins.by_product
    loops = {number: at for at, number in enumerate(sorted(whole.loops))}
    places = {number: at for at, number in enumerate(sorted(whole.accesses))}
    dots = {number: at for at, number in enumerate(sorted(whole.dots))}
    exact = beside if beside.programs == prod(grid) else whole  # how often is exact for all programs
    plain, special = whole.arithmetic_of(0)
    lives = [_Liveness(function) for function in module.functions.values()]
    return LaunchWork(
        grid=grid,
        looked_at=beside.programs,
        arguments=tuple(Argument(one.name, one.bytes) for one in operands),
        loops=tuple(_loop(whole, exact, number, loops) for number in sorted(whole.loops)),
        accesses=tuple(_access((whole, exact, beside), number, loops, places) for number in sorted(whole.accesses)),
        products=tuple(
            replace(
                product,
                loop=loops.get(product.loop, -1),
                executions=float(exact.dots.get(number, (product, executions))[1].mean()),
                loads=(places.get(product.loads[0], -1), places.get(product.loads[1], -1)),
                after=tuple(sorted(dots[earlier] for earlier in by_product[number] if earlier in dots)),
                computed=_COMPUTED in by_product[number],
                made_of=tuple(sorted(places[load] for load in by_product[number] if load in places)),
                beside=number in origins.beside,
            )
            for number, (product, executions) in sorted(whole.dots.items())
        ),
        reductions=float(whole.reductions.mean()),
        reduced=tuple(
            replace(reduction, executions=float(executions.mean()))
            for _, (reduction, executions) in sorted(whole.reduced.items())
        ),
        notes=tuple(whole.notes),
        plain=plain,
        special=special,
        alive=max((one.most for one in lives), default=0.0),
        loaded=max((one.loaded for one in lives), default=0.0),
    )


def _loop(trace: Trace, exact: Trace, number: int, loops: Mapping[int, int]) -> LoopWork:
    loop = trace.loops[number]
    times, (plain, special) = exact.loops.get(number, loop), trace.arithmetic_of(number)
    return replace(
        loop.figures, parent=loops.get(loop.figures.parent, -1), entries=float(times.entries.mean()),
        turns=float(times.turns.mean()), most=float(times.turns.max()), plain=plain, special=special,
    )  # fmt: skip


def _access(
    traces: tuple[Trace, Trace, Trace], number: int, loops: Mapping[int, int], places: Mapping[int, int]
) -> Access:
    """One access, from the walk of whole tensors, the one that counts, and the one of neighbouring programs."""
    whole, exact, beside = traces
    access = whole.accesses[number]
    root, executions = access.root, float(exact.accesses.get(number, access).executions.mean())
    of_each = float(access.elements.sum() / max(access.executions.sum(), 1e-9))
    fullest, overlap = _fullest(whole, beside, number)
    return replace(
        access.figures, argument=-1 if root is None or root < 0 else root, loop=loops.get(access.figures.loop, -1),
        executions=executions, elements=of_each * executions, repeats=_repeats(access, whole),
        known=access.pointer.base is not None, again=places.get(fullest, -1), anew=1 - overlap,
        shared=_distinct_places(beside, number),
    )  # fmt: skip


def _repeats(access: AccessTrace, trace: Trace) -> float:
    """Times that a program goes to the same places, by the turns of the loops that do not change them."""
    turns = 1.0
    for loop in access.still:
        around = trace.loops[loop]
        turns *= max(1.0, float(around.turns.sum() / max(around.entries.sum(), 1e-9)))
    return turns


def _distinct_places(beside: Trace, number: int) -> tuple[float, ...]:
    """Different places of 1, 2, 4, … programs that follow each other, and of all that were looked at."""
    access, programs = beside.accesses.get(number), beside.programs
    sizes = [1 << power for power in range(programs.bit_length()) if 1 << power < programs]
    if access is None or access.pointer.base is None:
        return tuple(float(size) for size in (*sizes, programs))
    return tuple(_mean_distinct(access.pointer.base, access.executions > 0, size) for size in (*sizes, programs))


def _fullest(whole: Trace, beside: Trace, number: int) -> tuple[int, float]:
    """The access that goes to the same places and is met most often, of equal ones the first; -1 if it is this one.

    A first chunk that is loaded before the loop over all of them is a part of what the loop loads. If the loop were the
    repetition, of two chunks only one would count. The neighbours of a cell are the same places but for the edge of the
    tile; the second figure is the share of the places to which it, or an earlier access, goes too.
    """
    if (here := beside.accesses.get(number)) is None or here.pointer.base is None:
        return -1, 1.0
    overlaps: dict[int, float] = {}
    for at, one in sorted(beside.accesses.items()):
        alike = (one.figures.kind, one.figures.tile) == (here.figures.kind, here.figures.tile)
        if not alike or (one.root, one.rank) != (here.root, here.rank):  # one element is not a tile that begins there
            continue
        if one.pointer.equals(here.pointer):
            overlaps[at] = 1.0
        elif one.figures.loop == here.figures.loop and {at, number} <= whole.accesses.keys():
            overlaps[at] = _overlap(whole.accesses[at], whole.accesses[number])
    common = [at for at, share in overlaps.items() if share > 0]
    fullest = max(common, key=lambda other: float(beside.accesses[other].executions.sum()))
    nearest = max((share for at, share in overlaps.items() if at < number), default=0.0)
    return (-1, 1.0) if fullest == number else (fullest, max(overlaps[fullest], nearest))


def _overlap(access: AccessTrace, shifted: AccessTrace) -> float:
    """The share of a tile's places that it has in common with a tile of its form, a fixed number of steps away."""
    one, other = access.pointer, shifted.pointer
    if one.base is None or other.base is None or not replace(one, base=other.base).equals(other):
        return 0.0
    away, share = one.base - other.base, 1.0
    steps = [np.diff(axis, axis=1) for axis in one.axes.values()]
    if np.ptp(away) or any(np.ptp(step) or not step.any() for step in steps):
        return 0.0
    rest = int(away[0])
    for step in sorted(steps, key=lambda step: -abs(int(step[0, 0]))):
        count = round(rest / int(step[0, 0]))
        rest -= count * int(step[0, 0])
        share *= max(0.0, 1 - abs(count) / (step.shape[1] + 1))
    full = float(shifted.elements.sum() / max(shifted.executions.sum(), 1.0)) / shifted.figures.tile
    return 0.0 if rest else max(0.0, share + full - 1) / max(full, 1e-9)  # what masks leave out is shared by none


def _mean_distinct(base: Vector, arrivals: NDArray[np.bool_], size: int) -> float:
    """Different places of `size` programs that follow each other: the mean of some such groups."""
    groups = len(base) // size
    starts = sorted({0, groups // 2 * size if groups > 2 else 0, (groups - 1) * size})
    groups_of = (base[start : start + size][arrivals[start : start + size]] for start in starts)
    counts = [len(np.unique(one)) if size > _FEW else len(set(one.tolist())) for one in groups_of]
    return sum(counts) / len(counts)
