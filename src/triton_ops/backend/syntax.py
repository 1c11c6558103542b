"""The text of a function that counts for its fingerprint: its syntax, without parts that do not change the result.

Comments, docstrings, formatting, the line it stands on and the version of Python do not count, and neither does the
space that a tuning decorator names.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

_TUNING_DECORATORS = {"autotune", "operation"}  # they name what may be tried, not what is computed
_SILENT_FIELDS = {"ctx", "kind", "type_comment"}
_CHANGING_METHODS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip
_MOST_KEPT = 4096  # functions; a text is about as long as its source


@dataclass(frozen=True)
class Text:
    """The content of one function's source.

    Attributes:
        syntax: Its syntax as text, or its bytecode where there is no source.
        mutations: Names of variables from outside that it gives other values, or whose containers it changes.
    """

    syntax: str
    mutations: frozenset[str] = frozenset()


_texts: dict[int, tuple[CodeType, Text]] = {}  # by identity: equal code may stand below different annotations


def text_of(code: CodeType) -> Text:
    """The content of the source of a function with this code.

    Cost: parses the source once in a process, about a millisecond for 50 lines.
    """
    entry = _texts.get(id(code))
    if entry is None:
        if len(_texts) >= _MOST_KEPT:
            _texts.clear()
        entry = _texts[id(code)] = (code, _parse(code))
    return entry[1]


def _parse(code: CodeType) -> Text:
    if code.co_name == "<lambda>":  # its source is the whole statement around it
        return Text(_bytecode(code))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return Text(_bytecode(code))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            node.decorator_list = [d for d in node.decorator_list if _name_of(d) not in _TUNING_DECORATORS]
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return Text(_tree(tree), frozenset(_mutations(tree)))


def _mutations(tree: ast.AST) -> Iterator[str]:
    """Names that are declared global or nonlocal, and names of containers whose content the code changes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and _changes(node):
            yield from _variable(node.value)


def _changes(node: ast.Subscript | ast.Attribute) -> bool:
    """Tell whether an expression is `x[…] = …`, `del x[…]`, or a method such as `x.append`."""
    if isinstance(node, ast.Attribute):
        return node.attr in _CHANGING_METHODS
    return not isinstance(node.ctx, ast.Load)


def _variable(expression: ast.expr) -> Iterator[str]:
    if isinstance(expression, ast.Name):
        yield expression.id


def _tree(node: Any) -> str:
    """A syntax tree as text that is the same in every version of Python, which `ast.dump` and `ast.unparse` are not."""
    if isinstance(node, list):
        return f"[{', '.join(map(_tree, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty pieces to f-strings
        node.values = [v for v in node.values if not (isinstance(v, ast.Constant) and v.value == "")]
    fields = [(name, value) for name, value in ast.iter_fields(node) if name not in _SILENT_FIELDS]
    content = ", ".join(f"{name}={_tree(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({content})"


def _name_of(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _bytecode(code: CodeType) -> str:
    constants = [_bytecode(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars))


def _constant(value: Any) -> str:
    # The order of a set literal's members changes with the process.
    return f"set of {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)
