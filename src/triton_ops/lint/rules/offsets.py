"""Offsets that are computed in 32 bits although they can pass 2^31."""

from __future__ import annotations

from collections.abc import Iterator

from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import Multiplication
from triton_ops.lint.meaning.terms import Term, describe, inner_terms, parts
from triton_ops.lint.rules.base import Rule, Statement, in_each_variant

_MOVING = ("program_id", "turn", "load", "carried", "quotient", "remainder")


def _find_overflow(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """A product of 32 bits that is made 64 bits wide only afterwards, or that is 64 bits wide elsewhere."""
    facts = variant.facts
    narrow = [one for one in facts.multiplications if one.bits == 32 and _grows(one) and _in_address(variant, one)]
    wide = [one for one in facts.multiplications if one.bits == 64 and _grows(one)]
    for one in narrow:
        product = facts.terms.multiply(one.one, one.other)
        same = next((w for w in wide if facts.terms.multiply(w.one, w.other) is product), None)
        if any(_has(term, product) for term in facts.widenings):
            yield rule.found(
                kernel, one, f"{describe(product)} is multiplied in 32 bits and made 64 bits wide afterwards: it "
                "has overflowed by then",
                fix="widen a factor before the product: pid.to(tl.int64) * stride",
            )  # fmt: skip
        elif same is not None:
            yield rule.found(
                kernel,
                one,
                f"{describe(product)} is multiplied in 32 bits; line {kernel.place(same).line} "
                "multiplies by the same in 64 bits",
            )
        else:
            yield rule.undecided(
                kernel, f"{describe(product)} is multiplied in 32 bits, which overflows for tensors of 2^31 "
                "elements and more; "
                "how large they are is not in the file",
            )  # fmt: skip


def _grows(one: Multiplication) -> bool:
    """Check whether a product is of a program's or a turn's number and an argument: a row and its stride."""
    for a, b in ((one.one, one.other), (one.other, one.one)):
        moving = any(inner.name in _MOVING for inner in inner_terms(a))
        if moving and any(inner.name == "argument" for m in parts(b) for inner in m):
            return True
    return False


def _in_address(variant: Variant, one: Multiplication) -> bool:
    product = variant.facts.terms.multiply(one.one, one.other)
    return any(_has(access.offset, product) for access in variant.facts.accesses)


def _has(term: Term, product: Term) -> bool:
    sums, mine = parts(term), parts(product)
    return bool(mine) and all(sums.get(m) == c for m, c in mine.items())


OVERFLOW = Rule(
    id="offset-overflow",
    level="ttir",
    symptom="illegal addresses or wrong results for tensors of 2^31 elements and more; smaller ones pass",
    fix="compute the offset of rows in 64 bits: tl.program_id(0).to(tl.int64)",
    decide=in_each_variant(_find_overflow),
)
