"""Sums that are wrong or slow: with padded lanes, in 16 bits, without the matrix unit.

Each reduction is computed from one lane with data, and again with a lane whose mask is false beside it. What the
padded lane holds follows from `other`, and from everything that is computed from it, however many steps that takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from triton_ops.kernel_ir import AccessFact, Fact, KernelFacts, ReductionFact, Term, UntoldError
from triton_ops_lint.reading import KernelReading, Variant
from triton_ops_lint.rules.rule import Seen, Statement, in_each_variant, rule

_LOW = ("f16", "bf16", "f8E5M2", "f8E4M3FN")
_FEW = 16  # terms of a sum, below which 16 bits lose little
_MOST_STEPS = 4_000  # through the value of a store


@rule(
    "low-precision-sum",
    symptom="results drift from the reference as the sum grows longer; short sums pass",
    fix="add up in float32: tl.zeros(..., dtype=tl.float32), x.to(tl.float32) before tl.sum, and convert once at the "
    "store",
)
@in_each_variant
def low_precision_sum(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """A sum that is kept in 16 bits or fewer.

        acc = tl.zeros((BM, BN), dtype=tl.float16)            # bad
        acc = tl.zeros((BM, BN), dtype=tl.float32)            # good

    The types in the TTIR decide: those of the result of `tl.dot`, of what loops carry and add to, of a rounding to
    16 bits in each iteration, and of `tl.sum` over more than 16 elements.

    A type that follows the inputs' is a finding for products of tiles. It is undecided for plain sums, which are
    right for inputs of 32 bits, for a sum that goes on from what was loaded, and where launches choose the type.
    """
    wide_types = kernel.with_wide_types
    wide = None if variant.guess.element == "fp32" else kernel.with_element("fp32")
    several = ([] if one is None else _low_sums(one.facts) for one in (wide_types, wide))
    unchosen, own = ({kernel.place(fact) for fact, _, _ in sums} for sums in several)
    for fact, what, always in _low_sums(variant.facts):
        place = kernel.place(fact)
        if wide_types is not None and place not in unchosen:
            yield f"line {place.line}: {what}, where a launch chooses such a type"
        elif always or wide is None or place in own:
            yield Seen(fact, what)
        else:
            yield f"line {place.line}: {what} if the inputs are 16 bits wide; no launch says what they are"


def _low_sums(facts: KernelFacts) -> Iterator[tuple[Fact, str, bool]]:
    """The sums in 16 bits or fewer, in words, and whether other inputs would change nothing."""
    for product in facts.products:
        if product.type.element in _LOW:
            what = f"tl.dot adds up in {product.type.element}, {product.left.type.shape[-1]} terms at a time"
            yield product, what, True
    yield from _carried_sums(facts)
    for reduction in facts.reductions:
        kind = reduction.inputs[0].type
        count = kind.shape[reduction.axis]
        if kind.element in _LOW and "adds" in reduction.steps and count > _FEW:
            what = f"tl.sum adds {count} elements up in {kind.element}: {reduction.inputs[0].term.words[:60]}"
            yield reduction, what, False


def _carried_sums(facts: KernelFacts) -> Iterator[tuple[Fact, str, bool]]:
    """As `_low_sums`, of what loops carry: products that are added to 0 are the kernel's own."""
    for loop, carried in ((one, carried) for one in facts.loops for carried in one.carried):
        element = carried.type.element
        if carried.type.whole or carried.type.pointer:
            continue
        added, narrow = _way_to(carried.next, carried.symbol, frozenset()) or (False, "")
        if not added or not (narrow or element in _LOW):
            continue
        rounds = "each iteration of the loop rounds its sum to 16 bits"
        where = f"the loop carries its sum as {element}" if element in _LOW else rounds
        # bfloat16 holds 8 bits of a number, float16 holds 11
        digits = 256 if "bf16" in (narrow, element) else 2048
        words = f"{where}, so that every iteration loses what is below 1/{digits} of it"
        yield loop, words, element not in _LOW or (carried.begin.name != "load" and _of_product(carried.next))


def _way_to(term: Term, symbol: Term, visited: frozenset[int]) -> tuple[bool, str] | None:
    """Look for the way to the symbol through sums alone: whether something was added, and what narrowed the sum."""
    if term is symbol:
        return False, ""
    if term.number in visited:
        return None
    visited = visited | {term.number}
    if term.name == "dot":
        inner = _way_to(term.operands[-1], symbol, visited)
        return None if inner is None else (True, inner[1])
    if not _goes_on(term):
        return None
    for one in term.operands:
        if isinstance(one, Term) and (inner := _way_to(one, symbol, visited)) is not None:
            added, narrow = inner
            if KernelFacts.does(term) == "rounds" and term.operands[0] in _LOW and added:
                narrow = str(term.operands[0])
            return added or KernelFacts.does(term) == "adds", narrow
    return None


def _goes_on(term: Term) -> bool:
    return term.name == "choose" or KernelFacts.does(term) in ("adds", "multiplies", "widens", "rounds")


@lru_cache(maxsize=4096)  # terms share their parts
def _of_product(term: Term) -> bool:
    parts = [one for one in term.operands if isinstance(one, Term)] if _goes_on(term) else []
    return term.name == "dot" or any(map(_of_product, parts))


_SMALLEST = 16  # extents that the matrix unit takes


@rule(
    "no-tensor-core",
    symptom="a product of matrices runs at a tenth of the speed and below: it uses plain multiplications",
    fix="use tl.dot, whose extents are 16 or more",
)
@in_each_variant
def no_tensor_core(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """A product of matrices that is written with `tl.sum`.

    It is a sum over one of three axes of a product, one factor of which lacks the rows and the other the columns,
    with extents of 16 and more. Undecided: extents that the file does not show, and a `tl.dot` of 32-bit tiles in
    ieee precision, for which `tf32` or `tf32x3` may be exact enough.
    """
    unseen = _unseen_extents(kernel, variant)
    for reduction in variant.facts.reductions:
        shape = reduction.inputs[0].type.shape
        adds = reduction.steps[:1] == ("adds",) and min(shape, default=0) >= _SMALLEST
        if adds and variant.facts.is_matrix_product(reduction):
            sizes = "×".join(map(str, shape))
            what = f"a sum over axis {reduction.axis} of the products of two matrices, spread to {sizes} elements"
            small = next((unseen[extent] for extent in shape if extent in unseen), "")
            why = f"line {kernel.place(reduction).line}: {what}; whether {small} is {_SMALLEST} or more no launch shows"
            yield why if small else Seen(reduction, what)
    for product in variant.facts.products:  # of 32 bits in full precision, which no matrix unit of NVIDIA takes
        if product.left.type.element == "f32" and not product.precision and not kernel.target.vendor.multiplies_float32:
            when = "for inputs of 32 bits " if variant.guess.element == "fp32" else ""
            yield (
                f"line {kernel.place(product).line}: {when}this product takes plain multiplications, since ieee "
                "precision is asked for; whether tf32 or tf32x3 would be exact enough is not in the file"
            )


def _unseen_extents(kernel: KernelReading, variant: Variant) -> dict[int, str]:
    """The guessed extents of blocks that launches give, unrounded and unseen, with the parameters."""
    unrounded = {name for one in kernel.launches for name, node in one.arguments.items() if not one.rounded(node)}
    names = unrounded.intersection(kernel.uses.tiles) - variant.guess.known_names
    extents = ((variant.guess.constants.get(name), name) for name in sorted(names))
    return {size: name for size, name in extents if type(size) is int}


@rule(
    "wrong-identity",
    symptom="results are a little wrong for sizes that the block does not divide: padded lanes take part in a "
    "reduction",
    fix="let padded lanes hold the identity: other=0 for a sum, 1 for a product, -inf for a maximum, +inf for a "
    "minimum; after arithmetic on them, tl.where(mask, x, identity) before the reduction",
)
@in_each_variant
def wrong_identity(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Padded lanes that change a reduction or a product of tiles.

        x = tl.load(p + c, mask=c < n, other=0.0)             # bad: 0 may be the largest
        x = tl.load(p + c, mask=c < n, other=-float("inf"))   # good
        e = tl.exp(x - tl.max(x, axis=0))

    Each reduction and each `tl.dot` is computed in numbers, 64 times with other data: from the lanes of the data,
    and from these and a lane that the mask leaves out. All operations between load and reduction count, such as
    `tl.where`, another mask or `abs`. Own functions of `tl.reduce` are computed too. A load without `other` gives
    0, as on NVIDIA; where that is the identity the rule is undecided, since the language promises nothing.

    Nothing is found where stores keep only whole blocks of the result, or where padded lanes are in a loop's last
    turn alone and nothing after it reads the sum.

    A maximum with `other=0` over data that is never negative is found all the same.

    Undecided: a mask that covers the lanes only if one argument is never larger than another, the least or largest
    of whole numbers, and rows as wide as the block. So are a result from which a store takes off the number of
    padded lanes, and operations that the rule cannot compute: histograms, `tl.gather`, inline assembly and `while`.
    """
    for fact, condition, harm in variant.facts.padded_lanes():
        line = f"line {kernel.place(fact).line}"
        if isinstance(condition, Term) and _is_for_a_turn_that_never_comes(variant.facts, fact, condition):
            continue
        if isinstance(condition, str):
            yield f"{line}: {condition}"
            continue
        try:
            # What a load without `other` gives is not specified (triton-lang/triton#9917). NVIDIA's code has 0 there;
            # NaN shows whether the lane counts at all.
            change = harm(0.0)
            poisoned = "" if change else harm(float("nan"))
        except UntoldError as error:
            yield f"what a padded lane holds cannot be computed: {error}"
            continue
        if (change or poisoned) and isinstance(fact, ReductionFact) and _is_dropped(variant.facts, fact):
            continue
        if change and (doubt := _doubt(kernel, variant.facts, fact, condition)):
            yield f"{line}: {change}; {doubt}"
        elif change and not _is_switched(kernel, variant.facts, fact, condition):
            yield Seen(fact, f"a lane without `{condition.words}` takes part: {change}")
        elif poisoned:
            yield (
                f"{line}: a load gives no `other`, so that padded lanes are undefined by the language; with 0, which "
                "NVIDIA's compiler puts there, the result is right"
            )


def _is_for_a_turn_that_never_comes(facts: KernelFacts, fact: Fact, condition: Term) -> bool:
    """Check whether only the last turn of a loop has padded lanes, and its result goes to the turn after it alone."""
    turns = [loop for loop in facts.loops if loop.turn in condition.named("turn")]
    if len(turns) != 1 or not isinstance(fact, ReductionFact) or turns[0].limits != condition.arguments:
        return False
    steps = condition.operands[0].parts.get((turns[0].turn,), 0)
    if -steps != fact.inputs[0].type.shape[fact.axis]:
        return False

    places: set[tuple[int, int]] = set()

    def is_made_of(term: Term, *names: str) -> bool:
        return bool(_results_of(fact, term)) or any(one.operands[:2] in places for one in term.named(*names))

    count = -1
    while len(places) > count:
        count = len(places)
        places |= {place for place, value in facts.carried.items() if is_made_of(value.next, "carried", "after")}
    uses = _where_accesses_go(facts)
    uses += [one.value.term for one in facts.accesses if one.value is not None]
    uses += [factor for one in facts.products for factor in one.factors]
    return bool(places) and not any(is_made_of(term, "after") for term in uses)


def _results_of(fact: Fact, term: Term) -> list[Term]:
    """The results of a reduction that a term is made of."""
    return [one for one in term.named("tt.reduce") if one.operands[2] == fact.number]


def _where_accesses_go(facts: KernelFacts) -> list[Term]:
    return [term for one in facts.accesses for term in (one.offset, one.mask, one.path)]


def _is_dropped(facts: KernelFacts, reduction: ReductionFact) -> bool:
    """Check whether stores keep the result only where all lanes have data, and nothing but stores reads it."""
    loops = [*facts.loops, *facts.whiles]
    uses = _where_accesses_go(facts)
    uses += [term for loop in loops for term in (loop.lower, loop.upper, *loop.ends)]
    uses += [term for loop in loops for one in loop.carried for term in (one.begin, one.next)]
    uses += [one.value.term for one in facts.blocks if one.value is not None]
    values = [(one, one.value.term) for one in facts.accesses if one.value is not None]
    readers = [(one, value) for one, value in values if _results_of(reduction, value)]
    if reduction.scans or not readers or any(_results_of(reduction, one) for one in uses):
        return False
    return all(_keeps_whole_lanes(facts, store, value, reduction) for store, value in readers)


def _keeps_whole_lanes(facts: KernelFacts, store: AccessFact, value: Term, reduction: ReductionFact) -> bool:
    """Check whether all lanes have data wherever the mask and choices of a store leave a result in its value."""
    terms, visited = facts.terms, set[tuple[Term, Term]]()
    queue = [(value, terms.both(store.path, store.mask))]
    while queue and len(visited) < _MOST_STEPS:
        one, known = step = queue.pop()
        if step in visited or "tt.reduce" not in one.names:
            continue
        visited.add(step)
        if one in _results_of(reduction, one):
            if not _has_whole_lanes(facts, one, reduction, known):
                return False
        elif one.name == "choose":
            condition, yes, no = one.operands
            queue += [(condition, known), (yes, terms.both(known, condition))]
            queue.append((no, terms.both(known, terms.refuse(condition))))
        else:
            queue += [(inner, known) for inner in one.direct()]
    return not queue


def _has_whole_lanes(facts: KernelFacts, result: Term, reduction: ReductionFact, known: Term) -> bool:
    """Check whether the last lane of what is reduced has data where a condition holds, or the condition never holds."""
    terms, bound = facts.terms, facts.terms.make("bound", reduction.number)
    last = {bound: terms.number(reduction.inputs[0].type.shape[reduction.axis] - 1)}
    tests = [test for load in result.named("load") for test in load.operands[3].comparisons()]
    ends = [terms.change(test, last) for test in tests if bound.number in test.inside]
    never = any(_follows(facts, terms.refuse(one), known) for one in known.conjuncts)
    return never or (bool(ends) and all(_follows(facts, end, known) for end in ends))


def _follows(facts: KernelFacts, condition: Term, known: Term) -> bool:
    """Check whether a condition holds where another one does: each of its parts is in it, or asks for less."""
    sums = (one.operands[0] for one in known.conjuncts if one.name == Term.AT_LEAST_ZERO)
    least = [term for one in sums for term in _at_least_zero_too(facts, one)]

    def asks_for_less(part: Term) -> bool:
        apart = (facts.terms.add((1, part.operands[0]), (-1, term)).constant for term in least)
        return part.name == Term.AT_LEAST_ZERO and any(number is not None and number >= 0 for number in apart)

    return all(one in (facts.terms.true, *known.conjuncts) or asks_for_less(one) for one in condition.conjuncts)


def _at_least_zero_too(facts: KernelFacts, term: Term) -> Iterator[Term]:
    """What is at least 0 where a whole number is: itself, and the same with a quotient multiplied out."""
    yield term
    for monomial, factor in term.parts.items():
        one = monomial[0] if len(monomial) == factor == 1 else term
        if one.name == "quotient" and (by := one.operands[1].constant):
            yield facts.terms.add((by, term), (-by, one), (1, one.operands[0]))


def _doubt(kernel: KernelReading, facts: KernelFacts, fact: Fact, condition: Term) -> str:
    """Words for why there may be no padded lanes, or why they may count on purpose; empty where nothing says so."""
    ends = (loop.upper for loop in facts.loops if loop.turn in condition.named("turn"))
    if any(end.named("program_id", "least", "most", "choose") for end in ends):
        return f"whether `{condition.words}` ever fails depends on where a loop of the program ends"
    for one in (one for one in facts.reductions if one is fact):
        if "picks" in one.steps:
            return "what values the whole numbers have is not in the file"
        powers = (part for value in facts.carried.values() for part in value.next.named("math.exp", "math.exp2"))
        reduced = (part for power in powers for part in _results_of(one, power))
        if any("arith.min" in part.operands[1] for part in reduced):
            return "a power is taken of the smallest, as of a decay's logarithm, which is never above 0"
        values = [access.value.term for access in facts.accesses if access.value is not None]
        tests = (test.operands[0] for value in values for test in value.named(Term.ZERO))
        equal = (test for test in tests if abs(test.parts.get((), 0)) == one.inputs[0].type.shape[one.axis])
        if any(part.name == "tt.reduce" and part.operands[2] == one.number for test in equal for part in test.direct()):
            return "the result is compared with the extent of the block, as if padded lanes were to count"
        for other in _tests_of([value.term for value in one.inputs]):
            described = not condition.arguments <= {*kernel.function.parameters}
            if described and facts.terms.index(one.axis).number in other.inside:
                return f"`{other.words}` leaves lanes out too, and where the tensor of the descriptor ends callers say"
            apart = [m for m in facts.terms.add((1, other.operands[0]), (-1, condition.operands[0])).parts if m]
            if len(apart) > 1 and all(len(m) == 1 and m[0].argument for m in apart):
                return f"`{other.words}` leaves lanes out too, and which limit is the smaller one is not in the file"
    return _doubt_of_data(facts, fact, condition)


def _count_of_padded(facts: KernelFacts, reduction: ReductionFact, condition: Term) -> str:
    """The number of padded lanes, in words, where a value to store is made of it and of a result; else empty."""
    terms, extent = facts.terms, facts.terms.number(reduction.inputs[0].type.shape[reduction.axis])
    last = {terms.index(reduction.axis): terms.number(-1)}
    for loop in (loop for loop in facts.loops if loop.turn in condition.named("turn")):
        length = terms.add((1, loop.upper), (-1, loop.lower), (1, loop.step), (-1, terms.number(1)))
        last[loop.turn] = terms.add((1, terms.quotient(length, loop.step)), (-1, terms.number(1)))
    padded = terms.add((1, extent), (-1, terms.change(condition.operands[0], last)))
    counts = (padded.parts, terms.add((-1, padded)).parts)
    sums = {place for place, value in facts.carried.items() if _results_of(reduction, value.next)}
    for value in (one.value.term for one in facts.accesses if one.value is not None):
        made_of = _results_of(reduction, value) or any(one.operands[:2] in sums for one in value.named("after"))
        for one in value.named(Term.SUM, "number") if made_of else ():
            rest = {m: c for m, c in one.parts.items() if not any(_results_of(reduction, symbol) for symbol in m)}
            if rest in counts or (one.name == "number" and abs(one.operands[0]) == padded.constant):
                return padded.words
    return ""


def _tests_of(terms: Iterable[Term]) -> Iterator[Term]:
    """The comparisons by which terms are chosen."""
    return (test for term in terms for choice in term.named("choose") for test in choice.operands[0].comparisons())


def _is_switched(kernel: KernelReading, here: KernelFacts, fact: Fact, condition: Term) -> bool:
    """Check whether a switch that masks the lanes replaces them too, so that it says whether there are any."""
    place, words = kernel.place(fact), condition.words
    ways = set()
    for facts in (variant.facts for variant in kernel.variants):
        terms = [value.term for one in facts.reductions if kernel.place(one) == place for value in one.inputs]
        terms += [factor for one in facts.products if kernel.place(one) == place for factor in one.factors]
        masks = (load.operands[3].comparisons() for term in terms for load in term.named("load"))
        if any(test.words == words for test in _tests_of(terms)):
            ways.add(facts is not here and any(test.words == words for mask in masks for test in mask))
    return ways == {True}


def _doubt_of_data(facts: KernelFacts, fact: Fact, condition: Term) -> str:
    """Words for why rows of the data may all be whole, or its numbers never below 0; empty where nothing says so."""
    for one in (one for one in facts.reductions if one is fact):
        value, axis, extent = one.inputs[0].term, facts.terms.index(one.axis), one.inputs[0].type.shape[one.axis]
        if count := _count_of_padded(facts, one, condition):
            return f"a store makes up for padded lanes by their number, {count}, and whether it does is not computed"
        places = ((m, c) for m, c in condition.operands[0].parts.items() if axis not in m)
        rows = [c for m, c in places if any(symbol.name == Term.INDEX for symbol in m)]
        if rows and not any(c % extent for c in rows):
            return "rows are as wide as the block, and whether each of them is whole is up to callers"
        scaled = value.name in ("arith.mulf", "arith.divf") and all(part.named("load") for part in value.direct())
        if len(one.inputs) > 1 and scaled:
            return "whether what is multiplied or divided, as probabilities are, is ever below 0 is not in the file"
        padding = {str(load.operands[4]) for load in value.named("load") if condition in load.operands[3].comparisons()}
        is_maximum = one.operation.regions[0][0].operations[0].name.startswith("arith.max")
        if is_maximum and len(padding) > 1 and "number(-inf)" in padding:
            return "one load puts -inf there, and whether what another adds to it is ever below 0 is not in the file"
    return ""
