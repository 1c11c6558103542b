"""The location of an operation or function for another process: a module's name, or a file, and a name in it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from triton_ops.backend import Operation
from triton_ops.backend.unwrap import unwrap
from triton_ops.exceptions import TargetError


@dataclass(frozen=True)
class Location:
    """Where to import one object from.

    Attributes:
        module: The module's name.
        file: The module's file, for a module that the other process cannot import by name, such as a script.
        name: The object's name in the module.
        script: Whether the module is the main program, which another process must not run again.
    """

    module: str
    file: str
    name: str
    script: bool = False


def locate(operation: Operation) -> Location | None:
    """The location of an operation that is a variable of a module; None for others, such as one made in a function."""
    for module in _modules_of(operation):
        name = next((name for name, value in vars(module).items() if value is operation), None)
        if name is not None:
            return _location(module, name)
    return None


def locate_in(module: str, value: object, name: str) -> Location | None:
    """The location of `value` as the variable `name` of a module; None if it is not, or the module has no file."""
    found = sys.modules.get(module)
    return _location(found, name) if found is not None and vars(found).get(name) is value else None


def load(location: Location) -> Operation:
    """The operation at a location; its module is imported if it is not yet.

    Raises:
        TargetError: There is no operation at the location.
    """
    module = sys.modules.get(location.module) or _imported(location)
    found = getattr(module, location.name, None)
    if not isinstance(found, Operation):
        raise TargetError(f"{location.file} has no operation {location.name!r}")
    return found


def _modules_of(operation: Operation) -> list[ModuleType]:
    """The loaded modules of the kernel's function and of the arguments' function, then the packages of both."""
    functions = [unwrap(getattr(operation.kernel, "function", None)), unwrap(operation.arguments)]
    names = [getattr(function, "__module__", "") or "" for function in functions]
    packages = [name.rpartition(".")[0] for name in names]
    found = (sys.modules.get(name) for name in dict.fromkeys([*names, *packages]))
    return [module for module in found if module is not None]


def _location(module: ModuleType, name: str) -> Location | None:
    file = getattr(module, "__file__", None)
    if file is None:
        return None  # an interactive session
    path = Path(file).resolve()
    if module.__name__ != "__main__":
        return Location(module.__name__, str(path), name)
    package = f"{module.__package__}." if module.__package__ else ""  # of a program started as `python -m package.name`
    return Location(f"{package}{path.stem}", str(path), name, script=True)


def _imported(location: Location) -> ModuleType:
    """The module, imported by its name if the name leads to the same file, else from the file."""
    try:
        found = importlib.util.find_spec(location.module)
    except (ImportError, ValueError):
        found = None
    if found is not None and found.origin == location.file:
        return importlib.import_module(location.module)
    sys.path.insert(0, str(Path(location.file).parent))
    spec = importlib.util.spec_from_file_location(location.module, location.file)
    if spec is None or spec.loader is None:
        raise TargetError(f"{location.file} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[location.module] = module
    spec.loader.exec_module(module)
    return module
