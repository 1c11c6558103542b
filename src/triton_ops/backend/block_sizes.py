"""The sizes of a kernel's blocks for a config, read from the kernel's source before anything is compiled.

What the config compiles counts: statements outside of an `if`, those inside where arguments and config decide its
condition, and those of helpers, which get what they are called with. A size or a condition that cannot be evaluated
is left out, and never guessed.

A statement inside an `if` is kept with its condition, and a call of another JIT function with its arguments: the values
of a config tell later which of them it compiles. An unrolled loop is left out, since its body may be compiled never.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

from triton_ops.backend.origins import is_jit_function, unwrap

_FILLED = ("zeros", "full")
_LANGUAGE = "triton."  # modules of Triton's own functions, which are no helpers of the user's


class Measure(NamedTuple):
    """A size that the source tells, by what it is of.

    An `extent` is that of a `tl.arange` that begins at 0. An `accumulator` is the shape of a block that a `tl.dot` adds
    to, here or in a helper that the block is given to. A `tile` is a dimension and its tile, of a `cdiv` or a stepped
    `range`. `specialized` is the value that a loop is given as `warp_specialize`.
    """

    kind: Literal["extent", "accumulator", "tile", "specialized"]
    parts: tuple[ast.expr, ...]


@dataclass(frozen=True)
class Condition:
    """An `if`, as a statement or in an expression."""

    test: ast.expr
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...]


@dataclass(frozen=True)
class HelperCall:
    """A call of another JIT function, by the plain function inside it.

    `arguments` are by parameter; without those of a call with stars they are not `known`, and defaults say nothing.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, ast.expr]
    known: bool


class Return:
    """A `return`: nothing after it is compiled."""


Item: TypeAlias = "Measure | Condition | HelperCall | Return"


@dataclass(frozen=True)
class FunctionItems:
    """The content of one function, as far as it decides about blocks.

    `locals` has the names that are assigned exactly once, and are no parameters; `outside` is the function's globals.
    """

    _: KW_ONLY
    items: tuple[Item, ...]
    locals: Mapping[str, ast.expr]
    assigned: frozenset[str]
    parameters: frozenset[str]
    defaults: Mapping[str, Any]
    outside: Mapping[str, Any]


@lru_cache(maxsize=256)
def items_of(function: Any) -> FunctionItems | None:
    """The content of the plain function inside a JIT function, parsed once; None for one that was built at run time."""
    body = _parse(function)
    if body is None:
        return None
    declared = inspect.signature(function).parameters
    assigned = _assignments(body)
    reader = _ItemReader(assigned, declared, function.__globals__)
    once = {name: values[0] for name, values in assigned.items() if len(values) == 1 and name not in declared}
    return FunctionItems(
        items=tuple(reader.items(body.body)),
        locals={name: value for name, value in once.items() if value is not None},
        assigned=frozenset(assigned),
        parameters=frozenset(declared),
        defaults={name: each.default for name, each in declared.items() if each.default is not each.empty},
        outside=function.__globals__,
    )


@lru_cache(maxsize=256)
def _parse(function: Any) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a function that was built at run time has no source
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _assignments(body: ast.FunctionDef) -> dict[str, list[ast.expr | None]]:
    values: dict[str, list[ast.expr | None]] = {}
    stores: list[str] = []
    for node in ast.walk(body):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores.append(node.id)
    return {name: [*(plain := values.get(name, [])), *[None] * (stores.count(name) - len(plain))] for name in stores}


class _ItemReader:
    """Reads the items of one function; `assigned` has the values it assigns by name, `own` its parameters."""

    def __init__(
        self, assigned: Mapping[str, list[ast.expr | None]], own: Collection[str], outside: Mapping[str, Any]
    ) -> None:
        self._outside = {name: value for name, value in outside.items() if name not in assigned and name not in own}
        self._accumulators = set(self._accumulator_calls(assigned))

    def items(self, nodes: list[Any]) -> Iterator[Item]:
        for node in nodes:
            yield from self._of(node)

    def _of(self, node: ast.AST) -> Iterator[Item]:
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.BoolOp)):
            return
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _callee(node.iter) == "static_range":
            return
        if isinstance(node, ast.If):
            yield Condition(node.test, tuple(self.items(node.body)), tuple(self.items(node.orelse)))
            return
        if isinstance(node, ast.IfExp):
            yield Condition(node.test, tuple(self._of(node.body)), tuple(self._of(node.orelse)))
            return
        if isinstance(node, ast.Call):
            yield from self._of_call(node)
        yield from self.items(list(ast.iter_child_nodes(node)))
        if isinstance(node, ast.Return):
            yield Return()

    def _of_call(self, call: ast.Call) -> Iterator[Item]:
        name = _callee(call)
        if name == "arange" and len(call.args) == 2 and isinstance(first := call.args[0], ast.Constant):
            if first.value == 0:
                yield Measure("extent", (call.args[1],))
        elif name == "cdiv" and len(call.args) == 2:
            yield Measure("tile", (call.args[0], call.args[1]))
        elif name == "range" and len(call.args) == 3:
            yield Measure("tile", (call.args[1], call.args[2]))
        elif call in self._accumulators:
            yield Measure("accumulator", tuple(_extents(call)))
        elif (helper := self._helper(call)) is not None:
            yield _helper_call(helper, call)
        for keyword in call.keywords:
            if keyword.arg == "warp_specialize":
                yield Measure("specialized", (keyword.value,))

    def _helper(self, call: ast.Call) -> Callable[..., Any] | None:
        """The plain function inside the JIT function of the user's that is called; None for any other call."""
        value: Any = None
        if isinstance(call.func, ast.Name):
            value = self._outside.get(call.func.id)
        elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            module = self._outside.get(call.func.value.id)
            value = getattr(module, call.func.attr, None) if isinstance(module, ModuleType) else None
        if not is_jit_function(value):
            return None
        function = unwrap(value)
        return None if str(getattr(function, "__module__", "")).startswith(_LANGUAGE) else function

    def _accumulator_calls(self, assigned: Mapping[str, list[ast.expr | None]]) -> Iterator[ast.Call]:
        """Calls of `zeros` or `full` under a name that also gets the result of a `dot`.

        A name that is made with different shapes is left out: which of them a `dot` adds to is not told.
        """
        for name, values in assigned.items():
            blocks = [v for v in values if isinstance(v, ast.Call) and _callee(v) in _FILLED and _extents(v)]
            if len({ast.dump(call.args[0]) for call in blocks}) == 1 and any(self._adds(name, v) for v in values):
                yield from blocks

    def _adds(self, name: str, value: ast.expr | None) -> bool:
        for node in () if value is None else ast.walk(value):
            if isinstance(node, ast.Call) and _callee(node) == "dot":
                return True
            if isinstance(node, ast.Call) and (helper := self._helper(node)) is not None:
                names = [argument.id for argument in node.args if isinstance(argument, ast.Name)]
                if name in names and _multiplies(helper):
                    return True
        return False


@lru_cache(maxsize=256)
def _multiplies(function: Any) -> bool:
    body = _parse(function)
    return body is not None and any(isinstance(node, ast.Call) and _callee(node) == "dot" for node in ast.walk(body))


def _helper_call(function: Callable[..., Any], call: ast.Call) -> HelperCall:
    if any(isinstance(node, ast.Starred) for node in call.args) or any(each.arg is None for each in call.keywords):
        return HelperCall(function, {}, known=False)
    names = list(inspect.signature(function).parameters)
    arguments = dict(zip(names, call.args, strict=False))
    arguments |= {each.arg: each.value for each in call.keywords if each.arg is not None}
    return HelperCall(function, arguments, known=True)


def _extents(call: ast.Call) -> list[ast.expr]:
    shape = call.args[0] if call.args else None
    return list(shape.elts) if isinstance(shape, (ast.Tuple, ast.List)) else []


def _callee(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


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
    """A dimension through which the kernel steps in tiles; `extent` and `tile_name` are names in the source."""

    extent: str
    size: int
    tile_name: str
    tile: int


@dataclass(frozen=True)
class Blocks:
    """The blocks of one config. Names are those of the kernel's parameters where a helper is given these.

    `ranges` are of every `tl.arange`, `accumulators` the blocks that a `tl.dot` adds to; `warp_specialized` is whether
    a loop is, or may be, divided among groups of warps.
    """

    ranges: tuple[tuple[str, int], ...] = ()
    accumulators: tuple[tuple[int, ...], ...] = ()
    stepped: tuple[SteppedDimension, ...] = ()
    warp_specialized: bool = False


def blocks_of(function: Any, values: Mapping[str, Any]) -> Blocks:
    """The blocks of a JIT function with these arguments and config values by name; some microseconds once parsed."""
    source = items_of(unwrap(function))
    if source is None:
        return Blocks()
    blocks = _BlocksSoFar()
    blocks.take(source.items, _CallScope(source, {**source.defaults, **values}), 0)
    return Blocks(tuple(blocks.ranges), tuple(blocks.accumulators), tuple(blocks.stepped), blocks.warp_specialized)


@dataclass
class _BlocksSoFar:
    """The blocks so far; dictionaries, since a helper that is called twice has each block once."""

    ranges: dict[tuple[str, int], None] = field(default_factory=dict)
    accumulators: dict[tuple[int, ...], None] = field(default_factory=dict)
    stepped: dict[SteppedDimension, None] = field(default_factory=dict)
    warp_specialized: bool = False

    def take(self, items: Iterable[Item], scope: _CallScope, depth: int) -> bool:
        """Add what items say; returns whether a `return` has ended the function."""
        for item in items:
            if isinstance(item, Return):
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

    def _add(self, measure: Measure, scope: _CallScope) -> None:
        first, sizes = measure.parts[0], tuple(map(scope.whole, measure.parts))
        if measure.kind == "specialized":
            self.warp_specialized |= _truth(scope.value(first)) is not False
            return
        known_sizes = tuple(size for size in sizes if size is not None)
        if len(known_sizes) < len(sizes):
            return
        if measure.kind == "extent":
            self.ranges[scope.name(first), known_sizes[0]] = None
        elif measure.kind == "accumulator":
            self.accumulators[known_sizes] = None
        elif tile := known_sizes[1]:
            self.stepped[SteppedDimension(scope.name(first), known_sizes[0], scope.name(measure.parts[1]), tile)] = None


class _CallScope:
    """The names inside one call of a function, with their values as far as they are known.

    `call` is of a helper: what it is called with, and the scope in which it is called; `values` then has what the call
    leaves out.
    """

    def __init__(
        self,
        source: FunctionItems,
        values: Mapping[str, Any],
        call: tuple[Mapping[str, ast.expr], _CallScope] | None = None,
    ) -> None:
        self.source, self._values = source, values
        self._arguments, self._caller = call if call is not None else ({}, self)

    def inside(self, call: HelperCall) -> _CallScope | None:
        source = items_of(call.function)
        if source is None:
            return None
        return _CallScope(source, source.defaults if call.known else {}, (call.arguments, self))

    def name(self, node: ast.expr) -> str:
        """The name of an expression: of a parameter that of its value, where it comes from."""
        if not isinstance(node, ast.Name):
            return ast.unparse(node)
        argument = self._arguments.get(node.id)
        return self._caller.name(argument) if isinstance(argument, ast.Name) else node.id

    def whole(self, node: ast.expr) -> int | None:
        value = self.value(node)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > _DEPTH:
            return _UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._value_of_name(node.id, depth)
        if isinstance(node, ast.BinOp):
            return self._calculate(node, depth)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return _compare(node.ops[0], self.value(node.left, depth + 1), self.value(node.comparators[0], depth + 1))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            truth = _truth(self.value(node.operand, depth + 1))
            return _UNKNOWN if truth is None else not truth
        if isinstance(node, ast.BoolOp):
            return self._join(node, depth)
        if isinstance(node, ast.IfExp):
            truth = _truth(self.value(node.test, depth + 1))
            return _UNKNOWN if truth is None else self.value(node.body if truth else node.orelse, depth + 1)
        return _UNKNOWN

    def _value_of_name(self, name: str, depth: int) -> Any:
        source = self.source
        if name in source.locals:
            return self.value(source.locals[name], depth + 1)
        if name in source.assigned:
            return _UNKNOWN
        if name in self._arguments:
            return self._caller.value(self._arguments[name], depth + 1)
        values = self._values if name in source.parameters else source.outside
        value = values.get(name, _UNKNOWN)
        return value.value if type(value).__name__ == "constexpr" else value

    def _calculate(self, node: ast.BinOp, depth: int) -> Any:
        first, second = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if type(node.op) not in _OPERATORS or type(first) is not int or type(second) is not int:
            return _UNKNOWN
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and second == 0:
            return _UNKNOWN
        return _OPERATORS[type(node.op)](first, second)

    def _join(self, node: ast.BoolOp, depth: int) -> Any:
        """`and` is false, and `or` true, as soon as one part is, whatever the others are."""
        truths = [_truth(self.value(part, depth + 1)) for part in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in truths:
            return decisive
        return _UNKNOWN if None in truths else not decisive


def _compare(how: ast.cmpop, first: Any, second: Any) -> Any:
    if first is _UNKNOWN or second is _UNKNOWN:
        return _UNKNOWN
    if isinstance(how, (ast.Is, ast.IsNot)):
        return (first is second) == isinstance(how, ast.Is) if first is None or second is None else _UNKNOWN
    if isinstance(how, (ast.Eq, ast.NotEq)):
        comparable = isinstance(first, _PLAIN) and isinstance(second, _PLAIN)
    else:
        comparable = type(first) is int and type(second) is int
    return _COMPARISONS[type(how)](first, second) if comparable and type(how) in _COMPARISONS else _UNKNOWN


def _truth(value: Any) -> bool | None:
    return bool(value) if value is None or isinstance(value, _PLAIN) else None
