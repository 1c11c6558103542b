"""Indices along the axes of tensors, taken from addresses, and the bounds that masks set for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from triton_ops.lint.meaning.facts import AccessFact, Facts, LoopFact
from triton_ops.lint.meaning.terms import AT_LEAST_ZERO, NOT, Monomial, Term, Terms, all_of, inner_terms, parts

_MOST_BLOCKS = 2  # counts of blocks in one index: of programs and of turns
STEPPING = ("program_id", "turn")
_PLACES = {
    "program_id", "turn", "index", "quotient", "remainder", "least", "most", "carried", "load", "choose", "after",
    "turns", "num_programs", "was there",
}  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class Index:
    """The index along one axis of an access.

    Attributes:
        stride: What one step adds to the address.
    """

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


def indices(terms: Terms, access: AccessFact) -> list[Index]:
    """The indices of an access along the axes of its block, where they are sums."""
    shape, sums = access.type.shape, parts(access.offset)
    strides: dict[int, tuple[Monomial, int]] = {}
    for axis, extent in enumerate(shape):
        symbol = terms.index(axis)
        mine = [(m, c) for m, c in sums.items() if symbol in m]
        if extent > 1 and len(mine) == 1 and mine[0][0].count(symbol) == 1:
            strides[axis] = tuple(one for one in mine[0][0] if one is not symbol), mine[0][1]
    result, rest_of_sum = [], dict(sums)
    order = sorted(strides, key=lambda axis: (-len(strides[axis][0]), -abs(strides[axis][1])))
    others = [terms.index(axis) for axis in range(len(shape))]
    from_below = [axis for axis in strides if _begins_inside(access, terms.index(axis))]
    for axis in order:
        rest, factor = strides[axis]
        along = _along(rest_of_sum, rest, factor, [one for one in others if one is not terms.index(axis)])
        if from_below and axis not in from_below:
            along.pop(rest, None)  # the number by which an index is moved: the mask says which
        for monomial in along:
            rest_of_sum.pop(monomial)
        term = terms.sum({_without(m, rest): c // factor for m, c in along.items()})
        result.append(Index(access=access, axis=axis, extent=shape[axis], stride=terms.sum({rest: factor}), term=term))
    return result


def _begins_inside(access: AccessFact, symbol: Term) -> bool:
    """Check whether the mask asks that an index is at least something: it is moved by a number."""
    return any(
        one.name == AT_LEAST_ZERO and parts(one.operands[0]).get((symbol,), 0) > 0 for one in inner_terms(access.mask)
    )


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


def bounds(terms: Terms, index: Index) -> list[IndexBound]:
    """The conditions of the mask and of the path that end an index from above."""
    symbol, result = terms.index(index.axis), []
    for condition in all_of(terms.both(index.access.mask, index.access.path)):
        for inner in _upper(condition, symbol):
            sums = parts(inner.operands[0])
            factor = -sums.get((symbol,), 0)
            last = terms.add((1, inner.operands[0]), (factor, index.term))
            steps = {one for one in inner_terms(last) if one.name in STEPPING or one is symbol}
            result.append(IndexBound(inner, last, fits=factor == 1 and not steps))
    return result


def is_masked(terms: Terms, index: Index) -> bool:
    """Check whether any condition of the mask depends on the place along the axis, in whatever way."""
    return terms.index(index.axis).number in index.access.mask.inside


def _upper(condition: Term, symbol: Term) -> Iterator[Term]:
    """The conditions inside one that fail where the symbol is large."""
    if condition.name == AT_LEAST_ZERO:
        if parts(condition.operands[0]).get((symbol,), 0) < 0:
            yield condition
    elif condition.name != NOT:
        for one in condition.operands:
            if isinstance(one, Term):
                yield from _upper(one, symbol)


def has_lower_bound(terms: Terms, index: Index) -> bool:
    """Check whether a condition keeps an index from falling below 0, or depends on it in a way that is not a sum."""
    symbol = terms.index(index.axis)
    for condition in all_of(terms.both(index.access.mask, index.access.path)):
        for inner in inner_terms(condition):
            if inner.name == AT_LEAST_ZERO and parts(inner.operands[0]).get((symbol,), 0) > 0:
                return True
            if inner.name not in (AT_LEAST_ZERO, "sum") and symbol.number in inner.inside and inner.name == "0==":
                return True
    return False


@lru_cache(maxsize=4096)
def key_of(terms: Terms, index: Index) -> Term:
    """An index without its constant and without the number of its axis, to compare indices of different blocks."""
    place_free = terms.change(index.term, {terms.index(index.axis): terms.whole(terms.make("place"))})
    return terms.sum({m: c for m, c in parts(place_free).items() if m})


def arguments_in(term: Term) -> set[str]:
    """The names of the kernel's arguments inside a term."""
    return {one.operands[0] for one in inner_terms(term) if one.name == "argument"}


def loop_of(facts: Facts, turn: Term) -> LoopFact | None:
    """The loop whose turns a symbol counts."""
    return next((loop for loop in facts.loops if loop.turn is turn), None)


def root_name(access: AccessFact) -> str:
    """The name of the argument that an access begins from; `memory` if it was loaded."""
    return str(access.root.operands[0]) if access.root.name == "argument" else "memory"
