"""The origin of functions and classes: the user's own code, or an installed package that is told by its version."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import PurePath
from typing import Any

_STDLIB = tuple({f"{sysconfig.get_paths()[name]}/" for name in ("stdlib", "platstdlib")})
_SITE_FOLDERS = {"site-packages", "dist-packages"}
_VERSIONED = {"torch", "triton"}  # part of a kernel's identity by version, so their code need not be read
_BESIDE = frozenset({"triton_ops._optional", "triton_ops.exceptions"})
"""Modules of this package that say how a package is imported and what errors tell, which is nothing that a kernel does.

Shipped kernels refer to them, and their winners must outlive a changed hint.
"""


def label(value: Any) -> str:
    """The module and qualified name of a function or class; the type's of another object."""
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        value, name = type(value), type(value).__qualname__
    return f"{getattr(value, '__module__', '')}.{name}"


def is_users(module: str, path: str | None, home: str) -> bool:
    """Whether code is read, and not told by the version of its package.

    Args:
        module: The name of the module it is in.
        path: The file it was compiled from; None takes the module's.
        home: The package of the kernel: installed or not, a package's own helpers are part of its kernels.
    """
    if module in _BESIDE:
        return False
    top = module.partition(".")[0]
    if home not in _VERSIONED and top == home and top != "builtins":
        return True
    if path is None or path.startswith("<"):  # code that `exec` made belongs where its module does
        path = _file_of(module) or path
    if path is None:  # the module has no file: it is `__main__` of a prompt, or one of the interpreter's
        return top not in sys.stdlib_module_names or top == "__main__"
    return is_users_path(path)


def _file_of(module: str) -> str | None:
    """The file of a loaded module, or of what it is a part of: modules in a compiled one may have no file."""
    while module:
        file: str | None = getattr(sys.modules.get(module), "__file__", None)
        if file is not None:
            return file
        module = module.rpartition(".")[0]
    return None


@lru_cache(maxsize=4096)
def is_users_path(path: str) -> bool:
    """Whether a file belongs neither to Python nor to an installed package."""
    told = (*_STDLIB, "<frozen", *_versioned_folders())
    return not path.startswith(told) and _SITE_FOLDERS.isdisjoint(PurePath(path).parts)


def _versioned_folders() -> list[str]:
    """The folders of torch and Triton, which may be a checkout of their source or any other place."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in _VERSIONED]
    return [f"{PurePath(file).parent}/" for file in files if file]


def version_of(module: str) -> str | None:
    """The version that an installed package tells of itself; None of Python's, the user's and our own modules."""
    top = module.partition(".")[0]
    found = None if module in _BESIDE else sys.modules.get(top)
    if found is None or top in sys.stdlib_module_names or is_users(top, None, ""):
        return None
    version = vars(found).get("__version__")
    return str(version) if isinstance(version, str) else None
