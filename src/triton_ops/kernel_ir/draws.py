"""Terms computed in many draws at once: of random data, at given places of a block.

A place along an axis may lie beyond what a mask lets pass; what such a lane would compute then shows. What a loop
carries is what it begins with, or what its first turns make of it, so that every number is one of a real launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir.facts import Fact, Facts, ProductFact, ReductionFact
from triton_ops.kernel_ir.operations import NotComputedError, Numbers, computed, float_of, meaning_of
from triton_ops.kernel_ir.terms import AND, AT_LEAST_ZERO, CONDITION, INDEX, NOT, OR, SUM, ZERO, Carried, Term

Alive: TypeAlias = "NDArray[np.bool_]"
DRAWS = 64
_SMALL_ARGUMENTS = np.arange(DRAWS) % 2 == 1  # arguments of floating point are tiny: what falls away is an epsilon's
_CLOSE = 1e-5
_PLACES = (0, 1, 2)  # of a sum or a product over a whole axis, these stand for all
_MOST = 20_000  # numbers that are computed for one question
_LARGE = 1 << 40  # an extent with which a mask leaves out no place
_SMALL = {"program_id": 2, "turn": 2, "turns": 4, "num_programs": 9, "index": 3, "bound": 3}


class Draw:
    """The values of terms in many draws, at given places of a block.

    A place along an axis, by its symbol, is one for all draws or one for each. A masked lane holds `padding` where the
    load says nothing. So many `turns` have made what a loop carries.
    """

    def __init__(self, facts: Facts, places: Mapping[Term, Numbers | int], padding: float, turns: int = 0) -> None:
        self._facts, self._padding, self._turns = facts, padding, turns
        self._places = dict(places)
        self._marks = tuple(  # which tell a place from others
            (symbol.number, place if isinstance(place, int) else place.tobytes()) for symbol, place in places.items()
        )
        self._values: dict[tuple[Any, ...], Numbers] = {}
        self._bounds: dict[int, Term] = {}

    def __call__(self, term: Term) -> Numbers:
        """The value of a term in each draw; raises NotComputedError if it has an unknown operation, or too many."""
        key = (term.number, self._turns, *[mark for mark in self._marks if mark[0] in term.inside])
        if key not in self._values:
            if len(self._values) >= _MOST:
                raise NotComputedError("it takes too many steps, each of which is used by several others")
            self._values[key] = self._value(term)
        return self._values[key]

    def at(self, places: Mapping[Term, Numbers | int]) -> Draw:
        """The same at other places, the rest unchanged."""
        return self._beside({**self._places, **places}, self._turns)

    def at_the_edge(self, condition: Term) -> Draw:
        """The same in the turn, or in the program, in whose block a condition begins to fail."""
        for name in ("turn", "program_id"):
            for monomial, factor in condition.operands[0].parts.items():
                if factor < 0 and len(monomial) == 1 and monomial[0].name == name:
                    distance = self.at({monomial[0]: 0})(condition.operands[0])
                    return self.at({monomial[0]: np.maximum(np.floor(distance / -factor), 0)})
        return self

    def with_data(self, terms: Sequence[Term], condition: Term) -> Draw:
        """The same with extents that leave data, where the other conditions of a load or choice leave none in any draw.

        Those of a load get large ones, and those of a choice, which then begins behind all data, 0.
        """
        masks = [load.operands[3] for term in terms for load in term.named("load")]
        masks = [mask for mask in masks if condition in mask.comparisons()]
        ends: dict[Term, Numbers | int] = {}
        if not all(self(mask).any() for mask in masks):
            ends = dict.fromkeys(_extents(masks, 1), _LARGE)
        choices = [choice.operands for term in terms for choice in term.named("choose")]
        sides = [(choice, bool([*one.named("load")])) for choice, one, other in choices if _only_one_loads(one, other)]
        ends |= dict.fromkeys(_extents([choice for choice, side in sides if not (self(choice) == side).any()]), 0)
        return self.at({one: value for one, value in ends.items() if one.number not in condition.inside})

    def beyond(self, axis: Term, condition: Term) -> Draw:
        """The same at the first place that a condition leaves out, in each draw."""
        return self.at({axis: self._first_out(axis, condition)})

    def _first_out(self, axis: Term, condition: Term) -> Numbers:
        distance = self.at({axis: 0})(condition.operands[0])
        return np.asarray(np.maximum(np.floor(distance / -condition.operands[0].parts[(axis,)]) + 1, 1))

    def comparable(self, operands: Sequence[Term], axis: Term, condition: Term) -> Alive:
        """The draws in which the lane here has data, in rows and columns that have some, and the lane beyond has none.

        It has none where the kernel itself puts something else in its place: all of a causal mask's row may be left
        out. The other has some where the kernel puts other data in the place of what the condition leaves out, or where
        a load of another condition goes on.
        """
        draws: Alive = np.ones(DRAWS, dtype=np.bool_)
        edge, padded = self._first_out(axis, condition), self.beyond(axis, condition)
        for one in {inner for term in operands for inner in term.inner()}:
            if one.name == INDEX and one is not axis:
                draws &= self(self._facts.terms.whole(one)) < edge
            elif one.name == "load":
                mask = one.operands[3]
                draws &= (~padded(mask) if axis.number in mask.inside else self(mask)).astype(np.bool_)
            elif one.name == "choose" and axis.number in one.operands[0].inside:
                choice, *branches = one.operands
                along = [any(axis.number in load.inside for load in branch.named("load")) for branch in branches]
                if along[0] != along[1]:
                    draws &= self(choice).astype(np.bool_) == along[0]
                for branch, takes in zip(branches, (True, False), strict=True):
                    masks = [load.operands[3] for load in branch.named("load")]
                    if masks and not any(condition in mask.comparisons() for mask in masks):
                        draws &= padded(choice).astype(np.bool_) != takes
        return draws

    def differ(self, before: Numbers, after: Numbers, among: Alive | bool = True) -> int:
        """In how many of some draws two results differ, with tiny arguments and with others: the fewer of both.

        No number counts only where one was put into padded lanes: a place far beyond the block may overflow by itself.
        """
        one, other = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
        valid = among & ~np.isnan(one) & (np.isnan(self._padding) | ~np.isnan(other))
        apart = valid & ~np.isclose(one, other, rtol=_CLOSE, atol=1e-30)
        return int(min(apart[_SMALL_ARGUMENTS].sum(), apart[~_SMALL_ARGUMENTS].sum()))

    def _beside(self, places: Mapping[Term, Numbers | int], turns: int) -> Draw:
        """The same draws at these places, with what depends on no place computed once.

        Products of products would else take three times as long for each further product.
        """
        draw = Draw(self._facts, places, self._padding, turns)
        draw._values, draw._bounds = self._values, self._bounds
        return draw

    def _value(self, term: Term) -> Numbers:
        if term.name in _COMPUTED_BY:
            return _COMPUTED_BY[term.name](self, term)
        if term.name == "choose":
            condition, one, other = (self(part) for part in term.operands)
            return np.where(condition, one, other)
        if term.name == "number":
            return np.full(DRAWS, term.operands[0])
        return self._symbol(term, whole=False) if term.name in _SYMBOLS else self._applied(term)

    def _sum(self, term: Term) -> Numbers:
        total = np.zeros(DRAWS)
        for monomial, coefficient in term.operands:
            product: Any = float(coefficient)
            for one in monomial:
                product = product * (self._symbol(one, whole=True) if one.name in _SYMBOLS else self(one))
            total = total + product
        return total

    def _symbol(self, term: Term, whole: bool) -> Numbers:
        if term in self._places:
            return np.full(DRAWS, self._places[term], dtype=float)
        return _drawn(term.name, whole, term.number, *(self(one).tobytes() for one in term.direct()))

    def _of_loop(self, term: Term) -> Numbers:
        """A value that a loop carries: as it began, or as a turn has made it."""
        carried = self._facts.carried.get(term.operands[:2])
        if carried is None:
            raise NotComputedError("a loop without a known number of iterations")
        inner = carried.next if term.name == "after" or self._turns > 0 else carried.begin
        turns = 0 if term.name == "after" else max(0, self._turns - 1)
        places = {self._facts.terms.index(axis): self(one) for axis, one in enumerate(term.operands[2:])}
        return self._beside(places, turns)(inner.operands[1] if inner.name == "pointer" else inner)

    def _condition(self, term: Term) -> Numbers:
        if term.name == "truth":
            return np.full(DRAWS, bool(term.operands[0]))
        inner = [self(one) for one in term.operands if isinstance(one, Term)]
        if term.name in _TESTS:
            return np.asarray(_TESTS[term.name](inner))
        if len(term.operands) == 1:
            return np.asarray(inner[0] != 0)
        if len(inner) != 2:
            raise NotComputedError(f"a comparison {term.operands[0]}")
        return computed("arith.cmpf", str(term.operands[0]), inner)

    def _load(self, term: Term) -> Numbers:
        element, root, offset, mask, other = term.operands
        seed = _hash(root.number, self(offset))
        data = np.floor(1 + 50 * _share(seed)) if str(element).startswith("i") else _real(seed)
        return np.where(self(mask), data, self(other) if isinstance(other, Term) else np.full(DRAWS, self._padding))

    def _over_an_axis(self, term: Term) -> Numbers:
        if term.number not in self._bounds:
            number = term.operands[2] if term.name == "tt.reduce" else term.operands[1]  # which its bound has too
            bounds = (one for one in term.named("bound") if one.operands[0] == number)
            self._bounds[term.number] = next(bounds, Term("bound", (number,), -1, frozenset()))
        several = [self.at({self._bounds[term.number]: place}) for place in _PLACES]
        if term.name == "dot":
            _, _, left, right, start = term.operands
            return self(start) + sum(one(left) * one(right) for one in several)
        how, operands = str(term.operands[1]).split(), [one for one in term.operands if isinstance(one, Term)]
        function = meaning_of(how[0]).numbers if len(operands) == 1 and len(how) == 2 else None
        if isinstance(function, np.ufunc) and function.nin == 2:  # it makes one element of two
            with contextlib.suppress(NotComputedError):
                return reduce(lambda x, y: computed(how[0], "", (x, y)), (one(operands[0]) for one in several))
        return _real(_hash(term.number, *(abs(several[0](one)) for one in operands)))

    def _applied(self, term: Term) -> Numbers:
        number = term.operands[-1] if meaning_of(term.name).does == "counts" else None
        if number is not None and len(number.operands) == 1 and number.lone_argument[0]:
            # An extent by which a sum is divided. As large as in masks it would hide what one lane adds.
            return np.floor(2 + 6 * _share(_hash(term.number)))
        values = [self(one) for one in term.operands if isinstance(one, Term)]
        if term.name in ("arith.divf", "tt.precise_divf") and term.operands[-1].named("load"):
            values[1] = abs(values[1])  # a scale or a temperature, if it was loaded
        return computed(term.name, str(term.operands[1]) if len(term.operands) > 1 else "", values)


def _only_one_loads(one: Term, other: Term) -> bool:
    return any(one.named("load")) != any(other.named("load"))


def _extents(conditions: Sequence[Term], sign: int = 0) -> set[Term]:
    """The arguments that bound something in comparisons, alone and with factors of this sign, or any at 0."""
    sums = (one.operands[0] for condition in conditions for one in condition.comparisons() if one.name == AT_LEAST_ZERO)
    monomials = (monomial for one in sums for monomial, factor in one.parts.items() if factor * sign >= 0)
    return {monomial[0] for monomial in monomials if len(monomial) == 1 and monomial[0].argument}


_TESTS: dict[str, Callable[[list[Numbers]], Any]] = {
    AT_LEAST_ZERO: lambda inner: inner[0] >= 0, ZERO: lambda inner: inner[0] == 0, AND: np.logical_and.reduce,
    OR: np.logical_or.reduce, NOT: lambda inner: np.logical_not(inner[0]),
}  # fmt: skip
_SYMBOLS = {"argument", *_SMALL}
_COMPUTED_BY: dict[str, Callable[[Draw, Term], Numbers]] = {
    SUM: Draw._sum, "load": Draw._load, "tt.reduce": Draw._over_an_axis, "dot": Draw._over_an_axis,
    "carried": Draw._of_loop, "after": Draw._of_loop, **dict.fromkeys(CONDITION, Draw._condition),
}  # fmt: skip


@lru_cache(maxsize=4096)
def _drawn(name: str, whole: bool, number: int, *operands: bytes) -> Numbers:
    """The numbers of a symbol, as a whole number or as one of floating point."""
    seed = _hash(number, *map(np.frombuffer, operands))
    if not whole and name == "argument":  # a scale, or an epsilon: both must do
        return np.where(_SMALL_ARGUMENTS, 1e-10, 0.5 + 1.5 * _share(seed))
    if not whole:
        return _real(seed)
    return np.floor(5000 + 1000 * _share(seed)) if name == "argument" else np.floor(_share(seed) * _SMALL.get(name, 9))


# The increment, the multipliers and the shifts of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
_SEEDS = (np.arange(DRAWS, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


def _hash(number: int, *values: Numbers) -> NDArray[np.uint64]:
    """A number for each draw that depends on all that is given, the same in every process."""
    hashes = _SEEDS ^ np.uint64((number + 1) * 0xBF58476D1CE4E5B9 % (1 << 64))
    for value in values:
        # The sum makes -0.0 and 0.0, which are equal, the same bits.
        bits = np.ascontiguousarray(np.asarray(value, dtype=np.float64) + 0.0).view(np.uint64)
        hashes = _scramble(hashes ^ _scramble(bits))
    return _scramble(hashes)


def _scramble(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _share(seed: NDArray[np.uint64]) -> NDArray[np.float64]:
    # A float64 holds 53 bits.
    return (seed >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _real(seed: NDArray[np.uint64]) -> NDArray[np.float64]:
    return 4.0 * _share(seed) - 2.0


Harm: TypeAlias = Callable[[float], str]
"""From what stands in a masked lane without `other` to how it changes a result; empty if it does not."""
_WITH_DATA = 0
_TURNS = (0, 1)  # of what a loop carries, before its first turn and after it
_MOST_PARTS = 4_000  # of what is reduced
_TOO_LONG = f"what a padded lane holds takes more than {_MOST_PARTS:,} steps"
_EXTREMES = ("arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf")
_ENOUGH = 3  # draws of 64 that must differ: a coincidence is none


def padded_lanes_of(facts: Facts) -> Iterator[tuple[Fact, Term | str, Harm]]:
    """The lanes that take part in reductions and products though a load's mask leaves them out.

    Each with the fact, the condition that leaves it out, or words for why that is not told, and how it changes a
    result.
    """
    several: tuple[ReductionFact | ProductFact, ...] = (*facts.reductions, *facts.products)
    for fact in several:
        terms = fact.factors if isinstance(fact, ProductFact) else [value.term for value in fact.inputs]
        if any(sum(1 for _ in islice(term.inner(), _MOST_PARTS)) == _MOST_PARTS for term in terms):
            yield fact, _TOO_LONG, lambda _: ""  # reductions of reductions, along both axes in turn
        elif isinstance(fact, ProductFact):
            for condition in _limits(terms, fact.bound, fact.left.type.shape[-1]):
                yield fact, condition, partial(_harm_to_product, facts, fact, condition)
        else:
            axis = facts.terms.index(fact.axis)
            limits = _limits(terms, axis, fact.inputs[0].type.shape[fact.axis])
            for condition in limits:
                summed = any(_is_summed(facts, one, axis, condition) for term in terms for one in term.named("after"))
                why = f"lanes that `{condition.words}` leaves out hold what a loop before has added"
                yield fact, why if summed else condition, partial(_harm_to_reduction, facts, fact, axis, condition)
            yield from (one for one in _lanes_carried(facts, fact, terms, axis) if one[1] not in limits)


def _limits(terms: Sequence[Term], axis: Term, extent: int) -> list[Term]:
    """The conditions by which loads inside of these terms leave out the end of an axis, whose block has this extent."""
    limits: dict[Term, None] = {}
    for load in (load for term in terms for load in term.named("load") if axis.number in load.operands[3].inside):
        for condition in load.operands[3].comparisons():
            sums = condition.operands[0].parts if condition.name == AT_LEAST_ZERO else {}
            whole = sums == {(axis,): -1, (): extent - 1}  # it lets the whole block pass, whatever its extent
            pairs = any(one.name == "bound" and one is not axis for monomial in sums for one in monomial)
            if sums.get((axis,), 0) < 0 and not whole and not pairs:  # a causal mask pads no place
                limits[condition] = None
    return [one for one in limits if not any(_is_looser(other, one) for other in limits)]


def _is_looser(one: Term, other: Term) -> bool:
    """Check whether a condition lets more pass than another: lanes in between hold data of another load."""
    sums, others = one.operands[0].parts, other.operands[0].parts
    return sums.get((), 0) > others.get((), 0) and {**sums, (): 0} == {**others, (): 0}


def _is_summed(facts: Facts, after: Term, axis: Term, condition: Term) -> bool:
    """Check whether a loop has added data to the lanes that a condition leaves out: no mask of it is about that end."""
    carried = facts.carried.get(after.operands[:2])
    along = (at for at, place in enumerate(after.operands[2:]) if axis.number in place.inside)
    places = {facts.terms.index(at).number for at in along}
    loads = [] if carried is None else [one for one in carried.next.named("load") if one.inside & places]
    return bool(loads) and not any(one.operands[3].arguments & condition.arguments for one in loads)


def _lanes_carried(
    facts: Facts, reduction: ReductionFact, inputs: Sequence[Term], axis: Term
) -> Iterator[tuple[Fact, Term | str, Harm]]:
    """Lanes that a loop adds to, and that are reduced after it unless a condition on the place replaces them."""
    choices = [choice for term in inputs for choice in term.named("choose")]
    by_place = (one for one in choices if any(axis.number in part.inside for part in one.operands[0].comparisons()))
    masked = {after for one in by_place for after in one.named("after")}
    for one in (one for term in inputs for one in term.named("after") if one not in masked):
        places = [at for at, operand in enumerate(one.operands[2:]) if axis.number in operand.inside]
        carried = facts.carried.get(one.operands[:2])
        if carried is not None and carried.symbol.name == "carried" and len(places) == 1:
            inner = facts.terms.index(places[0])
            for condition in _limits([carried.next], inner, carried.type.shape[places[0]]):
                yield reduction, condition, partial(_harm_to_carried, facts, carried, inner, condition)


def _lanes(
    facts: Facts, terms: Sequence[Term], axis: Term, condition: Term, padding: float, turns: int
) -> tuple[Draw, Draw]:
    """A lane with data in the block in which a condition begins to fail, and the first lane that it leaves out."""
    data = Draw(facts, {axis: _WITH_DATA}, padding, turns).at_the_edge(condition).with_data(terms, condition)
    return data, data.beyond(axis, condition)


def _combined(
    fact: ReductionFact, one: Sequence[Numbers], other: Sequence[Numbers], around: Mapping[str, Numbers]
) -> list[Numbers]:
    """Two elements made one, as a reduction does, with the values from outside that its block uses.

    Raises NotComputedError if the block has an operation that is not known.
    """
    block = fact.operation.regions[0][0]
    values: dict[str, Numbers] = {**around, **dict(zip(block.arguments, [*one, *other], strict=True))}
    for operation in block.operations:
        if operation.name in ("tt.reduce.return", "tt.scan.return"):
            return [values[name] for name in operation.operands]
        if operation.name == "arith.constant":
            values[operation.results[0]] = np.full(DRAWS, float_of(operation.literal, operation.kinds[0]))
            continue
        word = operation.predicate or " ".join(operation.quoted)
        result = computed(operation.name, word, [values[name] for name in operation.operands])
        values.update(zip(operation.results, [result], strict=True))
    raise NotComputedError("a reduction that returns nothing")


# Lanes beyond a mask overflow and divide by 0: that is what is looked for.
@np.errstate(all="ignore")
def _harm_to_reduction(facts: Facts, reduction: ReductionFact, axis: Term, condition: Term, padding: float) -> str:
    for turns in _TURNS:
        inputs = [value.term for value in reduction.inputs]
        data, padded = _lanes(facts, inputs, axis, condition, padding, turns)
        alone, beside = [data(term) for term in inputs], [padded(term) for term in inputs]
        around = {name: data(term) for name, term in reduction.around.items()}
        among = data.comparable(inputs, axis, condition)
        together = _combined(reduction, alone, beside, around)
        if (least := _running(facts, reduction)) is not None:
            word, begin = least
            alone, together = ([computed(word, "", [begin, one]) for one in several] for several in (alone, together))
        for before, after, lane in zip(alone, together, beside, strict=True):
            if data.differ(before, after, among) >= _ENOUGH:
                text = "it holds {}, and changes the reduction of a lane with data from {} to {}"
                return _describe_change(text, before, after, lane)
    return ""


def _running(facts: Facts, reduction: ReductionFact) -> tuple[str, Numbers] | None:
    """The maximum or minimum that a loop carries from a number on, where it alone uses what is reduced, and that."""
    numbers = (one for one in facts.carried.values() if one.begin.name == "number" and one.next.name in _EXTREMES)
    several = [one for one in numbers if one.symbol in one.next.operands and np.isfinite(float(one.begin.operands[0]))]
    ends = {one.value.term for one in facts.accesses if one.value is not None and several}
    parts = {part for end in ends.union(one.next for one in facts.carried.values()) for part in end.inner()}
    mine = {part for part in parts if part.name == "tt.reduce" and part.operands[2] == reduction.number}
    users = {part for part in parts if not mine.isdisjoint(part.direct())}
    alone = (one for one in several if users == {one.next} and mine.isdisjoint(ends))
    return next(((one.next.name, np.full(DRAWS, float(one.begin.operands[0]))) for one in alone), None)


def _describe_change(text: str, before: Numbers, after: Numbers, *lanes: Numbers) -> str:
    """A text with the numbers of the draw in which they differ most clearly."""
    apart = np.abs(np.asarray(before, dtype=float) - np.asarray(after, dtype=float))
    at = int(np.argmax(np.where(np.isfinite(apart), apart, -1)))
    return text.format(*(f"{float(one[at]):.4g}" for one in (*lanes, before, after)))


@np.errstate(all="ignore")
def _harm_to_product(facts: Facts, product: ProductFact, condition: Term, padding: float) -> str:
    for turns in _TURNS:
        data, padded = _lanes(facts, product.factors, product.bound, condition, padding, turns)
        one, other = (padded(factor) for factor in product.factors)
        with_data = data.comparable(product.factors, product.bound, condition)
        usable = with_data & ~np.isnan(data(product.factors[0]) * data(product.factors[1]))
        added = one * other
        if int((usable & ~(np.abs(added) <= _CLOSE) & (np.isnan(padding) | ~np.isnan(added))).sum()) >= _ENOUGH:
            return f"it multiplies {_largest(one)} by {_largest(other)}, and adds {_largest(added)} to the sum"
    return ""


def _largest(numbers: Numbers) -> str:
    return f"{float(numbers[int(np.argmax(np.abs(np.nan_to_num(numbers))))]):.4g}"


@np.errstate(all="ignore")
def _harm_to_carried(facts: Facts, carried: Carried, axis: Term, condition: Term, padding: float) -> str:
    data, padded = _lanes(facts, [carried.next], axis, condition, padding, 0)
    before, after = padded(carried.symbol), padded(carried.next)
    if data.differ(before, after) >= _ENOUGH:
        return _describe_change("an iteration that pads it changes its part of the sum from {} to {}", before, after)
    return ""
