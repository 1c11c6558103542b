"""Functions as the user wrote them, inside of their decorators, each with its origin.

A package is installed where an installer puts packages, or where the folder or archive of the search path that holds it
has an installer's list of its files, as `pip install --target`, a PEX file and a wheel have. A project that is
installed to be edited is the user's: its files lie beside no such list.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import distributions
from itertools import accumulate
from pathlib import Path, PurePath
from types import FunctionType
from typing import Any

from triton_ops import settings

INTERPRETED = "InterpretedFunction"  # the class of a kernel that runs as Python
_MOST_LAYERS = 16
_JIT_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")


def unwrap(function: Any) -> Any:
    """The plain Python function inside `@triton.jit`, `functools.wraps` and bound methods; else the object itself."""
    *_, innermost = function_layers(function)
    return innermost


def function_layers(function: Any) -> Iterator[Any]:
    """A function with the functions inside it, the innermost last."""
    layer = function
    yield layer
    for _ in range(_MOST_LAYERS):
        if isinstance(layer, (FunctionType, type)) and "__wrapped__" not in vars(layer):
            return
        inner = getattr(layer, "__wrapped__", None) or getattr(layer, "__func__", None)
        if inner is None and is_triton(layer):
            inner = layer.fn
        if inner is None:
            return
        layer = inner
        yield layer


def is_triton(value: Any) -> bool:
    """Tell whether a value is a Triton kernel, or a decorator of Triton's around one."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("fn", "run", "arg_names"))


def compile_options(kernel: Any) -> Iterator[tuple[str, str]]:
    """The options of `triton.jit` that change what is compiled, as text; those that were left out do not appear."""
    for name in _JIT_OPTIONS:
        if value := getattr(kernel, name, None):
            yield name, repr(value)


_STDLIB = tuple({  # where Python is installed, and where it was loaded from, which may be an archive
    f"{folder}/"
    for folder in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), PurePath(functools.__file__).parent)
})  # fmt: skip
_SITE_FOLDERS = {"site-packages", "dist-packages"}
_VERSIONED = {"torch", "triton"}  # part of a kernel's identity by version, so their code need not be read
NEEDS = frozenset({
    *_VERSIONED, "cloudpickle", "msgspec", "numpy", "platformdirs", "rich", "scipy", "threadpoolctl", "typer",
})  # fmt: skip
"""What this package imports of others, which every process that it starts finds by name, wherever it is."""
_NAMED = NEEDS | {"triton_ops"}
_BESIDE = {"triton_ops.base.optional": "triton_ops._optional", "triton_ops.exceptions": "triton_ops.exceptions"}
"""Modules of this package that say how a package is imported and what errors tell, which is nothing that a kernel does.

Shipped kernels refer to them, and their winners must outlive a changed hint, and a module that moves: each counts under
a name that stays.
"""
_KERNELS = "triton_ops.kernels."
_FORMER_MODULES = {
    "dtype_name": "triton_ops.tensors",
    **dict.fromkeys(("matrix_descriptor", "_made", "_laid_out"), "triton_ops.backend.descriptors"),
}
"""The helpers of shipped kernels that lie outside of them, by name: each counts as of the module that it was in when
the first winners were shipped, wherever it lies now.
"""
_FORMER_FILES = {
    "add_up": "column_sums",
    "corner": "gluon_parts",
    **dict.fromkeys(
        ("inner_kernel", "logarithms_of", "dq_walked", "dq_kernel", "dkv_walked", "dkv_kernel"),
        "attention.backward_kernel",
    ),
}
"""The same of parts of shipped kernels, by the file below theirs."""


def label(value: Any) -> str:
    """The module and qualified name of a function or class; the type's of another object."""
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        value, name = type(value), type(value).__qualname__
    module = str(getattr(value, "__module__", ""))
    if module.startswith(_KERNELS):
        module = _KERNELS + _FORMER_FILES.get(name, module.removeprefix(_KERNELS))
    elif module.startswith("triton_ops."):
        module = _FORMER_MODULES.get(name, _BESIDE.get(module, module))
    return f"{module}.{name}"


def is_users(module: str, path: str | None, home: str) -> bool:
    """Tell whether code is read, and not told by the version of its package.

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


def is_installed(module: str) -> bool:
    """Tell whether a module belongs to Python, to this package or what it needs, or to an installed package."""
    if module.partition(".")[0] in _NAMED:
        return True
    package = sys.modules.get(module)
    if package is None or module == "__main__":
        return False
    file = getattr(package, "__file__", None)
    if file is None:
        return getattr(getattr(package, "__spec__", None), "origin", None) in ("built-in", "frozen")
    return not is_users_path(file)


def is_found_again(module: str) -> bool:
    """Tell whether another process that imports a module by its name finds the same file as this one has.

    What is looked for is the outermost package that has a file, which brings its modules with it.
    """
    top, *inner = module.split(".")
    names = accumulate(inner, "{}.{}".format, initial=top)
    files = ((name, getattr(sys.modules.get(name), "__file__", None)) for name in names)
    name, file = next(((name, file) for name, file in files if file is not None), (top, None))
    if module not in sys.modules or file is None or top in {*_NAMED, "__main__"}:
        return True
    if top in sys.stdlib_module_names and not is_users_path(file):
        return True
    place = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", None)  # of a package without a file
    specs = (finder.find_spec(name, place) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    spec = next((spec for spec in specs if spec is not None), None)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()


@lru_cache(maxsize=4096)
def is_users_path(path: str) -> bool:
    """Tell whether a file belongs neither to Python nor to an installed package."""
    places = (*_STDLIB, "<frozen", *_places_of_needs())
    return not (path.startswith(places) or _SITE_FOLDERS.intersection(PurePath(path).parts) or is_listed(path))


def _places_of_needs() -> list[str]:
    """The folders or files of what this package needs, which may be a checkout of their source or any other place."""
    origins = [getattr(sys.modules.get(name), "__file__", None) for name in NEEDS]
    files = [PurePath(file) for file in origins if file]
    return [f"{file.parent}/" if file.stem == "__init__" else str(file) for file in files]


def is_listed(path: str) -> bool:
    """Tell whether the folder or archive of the search path that holds a file lists it among those of a package."""
    here = settings.current_folder() or "/"
    file, *entries = (os.path.normpath(os.path.join(here, str(each))) for each in (path, *sys.path))  # noqa: PTH118
    file = file.removesuffix("c") if file.endswith(".pyc") else file
    return any(file[len(entry) + 1 :] in _listed_in(entry) for entry in entries if file.startswith(f"{entry}/"))


@lru_cache(maxsize=256)
def _listed_in(entry: str) -> frozenset[str]:
    """The modules that installers list in a folder or an archive of the search path, as relative paths."""
    lines = (line.partition(",")[0] for record in _records(entry) for line in record.splitlines())
    return frozenset(line for line in lines if line.endswith((".py", *EXTENSION_SUFFIXES)))


def _records(entry: str) -> Iterator[str]:
    """The lists of files that installers have left; one that cannot be read lists nothing."""
    for package in distributions(path=[entry]):
        try:
            yield package.read_text("RECORD") or ""
        except (OSError, ValueError, zipfile.BadZipFile):  # noqa: PERF203 - each is read by itself
            continue


def version_of(module: str) -> str | None:
    """The version that an installed package tells of itself; None of Python's, the user's and our own modules."""
    top = module.partition(".")[0]
    package = None if module in _BESIDE else sys.modules.get(top)
    if package is None or top in sys.stdlib_module_names or is_users(top, None, ""):
        return None
    version = vars(package).get("__version__")
    return str(version) if isinstance(version, str) else None
