"""Hooks and overriding files, which a list of `triton.Config`s brings beside the values of configs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from triton_ops.backend.roles import Arguments
from triton_ops.base import require
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Config

Hook: TypeAlias = Callable[[dict[str, Any]], Any]
OVERRIDE = "ir_override"


def is_triton_config(value: Any) -> bool:
    """Tell whether a value is a `triton.Config`, told without importing Triton."""
    return hasattr(value, "all_kwargs") and hasattr(value, "pre_hook")


def values_of(config: Any) -> Mapping[str, Any]:
    """Tunables and launch options of a config of either kind; what a `triton.Config` leaves open does not appear."""
    values: Mapping[str, Any] = config.all_kwargs() if is_triton_config(config) else config
    return values


def kernel_and_space(kernel: Any, space: Any) -> tuple[Any, Any]:
    """A kernel with the hooks and files that the configs of a space bring, and the space without hooks.

    A space that is no list of `triton.Config`s and overrides no compiled code is given back as it is, with the kernel.

    Raises:
        KernelTypeError: The configs have hooks, and the kernel takes none.
    """
    if isinstance(space, Mapping):
        values = space.get(OVERRIDE)
        configs: list[Any] = [{OVERRIDE: value} for value in (values if isinstance(values, (list, tuple)) else ())]
        plain: Any = space
    elif isinstance(space, (list, tuple)):
        configs = [one for one in space if is_triton_config(one) or (isinstance(one, Mapping) and OVERRIDE in one)]
        plain = [_without_hook(one) for one in space]
    else:
        return kernel, space
    if not configs or not hasattr(kernel, "with_configs"):
        if any(getattr(one, "pre_hook", None) for one in configs):
            raise KernelTypeError(
                f"the configs have a pre_hook, and {kernel.name} is no Triton kernel", hint="call it in the function"
            )
        return kernel, plain
    return kernel.with_configs(configs), plain


def _without_hook(config: Any) -> Any:
    if not is_triton_config(config) or config.pre_hook is None:
        return config
    plain = copy.copy(config)
    plain.pre_hook = None
    return plain


def overrides_of(configs: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The files that the configs put in the place of compiled code."""
    return tuple(sorted({str(config[OVERRIDE]) for config in configs if config.get(OVERRIDE)}))


def hook_of(configs: Sequence[Any]) -> Hook | None:
    """The hook of the configs, each with its own if they differ; None if no config has one."""
    hooks = [(config, config.pre_hook) for config in configs if is_triton_config(config) and config.pre_hook]
    if not hooks:
        return None
    first = hooks[0][1]
    if len(hooks) == len(configs) and all(hook is first for _, hook in hooks):
        hook: Hook = first
        return hook
    return HookByConfig(tuple((Config(values_of(config)), hook) for config, hook in hooks))


@dataclass(frozen=True)
class HookByConfig:
    """Calls the hook of the config that has the values it is called with; none if there is no such config.

    A launch option that no config sets does not appear in a space, nor in the values.
    """

    hooks: Sequence[tuple[Config, Hook]]

    def __call__(self, values: dict[str, Any]) -> None:
        """Call the hook of the config that these arguments and values belong to."""
        for config, hook in self.hooks:
            if all(values[name] == value for name, value in config.items() if name in values):
                hook(values)
                return


def both_hooks(first: Hook | None, second: Hook | None) -> Hook | None:
    """One hook that calls both, each once, or the one that there is."""
    if first is None or second is None or first is second:
        return first or second
    return HooksInOrder((first, second))


@dataclass(frozen=True)
class HooksInOrder:
    """Calls several hooks, one after the other."""

    hooks: tuple[Hook, ...]

    def __call__(self, values: dict[str, Any]) -> None:
        """Call each with the arguments and values by name."""
        for hook in self.hooks:
            hook(values)


def given_to_hook(arguments: Mapping[str, Any], grid: Any, config: Config) -> dict[str, Any]:
    """The argument of a hook before a launch, as by Triton."""
    return {**arguments, "grid": grid, "warmup": False, **config}


def with_hook_run(hook: Hook, arguments: Arguments, grid: Any, config: Config) -> tuple[Arguments, bool]:
    """The arguments as a hook leaves them, and whether it writes tensors; their memory stays as it is.

    The hook runs on tensors without memory; what it does to descriptors is then taken over.
    """
    torch = require("torch", "running a hook")
    substitutes = arguments.map(lambda tensor: torch.empty_like(tensor, device="meta"))
    before = [tensor._version for tensor in substitutes.tensors()]
    hook(given_to_hook(substitutes.keyword, grid, config))
    writes = before != [tensor._version for tensor in substitutes.tensors()]
    memory = iter(list(arguments.tensors()))
    return substitutes.map(lambda _: next(memory)), writes
