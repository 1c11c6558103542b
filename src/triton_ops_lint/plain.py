"""Which statements of a file only say what they are, so that nothing of a stranger's runs when they are evaluated.

Such are numbers and texts, imports of Triton, and kernels below Triton's decorators, whose bodies Triton's front end
evaluates in part when it reads them. A module is never more than the first part of a dotted name, whose end is Triton's
language or one of a few functions.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import triton_ops
from triton_ops.backend import Layers
from triton_ops.base import require

_BUILTINS = {
    "abs", "bool", "dict", "float", "int", "len", "list", "max", "min", "range", "reversed", "round", "set", "sorted",
    "str", "sum", "tuple", "zip", "isinstance", "print",
}  # fmt: skip
_CALLED = ("jit", "autotune", "heuristics", "Config", "cdiv", "next_power_of_2")
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.FunctionDef)
_NEVER = (
    ast.Import, ast.ImportFrom, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Await, ast.Yield, ast.YieldFrom, ast.With,
    ast.Try, ast.AsyncFunctionDef,
)  # fmt: skip


def dotted_name(node: ast.expr) -> str:
    """A name with its dots, such as `tl.load`; empty for any other expression."""
    text = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    return text if all(part.isidentifier() for part in text.split(".")) else ""


def is_plain_import(name: str, bound: str) -> bool:
    """Check whether an import runs nothing of a stranger's, and is bound to no name of Python's own.

    Triton, this package and the others are imported already.
    """
    root = name.partition(".")[0]
    return root in ("triton", "triton_ops", "math", "__future__", "typing") and not hasattr(builtins, bound)


def why_not_plain(statement: ast.stmt, values: Mapping[str, Any]) -> str:
    """Words for what a statement does beyond saying what it is, where names have these values; empty if nothing."""
    if not isinstance(statement, _STATEMENTS):
        return "it is neither an assignment to a name nor a kernel"
    if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
        return "it is a function that is no kernel"
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if not all(isinstance(one, ast.Name) for one in targets):
        return "it assigns to more than names"
    nodes = list(ast.walk(statement))
    within = {id(one.value) for one in nodes if isinstance(one, ast.Attribute)}
    own = {one.arg for one in nodes if isinstance(one, ast.arg)}
    own |= {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    # its own names first: what the file gave them before is not what they are here
    whys = (_why_not(node, {**dict.fromkeys(own), **values}, within) for node in nodes)
    return next(filter(None, whys), "")


def _why_not(node: ast.AST, values: Mapping[str, Any], within: set[int]) -> str:
    """As `why_not_plain`, of one node, where a name that the statement itself gives a value has None."""
    if isinstance(node, _NEVER):
        return f"it contains {type(node).__name__}"
    if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
        return f"it reads the private attribute {node.attr}"
    if not isinstance(node, (ast.Attribute, ast.Name)) or id(node) in within:
        return ""
    root, *names = dotted_name(node).split(".")
    if not root or (not names and isinstance(node.ctx, ast.Store)):
        return ""
    if root not in values or (not names and root.startswith("__")):
        return "" if not names and root in _BUILTINS else f"it uses {root}, which is not known"
    value = values[root]
    if not isinstance(value, ModuleType) and (names or not callable(value)):
        return ""
    return "" if _is_plain(value, names) else f"it uses {ast.unparse(node)}"


def _is_plain(value: Any, names: list[str]) -> bool:
    """Check whether a dotted name leads, through Triton's own modules alone, to what may be used."""
    for name in names:
        if isinstance(value, ModuleType) and not value.__name__.startswith(("triton", "math")):
            return False
        value = getattr(value, name, None)
    return _is_of_triton(value)


def _is_of_triton(value: Any) -> bool:
    """Check whether a value is of Triton's language, a kernel, a number or a text, or a function that decorates."""
    if isinstance(value, ModuleType):
        return False
    triton = require("triton", "reading kernels")
    if Layers.is_jit(Layers.of(value)[-1]) or isinstance(value, (int, float, str, tuple)):
        return True
    if any(value is one for one in (triton_ops.autotune, *(getattr(triton, name) for name in _CALLED))):
        return True
    module = str(getattr(value, "__module__", type(value).__module__))
    return module in ("math", "typing") or module.startswith("triton.language")
