"""The parameters of functions, asked once: `inspect.signature` takes as long as reading a record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

_Parameters = Mapping[str, inspect.Parameter]
_kept: WeakKeyDictionary[FunctionType, tuple[tuple[Any, ...], _Parameters]] = WeakKeyDictionary()


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters by name.

    Raises:
        TypeError, ValueError: It is a builtin that does not tell them, or no function.
    """
    if not isinstance(function, FunctionType) or vars(function):  # a wrapper's attributes say what it wraps
        return inspect.signature(function).parameters
    now = (function.__code__, function.__defaults__, function.__kwdefaults__)
    found = _kept.get(function)
    if found is None or any(one is not other for one, other in zip(found[0], now, strict=True)):
        found = _kept[function] = (now, inspect.signature(function).parameters)
    return found[1]
