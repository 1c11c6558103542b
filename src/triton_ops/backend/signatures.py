"""The parameters of functions, which are kept: `inspect.signature` takes as long as reading a record."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from triton_ops.backend.origins import unwrap
from triton_ops.backend.roles import Arguments, described
from triton_ops.space import Tunable

_Parameters = Mapping[str, inspect.Parameter]
_signatures: WeakKeyDictionary[FunctionType, tuple[Any, Any, Any, _Parameters]] = WeakKeyDictionary()


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters by name.

    Raises:
        TypeError, ValueError: It is a builtin that does not tell them, or no function.
    """
    if not isinstance(function, FunctionType) or vars(function):  # a wrapper's attributes say what it wraps
        return inspect.signature(function).parameters
    code, defaults, keyword_defaults = function.__code__, function.__defaults__, function.__kwdefaults__
    entry = _signatures.get(function)
    if entry is not None and entry[0] is code and entry[1] is defaults and entry[2] is keyword_defaults:
        return entry[3]
    parameters = inspect.signature(function).parameters
    _signatures[function] = (code, defaults, keyword_defaults, parameters)
    return parameters


def layers(function: Any) -> list[Any]:
    """A kernel with the kernels below its decorators, the innermost last."""
    layers = [function]
    while hasattr(inner := getattr(layers[-1], "fn", None), "run"):
        layers.append(inner)
    return layers


def without_autotune(function: Any) -> Any:
    """A kernel with its other decorators, which see the values of the config too."""
    if hasattr(function, "configs"):
        return without_autotune(function.fn)
    inner = getattr(function, "fn", None)
    if not hasattr(inner, "run") or (below := without_autotune(inner)) is inner:
        return function
    duplicate = copy.copy(function)
    duplicate.fn = below
    return duplicate


def heuristics(function: Any) -> set[str]:
    """The parameters that `@triton.heuristics` gives their values."""
    return {name for layer in layers(function)[:-1] for name in getattr(layer, "values", ())}


def required_parameters(function: Any) -> list[str]:
    """The parameters that must be given."""
    parameters = parameters_of(unwrap(function)).values()
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def is_gluon(function: Any) -> bool:
    """Tell whether it is a kernel of Gluon."""
    innermost = layers(function)[-1]
    return bool(hasattr(innermost, "is_gluon") and innermost.is_gluon())


Made = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_OF_RUN = {"self", "grid", "warmup"}  # the names of Triton's `run` itself


def defaults_of(function: Any) -> dict[str, Any]:
    """The values of a kernel's parameters that need not be given, by name."""
    parameters = parameters_of(unwrap(function)).values()
    return {param.name: param.default for param in parameters if param.default is not param.empty}


def placed(function: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by place and by name as Triton's `run` of a kernel takes them.

    What is called like a parameter of `run` itself is given by its place, with all that stands before it.
    """
    names, rest, positional = function.arg_names, dict(keywords), list(args)
    while _OF_RUN & rest.keys() & {*names[len(positional) :]}:
        name = names[len(positional)]
        positional.append(rest.pop(name) if name in rest else defaults_of(function)[name])
    return positional, rest


def missing_parameters(
    function: Any, tunables: Iterable[str], values: Mapping[str, Any], maker: Made | None
) -> list[str]:
    """The parameters that get a value from nowhere.

    Args:
        function: The kernel.
        tunables: A config, the tunables of a space by name, or names alone.
        values: The arguments by name: tensors, specs, or anything else.
        maker: Makes further arguments from arguments and config. It is asked only if something is missing, about
            tensors without memory, and the first value of each tunable. Where it cannot answer, every parameter may
            be its own but the constexpr ones.
    """
    filled = {*values, *tunables, *heuristics(function)}
    missing = [name for name in required_parameters(function) if name not in filled]
    if not missing or maker is None:
        return missing
    try:
        own = set(maker({**defaults_of(function), **_without_memory(values), **_first_config(tunables)}))
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
