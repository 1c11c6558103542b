"""The config space of a kernel at one call, where its author has written no list of configs, or one to be widened."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from triton_ops.backend import Arguments, KernelSource, Layers, ReadSpace
from triton_ops.exceptions import SpaceError
from triton_ops.space import ConfigSpace, UnlistedSpace

_SAMPLE = 1 << 16  # elements of a tensor


def space_of_call(function: Any, values: Mapping[str, Any], grid: Any) -> UnlistedSpace:
    """The space that is read from a kernel for one call; what the call gives is no tunable.

    The default has the values of the kernel's signature; where that has none for some tile, it is made up. Raises
    SpaceError for a constant that is no tile, and that neither the call nor the signature gives.
    """
    read, source = ReadSpace.of(function, values, grid=grid), KernelSource.read(Layers.of(function)[-1])
    defaults = source.defaults
    needed = source.constants - values.keys() - defaults.keys() - Layers.heuristics(function).keys()
    unknown = {name: read.reasons[name] for name, value in read.derived.items() if value is None}
    if lacking := [f"{name} ({why})" for name, why in {**read.meaning, **unknown}.items() if name in needed]:
        raise SpaceError(
            f"{Layers.unwrap(function).__name__} is called without {', '.join(lacking)}",
            hint="give it in the call: what is found by measuring are tiles and launch options alone",
        )
    signed = [{name: defaults[name] for name in read.tunables}] if read.tunables.keys() <= defaults.keys() else []
    return UnlistedSpace.around(read.space, signed, read.tunables)


def space_around(
    function: Any, values: Mapping[str, Any], seeds: Sequence[Mapping[str, Any]], names: Mapping[str, Any], grid: Any
) -> UnlistedSpace:
    """The space around configs that somebody has written: other values of `names` that are tiles, and of options.

    The other names keep their values in `names`, and so does a constant that covers an extent.
    """
    read = ReadSpace.of(function, values, grid=grid)
    tunables = {**names, **{name: tile for name, tile in read.tunables.items() if name in names}, **read.options}
    rules = tuple(rule for rule in read.constraints if tunables.keys() >= {*rule.names})
    usual = {name: value for name, value in read.first.items() if name in read.options}
    return UnlistedSpace.around(ConfigSpace(tunables, rules), [{**usual, **seed} for seed in seeds], read.tunables)


def hides_tiles(space: ConfigSpace, values: Mapping[str, Any], outputs: Collection[str]) -> bool:
    """Tell whether all data that a launch reads are equal, so that wrong tiles may give the results of right ones."""
    read = Arguments(keyword={name: value for name, value in values.items() if name not in outputs}).tensors()
    parts = [tensor.flatten()[:_SAMPLE] for tensor in read if tensor.numel() > 1]
    numbers = (part.float() if part.is_floating_point() else part for part in parts)
    tiles = getattr(space, "tiles", ())
    return bool(tiles and parts) and all(bool((part == part[0]).all()) for part in numbers)
