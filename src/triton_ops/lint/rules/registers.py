"""Configs that spill registers: compiled for a GPU that need not be here, where the tiles are known and large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

from triton_ops.analysis.tiers import resources_of
from triton_ops.backend.errors import one_line
from triton_ops.backend.typed_front_end import binary_of
from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.rules.base import Rule, Said

_OPTIONS = ("num_warps", "num_stages", "maxnreg", "num_ctas")
_WARPS = 4  # Triton's default
_HEAVY = 64
"""Elements per thread of the largest tile from which a config is compiled: below, nothing has spilled."""
_SPILLED_BYTES = 64  # a few registers that are spilled outside of loops cost nothing
_MOST_COMPILED = 1  # each takes up to seconds


def _spills(rule: Rule, kernel: KernelReading) -> Iterable[Said]:
    configs = list(_known_configs(kernel))
    if kernel.uses.descriptors and not kernel.given:
        yield rule.undecided(kernel, "the blocks of the descriptors that it is given are not in the file")
        return
    if not configs:
        if _largest(kernel.variants[0]) >= 1 << 12:
            yield rule.undecided(kernel, "the tiles and warps that it is launched with are not in the file")
        return
    for config in sorted(configs, key=lambda one: _weight(kernel, one), reverse=True)[:_MOST_COMPILED]:
        variant = kernel.with_values(config)
        warps = int(config.get("num_warps", _WARPS))
        if variant is None:
            yield rule.undecided(kernel, f"it cannot be lowered with {_shown(config)}")
        elif _largest(variant) / (warps * kernel.target.warp_size) >= _HEAVY:
            yield from _compiled(rule, kernel, variant, config)


def _compiled(rule: Rule, kernel: KernelReading, variant: Variant, config: Mapping[str, Any]) -> Iterator[Said]:
    options = {name: int(config[name]) for name in _OPTIONS if config.get(name)}
    (types, constants), target = variant.guess.specialised, kernel.target
    try:
        made = binary_of(kernel.function.function, types, constants, target, options)
        used = resources_of(made, target)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        yield rule.undecided(kernel, f"{target.arch} refuses {_shown(config)}: {one_line(error)}")
        return
    if (used.spill_bytes or 0) > _SPILLED_BYTES:
        warps = int(config.get("num_warps", _WARPS))
        held = _largest(variant) // (warps * target.warp_size)
        yield rule.found(
            kernel, kernel.line,
            f"compiled for {target.arch} with {_shown(config)} it takes {used.registers} registers and spills "
            f"{used.spill_bytes:,} bytes per thread; its largest tile alone has {held} elements per thread",
        )  # fmt: skip


def _known_configs(kernel: KernelReading) -> Iterator[dict[str, Any]]:
    """The configs of the decorators, and those that launches write out, where every tile has a value."""
    tiles = set(kernel.uses.tiles) & kernel.function.constants
    given_ones = (param for param in kernel.function.function.params if param.has_default)
    defaults = {param.name: getattr(param.default, "value", param.default) for param in given_ones}
    given = [dict(config) for config in kernel.configs]
    given += [{**one.constants, **one.options} for one in kernel.given[:1]]
    for launch in kernel.launches:
        values = {name: launch.literal(node) for name, node in launch.given.items()}
        given.append({name: value for name, value in values.items() if value is not None})
    if not given:
        given = [{}]
    for config in given:
        whole = {**{name: value for name, value in defaults.items() if name in tiles}, **config}
        if tiles <= set(whole) and all(isinstance(whole[name], int) for name in tiles):
            wanted = kernel.function.constants | set(_OPTIONS)
            yield {name: value for name, value in whole.items() if name in wanted}


def _weight(kernel: KernelReading, config: Mapping[str, Any]) -> float:
    sizes = [value for name, value in config.items() if name in kernel.uses.tiles and isinstance(value, int)]
    return prod(sizes) / int(config.get("num_warps", _WARPS))


def _largest(variant: Variant) -> int:
    """Elements of the largest tile that the kernel loads, stores, multiplies or reduces."""
    facts = variant.facts
    shapes = [access.type.shape for access in facts.accesses]
    shapes += [product.type.shape for product in facts.products]
    shapes += [value.type.shape for reduction in facts.reductions for value in reduction.given]
    return max((prod(shape) for shape in shapes), default=1)


def _shown(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items()) or "its defaults"


SPILL = Rule(
    id="register-spill",
    level="binary",
    symptom="slow by a large factor: values that do not fit into registers go to local memory and come back",
    fix="a smaller tile, more warps, fewer accumulators; triton-ops spills tries the cures",
    decide=_spills,
)
