"""The arguments that a kernel only writes, as its source tells.

An argument counts if pointers that are computed from it are stored to, and nothing else is done with them: whatever is
also loaded, updated atomically, or handed to another function may be read, and does not count.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from triton_ops.backend import unwrap

# Whose result points to where their first argument does, or are values of no pointer.
_PASS_ON = {"make_block_ptr", "advance", "make_tensor_descriptor", "multiple_of", "max_contiguous", "to", "cast"}
_VALUES = {"arange", "program_id", "num_programs", "cdiv", "zeros", "full", "static_assert", "static_range", "range"}
_STORE, _MOST_ROUNDS = "store", 8


@lru_cache(maxsize=512)
def written_only(function: Any) -> tuple[str, ...]:
    """The parameters that a kernel only writes, in order; empty where its source cannot be read.

    Cost: parses the source, a millisecond.
    """
    inner = unwrap(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inner))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return ()
    if not isinstance(tree, ast.FunctionDef):
        return ()
    names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]
    flow = _Flow(tree, names)
    return tuple(name for name in names if name in flow.targets and name not in flow.uses)


class _Flow:
    """The ways of the pointers of a kernel's arguments.

    Attributes:
        targets: Arguments to which something is stored.
        uses: Arguments whose pointers are loaded from, or go where that is not known.
    """

    def __init__(self, tree: ast.FunctionDef, names: Collection[str]) -> None:
        self._origins: dict[str, set[str]] = {name: {name} for name in names}
        self.targets: set[str] = set()
        self.uses: set[str] = set()
        for _ in range(_MOST_ROUNDS):  # loops carry pointers around: until nothing is added
            before = {name: set(origins) for name, origins in self._origins.items()}
            for node in ast.walk(tree):
                self._assign(node)
            if before == self._origins:
                break
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._call(node)

    def _assign(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            targets = [node.target]
        else:
            return
        value = node.value
        if value is None:
            return
        origins = self._of(value)
        for target in targets:
            for name in _names(target):
                self._origins.setdefault(name, set()).update(origins)

    def _of(self, node: ast.AST) -> set[str]:
        """The arguments whose pointers an expression may hold."""
        if isinstance(node, ast.Name):
            return self._origins.get(node.id, set())
        if isinstance(node, ast.Call) and _callee(node) not in _PASS_ON:
            return set()  # values that were loaded or computed; what was handed over is looked at where it is called
        children = [node.func, *node.args[:1]] if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
        return set().union(*map(self._of, children))

    def _call(self, node: ast.Call) -> None:
        name, arguments = _callee(node), [*node.args, *(keyword.value for keyword in node.keywords)]
        on = self._of(node.func.value) if isinstance(node.func, ast.Attribute) else set()
        if name == _STORE:
            target = on or (self._of(arguments[0]) if arguments else set())
            self.targets |= target
            others = arguments if on else arguments[1:]
            self.uses |= self._pointers(others)
        elif name not in _PASS_ON:
            self.uses |= set() if name in _VALUES else on.union(*map(self._of, arguments))

    def _pointers(self, arguments: list[ast.expr]) -> set[str]:
        """The arguments of a store that are pointers themselves: numbers that are added to one are not."""
        return {name for each in arguments if isinstance(each, ast.Name) for name in self._origins.get(each.id, set())}


def _callee(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _names(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id
