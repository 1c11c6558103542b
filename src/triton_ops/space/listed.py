"""Explicit lists of configs, given as mappings or as `triton.Config` objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton_ops.exceptions import SpaceError
from triton_ops.space.config import Config

_TRITON_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "ir_override": None}


def flat_configs(configs: Sequence[Any]) -> Iterator[Config]:
    """Mappings and `triton.Config` objects as configs with the same names.

    Raises:
        SpaceError: A config is neither, or has a `pre_hook`, which a stored config cannot have.
    """
    triton_configs = [config for config in configs if not isinstance(config, Mapping)]
    optional = [
        name
        for name in ("num_ctas", "maxnreg", "ir_override")
        if any(_option(config, name) != _TRITON_OPTIONS[name] for config in triton_configs)
    ]
    for config in configs:
        yield (Config(config) if isinstance(config, Mapping) else _flat(config, ["num_warps", "num_stages", *optional]))


def values_of_config(config: Any) -> Mapping[str, Any]:
    """The values of a mapping or of a `triton.Config`, as they were given."""
    found: Mapping[str, Any] = config if isinstance(config, Mapping) else config.kwargs
    return found


def _flat(config: Any, options: list[str]) -> Config:
    if not isinstance(getattr(config, "kwargs", None), Mapping):
        raise SpaceError(f"{config!r} is neither a mapping nor a triton.Config", hint="give a list of either")
    if getattr(config, "pre_hook", None) is not None:
        raise SpaceError(
            f"triton.Config ({config}) has a pre_hook, which a stored configuration cannot hold",
            hint="give the list itself as the space, or the hook to the kernel: TritonKernel(..., pre_hook=...)",
        )
    own = {name: value for name, value in _brought(config).items() if name not in _TRITON_OPTIONS}
    return Config({**own, **{name: _option(config, name) for name in options}})


def _brought(config: Any) -> Mapping[str, Any]:
    """What a config brings to a launch, which a class of the caller's may give in its own way."""
    found: Mapping[str, Any] = config.all_kwargs() if hasattr(config, "all_kwargs") else getattr(config, "kwargs", {})
    return found


def _option(config: Any, name: str) -> Any:
    return _brought(config).get(name, getattr(config, name, None))
