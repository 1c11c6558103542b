"""How large a kernel's blocks are, read from its source: what it says for every config, before anything is compiled.

Only statements that are compiled whatever the config count, since a block inside an `if` may not exist. What cannot
be evaluated from the arguments and the config is not there: nothing is guessed.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from triton_ops.backend.unwrap import unwrap

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift,
}  # fmt: skip
_DEPTH = 16  # of names that stand for names
_FILLED = ("zeros", "full")


@dataclass(frozen=True)
class Walk:
    """A dimension that the kernel steps through in tiles.

    Attributes:
        extent: What the dimension is called.
        size: Its extent.
        tile_name: What the tile's size is called.
        tile: Elements per step.
    """

    extent: str
    size: int
    tile_name: str
    tile: int


@dataclass(frozen=True)
class Source:
    """One kernel's unconditional statements, parsed.

    Attributes:
        ranges: The extents of `tl.arange`.
        accumulators: Shapes of the blocks that a `tl.dot` adds to.
        walks: Dimension and tile of every `cdiv` and of every stepped `range`.
        locals: Names that are assigned exactly once.
        values: What names stand for outside of the function: parameters' defaults, and globals.
    """

    ranges: tuple[ast.expr, ...]
    accumulators: tuple[tuple[ast.expr, ...], ...]
    walks: tuple[tuple[ast.expr, ast.expr], ...]
    locals: Mapping[str, ast.expr]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Blocks:
    """The blocks of one config.

    Attributes:
        ranges: Name and extent of every `tl.arange`.
        accumulators: Shapes of the blocks that a `tl.dot` adds to.
        walks: Dimensions that are walked in tiles.
    """

    ranges: tuple[tuple[str, int], ...] = ()
    accumulators: tuple[tuple[int, ...], ...] = ()
    walks: tuple[Walk, ...] = ()


def blocks_of(function: Any, values: Mapping[str, Any]) -> Blocks:
    """The blocks of a JIT function with these arguments and config values by name.

    Cost: parses the source once, then some microseconds.
    """
    source = _read(unwrap(function))
    if source is None:
        return Blocks()
    known = {**source.values, **values}

    def sized(node: ast.expr) -> int | None:
        return _evaluate(node, known, source.locals)

    ranges = ((ast.unparse(node), sized(node)) for node in source.ranges)
    shapes = (tuple(map(sized, shape)) for shape in source.accumulators)
    walks = ((ast.unparse(extent), sized(extent), ast.unparse(tile), sized(tile)) for extent, tile in source.walks)
    return Blocks(
        tuple((name, size) for name, size in ranges if size is not None),
        tuple(tuple(axis for axis in shape if axis is not None) for shape in shapes if None not in shape),
        tuple(Walk(name, size, tile, step) for name, size, tile, step in walks if size is not None and step),
    )


@lru_cache(maxsize=256)
def _read(function: Any) -> Source | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # built at run time: it has no source to read
        return None
    body = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if body is None:
        return None
    nodes = [node for statement in body.body for node in _unconditional(statement)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    assigned = _assigned(body)
    once = {name: value for name, values in assigned.items() if len(values) == 1 for value in values if value}
    return Source(
        tuple(node for call in calls if _called(call) == "arange" for node in _extent(call)),
        tuple(_accumulators(calls, assigned)),
        tuple(_walks(calls)),
        once,
        {name: value for name, value in _outside(function).items() if name not in assigned},
    )


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below `node` but what stands in an `if`, in a loop that is unrolled, or in another function."""
    if isinstance(node, (ast.If, ast.IfExp, ast.FunctionDef, ast.Lambda, ast.BoolOp)):
        return
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _called(node.iter) == "static_range":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _unconditional(child)


def _assigned(body: ast.FunctionDef) -> dict[str, list[ast.expr | None]]:
    """Every value that a name is given anywhere in the function; None for one that is not a plain assignment."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(body):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, [])
    stores = [node.id for node in ast.walk(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {name: values + [None] * (stores.count(name) - len(values)) for name, values in found.items()}


def _outside(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters}
    return {**function.__globals__, **defaults}


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _extent(call: ast.Call) -> list[ast.expr]:
    """The end of an `arange` that begins at 0."""
    starts_at_0 = len(call.args) == 2 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return [call.args[1]] if starts_at_0 else []


def _walks(calls: list[ast.Call]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for call in calls:
        if _called(call) == "cdiv" and len(call.args) == 2:
            yield call.args[0], call.args[1]
        if _called(call) == "range" and len(call.args) == 3:
            yield call.args[1], call.args[2]


def _accumulators(
    calls: list[ast.Call], assigned: Mapping[str, list[ast.expr | None]]
) -> Iterator[tuple[ast.expr, ...]]:
    """Shapes of blocks made by `zeros` or `full` under a name that also takes the result of a `dot`."""
    for values in assigned.values():
        made = [v for v in values if isinstance(v, ast.Call) and _called(v) in _FILLED and v in calls and v.args]
        parts = (node for value in values if value is not None for node in ast.walk(value))
        takes_dot = any(isinstance(node, ast.Call) and _called(node) == "dot" for node in parts)
        if len(made) == 1 and takes_dot and isinstance(made[0].args[0], (ast.Tuple, ast.List)):
            yield tuple(made[0].args[0].elts)


def _evaluate(node: ast.expr, known: Mapping[str, Any], local: Mapping[str, ast.expr], depth: int = 0) -> int | None:
    """The whole number that an expression stands for; None if that cannot be told."""
    if depth > _DEPTH:
        return None
    if isinstance(node, ast.Constant):
        return _whole(node.value)
    if isinstance(node, ast.Name):
        if node.id in local:
            return _evaluate(local[node.id], known, local, depth + 1)
        return _whole(known.get(node.id))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        sides = [_evaluate(side, known, local, depth + 1) for side in (node.left, node.right)]
        if None in sides or (isinstance(node.op, (ast.FloorDiv, ast.Mod)) and sides[1] == 0):
            return None
        return _OPERATORS[type(node.op)](*sides)  # type: ignore[arg-type]
    return None


def _whole(value: Any) -> int | None:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None
