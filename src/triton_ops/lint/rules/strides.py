"""Strides and extents that belong to other axes than those of the indices which they are used with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import AccessFact
from triton_ops.lint.meaning.terms import constant, lone_argument
from triton_ops.lint.rules.base import Rule, Statement, in_each_variant
from triton_ops.lint.rules.indices import Index, arguments_in, indices, loop_of, root_name
from triton_ops.lint.source.launches import AxisOf, extents_of, rank_of, stride_of, tensor_of


@dataclass(frozen=True, eq=False)
class _Use:
    """An index with the argument that it is multiplied by, and the arguments that end it."""

    index: Index
    stride: str | None
    ends: frozenset[str]


def _find_swapped(rule: Rule, kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    open_roots: dict[str, None] = {}
    for access in variant.facts.accesses:
        uses = [_use(variant, index) for index in indices(variant.facts, access)]
        strided = [use for use in uses if use.stride is not None]
        root = root_name(access)
        yield from _pitch(rule, kernel, access, uses)
        for use in strided:
            verdict = _by_launch(kernel, root, use)
            if verdict:
                yield rule.found(kernel, access, verdict)
            elif verdict is None and len(strided) > 1:
                open_roots[root] = None
    if open_roots:
        names = ", ".join(open_roots)
        yield rule.undecided(
            kernel,
            f"which axis each stride of {names} belongs to is decided by callers, and no launch in the file shows it",
        )


def _use(variant: Variant, index: Index) -> _Use:
    ends = {lone_argument(bound.last)[0] for bound in index.bounds if bound.fits} - {""}
    for turn in (one for one in index.stepping if one.name == "turn"):
        loop = loop_of(variant.facts, turn)
        if loop is not None and loop.upper.name == "sum" and len(loop.upper.operands) == 1:
            ends |= arguments_in(loop.upper)
    return _Use(index, lone_argument(index.stride)[0] or None, frozenset(ends))


def _by_launch(kernel: KernelReading, root: str, use: _Use) -> str | None:
    """Words for what a launch shows to be wrong; empty if it shows that all is right, and None if it shows nothing."""
    verdict: str | None = None
    for launch in kernel.launches:
        tensor = tensor_of(launch, root)
        stride = stride_of(launch, use.stride or "")
        if stride is None or tensor is None or stride.tensor != tensor:
            continue
        for end in sorted(use.ends):
            extents = [one for one in extents_of(launch, end) if one.tensor == tensor]
            rank = rank_of(launch, tensor)
            if not extents:
                continue
            if all(_different(stride, one, rank) for one in extents):
                where = " or ".join(str(one.axis) for one in extents)
                return (
                    f"line {launch.line} gives {use.stride} the stride of axis {stride.axis} of {tensor}; the index "
                    f"that it multiplies ends at {end}, the extent of axis {where}"
                )  # fmt: skip
            verdict = ""
    return verdict


def _different(one: AxisOf, other: AxisOf, rank: int | None) -> bool:
    if (one.axis < 0) == (other.axis < 0):
        return one.axis != other.axis
    return rank is not None and one.axis % rank != other.axis % rank


def _pitch(rule: Rule, kernel: KernelReading, access: AccessFact, uses: list[_Use]) -> Iterator[Statement]:
    """`i * M + j` where i ends at M and j at N: rows are as far apart as there are rows."""
    inner = [use for use in uses if constant(use.index.stride) == 1 and len(use.ends) == 1]
    for outer in (use for use in uses if use.stride is not None and use.stride in use.ends):
        for use in inner:
            if use.ends != outer.ends and len(outer.ends) == 1:
                (width,) = use.ends
                yield rule.found(
                    kernel, access,
                    f"rows are {outer.stride} elements apart, which is the number of rows; a row has {width}",
                    fix=f"multiply the row by {width}",
                )  # fmt: skip


SWAPPED = Rule(
    id="stride-order",
    level="ttir",
    symptom="wrong results or illegal addresses for transposed and non-square tensors; contiguous square ones may pass",
    fix="pass x.stride(0), x.stride(1) in the order in which the kernel multiplies them by row and column",
    decide=in_each_variant(_find_swapped),
)
