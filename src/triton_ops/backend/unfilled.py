"""Which parameters of a Triton kernel get no value, also where a function makes some of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from triton_ops.backend.base import Arguments
from triton_ops.backend.decorators import heuristics, layers, required
from triton_ops.backend.signatures import parameters_of
from triton_ops.backend.stand_in import described
from triton_ops.backend.unwrap import unwrap
from triton_ops.space import Tunable

Made = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_OF_RUN = {"self", "grid", "warmup"}  # the names of Triton's `run` itself


def defaults_of(function: Any) -> dict[str, Any]:
    """The values of a kernel's parameters that need not be given, by name."""
    parameters = parameters_of(unwrap(function)).values()
    return {param.name: param.default for param in parameters if param.default is not param.empty}


def placed(function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by place and by name as Triton's `run` of a kernel takes them.

    What is called like a parameter of `run` itself is given by its place, with all that stands before it.
    """
    names, left, given = function.arg_names, dict(named), list(args)
    while _OF_RUN & left.keys() & {*names[len(given) :]}:
        name = names[len(given)]
        given.append(left.pop(name) if name in left else defaults_of(function)[name])
    return given, left


def unfilled(function: Any, tunables: Iterable[str], values: Mapping[str, Any], made: Made | None) -> list[str]:
    """The parameters that get a value from nowhere.

    Args:
        function: The kernel.
        tunables: A config, the tunables of a space by name, or names alone.
        values: The arguments by name: tensors, specs, or anything else.
        made: Makes further arguments from arguments and config. It is asked only if something is missing, about
            tensors without memory, and the first value of each tunable. Where it cannot answer, every parameter may
            be its own but the constexpr ones.
    """
    filled = {*values, *tunables, *heuristics(function)}
    missing = [name for name in required(function) if name not in filled]
    if not missing or made is None:
        return missing
    try:
        own = set(made({**defaults_of(function), **_without_memory(values), **_first_config(tunables)}))
    except Exception as error:  # noqa: BLE001 - the user's own function; a launch will say why
        if isinstance(error, KeyError) and error.args[:1] and error.args[0] in missing:
            return [error.args[0]]
        own = {param.name for param in layers(function)[-1].params if not param.is_constexpr}
    return [name for name in missing if name not in own]


def _without_memory(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return described(Arguments(keyword=dict(values)), light=True).keyword


def _first_config(tunables: Iterable[str]) -> dict[str, Any]:
    """The config, or the first value of each tunable; empty where only names are known."""
    if not isinstance(tunables, Mapping):
        return {}
    return {name: next(iter(each)) if isinstance(each, Tunable) else each for name, each in tunables.items()}
