"""Faces of rooms: packages whose names are imported from their files when they are first used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

TYPE_CHECKING = False  # type checkers take it for true, whatever it says
FACES: dict[str, dict[str, str]] = {}
"""For each package that was imported the names that it shows, each with the module that has it."""
F = TypeVar("F", bound=Callable[..., Any])


def lazy_face(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package; a use of a name imports its module and no other.

    The package imports the same names under `TYPE_CHECKING`, as `from module import name as name`, where type checkers,
    editors and import-linter find them.

    Args:
        package: The package's name.
        names: For each module, as `.file` if it is in the package, the names that are shown, with spaces between them.

    Raises:
        AttributeError: Of `__getattr__`, for a name that the package does not show.
        MissingDependencyError: Of `__getattr__`, for a name whose module needs a package of an extra.
    """
    modules = FACES[package] = {
        name: package + module if module.startswith(".") else module
        for module, text in names.items()
        for name in text.split()
    }
    own = sys.modules[package]

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=own)
        try:
            value = getattr(import_module(modules[name]), name)
        except ImportError as error:
            raise _instead(error, f"{package}.{name}") from None
        setattr(own, name, value)
        return value

    return get, lambda: sorted({*vars(own), *modules}), sorted(modules)


def imported(module: str, name: str, purpose: str) -> Any:
    """What a module calls by this name.

    Raises:
        MissingDependencyError: It needs a package that is not installed; `purpose` says what for.
    """
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise _instead(error, purpose) from None


def _instead(error: ImportError, purpose: str) -> ImportError:
    """The error that names a missing package, without the imports on the way, which would hide it; else the same."""
    missing = import_module("triton_ops.exceptions").MissingDependencyError
    absent: ImportError | None = missing.of_import(error, purpose)
    return error if absent is None else absent.with_traceback(None)


class Upward(Generic[F]):
    """A function of a higher room, or of another package, that a lower one calls, imported when it is first called.

    `places` has its module and its name there, by what it is for; the package itself fills them in. Where that package
    is not installed, the first use raises MissingDependencyError.
    """

    places: ClassVar[dict[str, tuple[str, str]]] = {}
    function: F

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose

    def __getattr__(self, name: str) -> Any:
        if name != "function":
            raise AttributeError(f"{self.purpose!r} has no {name}", name=name, obj=self)
        self.function = imported(*self.places[self.purpose], self.purpose)
        return self.function


def before_forks(note: Callable[[], object]) -> None:
    """Have a function called before this process forks, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=note)
