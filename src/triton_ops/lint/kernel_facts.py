"""The facts that a walk through a kernel's TTIR gathers, with terms in place of numbers, down to indices along axes.

Facts used, of the text that Triton 3.6 to 3.9 write with debug information: a place is `#loc3 = loc("file.py":12:5)`;
one with a name is `loc("x"(#loc3))`; one inside of a function that was called is `loc(callsite(#loc3 at #loc7))`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TypeAlias

from triton_ops.kernel_ir import Scope, TtirOperation, Type
from triton_ops.lint.terms import AT_LEAST_ZERO, NOT, ZERO, Carried, Monomial, Term, Terms, all_of, inner_terms, parts

_PLACE = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)$')
_NAMED = re.compile(r'"(?:[^"\\]|\\.)*"\((#loc\d*)\)$')
_CALL = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)$")
_DEEPEST = 64


@dataclass(frozen=True)
class SourcePlace:
    """A place in the source."""

    file: str
    line: int


def places_in(text: str) -> Callable[[TtirOperation], tuple[SourcePlace, ...]]:
    """From an operation of a text to its places in the source: the innermost function's first, its callers' after it.

    Empty where the text does not say.
    """
    matches = (_PLACE.match(line) for line in text.splitlines() if line.startswith("#loc"))
    locations = {one[1]: one[2] for one in matches if one is not None}
    return lambda operation: tuple(_frames(operation.location, locations))


def _frames(name: str, locations: Mapping[str, str], depth: int = _DEEPEST) -> Iterator[SourcePlace]:
    text = locations.get(name, "") if depth else ""
    if (file := _FILE.match(text)) is not None:
        yield SourcePlace(file[1], int(file[2]))
    elif (inner := _NAMED.match(text)) is not None:
        yield from _frames(inner[1], locations, depth - 1)
    elif (call := _CALL.match(text)) is not None:
        yield from _frames(call[1], locations, depth - 1)
        yield from _frames(call[2], locations, depth - 1)


@dataclass(frozen=True)
class TermValue:
    """A value of the kernel."""

    term: Term
    type: Type


@dataclass(frozen=True)
class Fact:
    """The common part of facts, at which a program comes under the conditions of `path`.

    Frames are places in the source, the innermost function's first; loops are those around, the outermost first.
    """

    number: int
    frames: tuple[SourcePlace, ...]
    path: Term
    loops: tuple[int, ...]


@dataclass(frozen=True)
class AccessFact(Fact):
    """A `load`, `store` or `atomic` operation.

    Attributes:
        root: What the pointer was made of: an argument, or an address that was loaded.
        offset: How far from there, in elements.
        type: The pointers' type, whose shape is that of the elements.
        mask: Which elements are moved, without the path; true for all.
        does: What an atomic operation does, such as `fadd`.
    """

    _: KW_ONLY
    kind: str
    root: Term
    offset: Term
    type: Type
    mask: Term
    value: TermValue | None = None
    does: str = ""


@dataclass(frozen=True)
class ReductionFact(Fact):
    """`tt.reduce`, or a scan that runs backwards.

    It takes one input for each of its results; its block makes one element of two, with values from `around`.
    """

    _: KW_ONLY
    axis: int
    inputs: tuple[TermValue, ...]
    operation: TtirOperation
    around: Mapping[str, Term] = field(default_factory=dict)

    @property
    def steps(self) -> list[str]:
        """Names of the operations by which one element is made of two."""
        return [operation.name for operation in self.operation.regions[0][0].operations]


@dataclass(frozen=True)
class ProductFact(Fact):
    """`tt.dot`, with the precision that the kernel asks for, as TTIR names it.

    The factors are those of a sum over `bound`.
    """

    _: KW_ONLY
    left: TermValue
    right: TermValue
    factors: tuple[Term, Term]
    bound: Term
    type: Type
    precision: str = ""


@dataclass(frozen=True)
class LoopFact(Fact):
    """A loop whose turns are counted from 0; `carried` is what does not move evenly, or is no whole number."""

    _: KW_ONLY
    turn: Term
    lower: Term
    upper: Term
    step: Term
    carried: tuple[Carried, ...]


@dataclass(frozen=True)
class Multiplication(Fact):
    """A product of two whole numbers of this width."""

    _: KW_ONLY
    bits: int
    one: Term
    other: Term


@dataclass
class Facts:
    """The facts of a kernel; `widenings` are numbers that become 64 bits wide."""

    terms: Terms
    accesses: list[AccessFact] = field(default_factory=list)
    reductions: list[ReductionFact] = field(default_factory=list)
    products: list[ProductFact] = field(default_factory=list)
    loops: list[LoopFact] = field(default_factory=list)
    widenings: list[Term] = field(default_factory=list)
    multiplications: list[Multiplication] = field(default_factory=list)

    @cached_property
    def carried(self) -> dict[tuple[int, int], Carried]:
        """The values that loops carry, by the loop and the place among what it carries; asked for after the walk."""
        by_place = {}
        for carried in (one for loop in self.loops for one in loop.carried):
            symbol = next(one for one in inner_terms(carried.symbol) if one.name == "carried")
            by_place[symbol.operands[0], symbol.operands[1]] = carried
        return by_place


@dataclass(frozen=True, kw_only=True)
class TermScope(Scope[TermValue]):
    """The place of an operation on the way of any program, which comes here under the conditions of `path`."""

    facts: Facts
    path: Term
    place: Callable[[TtirOperation], tuple[SourcePlace, ...]]

    @property
    def terms(self) -> Terms:
        """The terms of the kernel."""
        return self.facts.terms

    def met(self, operation: TtirOperation) -> tuple[int, tuple[SourcePlace, ...], Term, tuple[int, ...]]:
        """The first fields of a fact about an operation."""
        return operation.number, self.place(operation), self.path, self.loops


Handler: TypeAlias = Callable[[TermScope, TtirOperation], Sequence[TermValue]]


_MOST_BLOCKS = 2  # counts of blocks in one index: of programs and of turns
STEPPING = ("program_id", "turn")
_PLACES = {
    "program_id", "turn", "index", "quotient", "remainder", "least", "most", "carried", "load", "choose", "after",
    "turns", "num_programs", "was there",
}  # fmt: skip


@dataclass(frozen=True)
class IndexBound:
    """A condition that ends an index.

    Attributes:
        last: The last index that it lets pass, if it is one for this index; else what is left over.
        fits: Whether the condition is about the very index: nothing that steps is left over.
    """

    condition: Term
    last: Term
    fits: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Index:
    """The index along one axis of an access, of which one step adds `stride` to the address."""

    terms: Terms
    access: AccessFact
    axis: int
    extent: int
    stride: Term
    term: Term

    @property
    def stepping(self) -> frozenset[Term]:
        """The symbols of programs and turns inside of it."""
        return frozenset(one for one in inner_terms(self.term) if one.name in STEPPING)

    @property
    def plain(self) -> bool:
        """Check whether nothing else can hide in the index: its parts are the place, whole blocks, less than a block.

        Where strides are numbers, an offset of another kind may be a multiple of them.
        """
        if self.stride.operands and self.stride.operands[0][0]:
            return True
        sums = parts(self.term)
        blocks = [c for m, c in sums.items() if m and not (len(m) == 1 and m[0].name == "index")]
        first = parts(self.access.offset).get((), 0)
        return all(c % self.extent == 0 for c in blocks) and abs(first) < self.extent and len(blocks) <= _MOST_BLOCKS

    def tiled(self, *names: str) -> list[Term]:
        """The counters of its blocks: symbols of which one more moves the index by exactly one block."""
        return [
            one
            for monomial, factor in parts(self.term).items()
            for one in monomial
            if factor == self.extent and len(monomial) == 1 and (one.name in names or not names)
        ]

    @cached_property
    def bounds(self) -> list[IndexBound]:
        """The conditions of the mask and of the path that end it from above."""
        result = []
        for condition in (one for whole in self._conditions for one in _upper(whole, self.symbol)):
            factor = -parts(condition.operands[0]).get((self.symbol,), 0)
            last = self.terms.add((1, condition.operands[0]), (factor, self.term))
            steps = {one for one in inner_terms(last) if one.name in STEPPING or one is self.symbol}
            result.append(IndexBound(condition, last, fits=factor == 1 and not steps))
        return result

    @property
    def has_lower_bound(self) -> bool:
        """Check whether a condition keeps it from falling below 0, or depends on it in a way that is not a sum."""
        return any(
            parts(one.operands[0]).get((self.symbol,), 0) > 0
            if one.name == AT_LEAST_ZERO
            else one.name == ZERO and self.symbol.number in one.inside
            for condition in self._conditions
            for one in inner_terms(condition)
        )

    @cached_property
    def key(self) -> Term:
        """The index without its constant and without the number of its axis, to compare those of different blocks."""
        place_free = self.terms.change(self.term, {self.symbol: self.terms.whole(self.terms.make("place"))})
        return self.terms.sum({m: c for m, c in parts(place_free).items() if m})

    @property
    def symbol(self) -> Term:
        """The place along the axis."""
        return self.terms.index(self.axis)

    @property
    def _conditions(self) -> tuple[Term, ...]:
        return all_of(self.terms.both(self.access.mask, self.access.path))


def all_indices(facts: Facts) -> Iterator[Index]:
    """The indices of all accesses of a kernel."""
    return (index for access in facts.accesses for index in indices(facts, access))


def indices(facts: Facts, access: AccessFact) -> list[Index]:
    """The indices of an access along the axes of its block, where they are sums."""
    terms, shape, sums = facts.terms, access.type.shape, parts(access.offset)
    strides: dict[int, tuple[Monomial, int]] = {}
    for axis, extent in enumerate(shape):
        symbol = terms.index(axis)
        mine = [(m, c) for m, c in sums.items() if symbol in m]
        if extent > 1 and len(mine) == 1 and mine[0][0].count(symbol) == 1:
            strides[axis] = tuple(one for one in mine[0][0] if one is not symbol), mine[0][1]
    result, rest_of_sum = [], dict(sums)
    order = sorted(strides, key=lambda axis: (-len(strides[axis][0]), -abs(strides[axis][1])))
    others = [terms.index(axis) for axis in range(len(shape))]
    lower = [parts(one.operands[0]) for one in inner_terms(access.mask) if one.name == AT_LEAST_ZERO]
    from_below = [axis for axis in strides if any(one.get((terms.index(axis),), 0) > 0 for one in lower)]
    for axis in order:
        rest, factor = strides[axis]
        along = _along(rest_of_sum, rest, factor, [one for one in others if one is not terms.index(axis)])
        if from_below and axis not in from_below:
            along.pop(rest, None)  # the number by which an index is moved: the mask says which
        for monomial in along:
            rest_of_sum.pop(monomial)
        term = terms.sum({_without(m, rest): c // factor for m, c in along.items()})
        stride = terms.sum({rest: factor})
        result.append(Index(terms=terms, access=access, axis=axis, extent=shape[axis], stride=stride, term=term))
    return result


def _along(sums: Mapping[Monomial, int], rest: Monomial, factor: int, others: Iterable[Term]) -> dict[Monomial, int]:
    """The parts of an address that are multiples of a stride, and no offset of another kind."""
    multiples = {}
    for monomial, coefficient in sums.items():
        if coefficient % factor or any(monomial.count(one) < rest.count(one) for one in rest):
            continue
        factors = _without(monomial, rest)
        if any(one.name not in _PLACES for one in factors) or any(one in factors for one in others):
            continue
        multiples[monomial] = coefficient
    return multiples


def _without(monomial: Monomial, rest: Monomial) -> Monomial:
    symbols = list(monomial)
    for one in rest:
        symbols.remove(one)
    return tuple(symbols)


def _upper(condition: Term, symbol: Term) -> Iterator[Term]:
    """The conditions inside one that fail where the symbol is large."""
    if condition.name == AT_LEAST_ZERO:
        if parts(condition.operands[0]).get((symbol,), 0) < 0:
            yield condition
    elif condition.name != NOT:
        for one in condition.operands:
            if isinstance(one, Term):
                yield from _upper(one, symbol)


def arguments_in(term: Term) -> set[str]:
    """The names of the kernel's arguments inside a term."""
    return {one.operands[0] for one in inner_terms(term) if one.name == "argument"}


def loop_of(facts: Facts, turn: Term) -> LoopFact | None:
    """The loop whose turns a symbol counts."""
    return next((loop for loop in facts.loops if loop.turn is turn), None)


def root_name(access: AccessFact) -> str:
    """The name of the argument that an access begins from; `memory` if it was loaded."""
    return str(access.root.operands[0]) if access.root.name == "argument" else "memory"
