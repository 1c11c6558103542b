"""What the source of a JIT function says of its blocks, as expressions, in the order of its statements.

A statement inside an `if` is kept with its condition, and a call of another JIT function with its arguments: which of
them a config compiles is told by `blocks.py`. An unrolled loop is left out, since its body may be compiled never.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeAlias

from triton_ops.backend.unwrap import is_triton, unwrap

_FILLED = ("zeros", "full")
_LANGUAGE = "triton."  # modules of Triton's own functions, which are no helpers of the user's


@dataclass(frozen=True)
class Extent:
    """The extent of a `tl.arange` that begins at 0."""

    size: ast.expr


@dataclass(frozen=True)
class Accumulator:
    """The shape of a block that a `tl.dot` adds to, here or in a helper that the block is given to."""

    shape: tuple[ast.expr, ...]


@dataclass(frozen=True)
class Step:
    """A dimension and its tile, of a `cdiv` or a stepped `range`."""

    extent: ast.expr
    tile: ast.expr


@dataclass(frozen=True)
class Specialized:
    """What a loop is given as `warp_specialize`."""

    value: ast.expr


@dataclass(frozen=True)
class Condition:
    """An `if`, as a statement or in an expression."""

    test: ast.expr
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...]


@dataclass(frozen=True)
class HelperCall:
    """A call of another JIT function.

    Attributes:
        function: The plain function inside it.
        arguments: By parameter; without those of a call with stars.
        known: Whether all arguments are there, so that other parameters have their defaults.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, ast.expr]
    known: bool


class End:
    """A `return`: nothing after it is compiled."""


Item: TypeAlias = "Extent | Accumulator | Step | Specialized | Condition | HelperCall | End"


@dataclass(frozen=True)
class Source:
    """What was read of one function.

    Attributes:
        items: In the order of the statements.
        locals: Expressions of the names that are assigned exactly once, and are no parameters.
        assigned: Names that are assigned at all.
        parameters: Names of the parameters.
        defaults: Of parameters, by name; only of those that have one.
        outside: The function's globals.
    """

    _: KW_ONLY
    items: tuple[Item, ...]
    locals: Mapping[str, ast.expr]
    assigned: frozenset[str]
    parameters: frozenset[str]
    defaults: Mapping[str, Any]
    outside: Mapping[str, Any]


@lru_cache(maxsize=256)
def source_of(function: Any) -> Source | None:
    """What the plain function inside a JIT function says; None for one that was built at run time.

    Cost: parses the source once: a millisecond.
    """
    body = _parsed(function)
    if body is None:
        return None
    declared = inspect.signature(function).parameters
    assigned = _assigned(body)
    reader = _Reader(assigned, declared, function.__globals__)
    once = {name: values[0] for name, values in assigned.items() if len(values) == 1 and name not in declared}
    return Source(
        items=tuple(reader.items(body.body)),
        locals={name: value for name, value in once.items() if value is not None},
        assigned=frozenset(assigned),
        parameters=frozenset(declared),
        defaults={name: each.default for name, each in declared.items() if each.default is not each.empty},
        outside=function.__globals__,
    )


@lru_cache(maxsize=256)
def _parsed(function: Any) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a function that was built at run time has no source
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _assigned(body: ast.FunctionDef) -> dict[str, list[ast.expr | None]]:
    """The values that the function assigns to each name; None for a value that is not assigned plainly."""
    found: dict[str, list[ast.expr | None]] = {}
    stores: list[str] = []
    for node in ast.walk(body):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores.append(node.id)
    return {name: [*(given := found.get(name, [])), *[None] * (stores.count(name) - len(given))] for name in stores}


class _Reader:
    """Reads the items of one function.

    Args:
        assigned: The values that the function assigns, by name.
        own: Its parameters, by name.
        outside: Its globals.
    """

    def __init__(
        self, assigned: Mapping[str, list[ast.expr | None]], own: Collection[str], outside: Mapping[str, Any]
    ) -> None:
        self._outside = {name: value for name, value in outside.items() if name not in assigned and name not in own}
        self._accumulators = set(self._accumulator_calls(assigned))

    def items(self, nodes: list[Any]) -> Iterator[Item]:
        """Those of nodes that follow each other."""
        for node in nodes:
            yield from self._of(node)

    def _of(self, node: ast.AST) -> Iterator[Item]:
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.BoolOp)):
            return
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _called(node.iter) == "static_range":
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
            yield End()

    def _of_call(self, call: ast.Call) -> Iterator[Item]:
        name = _called(call)
        if name == "arange" and len(call.args) == 2 and isinstance(first := call.args[0], ast.Constant):
            if first.value == 0:
                yield Extent(call.args[1])
        elif name == "cdiv" and len(call.args) == 2:
            yield Step(call.args[0], call.args[1])
        elif name == "range" and len(call.args) == 3:
            yield Step(call.args[1], call.args[2])
        elif call in self._accumulators:
            yield Accumulator(tuple(_extents(call)))
        elif (helper := self._helper(call)) is not None:
            yield _helper_call(helper, call)
        for keyword in call.keywords:
            if keyword.arg == "warp_specialize":
                yield Specialized(keyword.value)

    def _helper(self, call: ast.Call) -> Callable[..., Any] | None:
        """The plain function inside the JIT function of the user's that is called; None for any other call."""
        found: Any = None
        if isinstance(call.func, ast.Name):
            found = self._outside.get(call.func.id)
        elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            module = self._outside.get(call.func.value.id)
            found = getattr(module, call.func.attr, None) if isinstance(module, ModuleType) else None
        if not is_triton(found):
            return None
        function = unwrap(found)
        return None if str(getattr(function, "__module__", "")).startswith(_LANGUAGE) else function

    def _accumulator_calls(self, assigned: Mapping[str, list[ast.expr | None]]) -> Iterator[ast.Call]:
        """Calls of `zeros` or `full` under a name that also gets the result of a `dot`.

        A name that is made with different shapes is left out: which of them a `dot` adds to is not told.
        """
        for name, values in assigned.items():
            made = [v for v in values if isinstance(v, ast.Call) and _called(v) in _FILLED and _extents(v)]
            if len({ast.dump(call.args[0]) for call in made}) == 1 and any(self._adds(name, v) for v in values):
                yield from made

    def _adds(self, name: str, value: ast.expr | None) -> bool:
        """Whether a value has a `dot` in it, or is from a helper that has one and is given the block `name`."""
        for node in () if value is None else ast.walk(value):
            if isinstance(node, ast.Call) and _called(node) == "dot":
                return True
            if isinstance(node, ast.Call) and (helper := self._helper(node)) is not None:
                given = [argument.id for argument in node.args if isinstance(argument, ast.Name)]
                if name in given and _multiplies(helper):
                    return True
        return False


@lru_cache(maxsize=256)
def _multiplies(function: Any) -> bool:
    """Whether a function has a `dot` in its own statements."""
    body = _parsed(function)
    return body is not None and any(isinstance(node, ast.Call) and _called(node) == "dot" for node in ast.walk(body))


def _helper_call(function: Callable[..., Any], call: ast.Call) -> HelperCall:
    if any(isinstance(node, ast.Starred) for node in call.args) or any(each.arg is None for each in call.keywords):
        return HelperCall(function, {}, known=False)
    names = list(inspect.signature(function).parameters)
    arguments = dict(zip(names, call.args, strict=False))
    arguments |= {each.arg: each.value for each in call.keywords if each.arg is not None}
    return HelperCall(function, arguments, known=True)


def _extents(call: ast.Call) -> list[ast.expr]:
    """Those of the shape that `zeros` or `full` is given as a tuple or list."""
    shape = call.args[0] if call.args else None
    return list(shape.elts) if isinstance(shape, (ast.Tuple, ast.List)) else []


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]
