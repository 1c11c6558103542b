"""The indices along the axes of what a kernel accesses, taken from the sums that its addresses are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from triton_ops.base import cached_property
from triton_ops.kernel_ir import AccessFact, KernelFacts, Term

Monomial: TypeAlias = tuple[Term, ...]
_MOST_BLOCKS = 2  # counts of blocks in one index: of programs and of turns
STEPPING = ("program_id", "turn")
_PLACES = {
    "program_id", "turn", "index", "quotient", "remainder", "least", "most", "carried", "load", "choose", "after",
    "turns", "num_programs", "was there",
}  # fmt: skip


@dataclass(frozen=True)
class IndexBound:
    """A condition that ends an index."""

    condition: Term
    last: Term  # the last index that it lets pass, if it is one for this index; else what is left over
    fits: bool  # whether the condition is about the very index: nothing that steps is left over


@dataclass(frozen=True, eq=False, kw_only=True)
class Index:
    """The index along one axis of an access, of which one step adds `stride` to the address."""

    facts: KernelFacts
    access: AccessFact
    axis: int
    extent: int
    stride: Term
    term: Term

    @cached_property
    def stepping(self) -> frozenset[Term]:
        """The symbols of programs and turns inside of it."""
        return frozenset(self.term.named(*STEPPING))

    @property
    def plain(self) -> bool:
        """Check whether nothing else can hide in the index: its parts are the place, whole blocks, less than a block.

        Where strides are numbers, an offset of another kind may be a multiple of them.
        """
        if self.stride.operands and self.stride.operands[0][0]:
            return True
        sums = self.term.parts
        blocks = [c for m, c in sums.items() if m and not (len(m) == 1 and m[0].name == "index")]
        first = self.access.offset.parts.get((), 0)
        return all(c % self.extent == 0 for c in blocks) and abs(first) < self.extent and len(blocks) <= _MOST_BLOCKS

    def tiled(self, *names: str) -> list[Term]:
        """The counters of its blocks: symbols of which one more moves the index by exactly one block."""
        return [
            one
            for monomial, factor in self.term.parts.items()
            for one in monomial
            if factor == self.extent and len(monomial) == 1 and (one.name in names or not names)
        ]

    @cached_property
    def bounds(self) -> list[IndexBound]:
        """The conditions of the mask and of the path that end it from above."""
        result = []
        for condition in (one for whole in self._conditions for one in _upper(whole, self.symbol)):
            factor = -condition.operands[0].parts.get((self.symbol,), 0)
            last = self.facts.terms.add((1, condition.operands[0]), (factor, self.term))
            steps = {one for one in last.inner() if one.name in STEPPING or one is self.symbol}
            result.append(IndexBound(condition, last, fits=factor == 1 and not steps))
        return result + list(self._guards())

    @cached_property
    def ends(self) -> frozenset[str]:
        """The arguments that end it: by a condition, or as the end of a loop that steps it."""
        fitting = {bound.last.lone_argument[0] for bound in self.bounds if bound.fits} - {""}
        loops = filter(None, map(self.facts.loop_of, self.stepping))
        return frozenset(fitting).union(*(loop.limits for loop in loops))

    def _guards(self) -> Iterator[IndexBound]:
        """The conditions that the whole block ends before an argument, in which the place along it has no part."""
        terms = self.facts.terms
        last = terms.change(self.term, {self.symbol: terms.number(self.extent - 1)})
        for condition in self._conditions:
            if condition.name != Term.AT_LEAST_ZERO or self.symbol.number in condition.inside or not self.stepping:
                continue
            sums = terms.add((1, condition.operands[0]), (1, last))
            if sums.lone_argument[1] == 1 and sums.parts.get((), 0) < 0:
                yield IndexBound(condition, sums, fits=True)

    @property
    def is_counted(self) -> bool:
        """Check whether its blocks are as many as an argument says."""
        sums = (one.operands[0] for one in self._conditions if one.name == Term.AT_LEAST_ZERO)
        counts = (self.facts.terms.add((1, one), (1, counter)) for one in sums for counter in self.tiled())
        return any(one.lone_argument[1] == 1 and one.parts.get((), 0) == -1 for one in counts)

    @property
    def reach(self) -> int:
        """The number of places along the axis that a mask by numbers lets pass; the extent where there is none."""
        ends = (bound.condition.operands[0].parts for bound in self.bounds)
        lasts = (one.get((), 0) for one in ends if set(one) <= {(), (self.symbol,)} and one.get((self.symbol,)) == -1)
        return min((last + 1 for last in lasts), default=self.extent)

    @property
    def starts_by_data(self) -> bool:
        """Check whether a condition lets only those blocks pass that begin before a number that was loaded."""
        return any(
            one.named("load") and any(step in one.direct() or step.number in one.inside for step in self.stepping)
            for one in self._conditions
            if self.symbol.number not in one.inside
        )

    def fits_row(self, counts: Mapping[int, set[str]]) -> bool:
        """Check whether rows are at least as far apart as the index can reach.

        It is one block, or that of one of so many heads as a row has: a remainder by their number, or a program's
        number, of which `counts` has the arguments that launches give as the extents of the grid.
        """
        rest = [m for m in self.access.offset.parts if self.symbol not in m]
        counters = self.tiled("remainder", "program_id")
        whole = [m for m in rest if not any(one in m for one in counters)]
        if self.stride.constant != 1 or any(self.access.offset.parts[m] % self.extent for m in rest) or not whole:
            return False
        if len(self.term.parts) == 1:
            return True
        (names, *others) = [_count_of(one, counts) for one in counters] or [set()]
        heads = all(names.intersection(one.argument for one in m) for m in whole)
        return len(self.term.parts) == 2 and not others and heads

    @property
    def has_lower_bound(self) -> bool:
        """Check whether a condition keeps it from falling below 0, or depends on it in a way that is not a sum."""
        return any(
            one.operands[0].parts.get((self.symbol,), 0) > 0
            if one.name == Term.AT_LEAST_ZERO
            else one.name == Term.ZERO and self.symbol.number in one.inside
            for condition in self._conditions
            for one in condition.inner()
        )

    @cached_property
    def key(self) -> Term:
        """The index without its constant and without the number of its axis, to compare those of different blocks."""
        terms = self.facts.terms
        place_free = terms.change(self.term, {self.symbol: terms.whole(terms.make("place"))})
        return terms.sum({m: c for m, c in place_free.parts.items() if m})

    @property
    def symbol(self) -> Term:
        """The place along the axis."""
        return self.facts.terms.index(self.axis)

    @cached_property
    def _conditions(self) -> Monomial:
        return self.facts.terms.both(self.access.mask, self.access.path).conjuncts


def _count_of(counter: Term, counts: Mapping[int, set[str]]) -> set[str]:
    """The arguments below which a counter of blocks stays."""
    if counter.name == "program_id":
        return counts.get(counter.operands[0], set())
    return {counter.operands[1].lone_argument[0]} - {""}


def all_indices(facts: KernelFacts) -> Iterator[Index]:
    """The indices of all accesses of a kernel."""
    return (index for access in facts.accesses for index in indices(facts, access))


@lru_cache(maxsize=4096)  # rules ask for the same ones
def indices(facts: KernelFacts, access: AccessFact) -> tuple[Index, ...]:
    """The indices of an access along the axes of its block, where they are sums."""
    terms, shape, sums = facts.terms, access.type.shape, access.offset.parts
    strides: dict[int, tuple[Monomial, int]] = {}
    for axis, extent in enumerate(shape):
        symbol = terms.index(axis)
        mine = [(m, c) for m, c in sums.items() if symbol in m]
        if extent > 1 and len(mine) == 1 and mine[0][0].count(symbol) == 1:
            strides[axis] = tuple(one for one in mine[0][0] if one is not symbol), mine[0][1]
    result, rest_of_sum = [], dict(sums)
    # The largest stride comes first: what is a multiple of it is one of smaller strides too.
    order = sorted(strides, key=lambda axis: (-len(strides[axis][0]), -abs(strides[axis][1])))
    others = {terms.index(axis).number for axis in range(len(shape))}
    lower = [one.operands[0].parts for one in access.mask.named(Term.AT_LEAST_ZERO)]
    from_below = [axis for axis in strides if any(one.get((terms.index(axis),), 0) > 0 for one in lower)]
    for axis in order:
        rest, factor = strides[axis]
        along = _along(rest_of_sum, rest, factor, others - {terms.index(axis).number})
        if from_below and axis not in from_below:
            along.pop(rest, None)  # the number by which an index is moved: the mask says which
        for monomial in along:
            rest_of_sum.pop(monomial)
        term = terms.sum({_without(m, rest): c // factor for m, c in along.items()})
        stride = terms.sum({rest: factor})
        result.append(Index(facts=facts, access=access, axis=axis, extent=shape[axis], stride=stride, term=term))
    return tuple(result)


def _along(sums: Mapping[Monomial, int], rest: Monomial, factor: int, others: set[int]) -> dict[Monomial, int]:
    """The parts of an address that are multiples of a stride, and no offset of another kind."""
    multiples = {}
    for monomial, coefficient in sums.items():
        if coefficient % factor or any(monomial.count(one) < rest.count(one) for one in rest):
            continue
        factors = _without(monomial, rest)
        if any(one.name not in _PLACES for one in factors) or any(one.inside & others for one in factors):
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
    if condition.name == Term.AT_LEAST_ZERO:
        if condition.operands[0].parts.get((symbol,), 0) < 0:
            yield condition
    elif condition.name != Term.NOT:
        for one in condition.operands:
            if isinstance(one, Term):
                yield from _upper(one, symbol)


def root_name(access: AccessFact) -> str:
    """The name of the argument that an access begins from; `memory` if it was loaded."""
    return access.root.argument or "memory"
