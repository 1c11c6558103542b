"""Sums that are wrong or slow: with padded lanes, in 16 bits, without the matrix unit.

Each reduction is computed from one lane with data, and again with a lane whose mask is false beside it. What the
padded lane holds follows from `other`, and from everything that is computed from it, however many steps that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triton_ops.kernel_ir import Carried, Fact, KernelFacts, ProductFact, ReductionFact, Term, UntoldError
from triton_ops.lint.reading import KernelReading, Variant
from triton_ops.lint.rules.base import Seen, Statement, in_each_variant, rule

Numbers: TypeAlias = NDArray[Any]
_LOW = ("f16", "bf16", "f8E5M2", "f8E4M3FN")
_FEW = 16  # terms of a sum, below which 16 bits lose little


@rule(
    "low-precision-sum",
    symptom="results drift from the reference as the sum grows longer; short sums pass",
    fix="add up in float32: tl.zeros(..., dtype=tl.float32), x.to(tl.float32) before tl.sum, and convert once at the "
    "store",
)
@in_each_variant
def low_precision_sum(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Products, loops and reductions that add up in 16 bits or fewer."""
    facts = variant.facts
    for product in facts.products:
        if product.type.element in _LOW:
            terms = product.left.type.shape[-1]
            yield Seen(product, f"tl.dot adds up in {product.type.element}, {terms} terms at a time")
    for loop in facts.loops:
        for carried in loop.carried:
            said_of = _describe_carried(carried)
            if said_of and (carried.type.element not in _LOW or _own(variant, kernel, carried) or _of_product(carried)):
                yield Seen(loop, said_of)
            elif said_of:
                where = f"line {kernel.place(loop).line}: {said_of}"
                yield f"{where} if the inputs are 16 bits wide; no launch says what they are"
    for reduction in facts.reductions:
        yield from _of_reduction(kernel, reduction)


def _describe_carried(carried: Carried) -> str:
    """Words for a sum that a loop carries in 16 bits; empty for any other."""
    if carried.type.whole or carried.type.pointer:
        return ""
    added, narrow = _way_to(carried.next, carried.symbol, frozenset()) or (False, "")
    low = carried.type.element in _LOW
    if not added or not (narrow or low):
        return ""
    rounds = "each turn of the loop rounds its sum to 16 bits"
    where = f"the loop carries its sum as {carried.type.element}" if low else rounds
    digits = 256 if "bf16" in (narrow, carried.type.element) else 2048
    return f"{where}, so that every turn loses what is below 1/{digits} of it"


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


def _of_product(carried: Carried) -> bool:
    queue, numbers = [carried.next], set()
    while queue:
        one = queue.pop()
        if one.name == "dot":
            return True
        for part in one.operands if _goes_on(one) else ():
            if isinstance(part, Term) and part.number not in numbers:
                numbers.add(part.number)
                queue.append(part)
    return False


def _own(variant: Variant, kernel: KernelReading, carried: Carried) -> bool:
    """Check whether the type is the kernel's own, and not that of its inputs: it stays with inputs of 32 bits."""
    wide = kernel.with_element("fp32")
    if wide is None or variant.guess.element == "fp32":
        return True
    return any(
        other.type.element == carried.type.element and _describe_carried(other)
        for loop in wide.facts.loops
        for other in loop.carried
    )


def _of_reduction(kernel: KernelReading, reduction: ReductionFact) -> Iterator[Statement]:
    kind = reduction.inputs[0].type
    if kind.element not in _LOW or "adds" not in reduction.steps or kind.shape[reduction.axis] <= _FEW:
        return
    wide = kernel.with_element("fp32")
    count = kind.shape[reduction.axis]
    stays = wide is None or any(
        other.inputs[0].type.element in _LOW and kernel.place(other) == kernel.place(reduction)
        for other in wide.facts.reductions
        if "adds" in other.steps
    )
    if stays:
        what = reduction.inputs[0].term.words[:60]
        yield Seen(reduction, f"tl.sum adds {count} elements up in {kind.element}: {what}")
    else:
        what = f"line {kernel.place(reduction).line}: tl.sum adds {count} elements up in the inputs' type"
        yield f"{what}, which no launch says"


_RANK = 3  # rows, columns, and the axis of the sum
_SMALLEST = 16  # extents that the matrix unit takes


@rule(
    "no-tensor-core",
    symptom="a product of matrices runs at a tenth of the speed and below: it uses plain multiplications",
    fix="use tl.dot, whose extents are 16 or more",
)
@in_each_variant
def no_tensor_core(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Sums of products of two matrices, and products in full precision."""
    for reduction in variant.facts.reductions:
        shape = reduction.inputs[0].type.shape
        if len(shape) != _RANK or reduction.steps[:1] != ("adds",) or min(shape) < _SMALLEST:
            continue
        if _is_product(variant.facts, reduction):
            sizes = "×".join(map(str, shape))
            yield Seen(
                reduction,
                f"a sum over axis {reduction.axis} of the products of two matrices, spread to {sizes} elements",
            )  # fmt: skip
    yield from _exact(kernel, variant)


def _exact(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Products of tiles of 32 bits in full precision, which no matrix unit of NVIDIA takes."""
    for product in variant.facts.products:
        if product.left.type.element == "f32" and not product.precision and not kernel.target.vendor.multiplies_float32:
            when = "for inputs of 32 bits " if variant.guess.element == "fp32" else ""
            yield (
                f"line {kernel.place(product).line}: {when}this product takes plain multiplications, since ieee "
                "precision is asked for; whether tf32 or tf32x3 would be exact enough is not in the file"
            )


def _is_product(facts: KernelFacts, reduction: ReductionFact) -> bool:
    """Check whether what is added up are products of a factor without columns and one without rows."""
    term = reduction.inputs[0].term
    while KernelFacts.does(term) in ("widens", "rounds"):
        term = term.operands[-1]
    if KernelFacts.does(term) != "multiplies":
        return False
    one, other = (part for part in term.operands if isinstance(part, Term))
    axes = [facts.terms.index(axis).number for axis in range(_RANK) if axis != reduction.axis]
    sum_axis = facts.terms.index(reduction.axis).number
    rows = [[number in part.inside for number in axes] for part in (one, other)]
    apart = rows in ([[True, False], [False, True]], [[False, True], [True, False]])
    return apart and all(sum_axis in part.inside for part in (one, other))


_WITH_DATA = 0
_TURNS = (0, 1)  # of what a loop carries, before its first turn and after it
_CLOSE = 1e-5
_MOST_PARTS = 4_000  # of what is reduced
_ENOUGH = 3  # draws of 64 that must differ: a coincidence is none


Harm: TypeAlias = Callable[[float], str]
"""From what stands in a masked lane without `other` to how it changes a result; empty if it does not."""


@rule(
    "wrong-identity",
    symptom="results are a little wrong for sizes that the block does not divide: padded lanes take part in a "
    "reduction",
    fix="let padded lanes hold the identity: other=0 for a sum, 1 for a product, -inf for a maximum, +inf for a "
    "minimum; after arithmetic on them, tl.where(mask, x, identity) before the reduction",
)
@in_each_variant
def wrong_identity(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Reductions and products that a padded lane changes."""
    facts = variant.facts
    for reduction in facts.reductions:
        axis = facts.terms.index(reduction.axis)
        inputs = [value.term for value in reduction.inputs]
        if _is_long(inputs):
            yield _too_long(kernel, reduction)
            continue
        for condition in _limits(inputs, axis, reduction.inputs[0].type.shape[reduction.axis]):
            harm = partial(_harm_to_reduction, facts, reduction, axis, condition)
            yield from _judge_harm(kernel, facts, reduction, condition, harm)
        yield from _judge_carried(kernel, variant, reduction, inputs, axis)
    for product in facts.products:
        if _is_long(product.factors):
            yield _too_long(kernel, product)
            continue
        for condition in _limits(product.factors, product.bound, product.left.type.shape[-1]):
            harm = partial(_harm_to_product, facts, product, condition)
            yield from _judge_harm(kernel, facts, product, condition, harm)


def _is_long(terms: Sequence[Term]) -> bool:
    """Check whether terms have too many parts to compute: reductions of reductions, along both axes in turn."""
    return any(sum(1 for _ in islice(term.inner(), _MOST_PARTS)) == _MOST_PARTS for term in terms)


def _too_long(kernel: KernelReading, fact: Fact) -> Statement:
    line = kernel.place(fact).line
    return f"line {line}: what a padded lane holds takes more than {_MOST_PARTS:,} steps"


def _judge_harm(
    kernel: KernelReading, facts: KernelFacts, fact: Fact, condition: Term, harm: Harm
) -> Iterator[Statement]:
    try:
        change = harm(0.0)
        poisoned = "" if change else harm(float("nan"))
    except UntoldError as error:
        yield f"what a padded lane holds cannot be computed: {error}"
        return
    if change and _may_stay_inside(facts, condition):
        yield (
            f"line {kernel.place(fact).line}: whether `{condition.words}` ever fails depends on where a loop of "
            "the program ends"
        )
    elif change:
        yield Seen(fact, f"a lane without `{condition.words}` takes part: {change}")
    elif poisoned:
        line = kernel.place(fact).line
        yield (
            f"line {line}: a load gives no `other`, so that padded lanes are undefined by the language; with 0, which "
            "NVIDIA's compiler puts there, the result is right"
        )


def _may_stay_inside(facts: KernelFacts, condition: Term) -> bool:
    """Check whether a condition is about a loop that ends where the program says: it may end before the edge."""
    turns = [one for one in condition.inner() if one.name == "turn"]
    return any(
        one.name in ("program_id", "least", "most", "choose")
        for loop in facts.loops
        if loop.turn in turns
        for one in loop.upper.inner()
    )


def _limits(terms: Sequence[Term], axis: Term, extent: int) -> list[Term]:
    """The conditions by which loads inside of these terms leave out the end of an axis, whose block has this extent."""
    limits: dict[Term, None] = {}
    for term in terms:
        for one in term.inner():
            if one.name == "load" and axis.number in one.operands[3].inside:
                for condition in one.operands[3].comparisons():
                    sums = condition.operands[0].parts if condition.name == Term.AT_LEAST_ZERO else {}
                    whole = sums == {(axis,): -1, (): extent - 1}  # it lets the whole block pass, whatever its extent
                    if sums.get((axis,), 0) < 0 and not whole:
                        limits[condition] = None
    return [one for one in limits if not any(_is_looser(other, one) for other in limits)]


def _is_looser(one: Term, other: Term) -> bool:
    """Check whether a condition lets more pass than another: lanes in between hold data of another load."""
    sums, others = one.operands[0].parts, other.operands[0].parts
    return sums.get((), 0) > others.get((), 0) and {**sums, (): 0} == {**others, (): 0}


def _harm_to_reduction(
    facts: KernelFacts, reduction: ReductionFact, axis: Term, condition: Term, padding: float
) -> str:
    for turns in _TURNS:
        data = facts.draw({axis: _WITH_DATA}, padding, turns).at_the_edge(condition)
        padded = data.beyond(axis, condition)
        inputs = [value.term for value in reduction.inputs]
        alone, beside = [data(term) for term in inputs], [padded(term) for term in inputs]
        around = {name: data(term) for name, term in reduction.around.items()}
        among = data.comparable(inputs, axis, condition)
        together = data.combined(reduction, alone, beside, around)
        for before, after, lane in zip(alone, together, beside, strict=True):
            if data.differ(before, after, among) >= _ENOUGH:
                text = "it holds {}, and changes the reduction of a lane with data from {} to {}"
                return _describe_change(text, before, after, lane)
    return ""


def _describe_change(text: str, before: Numbers, after: Numbers, *lanes: Numbers) -> str:
    """A text with the numbers of the draw in which they differ most clearly."""
    apart = np.abs(np.asarray(before, dtype=float) - np.asarray(after, dtype=float))
    at = int(np.argmax(np.where(np.isfinite(apart), apart, -1)))
    return text.format(*(f"{float(one[at]):.4g}" for one in (*lanes, before, after)))


def _largest(numbers: Numbers) -> str:
    return f"{float(numbers[int(np.argmax(np.abs(np.nan_to_num(numbers))))]):.4g}"


def _harm_to_product(facts: KernelFacts, product: ProductFact, condition: Term, padding: float) -> str:
    operands, bound = product.factors, product.bound
    for turns in _TURNS:
        data = facts.draw({bound: _WITH_DATA}, padding, turns).at_the_edge(condition)
        padded = data.beyond(bound, condition)
        one, other = (padded(operand) for operand in operands)
        with_data = data.comparable(operands, bound, condition)
        usable = with_data & ~np.isnan(data(operands[0]) * data(operands[1]))
        with np.errstate(all="ignore"):
            added = one * other
        wrong = usable & ~(np.abs(added) <= _CLOSE) & (np.isnan(padding) | ~np.isnan(added))
        if int(wrong.sum()) >= _ENOUGH:
            return f"it multiplies {_largest(one)} by {_largest(other)}, and adds {_largest(added)} to the sum"
    return ""


def _judge_carried(
    kernel: KernelReading, variant: Variant, reduction: ReductionFact, inputs: Sequence[Term], axis: Term
) -> Iterator[Statement]:
    """A lane that a loop adds to, and that is reduced after it: a turn in which it is padded must leave it as it is."""
    terms = variant.facts.terms
    for term in inputs:
        for one in term.inner():
            if one.name != "after":
                continue
            places = [at for at, operand in enumerate(one.operands[2:]) if axis.number in operand.inside]
            carried = variant.facts.carried.get(one.operands[:2])
            if carried is None or carried.after.name != "after" or len(places) != 1:
                continue
            inner = terms.index(places[0])
            for condition in _limits([carried.next], inner, carried.type.shape[places[0]]):
                harm = partial(_harm_to_carried, variant.facts, carried, inner, condition)
                yield from _judge_harm(kernel, variant.facts, reduction, condition, harm)


def _harm_to_carried(facts: KernelFacts, carried: Carried, axis: Term, condition: Term, padding: float) -> str:
    data = facts.draw({axis: _WITH_DATA}, padding).at_the_edge(condition)
    padded = data.beyond(axis, condition)
    before, after = padded(carried.symbol), padded(carried.next)
    if data.differ(before, after) >= _ENOUGH:
        return _describe_change("a turn in which it is padded changes its part of the sum from {} to {}", before, after)
    return ""
