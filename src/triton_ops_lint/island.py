"""The kernels of a Python file without the rest of it: nothing is run that no kernel needs.

A file may launch kernels when it is imported, parse a command line, or need packages that are not here. Of its top
level only those statements are run that define a name which a kernel or its decorators use, and what these use in
turn. Of modules that lie beside the file, or in its package, the same is taken.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import linecache
import sys
from collections.abc import Iterable, Iterator
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from triton_ops.backend import CandidateError, standing_in
from triton_ops.base import NamedFile, require
from triton_ops.device import Target
from triton_ops.exceptions import TargetError
from triton_ops_lint.apart import STEPS, LostStepError
from triton_ops_lint.plain import is_plain_import, why_not_plain

COMPILED_FOR = "sm_90"
_DEEPEST = 16  # files of which each takes names from the next one


class Island:
    """The part of a file's top level that its kernels need; `failures` are names that could not be had, with why."""

    def __init__(self, path: Path, package: str = "", depth: int = 0) -> None:
        self.path, self._package, self._depth = path, package, depth
        self.text, self.tree = parsed_file(path)
        self.failures: dict[str, str] = {}
        name = f"{package}.{path.stem}" if package else path.stem
        self._module = ModuleType(name)
        self._module.__file__ = str(path)
        self._module.__dict__["__package__"] = package  # which relative imports need
        self._visited: set[int] = set()
        self._definitions: dict[str, list[int]] = {}
        for at, statement in enumerate(self.tree.body):
            for bound in bound_names(statement):
                self._definitions.setdefault(bound, []).append(at)

    def value(self, name: str) -> Any:
        """The value of a name of the top level; raises LookupError, which says how, if it has none or that fails."""
        self._need([name])
        if name in self._module.__dict__:
            return self._module.__dict__[name]
        raise LookupError(self.failures.get(name, f"{self.path.name} defines no {name}"))

    def _places(self, names: Iterable[str]) -> set[int]:
        """The statements by which names are given values: those of `import *` for one that no other gives any."""
        others = self._definitions.get("*", [])
        return {at for name in names for at in self._definitions.get(name, others)}

    def statements_of(self, names: Iterable[str]) -> list[ast.stmt]:
        """The statements of the top level that give any of these names a value, in their order."""
        return [self.tree.body[at] for at in sorted(self._places(names))]

    def _need(self, names: Iterable[str]) -> None:
        for at in sorted(self._places(names) - self._visited):
            if at in self._visited:  # meanwhile, by a statement before it
                continue
            self._visited.add(at)
            statement = self.tree.body[at]
            self._need(used_names(statement))
            self._run(statement)

    def _run(self, statement: ast.stmt) -> None:
        where = f"line {statement.lineno} of {self.path}"
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                with self._noting(statement, [alias.asname or alias.name.partition(".")[0]]):
                    STEPS.begin(f"import of {alias.name} in {where}")
                    with _importable_neighbours(self.path), _compiled_kernels():
                        self._module.__dict__.update(self._imported(statement, alias))
            return
        with self._noting(statement, bound_names(statement)):
            STEPS.begin(where)
            if STEPS.only_reads and (why := why_not_plain(statement, self._module.__dict__)):
                for name in bound_names(statement):  # what an earlier statement gave it may not be its value
                    if not isinstance(self._module.__dict__.get(name), ModuleType):
                        self._module.__dict__.pop(name, None)
                raise LostStepError(f"it is not run, since {why}")
            stand_in = standing_in(Target.named(COMPILED_FOR), lambda *_launch: None)
            # under the file's own name and lines, by which Triton finds the source of a kernel
            with _importable_neighbours(self.path), _compiled_kernels(), stand_in:
                exec(compile(ast.Module([statement], []), str(self.path), "exec"), self._module.__dict__)

    @contextlib.contextmanager
    def _noting(self, statement: ast.stmt, names: Iterable[str]) -> Iterator[None]:
        """Inside, a failure of a statement is that of the names that it defines."""
        try:
            yield
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - the file's own code: its failure is the answer for these names
            reason = str(error) if isinstance(error, LostStepError) else CandidateError.one_line(error)
            self.failures.update(dict.fromkeys(names, f"line {statement.lineno} fails: {reason}"))

    def _imported(self, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> dict[str, Any]:
        if isinstance(statement, ast.Import):
            top = alias.name.partition(".")[0]
            module = self._module_of(alias.name, alias.asname or top)
            return {alias.asname: module} if alias.asname else {top: sys.modules[top]}
        bound = alias.asname or alias.name
        place = module_file(self.path, self._package, statement.level, statement.module or "")
        # Of a neighbour only what is asked for is run; its module is imported where that does not give the name.
        if place is not None and alias.name != "*" and self._depth < _DEEPEST:
            with contextlib.suppress(LookupError):
                return {bound: island_of(place, self._depth + 1).value(alias.name)}
            inner = module_file(self.path, self._package, statement.level, f"{statement.module or ''}.{alias.name}")
            if inner is not None:
                return {bound: _Lazy(island_of(inner, self._depth + 1))}
        module = self._module_of("." * statement.level + (statement.module or ""), bound)
        if alias.name == "*":
            names = getattr(module, "__all__", None) or [one for one in vars(module) if not one.startswith("_")]
            return {one: getattr(module, one) for one in names}
        if not hasattr(module, alias.name):
            return {bound: importlib.import_module(f"{module.__name__}.{alias.name}")}
        return {bound: getattr(module, alias.name)}

    def _module_of(self, name: str, bound: str) -> ModuleType:
        if STEPS.only_reads and not is_plain_import(name, bound):
            raise LostStepError(f"{name} is not imported, since that could run its code")
        return importlib.import_module(name, self._package or None)


class _Lazy(ModuleType):
    """A module of which only what is asked for is made."""

    def __init__(self, island: Island) -> None:
        super().__init__(island.path.stem)
        self.__dict__["_island"] = island

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_island"].value(name)
        except LookupError as error:
            raise AttributeError(str(error)) from error


_islands: dict[tuple[str, float], Island] = {}


def island_of(path: Path, depth: int = 0) -> Island:
    """The island of a file; made once for a content of it."""
    key = (str(path), path.stat().st_mtime)
    if key not in _islands:
        _islands[key] = Island(path, ".".join(path.parent.relative_to(root_of(path)).parts), depth)
    return _islands[key]


def root_of(path: Path) -> Path:
    """The folder beside whose packages, or in which, a file lies."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def module_file(path: Path, package: str, level: int, module: str) -> Path | None:
    """The file of a module that lies beside `path` or in its package; None for any other."""
    if not level and package and module.partition(".")[0] != package.partition(".")[0]:
        return None
    root = path.parents[min(level, len(path.parents)) - 1] if level else root_of(path)
    parts = [part for part in module.split(".") if part]
    place = root.joinpath(*parts)
    for file in (place / "__init__.py", place.with_suffix(".py") if parts else place / "__init__.py"):
        if file.is_file():
            return file.resolve()
    return None


def source_text(path: Path) -> str:
    """The text of a file or a notebook's cell of Python; raises OSError, SyntaxError or UnicodeDecodeError."""
    cell = linecache.getlines(str(path)) if str(path) in linecache.cache and not path.exists() else []
    return "".join(cell) or decode_source(NamedFile(path).read())


def text_if_readable(path: Path) -> str:
    """As `source_text`; empty where that cannot be read."""
    with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
        return source_text(path)
    return ""


def parsed_file(path: Path) -> tuple[str, ast.Module]:
    """The text of a file and its syntax; raises TargetError if it cannot be read, or is no Python."""
    try:
        STEPS.begin(f"parsing of {path}")
        text = source_text(path)
    except (OSError, SyntaxError, UnicodeDecodeError, LostStepError) as error:
        raise TargetError(f"{path} cannot be read: {error}", hint="name a file of Python source") from error
    try:
        return text, ast.parse(text, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}, line {line}" if line else str(path)
        reason = getattr(error, "msg", str(error)) or "it is nested too deeply"
        raise TargetError(f"{where} does not parse: {reason}", hint="correct the file") from error


_FILLING = ("append", "extend", "insert", "update", "setdefault", "add")  # methods of lists, dicts and sets


def bound_names(statement: ast.stmt) -> list[str]:
    """The names that a statement of the top level gives a value, or whose list, dict or set it fills."""
    return list(dict.fromkeys(_bound(statement)))


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        yield from (inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name))
    elif isinstance(node, ast.Attribute) and node.attr in _FILLING and isinstance(node.value, ast.Name):
        yield node.value.id
    if isinstance(node, ast.Lambda):
        return
    for inner in ast.iter_child_nodes(node):
        yield from _bound(inner)


def used_names(node: ast.AST) -> list[str]:
    """The names that a statement reads, those inside of functions included, without those of Python itself."""
    names = (one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    return [name for name in dict.fromkeys(names) if not hasattr(builtins, name)]


@contextlib.contextmanager
def _importable_neighbours(path: Path) -> Iterator[None]:
    """Inside, modules that lie beside the file, or beside its package, are found, as Python finds them for a script."""
    folder, before = str(root_of(path)), list(sys.path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = before  # whatever the file's own code has done to it


@contextlib.contextmanager
def _compiled_kernels() -> Iterator[None]:
    """Inside, `triton.jit` makes kernels that are compiled, whatever the environment says of the interpreter."""
    runtime = require("triton", "reading kernels").knobs.runtime
    with runtime.scope():
        runtime.interpret = False
        yield
