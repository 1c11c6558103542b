"""The sizes of a kernel's blocks for a config, read from the kernel's source before anything is compiled.

Only statements that are compiled for every config count, since a block inside an `if` may not exist. A size that cannot
be evaluated from the arguments and the config is left out, and never guessed.
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
_DEPTH = 16  # most names that are followed from name to name
_FILLED = ("zeros", "full")


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


@dataclass(frozen=True, kw_only=True)
class BlockSource:
    """The expressions for block sizes in the unconditional statements of one kernel.

    Attributes:
        ranges: The extents of `tl.arange`.
        accumulators: Shapes of the blocks that a `tl.dot` adds to.
        stepped: Dimension and tile of every `cdiv` and of every stepped `range`.
        specialized: What loops are given as `warp_specialize`.
        locals: Expressions of the names that are assigned exactly once.
        values: Values of names from outside of the function: defaults of parameters, and globals.
    """

    ranges: tuple[ast.expr, ...]
    accumulators: tuple[tuple[ast.expr, ...], ...]
    stepped: tuple[tuple[ast.expr, ast.expr], ...]
    specialized: tuple[ast.expr, ...]
    locals: Mapping[str, ast.expr]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Blocks:
    """The blocks of one config.

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
    stepped = ((ast.unparse(extent), sized(extent), ast.unparse(tile), sized(tile)) for extent, tile in source.stepped)
    return Blocks(
        tuple((name, size) for name, size in ranges if size is not None),
        tuple(tuple(axis for axis in shape if axis is not None) for shape in shapes if None not in shape),
        tuple(
            SteppedDimension(name, size, tile, step) for name, size, tile, step in stepped if size is not None and step
        ),
        any(_truth(node, known) is not False for node in source.specialized),
    )


@lru_cache(maxsize=256)
def _read(function: Any) -> BlockSource | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a function that was built at run time has no source
        return None
    body = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if body is None:
        return None
    nodes = [node for statement in body.body for node in _unconditional(statement)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    assigned = _assigned(body)
    once = {name: value for name, values in assigned.items() if len(values) == 1 for value in values if value}
    return BlockSource(
        ranges=tuple(node for call in calls if _called(call) == "arange" for node in _extent(call)),
        accumulators=tuple(_accumulators(calls, assigned)),
        stepped=tuple(_stepped(calls)),
        specialized=tuple(
            keyword.value for call in calls for keyword in call.keywords if keyword.arg == "warp_specialize"
        ),
        locals=once,
        values={name: value for name, value in _outside(function).items() if name not in assigned},
    )


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node`, except those in an `if`, in an unrolled loop or in another function."""
    if isinstance(node, (ast.If, ast.IfExp, ast.FunctionDef, ast.Lambda, ast.BoolOp)):
        return
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _called(node.iter) == "static_range":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _unconditional(child)


def _assigned(body: ast.FunctionDef) -> dict[str, list[ast.expr | None]]:
    """The values that the function assigns to each name; None for a value that is not assigned plainly."""
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
    """The end of an `arange` that begins at 0; empty for any other."""
    starts_at_0 = len(call.args) == 2 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return [call.args[1]] if starts_at_0 else []


def _stepped(calls: list[ast.Call]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for call in calls:
        if _called(call) == "cdiv" and len(call.args) == 2:
            yield call.args[0], call.args[1]
        if _called(call) == "range" and len(call.args) == 3:
            yield call.args[1], call.args[2]


def _accumulators(
    calls: list[ast.Call], assigned: Mapping[str, list[ast.expr | None]]
) -> Iterator[tuple[ast.expr, ...]]:
    """Shapes of blocks made by `zeros` or `full` under a name that also gets the result of a `dot`."""
    for values in assigned.values():
        made = [v for v in values if isinstance(v, ast.Call) and _called(v) in _FILLED and v in calls and v.args]
        parts = (node for value in values if value is not None for node in ast.walk(value))
        takes_dot = any(isinstance(node, ast.Call) and _called(node) == "dot" for node in parts)
        if len(made) == 1 and takes_dot and isinstance(made[0].args[0], (ast.Tuple, ast.List)):
            yield tuple(made[0].args[0].elts)


def _evaluate(node: ast.expr, known: Mapping[str, Any], local: Mapping[str, ast.expr], depth: int = 0) -> int | None:
    """The whole number that an expression stands for; None if the number cannot be told."""
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


def _truth(node: ast.expr, known: Mapping[str, Any]) -> bool | None:
    """The truth of a constant or a name; None if it cannot be told."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if not isinstance(node, ast.Name) or node.id not in known:
        return None
    value = known[node.id]
    return bool(value.value if type(value).__name__ == "constexpr" else value)


def _whole(value: Any) -> int | None:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None
