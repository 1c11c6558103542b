"""A chooser found again by the variable of a module that holds it, as pickles of it are read."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

from triton_ops.backend.users_code import is_found_again
from triton_ops.exceptions import KernelTypeError

_PROGRAMS = ("__main__", "__mp_main__")  # another process runs another program, or does not run this one again


def by_variable(chooser: Any) -> tuple[Any, tuple[str, str]]:
    """What a pickle holds of a chooser: the names of a module and of its variable.

    Raises:
        KernelTypeError: No module that another process could import holds it.

    Cost: a walk over the variables of all imported modules, some milliseconds.
    """
    for module, variable, value in _variables(chooser):
        if value is chooser and module not in _PROGRAMS and is_found_again(module):
            return named, (module, variable)
    raise KernelTypeError(
        f"the chooser {chooser.name} cannot be pickled: it is no variable of a module that another process can import",
        hint="assign it at the top of a module that is imported, or send its functions and call `choose` there",
    )


def named(module: str, variable: str) -> Any:
    """The chooser that a variable of a module holds.

    Raises:
        KernelTypeError: The module cannot be imported, or its variable holds no chooser.
    """
    try:
        found = getattr(importlib.import_module(module), variable)
    except (ImportError, AttributeError) as error:
        raise KernelTypeError(f"the chooser {module}.{variable} is not found here: {error}") from error
    if not hasattr(found, "implementations"):
        raise KernelTypeError(f"{module}.{variable} is {found!r} here, and no chooser")
    return found


def _variables(chooser: Any) -> Iterator[tuple[str, str, Any]]:
    """Variables of imported modules: first of those that hold the implementations, where it likely stands too."""
    functions = [each.function for each in chooser.implementations.values()]
    homes = [getattr(function, "__module__", None) or "" for function in functions]
    for module in dict.fromkeys([*homes, *sys.modules]):
        for variable, value in [*getattr(sys.modules.get(module), "__dict__", {}).items()]:
            yield module, variable, value
