"""Kernels compiled for a GPU that need not be here, with configs that the source or an operation names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triton_ops.backend import Built, binary_of
from triton_ops.lint.kernel import KernelReading, Variant

OPTIONS = ("num_warps", "num_stages", "maxnreg", "num_ctas")
WARPS = 4  # Triton's default


def compile_variant(kernel: KernelReading, variant: Variant, config: Mapping[str, Any]) -> Built:
    """Compile a variant with the launch options of a config.

    Cost: 0.1 to some seconds; 1 ms from Triton's disk cache.

    Raises:
        Exception: Whatever the compiler raises.
    """
    options = {name: int(config[name]) for name in OPTIONS if config.get(name)}
    types, constants = variant.guess.specialised
    return binary_of(kernel.function.function, types, constants, kernel.target, options)


def known_configs(kernel: KernelReading) -> Iterator[dict[str, Any]]:
    """The configs of the decorators, of an operation, and of launches that write them out, where every tile is known.

    Each has `num_warps`.
    """
    tiles = set(kernel.uses.tiles) & kernel.function.constants
    optional = (param for param in kernel.function.function.params if param.has_default)
    defaults = {param.name: getattr(param.default, "value", param.default) for param in optional}
    configs = [dict(config) for config in kernel.configs]
    configs += [{**one.constants, **one.options} for one in kernel.guesses[:1]]
    for launch in kernel.launches:
        values = {name: launch.literal(node) for name, node in launch.arguments.items()}
        configs.append({name: value for name, value in values.items() if value is not None})
    for config in configs or [{}]:
        whole = {**{name: value for name, value in defaults.items() if name in tiles}, **config}
        if tiles <= set(whole) and all(isinstance(whole[name], int) for name in tiles):
            names = kernel.function.constants | set(OPTIONS)
            values = {name: value for name, value in whole.items() if name in names}
            yield {**values, "num_warps": int(values.get("num_warps") or WARPS)}


def in_words(config: Mapping[str, Any]) -> str:
    """A config in words."""
    return " ".join(f"{name}={value}" for name, value in config.items())
