"""Loading a kernel's function in another process: by import, or from the part of a file that defines it.

A script is not run again: only those statements of its top level are executed that the function needs, so neither a
tune nor tensors of the script come a second time. The statements keep their line numbers, because Triton's name of a
binary depends on them.
"""

from __future__ import annotations

import ast
import dis
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from triton_ops.exceptions import TargetError
from triton_ops.processes.locate import Location

_READS = {"LOAD_NAME", "LOAD_GLOBAL"}
_WRITES = {"STORE_NAME", "STORE_GLOBAL"}


def reloaded(location: Location) -> Any:
    """The object at a location.

    Raises:
        TargetError: The object cannot be loaded; the message says why.
    """
    try:
        module = _imported(location) or _defining_part(location)
        return getattr(module, location.name)
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"{location.name} of {location.file} cannot be loaded in another process: {type(error).__name__}: {error}",
            hint="define the kernel in a module of its own",
        ) from error


def _imported(location: Location) -> ModuleType | None:
    """The module, imported by name; None for a script, a name that leads to another file, or a failing import."""
    if location.script:
        return None
    try:
        spec = importlib.util.find_spec(location.module)
        if spec is None or spec.origin != location.file:
            return None
        return importlib.import_module(location.module)
    except (Exception, SystemExit):  # noqa: BLE001 - other parts may need a GPU; the kernel's part is loaded alone
        return None


def _defining_part(location: Location) -> ModuleType:
    path = Path(location.file)
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    tree.body = needed(tree.body, location.name)
    module = ModuleType(location.module)
    module.__file__ = str(path)
    module.__package__ = location.module.rpartition(".")[0]
    sys.modules[location.module] = module
    sys.path.insert(0, str(path.parent))
    exec(compile(tree, str(path), "exec", dont_inherit=True), vars(module))
    return module


def needed(statements: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Those statements of a module that define `name`, and the names that it refers to, in their order."""
    reads_and_writes = [_names(statement) for statement in statements]
    wanted, kept = {name}, set[int]()
    while True:
        more = {
            number
            for number, (_, writes) in enumerate(reads_and_writes)
            if number not in kept and (writes & wanted or "*" in writes)
        }
        if not more:
            return [statement for number, statement in enumerate(statements) if number in kept]
        kept |= more
        wanted = wanted.union(*(reads_and_writes[number][0] for number in more))


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The global names that a statement reads, also inside functions, and those that it writes."""
    if isinstance(statement, ast.ImportFrom) and (statement.module == "__future__" or statement.names[0].name == "*"):
        return set(), {"*"}
    code = compile(ast.Module([statement], []), "<statement>", "exec", dont_inherit=True)
    reads = {name for part in _codes(code) for name in _arguments(part, _READS)}
    return reads, set(_arguments(code, _WRITES))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _arguments(code: CodeType, operations: Iterable[str]) -> Iterator[str]:
    return (step.argval for step in dis.get_instructions(code) if step.opname in operations)
