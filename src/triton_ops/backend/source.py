"""What a kernel is, told from its source: the function with everything of the user's that it calls.

The fingerprint changes when the code's meaning can change: the function, its defaults, the functions and classes that
it refers to, and the plain values of globals and closures. It does not change with comments, docstrings, formatting,
the line it stands on, the version of Python, or the space that a tuning decorator names. Other packages count by the
names that are used of them; their versions belong elsewhere. What a list, a dictionary or an object holds is not
looked at: it may change with every call.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from triton_ops._hashing import fingerprint

_STDLIB = tuple({f"{sysconfig.get_paths()[name]}/" for name in ("stdlib", "platstdlib")})
_SITE_FOLDERS = {"site-packages", "dist-packages"}
_VERSIONED = {
    "torch",
    "triton",
}  # part of a kernel's identity by version, so their code need not be read
_TUNING_DECORATORS = {"autotune", "operation"}  # they name what may be tried, not what is computed
_SILENT_FIELDS = {"ctx", "kind", "type_comment"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum)


def source_fingerprint(function: Any) -> str:
    """Names `function` and everything it refers to by content.

    Cost: parses the source of every reached function; a millisecond for a typical kernel.
    """
    root = unwrap(function)
    reader = _Reader(str(getattr(root, "__module__", "")).partition(".")[0])
    reader.add("root", root)
    return fingerprint(reader.parts)


def unwrap(function: Any) -> Any:
    """The plain Python function inside `@triton.jit`, `functools.wraps` and bound methods; else the object itself."""
    seen = function
    for _ in range(16):
        if isinstance(seen, (FunctionType, type)) and "__wrapped__" not in vars(seen):
            break
        inner = getattr(seen, "__wrapped__", None) or getattr(seen, "__func__", None) or getattr(seen, "fn", None)
        if inner is None:
            break
        seen = inner
    return seen


class _Reader:
    """Collects the parts of one fingerprint; every function and class is read once.

    Attributes:
        parts: What counts, by the name under which it was reached.
    """

    def __init__(self, home: str) -> None:
        self.parts: dict[str, str] = {}
        self._home = home
        self._seen: dict[int, Any] = {}  # by identity; holds the objects, so that no identity is used twice

    def add(self, name: str, value: Any) -> None:
        """Read `value`, which the code calls `name`."""
        if isinstance(value, _PLAIN) or type(value).__name__ == "dtype":
            self.parts[name] = repr(value)
        elif isinstance(value, tuple):
            self.parts[name] = f"tuple of {len(value)}"
            for position, item in enumerate(value):
                self.add(f"{name}[{position}]", item)
        elif type(value).__name__ == "constexpr":
            self.add(name, value.value)
        elif isinstance(value, functools.partial):
            self.add(name, (value.func, value.args, tuple(sorted(value.keywords.items()))))
        elif isinstance(value, ModuleType):
            self.parts[name] = value.__name__
        else:
            self.parts[name] = _label(inner := unwrap(value))
            self._read(inner if hasattr(inner, "__code__") or isinstance(inner, type) else type(inner))

    def _read(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, type):
            self._read_class(value)
        elif self._counts(value):
            label = self._new_label(value)
            self.parts[label] = _normal_source(value)
            for used, found in _references(value):
                self.add(f"{label}.{used}", found)

    def _read_class(self, cls: type) -> None:
        if issubclass(cls, BaseException):
            return  # how an error reads does not change what is computed
        methods = {name: found for name, found in _methods(cls) if self._counts(found)}
        if not methods:
            return
        label = self._new_label(cls)
        self.parts[label] = "class"
        plain = {name: value for name, value in vars(cls).items() if name[:2] != "__" and isinstance(value, _PLAIN)}
        for name, value in [*plain.items(), *methods.items()]:
            self.add(f"{label}.{name}", value)
        for position, base in enumerate(cls.__bases__):
            self.add(f"{label}.base[{position}]", base)

    def _new_label(self, value: Any) -> str:
        """The value's label, numbered if another one, such as a second lambda, has it already."""
        label, number = f"<{_label(value)}>", 1
        while label in self.parts:
            number += 1
            label = f"<{_label(value)}#{number}>"
        return label

    def _counts(self, function: Any) -> bool:
        code = getattr(function, "__code__", None)
        if not isinstance(code, CodeType):
            return False
        module = str(getattr(function, "__module__", ""))
        if self._home not in _VERSIONED and module.partition(".")[0] == self._home:
            return True  # installed or not, a package's own helpers are part of its kernels
        path = code.co_filename
        if path.startswith("<"):  # made by `exec`: it belongs where its module does
            path = getattr(sys.modules.get(module), "__file__", None) or path
        return not path.startswith((*_STDLIB, "<frozen")) and _SITE_FOLDERS.isdisjoint(PurePath(path).parts)


def _label(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    return f"{getattr(value, '__module__', '')}.{name if isinstance(name, str) else type(value).__qualname__}"


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """The functions of a class that were written, not generated, properties and class methods included."""
    for name, member in vars(cls).items():
        accessors = [unwrap(member)]
        if isinstance(member, property):
            accessors = [member.fget, member.fset]
        elif isinstance(member, functools.cached_property):
            accessors = [member.func]
        for number, found in enumerate(accessors):
            code = getattr(found, "__code__", None)
            if isinstance(code, CodeType) and not code.co_filename.startswith("<string>"):
                yield f"{name}{number or ''}", found


def _references(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Defaults, closure variables, and the globals that the code, or code nested in it, names."""
    code = function.__code__
    yield from ((f"default[{n}]", value) for n, value in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    yield from ((name, cell.cell_contents) for name, cell in cells if _assigned(cell))
    names = sorted(set(_names(code)))
    for name in names:
        if name in function.__globals__:
            value = function.__globals__[name]
            yield name, value
            if isinstance(value, ModuleType):
                yield from _attributes(name, value, names, {value.__name__})


def _assigned(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - the only way to ask
    except ValueError:
        return False
    return True


def _attributes(path: str, module: ModuleType, names: list[str], seen: set[str]) -> Iterator[tuple[str, Any]]:
    """What the code may mean by `module.name`, and by names in modules below it."""
    for name in names:
        value = vars(module).get(name)
        if isinstance(value, ModuleType):
            if value.__name__ not in seen and value.__name__.startswith(f"{module.__name__}."):
                yield from _attributes(f"{path}.{name}", value, names, seen | {value.__name__})
        elif name in vars(module):
            yield f"{path}.{name}", value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _normal_source(function: FunctionType) -> str:
    """The source without what does not count; bytecode for a lambda, and where no source is to be had."""
    if function.__name__ == "<lambda>":  # its source is the whole statement around it
        return _bytecode(function.__code__)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return _bytecode(function.__code__)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.decorator_list = [d for d in node.decorator_list if _name_of(d) not in _TUNING_DECORATORS]
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return _tree(tree)


def _tree(node: Any) -> str:
    """A syntax tree as text that is the same in every version of Python, which `ast.dump` and `ast.unparse` are not."""
    if isinstance(node, list):
        return f"[{', '.join(map(_tree, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty pieces to f-strings
        node.values = [v for v in node.values if not (isinstance(v, ast.Constant) and v.value == "")]
    fields = [(name, value) for name, value in ast.iter_fields(node) if name not in _SILENT_FIELDS]
    given = ", ".join(f"{name}={_tree(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({given})"


def _name_of(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _bytecode(code: CodeType) -> str:
    constants = [_bytecode(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars))


def _constant(value: Any) -> str:
    # The order of a set literal's members changes with the process.
    return f"set of {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)
