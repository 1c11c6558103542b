"""Definitions that a translation needs: found in the source of their modules, from some functions on downwards.

A definition is a function, a class or a constant of a module of this package. What it uses is found by its names,
through imports, so that only the part of a module that is needed has to be translated.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

_PACKAGE = "triton_ops."
_TYPES = ("typing", "collections.abc", "__future__")


class UntranslatableError(NotImplementedError):
    """Python that the translation does not know; the code that is translated has to be written in another way."""


@dataclass(frozen=True)
class Definition:
    """A function, class or constant of a module.

    Attributes:
        module: Name of the module.
        name: Its name there.
        node: Its source.
    """

    module: str
    name: str
    node: ast.stmt

    @property
    def script_name(self) -> str:
        """Its name in the script, which names of other modules cannot equal."""
        return f"{self.module.rpartition('.')[2]}${self.name}"


@cache
def _statements(module: str) -> dict[str, ast.stmt]:
    """The statements of a module by the names that they define or import."""
    found: dict[str, ast.stmt] = {}
    for node in _seen_by_checkers(ast.parse(inspect.getsource(import_module(module))).body):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found |= {one.targets[0].id: one for one in _single(node)}  # type: ignore[attr-defined]
    return found


def _seen_by_checkers(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with the imports by which a face shows its names to type checkers."""
    for node in body:
        yield from node.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else [node]


def _single(node: ast.Assign) -> Iterator[ast.Assign]:
    """An assignment to several names as one to each."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for name, value in zip(target.elts, node.value.elts, strict=True):
                yield ast.Assign([name], value)
        elif isinstance(target, ast.Name):
            yield ast.Assign([target], node.value)


def definition_of(module: str, name: str) -> Definition | str:
    """What a name means in a module: a definition, else the full name of what Python or another package defines.

    Raises:
        UntranslatableError: The module has no such name.
    """
    node = _statements(module).get(name)
    if node is None:
        if hasattr(builtins, name):
            return name
        raise UntranslatableError(f"{module} has no {name}")
    if isinstance(node, ast.Import):
        return name
    if not isinstance(node, ast.ImportFrom):
        return Definition(module, name, node)
    source = str(node.module)
    original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
    return definition_of(source, original) if source.startswith(_PACKAGE) else f"{source}.{original}"


def needed(roots: list[tuple[str, str]]) -> list[Definition]:
    """The definitions that some functions or classes use, each after those that it uses, in an order that stays."""
    found: dict[tuple[str, str], Definition] = {}
    begun: set[tuple[str, str]] = set()

    def add(one: Definition) -> None:
        if (one.module, one.name) in begun:
            return
        begun.add((one.module, one.name))
        for name in sorted(_used(one.node)):
            other = _meaning(one.module, name)
            if isinstance(other, Definition):
                add(other)
        found[one.module, one.name] = one

    for module, name in roots:
        root = definition_of(module, name)
        if isinstance(root, str):
            raise UntranslatableError(f"{root} is not defined in this package")
        add(root)
    return list(found.values())


def _meaning(module: str, name: str) -> Definition | str:
    """What a name that is used means; a local one means nothing, which is found out where it is translated."""
    if name not in _statements(module):
        return name
    found = definition_of(module, name)
    return name if isinstance(found, Definition) and is_only_type(found) else found


def is_only_type(found: Definition) -> bool:
    """Whether a definition is there for type checkers alone: an alias, or a protocol."""
    node = found.node
    if isinstance(node, ast.ClassDef):
        return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"


def _used(node: ast.AST) -> set[str]:
    """Names that run when a definition does; not those of annotations, decorators, bases and checks of new objects."""
    return {one.id for one in _running(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _running(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases") or is_hook(node):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_hook(child):
                yield from _running(child)


def is_hook(node: ast.AST) -> bool:
    """Whether a node is a method that Python calls by itself, such as a check of a new object."""
    return isinstance(node, ast.FunctionDef) and node.name.startswith("__")


def root_of(function: Callable[..., Any] | type) -> tuple[str, str]:
    """The module and the name of a function or class, as `needed` takes it."""
    return function.__module__, function.__name__
