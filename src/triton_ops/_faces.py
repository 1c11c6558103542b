"""Faces of rooms: packages whose names are imported from their files when they are first used."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
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
            value = getattr(imported(modules[name]), name)
        except ImportError as error:
            missing = import_module("triton_ops.exceptions").MissingDependencyError
            if (absent := missing.of_import(error, f"{spec.name}.{name}")) is None:
                raise
            raise absent.with_traceback(None) from None  # the imports on the way would hide the line that helps
        setattr(package, name, value)
        return value

    return get, lambda: sorted({*vars(package), *modules}), sorted(modules)


_MOST_S = 30.0  # waited for imports before a fork: whoever imports may need what the thread that forks holds
_imports = threading.Condition()  # whoever forks holds it meanwhile
_importers: list[int] = []  # the threads that import, each once for every import that it is in


def imported(name: str) -> ModuleType:
    """Import a module. A fork waits until other threads have done so: its child would wait for the module for ever."""
    _guard_forks("logging" in sys.modules)
    with _imports:
        _importers.append(threading.get_ident())
    try:
        return import_module(name)
    finally:
        with _imports:
            _importers.remove(threading.get_ident())
            _imports.notify_all()


@cache
def _guard_forks(_has_logging: bool) -> None:
    """Have forks wait for imports; once more when `logging` is there, whose lock an import may need.

    A fork calls first what was registered last, and takes that lock only afterwards.
    """
    before_forks(_await_imports, after_in_parent=_imports.release, after_in_child=_forget_imports)


def _await_imports() -> None:
    _imports.acquire()
    _imports.wait_for(lambda: {*_importers} <= {threading.get_ident()}, _MOST_S)


def _forget_imports() -> None:
    _importers[:] = [one for one in _importers if one == threading.get_ident()]  # of the one thread that is here
    _imports.release()


REGISTERED: dict[str, Callable[..., Any]] = {}
"""Functions of higher rooms that a lower one calls by a task's name; the package itself registers them."""


def register(task: str, module: str, name: str) -> None:
    """Have a task done by a function of a module that is imported at the first call."""

    def first(*args: Any, **kwargs: Any) -> Any:
        function = REGISTERED[task] = getattr(imported(module), name)
        return function(*args, **kwargs)

    REGISTERED[task] = first


def before_forks(note: Callable[[], object], **after: Callable[[], object]) -> None:
    """Have a function called before this process forks, and others after it, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=note, **after)


def shown(spec: Any) -> dict[str, str]:
    """The names that a package shows, each with the module that has it."""
    return {name: module for module, name in _IMPORT.findall(spec.loader.get_source(spec.name))}
