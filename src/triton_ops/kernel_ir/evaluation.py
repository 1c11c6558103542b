"""The terms of a kernel as numbers of many programs of one launch, without its data.

A loop is looked at in its first turn and in its last. The first stands for all but the last, which prices a mask at the
edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import zip_longest
from math import prod
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.facts import AccessFact, Branch, Computation, Facts, LoopFact, Way
from triton_ops.kernel_ir.operations import OPERATIONS, NotComputedError, computed
from triton_ops.kernel_ir.terms import AND, AT_LEAST_ZERO, INDEX, NOT, OR, SUM, ZERO, Term
from triton_ops.kernel_ir.trace import (
    COMPARISONS,
    FARTHEST,
    Access,
    AccessTrace,
    LoopTrace,
    LoopWork,
    Product,
    Reduction,
    Trace,
    Value,
    Vector,
    Weights,
    count_elements,
    elementwise,
    measured_lines,
)
from triton_ops.kernel_ir.ttir_syntax import UntoldError

_DEEP = 3  # loops within loops up to which turns are told apart
_MOST_TURNS = 1 << 20
_GUESSED = 1024  # of what a loop walks through, where its bounds are data
_SPREAD = 7919  # numbers that stand in for loaded data are this far apart for neighbouring addresses
_MOVING = ("turn", "carried", "after")
_OF_NUMBERS = ("quotient", "remainder", "least", "most")

Alive: TypeAlias = "NDArray[np.bool_]"
_Work = TypeVar("_Work", Product, Reduction)


@dataclass(frozen=True, kw_only=True)
class Operand:
    """One operand of the kernel, as far as it is known before a launch.

    Attributes:
        content: Of a tensor of whole numbers: its elements in the order of memory, if they are known.
    """

    name: str = ""
    bytes: int = 0  # of a tensor the bytes that it spans in memory; 0 if that is not known
    number: int | None = None  # its value, if it is a whole number
    strides: tuple[int, ...] = ()  # of a tensor descriptor made on the host: its tensor's, in elements
    extents: tuple[int, ...] = ()  # of a tensor descriptor made on the host: its tensor's shape
    content: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Programs:
    """The programs of a launch that are looked at, by their numbers, counted along x first.

    Tensors are looked at `whole`, or at their first element alone. Operands are by the names in the text.
    """

    ids: Vector
    grid: tuple[int, int, int]
    operands: Mapping[str, tuple[int, Operand]]
    whole: bool = True


@dataclass(frozen=True, eq=False)
class _Visit:
    """One look at the body of a loop, or at the kernel outside of loops.

    Attributes:
        turns: The loops around, by their number, each with its turn; a plain 0 or 1 is the same for all programs.
        weight: How often each program comes here.
        alive: The programs that come here.
        repeated: The loops around that some programs turn more than once, and whose turns are told apart.
    """

    turns: Mapping[int, tuple[LoopFact, Vector | int]]
    weight: Weights
    alive: Alive
    repeated: tuple[int, ...] = ()

    def at(self, loop: LoopFact, turn: Vector | int) -> _Visit:
        """The same in another turn of a loop."""
        return replace(self, turns={**self.turns, loop.number: (loop, turn)})


class _TurnCount(NamedTuple):
    """The turns of a loop by program, whether data decides, and whether its bounds are numbers in the text."""

    turns: Vector
    by_data: bool
    written: bool = False


def evaluate(facts: Facts, programs: Programs) -> Trace:
    """Trace the programs on their way through a kernel with these facts; raises UntoldError, with the reason.

    Cost: 1 to 10 ms.
    """
    evaluation = _Evaluation(facts, programs)
    # Loops are visited even where no access lies in them, since their turns count.
    for loop in (*facts.loops, *facts.whiles):
        evaluation.visits_of(loop)
    for access in (*facts.accesses, *facts.blocks):
        evaluation.access(access)
    for computation in facts.computations:
        if computation.product is not None:
            evaluation.count(evaluation.trace.dots, computation, computation.product)
        if programs.whole and computation.reduction is not None:
            evaluation.count(evaluation.trace.reduced, computation, computation.reduction)
    if programs.whole:  # what programs beside each other share needs no more
        evaluation.count_arithmetic()
    return evaluation.trace


class _Evaluation:
    """The way of a launch's programs, and the numbers that they have there."""

    def __init__(self, facts: Facts, programs: Programs) -> None:
        self._facts, self._count, self._whole = facts, len(programs.ids), programs.whole
        self._numbers = _Numbers(facts, programs, self._counted)
        self._visits: dict[LoopFact, list[_Visit]] = {}
        self._outside = [_Visit({}, np.ones(self._count), np.ones(self._count, dtype=bool))]
        self._ways: dict[tuple[Way, _Visit], tuple[Weights, Alive]] = {}
        self.trace = Trace(self._count, notes=dict(facts.notes))

    def visits_of(self, loop: LoopFact | None) -> list[_Visit]:
        """The looks at the body of a loop, each within one at what is around it; the loop is counted the first time."""
        if loop is None:
            return self._outside
        if loop not in self._visits:
            self._visits[loop] = [
                visit for around in self.visits_of(loop.way.loop) for visit in self._inside(loop, around)
            ]
        return self._visits[loop]

    def _inside(self, loop: LoopFact, around: _Visit) -> list[_Visit]:
        weight, alive = self._reached(loop.way, around)
        if not alive.any():
            return []
        count = self._counted(loop, around)
        self._enter(loop, weight, count)
        alive = alive & (count.turns > 0)
        again = alive & (count.turns > 1)
        if not alive.any():
            return []
        apart = len(loop.loops) < _DEEP and bool(again.any())
        share = np.where(again, count.turns - 1, count.turns) if apart else count.turns
        repeated = (*around.repeated, loop.number) if apart else around.repeated
        first = replace(around.at(loop, 0), weight=weight * share, alive=alive, repeated=repeated)
        if not apart:
            return [first]
        return [first, replace(first.at(loop, np.maximum(count.turns - 1, 0)), weight=weight * again, alive=again)]

    def _enter(self, loop: LoopFact, weight: Weights, count: _TurnCount) -> None:
        figures = LoopWork(
            parent=loop.way.number, entries=0.0, turns=0.0, most=0.0, stages=loop.operation.attribute("tt.num_stages"),
            by_data=False, plain=0.0, special=0.0, written=True,
        )  # fmt: skip
        nothing = LoopTrace(figures, np.zeros(self._count), np.zeros(self._count))
        trace = self.trace.loops.setdefault(loop.number, nothing)
        trace.entries += weight
        trace.turns += weight * count.turns
        by_data, written = trace.figures.by_data or count.by_data, trace.figures.written and count.written
        trace.figures = replace(trace.figures, by_data=by_data, written=written)

    def _reached(self, way: Way, visit: _Visit) -> tuple[Weights, Alive]:
        """How often each program comes along a way, and which ones do."""
        if not way.branches:
            return visit.weight, visit.alive
        if (way, visit) not in self._ways:
            weights, alive = zip(*(self._side(branch, visit) for branch in way.branches), strict=True)
            self._ways[way, visit] = reduce(np.add, weights), reduce(np.logical_or, alive)
        return self._ways[way, visit]

    def _side(self, branch: Branch, visit: _Visit) -> tuple[Weights, Alive]:
        weight, alive = self._reached(branch.before, visit)
        if branch.condition is None or not alive.any():
            return weight, alive
        condition = self._numbers.value(branch.condition, visit)
        if condition.base is None:
            assumption = "is taken to hold" if branch.share == 1 else "is taken to hold for half of the programs"
            self.trace.notes[f"a condition that depends on data {assumption}"] = None
            return weight * branch.share, alive
        holds = (condition.base != 0) == branch.holds
        return weight * holds, alive & holds

    def _visits_along(self, way: Way) -> Iterator[tuple[_Visit, Weights]]:
        """The looks at what lies on a way that some program takes, with how often each comes there."""
        for visit in self.visits_of(way.loop):
            weight, alive = self._reached(way, visit)
            if alive.any():
                yield visit, weight

    def access(self, fact: AccessFact) -> None:
        """Count an access in all turns of the loops around; where it goes is told by the first one that reaches it."""
        for visit, weight in self._visits_along(fact.way):
            elements = self._elements(fact, visit) if self._whole else np.ones(self._count)
            if fact.number not in self.trace.accesses:
                self.trace.accesses[fact.number] = self._first_access(fact, visit, elements)
            trace = self.trace.accesses[fact.number]
            trace.executions += weight
            trace.elements += weight * elements

    def _first_access(self, fact: AccessFact, visit: _Visit, elements: Weights) -> AccessTrace:
        root, pointer = self._address(fact, visit)
        figures = _figures(fact)
        if fact.block is None:
            mask = self._numbers.value(fact.mask, visit, fact.type.shape) if self._whole else Value()
            figures = measured_lines(figures, pointer, fact.type.shape, mask, elements)
        still = {loop for loop in visit.repeated if self._whole and self._stands_still(fact, visit, loop)}
        rank, nothing = len(fact.type.shape), np.zeros(self._count)
        return AccessTrace(figures, root, pointer, rank, nothing, nothing.copy(), still)

    def _address(self, fact: AccessFact, visit: _Visit) -> tuple[int | None, Value]:
        return self._numbers.address(fact.root, fact.offset, visit, fact.type.shape)

    def _stands_still(self, fact: AccessFact, visit: _Visit, number: int) -> bool:
        loop = visit.turns[number][0]
        return self._address(fact, visit.at(loop, 0))[1].equals(self._address(fact, visit.at(loop, 1))[1])

    def _elements(self, fact: AccessFact, visit: _Visit) -> Weights:
        if fact.block is None:
            mask = self._numbers.value(fact.mask, visit, fact.type.shape)
            return count_elements(self._address(fact, visit)[1], fact.type.shape, mask, self._count)
        elements, rank = np.ones(self._count), len(fact.block.shape)
        for length, extent, begin in zip_longest(fact.block.shape, fact.extents[:rank], fact.at[:rank]):
            edge = Value() if extent is None else self._numbers.value(extent, visit)
            first = Value() if begin is None else self._numbers.value(begin, visit)
            if edge.base is None or first.base is None or first.made_up:
                elements = elements * length
            else:
                elements = elements * np.clip(edge.base - first.base, 0, length)
        return elements

    def count(self, works: dict[int, tuple[_Work, Weights]], fact: Computation, work: _Work) -> None:
        """Count a product or a reduction of tiles among those of its kind."""
        for _, weight in self._visits_along(fact.way):
            executions = works.setdefault(fact.number, (work, np.zeros(self._count)))[1]
            executions += weight

    def count_arithmetic(self) -> None:
        """Count operations on single elements of floating point, and reductions."""
        by_way: dict[Way, list[int]] = {}
        for one in self._facts.computations:
            counts = by_way.setdefault(one.way, [0, 0, 0])
            counts[int(one.special)] += one.elements
            counts[2] += one.reduction is not None
        for way, (plain, special, reductions) in by_way.items():
            for _, weight in self._visits_along(way):
                arithmetic = self.trace.arithmetic.setdefault(way.number, np.zeros((2, self._count)))
                arithmetic += weight * np.array([[plain], [special]])
                self.trace.reductions = self.trace.reductions + weight * reductions

    def _counted(self, loop: LoopFact, around: _Visit) -> _TurnCount:
        return self._while_turns(loop, around) if loop.ends else self._turns(loop, around)

    def _turns(self, loop: LoopFact, around: _Visit) -> _TurnCount:
        lower, upper, step = (self._numbers.value(one, around) for one in (loop.lower, loop.upper, loop.step))
        if step.base is None or step.made_up:
            raise UntoldError("the step of a loop depends on data")
        if (step.base <= 0).any():
            raise UntoldError("a loop has no end")
        turns, by_data = _turns_between(lower, upper, step.base)
        if by_data:
            self.trace.notes[f"the bounds of a loop are data; it is taken to count through {_GUESSED}"] = None
        written = not by_data and all(one.constant is not None for one in (loop.lower, loop.upper, loop.step))
        return _TurnCount(turns, by_data, written)

    def _while_turns(self, loop: LoopFact, around: _Visit) -> _TurnCount:
        """The turns of a loop by program: the first for which its condition fails."""
        condition = loop.ends[0]
        if self._numbers.value(condition, around.at(loop, 0)).base is None:
            self.trace.notes["the end of a loop depends on data; it is taken for one iteration"] = None
            return _TurnCount(np.ones(self._count, dtype=np.int64), True)

        def holds(turns: Vector) -> Alive:
            outcome = self._numbers.value(condition, around.at(loop, turns))
            if outcome.base is None:
                raise UntoldError("the end of a loop depends on what does not move evenly")
            return np.asarray(outcome.base != 0)

        return _TurnCount(_first_false(holds, self._count), False)


def _figures(fact: AccessFact) -> Access:
    """The figures of an access before its addresses are known; of a descriptor's block these tell nothing more."""
    kind = fact.block or fact.type
    size = kind.item_bytes
    figures = Access(
        kind=fact.kind, argument=-1, element=kind.element, item_bytes=size, loop=fact.way.number, executions=0.0,
        tile=1, elements=0.0, distinct=1.0, lines=1.0, sectors=1.0, run_bytes=float(size), descriptor=False,
        repeats=1.0, known=False, again=-1, shared=(),
    )  # fmt: skip
    if fact.block is None:
        return figures
    # A run that is shorter than a line or a sector takes a whole one.
    tile, run = prod(kind.shape), (kind.shape[-1] if kind.shape else 1) * size
    lines, sectors = tile * size / min(128, run), tile * size / min(32, run)
    return replace(figures, descriptor=True, tile=tile, run_bytes=run, lines=lines, sectors=sectors)


def _turns_between(lower: Value, upper: Value, step: Vector) -> tuple[Vector, bool]:
    """The turns of a loop by program, and whether they are a guess, because data decide."""
    if lower.base is None or upper.base is None or lower.made_up or upper.made_up:
        return np.maximum(1, _GUESSED // step), True
    return np.maximum(0, -((lower.base - upper.base) // step)), False


def _first_false(holds: Callable[[Vector], Alive], count: int) -> Vector:
    """The first turn, by program, for which a condition does not hold, by doubling and halving."""
    low, high = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    now = holds(low)
    while (on := now & holds(high)).any():
        low, high = np.where(on, high, low), np.where(on, 2 * high, high)
        if (high > _MOST_TURNS).any():
            raise UntoldError("a loop has no end")
    while (high - low > 1).any():
        middle = (low + high) // 2
        on = holds(middle)
        low, high = np.where(on, middle, low), np.where(on, high, middle)
    return np.where(now, high, 0)


def _chosen(condition: Value, one: Value, other: Value) -> Value:
    if condition.base is None:  # one of the two: a number in the place of data where either is that
        known = one.base is not None and other.base is not None
        return replace(one if one.made_up else other, made_up=True) if known else Value(made_up=True)
    return elementwise(np.where, condition, one, other) if condition.axes else one.where(condition.base, other)


_LOGIC: dict[str, Callable[..., Value]] = {
    AND: lambda *each: reduce(Value.and_also, each), NOT: partial(elementwise, np.logical_not, truth=True),
    OR: partial(elementwise, lambda *each: reduce(np.logical_or, each), truth=True), "choose": _chosen,
}  # fmt: skip
_WITH_ZERO = {
    AT_LEAST_ZERO: partial(np.less_equal, 0),
    ZERO: partial(np.equal, 0),
    "compared": partial(np.not_equal, 0),
}


class _Numbers:
    """The numbers of terms; `counted` tells the turns of a loop from where it is entered."""

    def __init__(self, facts: Facts, programs: Programs, counted: Callable[[LoopFact, _Visit], _TurnCount]) -> None:
        self._facts, self._programs, self._counted = facts, programs, counted
        self._values: dict[tuple[int, _Visit | None, tuple[int, ...]], Value] = {}
        self._constants: dict[tuple[int, bool], Value] = {}
        self._whiles = {loop.number: loop for loop in facts.whiles}
        self._by_name: dict[str, Callable[[Term, _Visit, tuple[int, ...]], Value]] = {
            SUM: self._sum, INDEX: self._index, "truth": self._truth, "load": self._load, "argument": self._argument,
            "described": self._described, "stride": self._stride, "program_id": self._program,
            "num_programs": self._program, "turn": self._turn, "turns": self._turns, "carried": self._carried,
            "after": self._after, **dict.fromkeys(_LOGIC, self._logic),
            **dict.fromkeys(_WITH_ZERO, self._compared),
        }  # fmt: skip

    def value(self, term: Term, visit: _Visit, shape: tuple[int, ...] = ()) -> Value:
        """The numbers of a term at a visit, of an element of a tensor of this shape."""
        moves, differs = not term.names.isdisjoint(_MOVING), INDEX in term.names
        key = (term.number, visit if moves else None, shape if differs and self._programs.whole else ())
        if key not in self._values:
            self._values[key] = self._by_name.get(term.name, self._elementwise)(term, visit, shape)
        return self._values[key]

    def address(self, root: Term, offset: Term, visit: _Visit, shape: tuple[int, ...]) -> tuple[int | None, Value]:
        """The argument that a pointer points into, None if that is unknown, and how far it points from its begin."""
        place, base = self._root(root, visit, shape)
        return place, base.plus(self.value(offset, visit, shape))

    def _root(self, root: Term, visit: _Visit, shape: tuple[int, ...]) -> tuple[int | None, Value]:
        if root.name == "pointer":
            return self.address(root.operands[0], root.operands[1], visit, shape)
        if root.name == "argument" and root.operands[0] in self._programs.operands:
            return self._programs.operands[root.operands[0]][0], self._constant(0)
        how = OPERATIONS[root.name].whole if root.name in OPERATIONS else ""
        if how == "pointer":  # into a tensor of its own, which the term names
            # The place is negative, so that it is that of no argument.
            return -1 - root.number, self.value(root.operands[-1], visit, shape)
        if how == "same":
            return self._root(root.operands[-1], visit, shape)
        if root.name == "address":
            return self.address(root.operands[1], root.operands[2], visit, shape)
        if root.name == "choose":
            condition = self.value(root.operands[0], visit, shape)
            (one, first), (other, second) = (self._root(part, visit, shape) for part in root.operands[1:])
            return one if one == other else None, _chosen(condition, first, second)
        return None, Value()

    def _constant(self, number: int, truth: bool = False) -> Value:
        key = (number, truth)
        if key not in self._constants:
            self._constants[key] = Value(np.full(len(self._programs.ids), number, dtype=np.int64), truth=truth)
        return self._constants[key]

    def _sum(self, term: Term, visit: _Visit, shape: tuple[int, ...]) -> Value:
        total = self._constant(0)
        for monomial, coefficient in term.operands:
            factors = (self.value(one, visit, shape) for one in monomial)
            total = total.plus(reduce(Value.times, factors) if monomial else self._constant(1), coefficient)
        return total

    def _index(self, term: Term, _: _Visit, shape: tuple[int, ...]) -> Value:
        axis = term.operands[0]
        if not self._programs.whole or axis >= len(shape) or shape[axis] < 2:
            return self._constant(0)
        return replace(self._constant(0), axes={axis: np.arange(shape[axis], dtype=np.int64)[None, :]})

    def _truth(self, term: Term, _: _Visit, __: tuple[int, ...]) -> Value:
        return self._constant(int(term.operands[0]), truth=True)

    def _logic(self, term: Term, visit: _Visit, shape: tuple[int, ...]) -> Value:
        return _LOGIC[term.name](*(self.value(one, visit, shape) for one in term.operands))

    def _compared(self, term: Term, visit: _Visit, shape: tuple[int, ...]) -> Value:
        """A comparison of two numbers, or of one with 0; of what stands in for data the outcome is unknown."""
        values = [self.value(one, visit, shape) for one in term.operands if isinstance(one, Term)]
        compare = COMPARISONS.get(term.operands[0][-2:]) if len(values) == 2 else _WITH_ZERO[term.name]
        if compare is None or any(value.made_up for value in values):
            return Value(made_up=True, truth=True)
        return elementwise(compare, *values, truth=True)

    def _load(self, term: Term, visit: _Visit, shape: tuple[int, ...]) -> Value:
        """Data where it is known, numbers in its place where it is whole numbers, else unknown."""
        element, root, offset, _, _ = term.operands
        argument, pointer = self.address(root, offset, visit, shape)
        if not element.startswith("i") or pointer.base is None:
            return Value(made_up=True)
        content = next((one.content for at, one in self._programs.operands.values() if at == argument), None)
        if content is not None and len(content) and not pointer.made_up and len(pointer.axes) < 2:
            return elementwise(lambda at: content[np.clip(at, 0, len(content) - 1)], pointer)
        axes = {at: axis * _SPREAD % FARTHEST for at, axis in pointer.axes.items()}
        return Value((pointer.base * _SPREAD + root.number) % FARTHEST, axes, made_up=True)

    def _argument(self, term: Term, _: _Visit, __: tuple[int, ...]) -> Value:
        operand = self._programs.operands.get(term.operands[0], (0, Operand()))[1]
        return Value() if operand.number is None else self._constant(operand.number)

    def _described(self, term: Term, _: _Visit, __: tuple[int, ...]) -> Value:
        name, what, axis = term.operands
        numbers: tuple[int, ...] = getattr(self._programs.operands.get(name, (0, Operand()))[1], what)
        return self._constant(numbers[axis]) if axis < len(numbers) else Value()

    def _stride(self, term: Term, visit: _Visit, _: tuple[int, ...]) -> Value:
        stride, otherwise = term.operands
        value = self.value(stride, visit)
        return self._constant(otherwise) if value.base is None else Value(value.base)

    def _program(self, term: Term, _: _Visit, __: tuple[int, ...]) -> Value:
        grid, axis = self._programs.grid, term.operands[0]
        if term.name == "num_programs":
            return self._constant(grid[axis])
        ids = self._programs.ids // prod(grid[:axis])
        return Value(ids if axis == 2 else ids % grid[axis])

    def _turn(self, term: Term, visit: _Visit, _: tuple[int, ...]) -> Value:
        if term.operands[0] not in visit.turns:
            return Value()
        turn = visit.turns[term.operands[0]][1]
        return self._constant(turn) if isinstance(turn, int) else Value(turn)

    def _turns(self, term: Term, visit: _Visit, _: tuple[int, ...]) -> Value:
        lower, upper, step = (self.value(one, visit) for one in term.operands[1:])
        if step.base is None or (step.base <= 0).any():
            return Value(made_up=True)
        return Value(_turns_between(lower, upper, step.base)[0])

    def _carried(self, term: Term, visit: _Visit, shape: tuple[int, ...]) -> Value:
        """As it began, or as the first turn has made it; in later turns only of what moves evenly."""
        number, place, *places = term.operands
        loop, turn = visit.turns.get(number, (None, 0))
        carried = next((one for one in loop.carried if one.place[1] == place), None) if loop is not None else None
        if loop is None or carried is None:
            return Value(made_up=True)
        if isinstance(turn, int) and turn == 0:
            return self._replaced(carried.begin, places, visit, shape)
        if place in loop.moving:
            begin, step = loop.moving[place]
            turns = self._constant(turn) if isinstance(turn, int) else Value(turn)
            far = turns.times(self._replaced(step, places, visit, shape))
            return self._replaced(begin, places, visit, shape).plus(far)
        if isinstance(turn, int):
            return self._replaced(carried.next, places, visit.at(loop, 0), shape)
        return Value(made_up=True)

    def _after(self, term: Term, visit: _Visit, shape: tuple[int, ...]) -> Value:
        number, place, *places = term.operands
        if (loop := self._whiles.get(number)) is None:
            return Value(made_up=True)
        return self._replaced(loop.ends[1 + place], places, visit.at(loop, self._counted(loop, visit).turns), shape)

    def _replaced(self, term: Term, places: Sequence[Term], visit: _Visit, shape: tuple[int, ...]) -> Value:
        """The numbers of what a loop carries, at these places of its axes."""
        terms = self._facts.terms
        offset = term.operands[1] if term.name == "pointer" else term
        at = {terms.index(axis): one for axis, one in enumerate(places) if one is not terms.index(axis)}
        return self.value(terms.change(offset, at) if at else offset, visit, shape)

    def _elementwise(self, term: Term, visit: _Visit, shape: tuple[int, ...]) -> Value:
        """A function of numbers; of what has no whole numbers nothing is known."""
        operands = [one for one in term.operands if isinstance(one, Term)]
        element = term.operands[0] if term.operands and isinstance(term.operands[0], str) else ""
        meaning = OPERATIONS.get(term.name)
        known = term.name in _OF_NUMBERS or (meaning is not None and meaning.whole != "data" and element[:1] == "i")
        if not known or not operands:
            return Value(made_up=True)
        if meaning is not None and meaning.whole == "same":
            return self.value(operands[-1], visit, shape)
        values = [self.value(one, visit, shape) for one in operands]
        word = term.operands[1] if element else ""
        try:
            return elementwise(lambda *each: computed(term.name, word, each), *values)
        except NotComputedError:
            return Value(made_up=True)
