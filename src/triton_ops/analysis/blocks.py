"""The sizes of a kernel's blocks for a config, read from the kernel's source before anything is compiled.

What the config compiles counts: statements outside of an `if`, those inside where arguments and config decide its
condition, and those of helpers, which get what they are called with. A size or a condition that cannot be evaluated
is left out, and never guessed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_ops.analysis.source import (
    Accumulator,
    Condition,
    End,
    Extent,
    HelperCall,
    Item,
    Source,
    Specialized,
    Step,
    source_of,
)
from triton_ops.backend.unwrap import unwrap

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_PLAIN = (bool, int, float, str)
_DEPTH = 16  # most names that are followed from name to name
_CALLS = 8  # most helpers that are followed from helper to helper
_UNKNOWN = object()


@dataclass(frozen=True)
class SteppedDimension:
    """A dimension through which the kernel steps in tiles.

    Attributes:
        extent: Name of the dimension in the source.
        size: Extent of the dimension.
        tile_name: Name of the tile's size in the source.
        tile: Elements per step.
    """

    extent: str
    size: int
    tile_name: str
    tile: int


@dataclass(frozen=True)
class Blocks:
    """The blocks of one config. Names are those of the kernel's parameters where a helper is given these.

    Attributes:
        ranges: Name and extent of every `tl.arange`.
        accumulators: Shapes of the blocks that a `tl.dot` adds to.
        stepped: Dimensions through which the kernel steps in tiles.
        warp_specialized: Whether a loop is, or may be, divided among groups of warps.
    """

    ranges: tuple[tuple[str, int], ...] = ()
    accumulators: tuple[tuple[int, ...], ...] = ()
    stepped: tuple[SteppedDimension, ...] = ()
    warp_specialized: bool = False


def blocks_of(function: Any, values: Mapping[str, Any]) -> Blocks:
    """The blocks of a JIT function with these arguments and config values by name.

    Cost: parses the source once, then some microseconds for each expression that is read.
    """
    source = source_of(unwrap(function))
    if source is None:
        return Blocks()
    found = _Found()
    found.take(source.items, _Scope(source, {**source.defaults, **values}), 0)
    return Blocks(tuple(found.ranges), tuple(found.accumulators), tuple(found.stepped), found.warp_specialized)


@dataclass
class _Found:
    """The blocks so far; dictionaries, since a helper that is called twice has each block once."""

    ranges: dict[tuple[str, int], None] = field(default_factory=dict)
    accumulators: dict[tuple[int, ...], None] = field(default_factory=dict)
    stepped: dict[SteppedDimension, None] = field(default_factory=dict)
    warp_specialized: bool = False

    def take(self, items: Iterable[Item], scope: _Scope, depth: int) -> bool:
        """Add what items say; returns whether a `return` has ended the function."""
        for item in items:
            if isinstance(item, End):
                return True
            if isinstance(item, Condition):
                truth = _truth(scope.value(item.test))
                if truth is not None and self.take(item.then if truth else item.otherwise, scope, depth):
                    return True
            elif isinstance(item, HelperCall):
                if depth < _CALLS and (inner := scope.inside(item)) is not None:
                    self.take(inner.source.items, inner, depth + 1)
            else:
                self._add(item, scope)
        return False

    def _add(self, item: Extent | Accumulator | Step | Specialized, scope: _Scope) -> None:
        if isinstance(item, Extent):
            if (size := scope.whole(item.size)) is not None:
                self.ranges[scope.name(item.size), size] = None
        elif isinstance(item, Accumulator):
            shape = tuple(map(scope.whole, item.shape))
            if None not in shape:
                self.accumulators[tuple(axis for axis in shape if axis is not None)] = None
        elif isinstance(item, Step):
            size, tile = scope.whole(item.extent), scope.whole(item.tile)
            if size is not None and tile:
                self.stepped[SteppedDimension(scope.name(item.extent), size, scope.name(item.tile), tile)] = None
        elif _truth(scope.value(item.value)) is not False:
            self.warp_specialized = True


class _Scope:
    """What is known inside one call of a function.

    Args:
        source: What was read of the function.
        values: Values of parameters, as far as they are known; of a helper, those that the call leaves out.
        call: Of a helper, what it is called with, and the scope in which it is called.
    """

    def __init__(
        self, source: Source, values: Mapping[str, Any], call: tuple[Mapping[str, ast.expr], _Scope] | None = None
    ) -> None:
        self.source, self._values = source, values
        self._arguments, self._caller = call if call is not None else ({}, self)

    def inside(self, call: HelperCall) -> _Scope | None:
        """The scope of a helper that is called here; None if the helper has no source."""
        source = source_of(call.function)
        if source is None:
            return None
        return _Scope(source, source.defaults if call.known else {}, (call.arguments, self))

    def name(self, node: ast.expr) -> str:
        """How an expression is called: a parameter as where its value is from."""
        if not isinstance(node, ast.Name):
            return ast.unparse(node)
        given = self._arguments.get(node.id)
        return self._caller.name(given) if isinstance(given, ast.Name) else node.id

    def whole(self, node: ast.expr) -> int | None:
        """The whole number that an expression stands for; None if the number cannot be told."""
        value = self.value(node)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """What an expression stands for; `_UNKNOWN` if it cannot be told."""
        if depth > _DEPTH:
            return _UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._named(node.id, depth)
        if isinstance(node, ast.BinOp):
            return self._computed(node, depth)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return _compared(node.ops[0], self.value(node.left, depth + 1), self.value(node.comparators[0], depth + 1))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            truth = _truth(self.value(node.operand, depth + 1))
            return _UNKNOWN if truth is None else not truth
        if isinstance(node, ast.BoolOp):
            return self._joined(node, depth)
        if isinstance(node, ast.IfExp):
            truth = _truth(self.value(node.test, depth + 1))
            return _UNKNOWN if truth is None else self.value(node.body if truth else node.orelse, depth + 1)
        return _UNKNOWN

    def _named(self, name: str, depth: int) -> Any:
        source = self.source
        if name in source.locals:
            return self.value(source.locals[name], depth + 1)
        if name in source.assigned:
            return _UNKNOWN
        if name in self._arguments:
            return self._caller.value(self._arguments[name], depth + 1)
        known = self._values if name in source.parameters else source.outside
        value = known.get(name, _UNKNOWN)
        return value.value if type(value).__name__ == "constexpr" else value

    def _computed(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if type(node.op) not in _OPERATORS or type(left) is not int or type(right) is not int:
            return _UNKNOWN
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and right == 0:
            return _UNKNOWN
        return _OPERATORS[type(node.op)](left, right)

    def _joined(self, node: ast.BoolOp, depth: int) -> Any:
        """`and` is false, and `or` true, as soon as one part is, whatever the others are."""
        truths = [_truth(self.value(part, depth + 1)) for part in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in truths:
            return decisive
        return _UNKNOWN if None in truths else not decisive


def _compared(how: ast.cmpop, left: Any, right: Any) -> Any:
    if left is _UNKNOWN or right is _UNKNOWN:
        return _UNKNOWN
    if isinstance(how, (ast.Is, ast.IsNot)):
        return (left is right) == isinstance(how, ast.Is) if left is None or right is None else _UNKNOWN
    if isinstance(how, (ast.Eq, ast.NotEq)):
        comparable = isinstance(left, _PLAIN) and isinstance(right, _PLAIN)
    else:
        comparable = type(left) is int and type(right) is int
    return _COMPARISONS[type(how)](left, right) if comparable and type(how) in _COMPARISONS else _UNKNOWN


def _truth(value: Any) -> bool | None:
    """The truth of a plain value; None if it cannot be told."""
    return bool(value) if value is None or isinstance(value, _PLAIN) else None
