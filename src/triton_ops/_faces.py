"""Faces of rooms: packages whose names are imported from their files when they are first used."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_IMPORT = re.compile(r"^    from (triton_ops[\w.]*) import (?:\(\s*)?(\w+) as \2\b", re.MULTILINE)


def lazy_face(spec: Any) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package, from the imports that it shows to type checkers.

    Each name stands once in the package's source, as `from module import name as name` under `TYPE_CHECKING`, where
    type checkers, editors and import-linter find it too. A use of the name imports that module and no other.

    Args:
        spec: The package's `__spec__`.

    Raises:
        AttributeError: Of `__getattr__`, for a name that the package does not show.
        MissingDependencyError: Of `__getattr__`, for a name whose module needs a package of an extra.
    """
    modules, package = shown(spec), sys.modules[spec.name]

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {spec.name!r} has no attribute {name!r}", name=name, obj=package)
        try:
            value = getattr(import_module(modules[name]), name)
        except ImportError as error:
            missing = import_module("triton_ops.exceptions").MissingDependencyError
            if (absent := missing.of_import(error, f"{spec.name}.{name}")) is None:
                raise
            raise absent.with_traceback(None) from None  # the imports on the way would hide the line that helps
        setattr(package, name, value)
        return value

    return get, lambda: sorted({*vars(package), *modules}), sorted(modules)


REGISTERED: dict[str, Callable[..., Any]] = {}
"""Functions of higher rooms that a lower one calls by a task's name; the package itself registers them."""


def register(task: str, module: str, name: str) -> None:
    """Have a task done by a function of a module that is imported at the first call."""

    def first(*args: Any, **kwargs: Any) -> Any:
        function = REGISTERED[task] = getattr(import_module(module), name)
        return function(*args, **kwargs)

    REGISTERED[task] = first


def before_forks(note: Callable[[], object]) -> None:
    """Have a function called before this process forks, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=note)


def shown(spec: Any) -> dict[str, str]:
    """The names that a package shows, each with the module that has it."""
    return {name: module for module, name in _IMPORT.findall(spec.loader.get_source(spec.name))}
