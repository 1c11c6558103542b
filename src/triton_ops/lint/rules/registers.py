"""Configs that spill registers: compiled for a GPU that need not be here, where the tiles are known and large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

from triton_ops.backend import one_line
from triton_ops.compilation import resources_of
from triton_ops.lint.compiled import compile_variant, in_words, known_configs
from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.rules.base import Rule, Statement

_HEAVY = 64
"""Elements per thread of the largest tile from which a config is compiled: below, nothing has spilled."""
_SPILLED_BYTES = 64  # a few registers that are spilled outside of loops cost nothing
_MOST_COMPILED = 1  # each takes up to seconds


def _find_spills(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    configs = list(known_configs(kernel))
    if kernel.uses.descriptors and not kernel.guesses:
        yield rule.undecided(kernel, "the blocks of the descriptors that it is given are not in the file")
        return
    if not configs:
        if _largest(kernel.variants[0]) >= 1 << 12:
            yield rule.undecided(kernel, "the tiles and warps that it is launched with are not in the file")
        return
    for config in sorted(configs, key=lambda one: _weight(kernel, one), reverse=True)[:_MOST_COMPILED]:
        variant = kernel.with_values(config)
        warps = config["num_warps"]
        if variant is None:
            yield rule.undecided(kernel, f"it cannot be lowered with {in_words(config)}")
        elif _largest(variant) / (warps * kernel.target.warp_size) >= _HEAVY:
            yield from _decide_compiled(rule, kernel, variant, config)


def _decide_compiled(
    rule: Rule, kernel: KernelReading, variant: Variant, config: Mapping[str, Any]
) -> Iterator[Statement]:
    target = kernel.target
    try:
        resources = resources_of(compile_variant(kernel, variant, config), target)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        yield rule.undecided(kernel, f"{target.arch} refuses {in_words(config)}: {one_line(error)}")
        return
    if (resources.spill_bytes or 0) > _SPILLED_BYTES:
        warps = config["num_warps"]
        elements = _largest(variant) // (warps * target.warp_size)
        yield rule.found(
            kernel, kernel.line,
            f"compiled for {target.arch} with {in_words(config)} it takes {resources.registers} registers and spills "
            f"{resources.spill_bytes:,} bytes per thread; its largest tile alone has {elements} elements per thread",
        )  # fmt: skip


def _weight(kernel: KernelReading, config: Mapping[str, Any]) -> float:
    sizes = [value for name, value in config.items() if name in kernel.uses.tiles and isinstance(value, int)]
    return prod(sizes) / int(config["num_warps"])


def _largest(variant: Variant) -> int:
    facts = variant.facts
    shapes = [access.type.shape for access in facts.accesses]
    shapes += [product.type.shape for product in facts.products]
    shapes += [value.type.shape for reduction in facts.reductions for value in reduction.inputs]
    return max((prod(shape) for shape in shapes), default=1)


SPILL = Rule(
    id="register-spill",
    level="binary",
    symptom="slow by a large factor: values that do not fit into registers go to local memory and come back",
    fix="a smaller tile, more warps, fewer accumulators; triton-ops spills tries the cures",
    decide=_find_spills,
)
