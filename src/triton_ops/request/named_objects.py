"""Objects by the text that names them: `package.module:object` or `path/file.py:object`.

Looking one up imports the module, as Python would.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from triton_ops import settings
from triton_ops.backend import HasOperation, Operation
from triton_ops.base import fingerprint
from triton_ops.exceptions import TargetError, TritonKernelError

TARGET_FORMS = "TARGET is a shipped kernel's name, package.module:object, or path/file.py:object"


def named_object(text: str) -> Any:
    """The object that a text names after its last colon, whatever it is.

    Raises:
        TargetError: It does not exist, or its module cannot be imported.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise TargetError(
            f"TARGET {text!r} lacks what stands {'after' if place else 'before'} the colon", hint=TARGET_FORMS
        )
    if place == "__main__":  # as records and misses name what a script or a notebook has defined
        raise TargetError(
            f"{name} was defined in the script or notebook that a program began with, and is not found by that name",
            hint="define it in a module that the program imports",
        )
    module = module_at(place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise TargetError(
                f"{place} has no {name!r}; it has {_offers(module)}", hint="correct the name after the colon"
            )
        value = getattr(value, part)
    return value


def module_at(place: str) -> ModuleType:
    """The imported module of a name, or of a file whose name ends in `.py`.

    Raises:
        TargetError: It does not exist, or cannot be imported.
    """
    return _from_file(Path(place)) if place.endswith(".py") else _from_module(place)


def operations_in(path: Path) -> list[Operation]:
    """The operations that a file has at its top level, in their order, each once; the file is imported.

    Raises:
        TargetError: It cannot be imported.
    """
    values = [value for value in vars(_from_file(path)).values() if not isinstance(value, type)]
    operations = [value.operation if isinstance(value, HasOperation) else value for value in values]
    return list({id(one): one for one in operations if isinstance(one, Operation)}.values())


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}", hint=TARGET_FORMS)
    _importable_from(path.resolve().parent)
    name = _free_name(path.resolve())
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be loaded as Python", hint=TARGET_FORMS)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    _imported(str(path), lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    return module


def _free_name(path: Path) -> str:
    """A name for the file's module: its own, unless another module has that, as the standard library's `json`."""
    namesake = sys.modules.get(path.stem)
    free = namesake is None and path.stem not in sys.stdlib_module_names
    same = namesake is not None and getattr(namesake, "__file__", None) == str(path)
    return path.stem if free or same else f"{path.stem}_{fingerprint(str(path))[:8]}"


def _from_module(name: str) -> ModuleType:
    if (folder := settings.current_folder()) is not None:
        _importable_from(Path(folder))
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
            raise TargetError(f"there is no module {missing}", hint=TARGET_FORMS) from error
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
    """The name of a file of a package: its module, and the folder from which that is found."""
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
