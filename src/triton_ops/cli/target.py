"""TARGET: from what stands on the command line to an operation or a function.

A shipped kernel's name, `package.module:object`, or `path/file.py:object`, where the object is an `Operation` or a
plain callable. Looking it up imports the module, as Python would.

KERNELS: the same, or only a module or a file, which stands for all kernels that it declares.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from triton_ops import kernels, settings
from triton_ops.backend import HasOperation, Operation
from triton_ops.base import fingerprint
from triton_ops.exceptions import NotLoadedError, TargetError, TritonKernelError
from triton_ops.ship import is_declared

_FORMS = "TARGET is a shipped kernel's name, package.module:object, or path/file.py:object"


def load_target(text: str, among: Mapping[str, Any] | None = None) -> Operation | Callable[..., Any]:
    """The operation or callable that TARGET names.

    Args:
        text: The TARGET.
        among: Where a file holds the TARGET, the objects that it may name beside shipped kernels, by the TARGET of
            each. None imports what is named, since somebody typed it.

    Raises:
        NotLoadedError: It is not among these objects.
        TargetError: It does not exist, cannot be imported, or is neither an operation nor callable.
    """
    place, colon, name = text.rpartition(":")
    if not colon:
        return _shipped(text)
    if among is None:
        return _usable(text, name, _loaded(text, place, name))
    if text not in among:
        raise NotLoadedError(
            f"{text} is not loaded; loaded are {', '.join(among) or 'shipped kernels alone'}",
            hint="a file loads no code: name it, if you trust it, with --kernels as well",
        )
    return _usable(text, name, among[text])


def load_object(text: str) -> Any:
    """The object that TARGET names, whatever it is: an operation, a function, a kernel with or without a decorator.

    Raises:
        TargetError: It does not exist, or cannot be imported.
    """
    place, colon, name = text.rpartition(":")
    return _loaded(text, place, name) if colon else _shipped(text)


def load_kernels(texts: Iterable[str]) -> dict[str, Any]:
    """The objects that KERNELS name, by the TARGET of each; those of a file or module are the ones that it declares.

    Raises:
        TargetError: One does not exist, cannot be imported, or declares no kernel.
    """
    objects: dict[str, Any] = {}
    for text in dict.fromkeys(texts):
        if ":" in text or text in kernels.names():
            objects[text] = load_object(text)
            continue
        module = _from_file(Path(text)) if text.endswith(".py") else _from_module(text)
        declared = {id(value): (name, value) for name, value in vars(module).items() if is_declared(value)}
        if not declared:
            raise TargetError(
                f"{text} declares no kernel: no operation, no chooser, and no function under a decorator for kernels",
                hint=f"name a function by itself: {text}:NAME",
            )
        earlier = [id(value) for value in objects.values()]  # a file may import what another one declares
        objects |= {f"{text}:{name}": value for place, (name, value) in declared.items() if place not in earlier}
    return objects


def operations_in(path: Path) -> list[Operation]:
    """The operations that a file has at its top level, in their order, each once; the file is imported.

    Raises:
        TargetError: It cannot be imported.
    """
    values = [value for value in vars(_from_file(path)).values() if not isinstance(value, type)]
    found = [value.operation if isinstance(value, HasOperation) else value for value in values]
    return list({id(one): one for one in found if isinstance(one, Operation)}.values())


def load_check(text: str) -> Callable[..., Any]:
    """The function that --check names, as a TARGET does.

    Raises:
        TargetError: It does not exist, cannot be imported, or is not callable.
    """
    place, _, name = text.rpartition(":")
    found = _loaded(text, place, name)
    if callable(found):
        return found  # type: ignore[no-any-return]
    raise TargetError(f"--check {text} is not callable", hint="name a function check(result, expected)")


def _loaded(text: str, place: str, name: str) -> Any:
    if not place or not name:
        raise TargetError(f"TARGET {text!r} lacks what stands {'after' if place else 'before'} the colon", hint=_FORMS)
    if place == "__main__":  # as records and misses name what a script or a notebook has defined
        raise TargetError(
            f"{name} was defined in the script or notebook that a program began with, and is not found by that name",
            hint="define it in a module that the program imports",
        )
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetError(
                f"{place} has no {name!r}; it has {_offers(module)}",
                hint="correct the name after the colon",
            )
        found = getattr(found, part)
    return found


def _usable(text: str, name: str, found: Any) -> Operation | Callable[..., Any]:
    if hasattr(found, "arg_names") or hasattr(found, "grid"):  # `@triton.jit`, `@triton.autotune`, a TritonKernel
        raise TargetError(
            f"{text} is a Triton kernel, and neither its arguments nor its reference are known",
            hint=f"make an Operation of it, name = Operation(..., TritonKernel({name}, grid), ...), and tune that",
        )
    if isinstance(found, HasOperation):  # a chooser
        return found.operation
    if isinstance(found, Operation) or (callable(found) and not isinstance(found, type)):
        return found
    kind = "class" if isinstance(found, type) else f"value of type {type(found).__name__}"
    raise TargetError(
        f"{text} is a {kind}, neither an Operation nor a function",
        hint="name an Operation, or a function that takes config values as keywords",
    )


def _shipped(name: str) -> Operation:
    if name in kernels.names():
        return kernels.load(name)
    if name.endswith(".py"):
        raise TargetError(f"{name} names a file, but nothing in it", hint=f"write {name}:NAME")
    raise TargetError(f"there is no kernel {name!r}; shipped are {', '.join(kernels.names())}", hint=_FORMS)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}", hint=_FORMS)
    _importable_from(path.resolve().parent)
    name = _free_name(path.resolve())
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be loaded as Python", hint=_FORMS)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    _imported(str(path), lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    return module


def _free_name(path: Path) -> str:
    """A name for the file's module: its own, unless another module has that, as the standard library's `json`."""
    taken = sys.modules.get(path.stem)
    free = taken is None and path.stem not in sys.stdlib_module_names
    same = taken is not None and getattr(taken, "__file__", None) == str(path)
    return path.stem if free or same else f"{path.stem}_{fingerprint(str(path))[:8]}"


def _from_module(name: str) -> ModuleType:
    if (here := settings.current_folder()) is not None:
        _importable_from(Path(here))
    module: ModuleType = _imported(name, lambda: importlib.import_module(name))
    return module


def _importable_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # as Python does for a script, so that its own imports work


def _imported(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except TritonKernelError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise TargetError(f"there is no module {missing}", hint=f"{_FORMS}") from error
        raise TargetError(f"{name} needs {missing}, which is not installed", hint=f"install {missing}") from error
    except (Exception, SystemExit) as error:
        package = _in_package(Path(name)) if "no known parent package" in str(error) else None
        raise TargetError(
            f"{name} cannot be imported: {type(error).__name__}: {error}",
            hint=f"name it as a part of its package: {package}"
            if package
            else "import it in Python to try; -v shows the trace",
        ) from error


def _in_package(path: Path) -> str:
    """How a file of a package is named instead: its module, and the folder from which that is found."""
    path = path.resolve()
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return f"{'.'.join(path.relative_to(root).with_suffix('').parts)}:NAME, in {root}"


def _offers(module: ModuleType) -> str:
    own = [
        n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]
    operations = [n for n, v in vars(module).items() if isinstance(v, Operation)]
    return ", ".join(dict.fromkeys([*operations, *own])) or "nothing of its own"
