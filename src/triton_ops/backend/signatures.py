"""The parameters of functions, which are kept: `inspect.signature` takes as long as reading a record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

_Parameters = Mapping[str, inspect.Parameter]
_kept: WeakKeyDictionary[FunctionType, tuple[Any, Any, Any, _Parameters]] = WeakKeyDictionary()


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters by name.

    Raises:
        TypeError, ValueError: It is a builtin that does not tell them, or no function.
    """
    if not isinstance(function, FunctionType) or vars(function):  # a wrapper's attributes say what it wraps
        return inspect.signature(function).parameters
    code, defaults, keyword_defaults = function.__code__, function.__defaults__, function.__kwdefaults__
    kept = _kept.get(function)
    if kept is not None and kept[0] is code and kept[1] is defaults and kept[2] is keyword_defaults:
        return kept[3]
    parameters = inspect.signature(function).parameters
    _kept[function] = (code, defaults, keyword_defaults, parameters)
    return parameters
