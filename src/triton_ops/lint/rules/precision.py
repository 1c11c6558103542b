"""Sums that are kept in 16 bits: by products of tiles, by what loops carry, and by reductions."""

from __future__ import annotations

from collections.abc import Iterator

from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import Carried, ReductionFact
from triton_ops.lint.meaning.terms import Term, describe
from triton_ops.lint.rules.base import Rule, Statement, in_each_variant

_LOW = ("f16", "bf16", "f8E5M2", "f8E4M3FN")
_ADDING = ("arith.addf", "arith.subf", "math.fma")
_THROUGH = (*_ADDING, "arith.mulf", "arith.extf", "arith.truncf", "tt.fp_to_fp", "choose", "arith.select")
_FEW = 16  # terms of a sum, below which 16 bits lose little


def _find_low_precision(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    facts = variant.facts
    for product in facts.products:
        if product.type.element in _LOW:
            yield rule.found(
                kernel,
                product,
                f"tl.dot adds up in {product.type.element}, {product.left.type.shape[-1]} terms at a time",
            )
    for loop in facts.loops:
        for carried in loop.carried:
            said_of = _describe_carried(carried)
            if said_of and (carried.type.element not in _LOW or _own(variant, kernel, carried) or _of_product(carried)):
                yield rule.found(kernel, loop, said_of)
            elif said_of:
                yield rule.undecided(
                    kernel,
                    f"line {kernel.place(loop).line}: {said_of} if the inputs are 16 bits wide; "
                    "no launch says what they are",
                )
    for reduction in facts.reductions:
        yield from _of_reduction(rule, kernel, reduction)


def _describe_carried(carried: Carried) -> str:
    """Words for a sum that a loop carries in 16 bits; empty for any other."""
    if carried.type.whole or carried.type.pointer:
        return ""
    how = _narrow_type(carried.next, carried.symbol, carried.type.element in _LOW)
    if not how:
        return ""
    where = f"the loop carries its sum as {carried.type.element}" if carried.type.element in _LOW else (
        "each turn of the loop rounds its sum to 16 bits"
    )  # fmt: skip
    digits = 256 if "bf16" in (how, carried.type.element) else 2048
    return f"{where}, so that every turn loses what is below 1/{digits} of it"


def _narrow_type(term: Term, symbol: Term, low: bool) -> str:
    """The narrow type that a sum passes through on its way from the symbol to `term`, if something is added on it."""
    way = _way_to(term, symbol, frozenset())
    if way is None:
        return ""
    added, narrow = way
    if not added:
        return ""
    return (narrow or "16 bits") if narrow or low else ""


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
    if term.name not in _THROUGH:
        return None
    for one in term.operands:
        if isinstance(one, Term) and (inner := _way_to(one, symbol, visited)) is not None:
            added, narrow = inner
            if term.name in ("arith.truncf", "tt.fp_to_fp") and term.operands[0] in _LOW and added:
                narrow = str(term.operands[0])
            return added or term.name in _ADDING, narrow
    return None


def _of_product(carried: Carried) -> bool:
    queue, numbers = [carried.next], set()
    while queue:
        one = queue.pop()
        if one.name == "dot":
            return True
        for part in one.operands if one.name in _THROUGH else ():
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


def _of_reduction(rule: Rule, kernel: KernelReading, reduction: ReductionFact) -> Iterator[Statement]:
    kind = reduction.inputs[0].type
    names = [operation.name for operation in reduction.combine.operations]
    if kind.element not in _LOW or "arith.addf" not in names or kind.shape[reduction.axis] <= _FEW:
        return
    wide = kernel.with_element("fp32")
    count = kind.shape[reduction.axis]
    stays = wide is None or any(
        other.inputs[0].type.element in _LOW and kernel.place(other) == kernel.place(reduction)
        for other in wide.facts.reductions
        if "arith.addf" in [operation.name for operation in other.combine.operations]
    )
    if stays:
        yield rule.found(
            kernel,
            reduction,
            f"tl.sum adds {count} elements up in {kind.element}: {describe(reduction.inputs[0].term)[:60]}",
        )
    else:
        yield rule.undecided(
            kernel,
            f"line {kernel.place(reduction).line}: tl.sum adds {count} elements up in the inputs' "
            "type, which no launch says",
        )


LOW = Rule(
    id="low-precision-sum",
    level="ttir",
    symptom="results drift from the reference as the sum grows longer; short sums pass",
    fix="add up in float32: tl.zeros(..., dtype=tl.float32), x.to(tl.float32) before tl.sum, and "
    "convert once at the store",
    decide=in_each_variant(_find_low_precision),
)
