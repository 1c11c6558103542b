"""Pipelines whose buffers leave no room for a second block on a multiprocessor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from triton_ops.backend import one_line
from triton_ops.compilation import resources_of
from triton_ops.device import Residents, UnitLimits
from triton_ops.lint.compiled import compile_variant, in_words, known_configs
from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import Facts, ProductFact
from triton_ops.lint.meaning.terms import inner_terms
from triton_ops.lint.rules.base import Rule, Statement

_FEWEST_STAGES = 3  # with fewer there is nothing to give up
_FEW_WARPS = 4  # one for each scheduler: what one waits for, no other hides


def _find_lost_occupancy(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    """A config is compiled with its stages and with one fewer, if the kernel is launched with that config alone."""
    configs = list(known_configs(kernel))
    stages = int(configs[0].get("num_stages") or 0) if len(configs) == 1 else 0
    variant = kernel.with_values(configs[0]) if stages >= _FEWEST_STAGES else None
    if variant is None or not any(product.loops for product in variant.facts.products):
        return
    if (limits := kernel.target.limits) is None:
        yield rule.undecided(kernel, f"what a multiprocessor of {kernel.target.arch} holds is not known")
        return
    fewer = {**configs[0], "num_stages": stages - 1}
    try:
        before, after = (_residents(kernel, limits, variant, config) for config in (configs[0], fewer))
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        yield rule.undecided(kernel, f"{kernel.target.arch} refuses {in_words(configs[0])}: {one_line(error)}")
        return
    yield from _compare_residents(rule, kernel, variant, before, after)


def _compare_residents(
    rule: Rule, kernel: KernelReading, variant: Variant, before: Residents, after: Residents
) -> Iterator[Statement]:
    if not before.blocks or before.warps > _FEW_WARPS or after.blocks < 2 * before.blocks:
        return
    evidence = (
        f"on {kernel.target.arch} a multiprocessor holds {before.blocks} block of {before.warps_per_block} warps, "
        f"{before.occupancy:.0%} of its warps, limited by {' and '.join(before.limited_by)}; with one stage fewer it "
        f"holds {after.blocks}"
    )
    chained = next((one for one in variant.facts.products if one.loops and _waits(variant.facts, one)), None)
    if chained is None:
        yield rule.undecided(kernel, f"{evidence}; whether that is faster differs from product to product: measure it")
    else:
        line = kernel.place(chained).line
        yield rule.found(
            kernel, kernel.line, f"{evidence}, and the product in line {line} waits for another of its turn"
        )


def _residents(kernel: KernelReading, limits: UnitLimits, variant: Variant, config: Mapping[str, Any]) -> Residents:
    resources = resources_of(compile_variant(kernel, variant, config), kernel.target)
    return limits.residents(resources.registers or 0, resources.shared_bytes or 0, config["num_warps"])


def _waits(facts: Facts, product: ProductFact) -> bool:
    """Check whether an operand of a product is made of another product of the same turn."""
    others = {one.number for one in facts.products if one.loops == product.loops and one is not product}
    terms = (one for side in (product.left, product.right) for one in inner_terms(side.term))
    return any(one.name == "dot" and one.operands[1] in others for one in terms)


LOST = Rule(
    id="lost-occupancy",
    level="binary",
    symptom="a third slower and more: buffers of the pipeline keep a second block away, so that nothing runs while "
    "the only block waits",
    fix="one stage fewer, or smaller tiles; triton-ops explain shows the residents of a config",
    decide=_find_lost_occupancy,
)
