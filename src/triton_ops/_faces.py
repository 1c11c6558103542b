"""Faces of rooms: packages whose names are imported from their files when they are first used."""

from __future__ import annotations

import builtins
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar, cast

FACES: dict[str, dict[str, str]] = {}
"""For each package that was imported the names that it shows, each with the module that has it."""
_NOTING = threading.RLock()
"""Held in a fork too, so that a child has Python's own import statement, and finds the lock free."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_NOTING.acquire, after_in_parent=_NOTING.release, after_in_child=_NOTING.release)
F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def lazy_face(package: str) -> Iterator[None]:
    """Make the imports of the block lazy: a later use of a name imports its module and no other.

    They are written `from module import name as name`, as type checkers, editors and import-linter want them. Inside of
    the block this package's own import statements only note their names; all others import as always.

    The package then has `__getattr__`, `__dir__` and `__all__`. `__getattr__` raises AttributeError for a name that the
    package does not show, and MissingDependencyError for one whose module needs a package of an extra.
    """
    own, modules = sys.modules[package], FACES.setdefault(package, {})
    names = vars(own)

    def note(module: str, into: Any = None, local: Any = None, shown: Any = (), level: int = 0) -> Any:
        if into is not names:
            return imports(module, into, local, shown, level)
        modules.update(dict.fromkeys(shown, module))
        return SimpleNamespace(**dict.fromkeys(shown))

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=own)
        try:
            value = getattr(import_module(modules[name]), name)
        except ImportError as error:
            raise _instead(error, f"{package}.{name}") from None
        setattr(own, name, value)
        return value

    with _NOTING:
        imports, builtins.__import__ = builtins.__import__, cast("Any", note)
        try:
            yield
        finally:
            builtins.__import__ = imports
    for name in modules:
        del names[name]
    names.update(__getattr__=get, __dir__=lambda: sorted({*names, *modules}), __all__=sorted(modules))


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
