"""The three documented config spaces, with helpers that turn a space into a list of configs.

The spaces are plain dicts from parameter name to candidate values. Nothing here depends on a device: whether a config
fits one is found out by trying it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from triton_ops.exceptions import ConfigValueError, EmptySpaceError, SettingsError

__all__ = [
    "FP8_GEMM_CONFIGS",
    "GATED_MLP_CONFIGS",
    "RMSNORM_ROPE_CONFIGS",
    "filter_valid_configs",
    "generate_configs",
    "get_default_config",
]

#: The documented space of `fused_rmsnorm_rope`: 45 configs, from the name of a parameter to its values.
RMSNORM_ROPE_CONFIGS: dict[str, list[Any]] = {
    "BLOCK_SIZE": [64, 128, 256, 512, 1024],
    "num_warps": [2, 4, 8],
    "num_stages": [1, 2, 3],
}

#: The documented space of `fused_gated_mlp`: 108 configs, from the name of a parameter to its values.
GATED_MLP_CONFIGS: dict[str, list[Any]] = {
    "BLOCK_M": [32, 64, 128],
    "BLOCK_N": [32, 64, 128],
    "BLOCK_K": [32, 64],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4],
}

#: The documented space of `fp8_gemm`: 216 configs, from the name of a parameter to its values.
FP8_GEMM_CONFIGS: dict[str, list[Any]] = {
    "BLOCK_M": [64, 128, 256],
    "BLOCK_N": [64, 128, 256],
    "BLOCK_K": [32, 64],
    "GROUP_SIZE_M": [4, 8],
    "num_warps": [4, 8],
    "num_stages": [3, 4, 5],
}

_DEFAULTS: dict[str, dict[str, Any]] = {
    "rmsnorm_rope": {"BLOCK_SIZE": 128, "num_warps": 4, "num_stages": 2},
    "gated_mlp": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3},
    "fp8_gemm": {
        "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_SIZE_M": 8,
        "num_warps": 4, "num_stages": 4,
    },
}  # fmt: skip


def generate_configs(config_space: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values, each as a new dict.

    Names keep their order; the last name's value changes fastest. An empty space has one combination: `[{}]`.

    Args:
        config_space: Parameter name to its candidate values, in the order in which they are tried.

    Returns:
        The configs, each a new dict, the last name's values fastest.

    Raises:
        EmptySpaceError: A parameter has no values.
        ConfigValueError: The space is no mapping from strings, or a parameter's values are no list.
    """
    if not isinstance(config_space, Mapping):
        raise ConfigValueError(
            f"a config space is a mapping from names to lists of values, not {config_space!r}",
            hint='write {"BLOCK_SIZE": [64, 128]}',
        )
    names = list(config_space)
    values = [_values_of(name, config_space[name]) for name in names]
    return [dict(zip(names, copy.deepcopy(combination), strict=True)) for combination in itertools.product(*values)]


def filter_valid_configs(
    configs: Iterable[Mapping[str, Any]],
    hidden_dim: int | None = None,
    intermediate_dim: int | None = None,
    M: int | None = None,
    N: int | None = None,
    K: int | None = None,
) -> list[dict[str, Any]]:
    """The configs whose blocks are not wastefully larger than the problem, in their order.

    The list may be empty. A bound of None drops no config, and a config without the name that a bound concerns is kept.

    Args:
        configs: Configs, such as those of `generate_configs`; the result holds copies of them.
        hidden_dim: Drops `BLOCK_SIZE` > hidden_dim.
        intermediate_dim: Columns of a gated MLP's output, which acts as N does: drops `BLOCK_N` > 2 · intermediate_dim.
        M: Drops `BLOCK_M` > 2 · M; up to half of a block may be masked.
        N: Drops `BLOCK_N` > 2 · N.
        K: Drops `BLOCK_K` > K.

    Raises:
        SettingsError: A bound is not a positive integer; it is a ValueError as well.
        ConfigValueError: `configs` is no list, a config is no mapping, or its block is not a number.
    """
    limits = [
        ("BLOCK_SIZE", _limit("hidden_dim", hidden_dim, 1)),
        ("BLOCK_N", _limit("intermediate_dim", intermediate_dim, 2)),
        ("BLOCK_M", _limit("M", M, 2)),
        ("BLOCK_N", _limit("N", N, 2)),
        ("BLOCK_K", _limit("K", K, 1)),
    ]
    active = [(name, limit) for name, limit in limits if limit is not None]
    return [copy.deepcopy(dict(config)) for config in _listed(configs) if _fits(config, active)]


def get_default_config(kernel_type: str) -> dict[str, Any]:
    """The config with which a kernel family runs untuned, as a new dict; `{}` for a family that is not known.

    Args:
        kernel_type: The family: `rmsnorm_rope`, `gated_mlp` or `fp8_gemm`.
    """
    return dict(_DEFAULTS.get(kernel_type, {}))


def _values_of(name: Any, listed: Any) -> list[Any]:
    if not isinstance(name, str):
        raise ConfigValueError(f"a parameter's name must be a string, not {name!r}", hint="use the keyword's name")
    # Sets have no order of their own that is the same in every process.
    if isinstance(listed, (str, bytes, Mapping, set, frozenset)) or not isinstance(listed, Iterable):
        raise ConfigValueError(
            f"parameter {name!r} has {listed!r} instead of a list of values",
            hint=f"write [{listed!r}] for a single value",
        )
    values = list(listed)
    if not values:
        raise EmptySpaceError(f"parameter {name!r} has no values", hint="give it at least one value, or leave it out")
    return values


def _limit(name: str, bound: Any, factor: int) -> int | None:
    if bound is None:
        return None
    if isinstance(bound, bool) or not isinstance(bound, Integral) or bound < 1:
        raise SettingsError(
            f"{name} is {bound!r}; it must be a positive integer", hint="leave it out to drop no config by it"
        )
    return int(bound) * factor


def _listed(configs: Any) -> Iterable[Any]:
    if isinstance(configs, Mapping) or not isinstance(configs, Iterable):
        raise ConfigValueError(
            f"configs is a {type(configs).__name__}; it must be a list of configs",
            hint="a space becomes one by generate_configs",
        )
    return configs


def _fits(config: Any, limits: list[tuple[str, int]]) -> bool:
    if not isinstance(config, Mapping):
        raise ConfigValueError(f"{config!r} is not a config", hint="give a list of dicts, as from generate_configs")
    for name, limit in limits:
        block = config.get(name)
        if block is None:
            continue
        if isinstance(block, bool) or not isinstance(block, (int, float)):
            raise ConfigValueError(f"{name} is {block!r}; it must be a number to be compared with {limit}")
        if block > limit:
            return False
    return True
