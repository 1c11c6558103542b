"""Products of matrices that are written so that the matrix unit cannot be used."""

from __future__ import annotations

from collections.abc import Iterator

from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import ReductionFact
from triton_ops.lint.meaning.terms import Term, Terms
from triton_ops.lint.rules.base import Rule, Statement, in_each_variant

_RANK = 3  # rows, columns, and the axis of the sum
_SMALLEST = 16  # extents that the matrix unit takes
_CONVERSIONS = ("arith.extf", "arith.truncf", "tt.fp_to_fp")


def _find_unused(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    for reduction in variant.facts.reductions:
        shape = reduction.inputs[0].type.shape
        names = [operation.name for operation in reduction.combine.operations]
        if len(shape) != _RANK or names[:1] != ["arith.addf"] or min(shape) < _SMALLEST:
            continue
        if _is_product(variant.facts.terms, reduction):
            sizes = "×".join(map(str, shape))
            yield rule.found(
                kernel, reduction,
                f"a sum over axis {reduction.axis} of the products of two matrices, spread to {sizes} elements",
            )  # fmt: skip
    yield from _exact(rule, kernel, variant)


def _exact(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Products of tiles of 32 bits in full precision, which no matrix unit of NVIDIA takes."""
    for product in variant.facts.products:
        if product.left.type.element == "f32" and not product.precision and kernel.target.kind == "cuda":
            follows = variant.guess.element == "fp32"
            when = "for inputs of 32 bits " if follows else ""
            yield rule.undecided(
                kernel,
                f"line {kernel.place(product).line}: {when}this product takes plain multiplications, since ieee "
                "precision is asked for; whether tf32 or tf32x3 would be exact enough is not in the file",
            )


def _is_product(terms: Terms, reduction: ReductionFact) -> bool:
    """Check whether what is added up are products of a factor without columns and one without rows."""
    term = reduction.inputs[0].term
    while term.name in _CONVERSIONS:
        term = term.operands[-1]
    if term.name != "arith.mulf":
        return False
    one, other = (part for part in term.operands if isinstance(part, Term))
    axes = [terms.index(axis).number for axis in range(_RANK) if axis != reduction.axis]
    sum_axis = terms.index(reduction.axis).number
    rows = [[number in part.inside for number in axes] for part in (one, other)]
    apart = rows in ([[True, False], [False, True]], [[False, True], [True, False]])
    return apart and all(sum_axis in part.inside for part in (one, other))


UNUSED = Rule(
    id="no-tensor-core",
    level="ttir",
    symptom="a product of matrices runs at a tenth of the speed and below: it uses plain multiplications",
    fix="use tl.dot, whose extents are 16 or more",
    decide=in_each_variant(_find_unused),
)
