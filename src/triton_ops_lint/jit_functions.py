"""The JIT functions of a file as their authors wrote them: syntax, parameters, decorators, launches.

Names are followed to what they were last given within the launching function; nothing of it is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from triton_ops.backend import KernelSource, Layers, last_name
from triton_ops.base import cached_property
from triton_ops_lint.island import Island, bound_names, used_names
from triton_ops_lint.plain import dotted_name

_MOST_LAYERS = 16  # a decorator may lead back to itself


def innermost_kernel(decorated: Any) -> Any:
    """The JIT function inside decorators such as `triton.autotune`; None if there is none."""
    return next(filter(Layers.is_jit, _decorator_layers(decorated)), None)


def _decorator_layers(layer: Any) -> Iterator[Any]:
    """A decorated kernel with what is inside of it, down to the JIT function, whosever the decorators are."""
    for _ in range(_MOST_LAYERS):
        yield layer
        if Layers.is_jit(layer):
            return
        layer = getattr(layer, "fn", None) or getattr(layer, "__wrapped__", None)


def expressions(
    node: ast.expr, values: Mapping[str, Sequence[ast.expr]], names: set[str] | None = None
) -> Iterator[ast.expr]:
    """An expression, and what the names in it are given, through other names; `names` are followed already."""
    names = set() if names is None else names
    queue = [node]
    while queue:
        one = queue.pop()
        yield one
        for inner in ast.walk(one):
            if isinstance(inner, ast.Name) and inner.id not in names:
                names.add(inner.id)
                queue += values.get(inner.id, ())


def parameters_of(function: ast.AST) -> list[ast.arg]:
    """The parameters of a function, but for `*args` and `**kwargs`; none of a class."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return []
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


_DEEPEST = 4  # steps from name to name
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_ELEMENTS = {
    "torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float64": "fp64",
    "torch.float8_e4m3fn": "fp8e4nv", "torch.float8_e5m2": "fp8e5", "torch.bool": "i1", "torch.uint8": "u8",
    "torch.int8": "i8", "torch.int16": "i16", "torch.int32": "i32", "torch.int64": "i64",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class DefinedKernel:
    """A kernel as its file defines it, `decorated` as it stands there, or the reason why it could not be made."""

    name: str
    kernel: KernelSource | None = None
    decorated: Any = None
    why: str = ""


def defined_kernels(island: Island) -> list[DefinedKernel]:
    """The kernels of a file in their order, without the functions that kernels call, or that return something."""
    kernels = [one for name in dict.fromkeys(_candidates(island)) if (one := _kernel_named(island, name)) is not None]
    sources = [one.kernel for one in kernels if one.kernel is not None]
    helpers = {id(one.function) for kernel in sources for one in map(kernel.callee, kernel.calls) if one is not None}
    nested = [*_nested_functions(island)]
    names = {dotted_name(call.func) for _, one in nested for call in KernelSource.calls_in(one)}
    helpers |= {id(one.kernel.function) for one in kernels if one.kernel is not None and one.name in names}
    functions = (call.func for call in KernelSource.calls_in(island.tree))
    launched = {dotted_name(func.value).rpartition(".")[2] for func in functions if isinstance(func, ast.Subscript)}
    helpers |= {id(one.function) for one in sources if one.results}
    launchable = [
        one for one in kernels if one.kernel is None or one.name in launched or id(one.kernel.function) not in helpers
    ]
    why = "it is defined inside of {}, and is made only when that runs"
    inner = (DefinedKernel(node.name, why=why.format(outer)) for outer, node in nested if _has_constants(node))
    return [*launchable, *inner]


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """What a file or a function has in its own body, inside of conditions and other blocks too."""
    for inner in ast.iter_child_nodes(node):
        yield inner
        if not isinstance(inner, (*_DEFINITIONS, ast.expr)):
            yield from _outside_functions(inner)


def _candidates(island: Island) -> Iterator[str]:
    for node in _outside_functions(island.tree):
        if isinstance(node, ast.FunctionDef):
            if _has_mark(island, node) or (node.decorator_list and _has_constants(node)):
                yield node.name
        elif isinstance(node, ast.Assign) and _makes_kernel(island, node.value):
            yield from bound_names(node)


def _has_mark(island: Island, node: ast.FunctionDef) -> bool:
    return any(_kernels_of_triton(island, one, _DEEPEST) for one in node.decorator_list)


def _makes_kernel(island: Island, value: ast.expr) -> bool:
    names = [dotted_name(one) for one in ast.walk(value) if isinstance(one, (ast.Attribute, ast.Name))]
    makes = any(name.rpartition(".")[2] in ("jit", "autotune", "heuristics") for name in names)
    return isinstance(value, ast.Call) and makes and _kernels_of_triton(island, value, _DEEPEST)


def _kernels_of_triton(island: Island, node: ast.AST, depth: int) -> bool:
    """Check whether an expression uses what comes from a package of Triton's name, through other names of the file."""
    names = set(used_names(node))
    for statement in island.statements_of(names):
        imports = [one for one in ast.walk(statement) if isinstance(one, (ast.Import, ast.ImportFrom))]
        modules = [
            (one.module or "") if isinstance(one, ast.ImportFrom) else alias.name
            for one in imports for alias in one.names if (alias.asname or alias.name.partition(".")[0]) in {*names, "*"}
        ]  # fmt: skip
        if any(module.startswith("triton") for module in modules):
            return True
        if depth > 0 and statement is not node and not modules and _kernels_of_triton(island, statement, depth - 1):
            return True
    return False


def _has_constants(node: ast.FunctionDef) -> bool:
    annotations = (one.annotation for one in parameters_of(node))
    return any(one is not None and dotted_name(one).endswith("constexpr") for one in annotations)


def _kernel_named(island: Island, name: str) -> DefinedKernel | None:
    try:
        decorated = island.value(name)
    except LookupError as error:
        return DefinedKernel(name, why=f"it cannot be made without the rest of the file: {error}")
    inner = innermost_kernel(decorated)
    if inner is None:
        return None
    try:
        return DefinedKernel(name, KernelSource.read(inner), decorated)
    except (OSError, SyntaxError) as error:
        return DefinedKernel(name, why=f"its source cannot be read: {error}")


def _nested_functions(island: Island) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of Triton's that are made inside of others, with the names of these."""
    for statement in _outside_functions(island.tree):
        if isinstance(statement, _DEFINITIONS):
            inner = (one for one in ast.walk(statement) if isinstance(one, ast.FunctionDef) and one is not statement)
            yield from ((statement.name, one) for one in inner if _has_mark(island, one))


def tuned_with(decorated: Any) -> dict[str, Any]:
    """What the decorators around a kernel say: `configs`, `heuristics`, `key` and `prunes` of a `KernelReading`."""
    configs: list[dict[str, Any]] = []
    heuristics: dict[str, Any] = {}
    key: tuple[str, ...] | None = None
    prunes = False
    for layer in _decorator_layers(decorated):
        for config in getattr(layer, "configs", None) or ():
            of_launches = ("num_warps", "num_stages", "maxnreg")
            options = {name: value for name in of_launches if (value := getattr(config, name, None))}
            configs.append({**getattr(config, "kwargs", {}), **options})
        # `Heuristics` of Triton has its functions in `values`; other decorators may have a method of that name.
        if isinstance(getattr(layer, "values", None), dict):
            heuristics.update(layer.values)
        if hasattr(layer, "configs"):
            names = getattr(layer, "keys", None) or getattr(layer, "key", None) or ()
            key = tuple(str(name) for name in names) if not callable(names) else ()
            prunes = Layers.prunes(layer)
    return {"configs": tuple(configs), "heuristics": heuristics, "key": key, "prunes": prunes}


@dataclass(frozen=True, eq=False)
class _FunctionScope:
    """A function, or the module, with what its names may hold at one place of it."""

    around: ast.AST
    names: dict[str, list[ast.expr]]

    def resolved(self, node: ast.expr, depth: int = 8) -> ast.expr:
        """An expression, with a name that was given one value replaced by that."""
        values = self.names.get(node.id, []) if depth and isinstance(node, ast.Name) else []
        return self.resolved(values[0], depth - 1) if len(values) == 1 and values[0] is not node else node

    def branched(self) -> _FunctionScope:
        """A copy, for a way that not every run takes."""
        return _FunctionScope(self.around, {name: list(values) for name, values in self.names.items()})

    def assign(self, target: ast.expr, value: ast.expr | None) -> None:
        """Give a target a value, None for one that is not seen, in place of what it had."""
        if isinstance(target, ast.Name):
            self.names[target.id] = [] if value is None else [value]
        elif isinstance(target, (ast.Tuple, ast.List)):
            for at, inner in enumerate(target.elts):
                self.assign(inner, None if value is None else _part(value, at, len(target.elts)))

    def define(self, node: ast.stmt) -> None:
        """Give the name of a function what it returns."""
        if isinstance(node, _FUNCTIONS):
            returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
            self.names[node.name] = [ast.Lambda(node.args, value) for value in returned]

    def run(self, node: ast.stmt) -> None:
        """Give names what a simple statement assigns."""
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.names.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.assign(target, node.value)

    def join(self, others: Iterable[_FunctionScope]) -> None:
        """Hold what names may hold after any of several ways."""
        ways = list(others)
        names = {name: [one for way in ways for one in way.names.get(name, ())] for way in ways for name in way.names}
        self.names.clear()
        self.names.update({name: list(dict.fromkeys(values)) for name, values in names.items()})


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceLaunch(_FunctionScope):
    """One launch by a function, or by the module, with what the names there were given.

    The grid is as it is written, with a name replaced by what it was given; None if it is not seen.
    """

    line: int
    grid: ast.expr | None
    arguments: dict[str, ast.expr]

    def ways(self, node: ast.expr) -> list[ast.expr]:
        """What a name was given, by each way that leads here; any other expression itself."""
        return self.names.get(node.id, []) if isinstance(node, ast.Name) else [node]

    def inner(self, node: ast.expr) -> Iterator[ast.expr]:
        """All expressions that an expression is made of, through the names of the launching function."""
        parts = (part for one in expressions(node, self.names) for part in ast.walk(one))
        return (part for part in parts if isinstance(part, ast.expr))

    def made_from(self, function: ast.Lambda) -> list[ast.AST]:
        """The body of a lambda, or of the `def` that it stands for; empty if that is not seen."""
        # A lambda without a line is one that `define` made of a `def`, whose other statements count too.
        if hasattr(function, "lineno"):
            return [function.body]
        functions = (one for one in ast.walk(self.around) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
        whole = (one for one in functions if one is not self.around and function.body in ast.walk(one))
        return [statement for one in whole for statement in one.body]

    def value(self, name: str) -> ast.expr | None:
        """The expression that a parameter is given, through names; None if it is not given."""
        node = self.arguments.get(name)
        return None if node is None else self.resolved(node)

    def text(self, name: str) -> str:
        """What a parameter is given, as text; empty if nothing."""
        value = self.value(name)
        return "" if value is None else ast.unparse(value)

    def literal(self, node: ast.expr) -> Any:
        """The number, truth value or text that an expression is; None if that is not seen."""
        value = self.resolved(node)
        return value.value if isinstance(value, ast.Constant) else None

    def is_number(self, name: str) -> bool:
        """Check whether a parameter is given a number that the source writes out."""
        return name in self.arguments and isinstance(self.literal(self.arguments[name]), int)

    def element(self, name: str) -> str:
        """The type of a tensor's elements as Triton writes it, where the launching function makes it of that type."""
        call = self.value(name)
        if not isinstance(call, ast.Call):
            return ""
        types = [one.value for one in call.keywords if one.arg == "dtype"]
        types += call.args[:1] if last_name(call) == "to" else []
        return next((_ELEMENTS.get(dotted_name(one), "") for one in types), "")

    def rounded(self, node: ast.expr, depth: int = 8) -> str:
        """The size, as text, of which an expression makes the next power of two; empty if it makes none."""
        call = self.resolved(node)
        name, parts = (last_name(call), call.args) if isinstance(call, ast.Call) else ("", [])
        if name == "next_power_of_2" and parts:
            return ast.unparse(self.resolved(parts[0]))
        sizes = (self.rounded(one, depth - 1) for one in parts if name == "max" and depth)
        return next(filter(None, sizes), "")

    @cached_property
    def strides(self) -> dict[str, AxisOf]:
        """The axis whose stride each parameter is given, where that is seen."""
        axes = ((name, _axis_of(self, node, "stride")) for name, node in self.arguments.items())
        return {name: one for name, one in axes if one is not None}

    @property
    def inner_strides(self) -> frozenset[str]:
        """The parameters that are given a stride of 1: the one that is asserted, or that of a tensor's last axis."""
        asserted = {name for name, one in self.strides.items() if self._asserts(one)}
        tensors = {self.strides[name].tensor for name in asserted}
        others = {name: one for name, one in self.strides.items() if one.tensor not in tensors}
        last: dict[str, int] = {}
        for one in others.values():
            axes = one.axis, last.get(one.tensor, 0)
            last[one.tensor] = -1 if -1 in axes else max(axes)
        inner = {name for name, one in others.items() if one.axis == last[one.tensor] != 0}
        ends = ((name, others[name].axis, rank_of(self, others[name].tensor) or 0) for name in inner)
        return frozenset(asserted | {name for name, axis, rank in ends if axis < 0 or rank <= axis + 1})

    def _asserts(self, one: AxisOf) -> bool:
        """Check whether the stride of an axis is asserted to be 1, of the tensor or of one that it is made like."""
        value = self.resolved(ast.Name(one.tensor))
        alike = value.args[:1] if isinstance(value, ast.Call) and last_name(value) == "empty_like" else []
        owners = [one.tensor, *map(ast.unparse, alike)]
        return not self._assertions.isdisjoint(f"{owner}.stride({one.axis}) == 1" for owner in owners)

    @cached_property
    def _assertions(self) -> set[str]:
        """The conditions without which the function ends before it launches: of assertions, and of what it refuses."""
        nodes = list(ast.walk(self.around))
        refusals = [one.test for one in nodes if isinstance(one, ast.If) and _leaves(one.body)]
        tests = [one.test for one in nodes if isinstance(one, ast.Assert)]
        tests += [one.operand for one in refusals if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not)]
        texts = (ast.unparse(self.resolved(one)) for one in tests)
        return {part.strip("()") for text in texts if " or " not in text for part in re.split(" and | & ", text)}

    def divides(self, block: str, name: str) -> bool:
        """Check whether what a block is given divides what another parameter is given: asserted, or as numbers."""
        if self.is_number(block) and self.is_number(name):
            return bool(self.literal(self.arguments[name]) % self.literal(self.arguments[block]) == 0)
        sizes, blocks = ({ast.unparse(self.arguments[one]), self.text(one)} for one in (name, block))
        return not self._assertions.isdisjoint(f"{size} % {by} == 0" for size in sizes for by in blocks)

    def is_of_settings(self, name: str) -> bool:
        """Check whether a parameter is asserted to be given what the function makes of numbers that it is given."""
        text = f"{ast.unparse(self.arguments[name])} == "
        others = [one.removeprefix(text) for one in self._assertions if one.startswith(text)]
        numbers = [one for one in others if re.fullmatch(r"[\w +*()-]+", one)]
        return any(not any(map(self.names.get, re.findall(r"[^\W\d]\w*", one))) for one in numbers)

    def is_single(self, axis: int, constants: Mapping[str, Any]) -> bool:
        """Check whether the grid has one program along an axis, where the kernel's constants are these."""
        extents = self._extents(axis)
        return bool(extents) and all(self._is_one(one, constants) for one in extents)

    def counted_by(self, axis: int) -> set[str]:
        """The parameters that are given what is the extent of the grid along an axis."""
        several = [set(self.given(one)) for one in self._extents(axis)]
        return set.intersection(*several) if several else set()

    def may_follow(self, axis: int, name: str) -> bool:
        """Check whether the extent of the grid along an axis may have to do with what a parameter is given."""
        node, parts = self.arguments.get(name), [part for one in self._extents(axis) for part in self.inner(one)]
        if node is None or not parts:
            return True
        names = {one.id for one in self.inner(node) if isinstance(one, ast.Name)}
        return not names.isdisjoint(ast.unparse(one) for one in parts) or name in map(_config_key, parts)

    def _extents(self, axis: int) -> list[ast.expr]:
        """The extents that the grid may have, by the way that leads to it; empty if one of them is not seen."""
        grids = [] if self.grid is None else self.ways(self.grid)
        bodies = [one.body if isinstance(one, ast.Lambda) else one for one in grids]
        tuples = [one.elts for one in bodies if isinstance(one, ast.Tuple)]
        # Triton takes 1 for the axes that a grid leaves out.
        return [(*one, *[ast.Constant(1)] * 3)[axis] for one in tuples] if len(tuples) == len(bodies) else []

    def _is_one(self, extent: ast.expr, constants: Mapping[str, Any]) -> bool:
        """Check whether an extent is 1: asserted, a constant of the kernel, or one block for all of a size."""
        node = self.resolved(extent)
        ones = [constants.get(name) == 1 for name in self.given(node)]
        if ast.unparse(node) == "1" or any(ones) or f"{ast.unparse(extent)} == 1" in self._assertions:
            return True
        if not isinstance(node, ast.Call) or last_name(node) != "cdiv" or len(node.args) != 2:
            return False
        size, block = (self.resolved(one) for one in node.args)
        return self.rounded(self.arguments.get(_config_key(block), block)) == ast.unparse(size)

    def given(self, node: ast.expr) -> list[str]:
        """The parameters that are given an expression, or the one that it reads from the config."""
        key, text = _config_key(node), ast.unparse(self.resolved(node))
        return [key] if key else [name for name in self.arguments if self.text(name) == text]


def _config_key(node: ast.expr) -> str:
    """The name in `META["NAME"]`; empty for any other expression."""
    key = node.slice if isinstance(node, ast.Subscript) else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


_BRANCHING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)


def launches(tree: ast.Module, kernel: str, parameters: tuple[str, ...]) -> tuple[SourceLaunch, ...]:
    """The launches `kernel[grid](…)` in a file, and those by `kernel.run(…, grid=…)` and `kernel.warmup`."""
    return tuple(_LaunchReader(kernel, parameters).function(tree, _FunctionScope(tree, {})))


class _LaunchReader:
    """A walk in the order of execution, so that a launch sees what its names hold there."""

    def __init__(self, kernel: str, parameters: tuple[str, ...]) -> None:
        self._kernel, self._parameters = kernel, parameters

    def function(self, node: Any, scope: _FunctionScope) -> Iterator[SourceLaunch]:
        """The launches of a function, or of a module, and of the functions in it, which run after it."""
        yield from self._block(node.body, scope)
        aliases = {name for name, values in scope.names.items() if any(self._kernel in _words(one) for one in values)}
        for inner in _outside_functions(node):
            if not isinstance(inner, _DEFINITIONS) or _words(inner).isdisjoint((self._kernel, *aliases)):
                continue
            own: dict[str, list[ast.expr]] = {one.arg: [] for one in parameters_of(inner)}
            yield from self.function(inner, _FunctionScope(inner, {**scope.names, **own}))

    def _block(self, statements: Iterable[ast.stmt], scope: _FunctionScope) -> Iterator[SourceLaunch]:
        for statement in statements:
            yield from self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: _FunctionScope) -> Iterator[SourceLaunch]:
        if isinstance(node, _DEFINITIONS):
            scope.define(node)
            return
        expressions = (one for one in ast.iter_child_nodes(node) if isinstance(one, (ast.expr, ast.withitem)))
        for call in (call for one in expressions for call in KernelSource.calls_in(one)):
            yield from self._launch(call, scope)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            yield from self._block(node.body, scope)
        elif isinstance(node, _BRANCHING):
            yield from self._branches(node, scope)
        else:
            scope.run(node)

    def _launch(self, call: ast.Call, scope: _FunctionScope) -> Iterator[SourceLaunch]:
        """The launch that a call is; nothing for a call of anything else."""
        func = call.func
        if isinstance(func, ast.Name):  # launcher = kernel[grid]; launcher(...)
            func = value if isinstance(value := scope.resolved(func), ast.Subscript) else func
        if isinstance(func, ast.Attribute) and func.attr not in ("run", "warmup"):
            return
        if not isinstance(func, (ast.Subscript, ast.Attribute)) or self._kernel not in _named_by(func.value, scope):
            return
        values: list[ast.expr] = []
        for one in call.args:
            parts = _starred_parts(one.value, scope) if isinstance(one, ast.Starred) else [one]
            values += parts or ()
            starred = ast.unparse(scope.resolved(one.value)) if isinstance(one, ast.Starred) else ""
            if parts is None or starred.endswith(".stride()"):
                break  # how many more there are is not seen
        arguments = dict(zip(self._parameters, values, strict=False))
        for keyword in call.keywords:
            arguments.update(_spread(keyword.value, scope) if keyword.arg is None else {keyword.arg: keyword.value})
        named_grid = next((keyword.value for keyword in call.keywords if keyword.arg == "grid"), None)
        grid = func.slice if isinstance(func, ast.Subscript) else named_grid
        grid = None if grid is None else scope.resolved(grid)
        names = scope.branched().names
        yield SourceLaunch(line=call.lineno, grid=grid, arguments=arguments, names=names, around=scope.around)

    def _branches(self, node: ast.stmt, scope: _FunctionScope) -> Iterator[SourceLaunch]:
        """Each way through a statement by itself; what names hold after any of those that go on is joined."""
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            if not isinstance(node, ast.While):
                scope.assign(node.target, None)
            turn = scope.branched()
            for _ in self._block(node.body, turn):
                pass  # another turn begins with what the one before has assigned
            scope.join([scope.branched(), turn])
            blocks = [node.body, node.orelse]
        elif isinstance(node, ast.Match):
            blocks = [case.body for case in node.cases]
        elif isinstance(node, ast.Try):
            blocks = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
        else:
            assert isinstance(node, ast.If)
            blocks = [node.body, node.orelse]
        ways = []
        for block in blocks:
            ways.append(scope.branched())
            yield from self._block(block, ways[-1])
        scope.join([way for way, block in zip(ways, blocks, strict=True) if not _leaves(block)] or ways)
        if isinstance(node, ast.Try):
            yield from self._block(node.finalbody, scope)


@lru_cache(maxsize=4096)
def _words(node: ast.AST) -> frozenset[str]:
    """The names and attributes in a part of a file."""
    parts = [one for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))]
    return frozenset(one.id if isinstance(one, ast.Name) else one.attr for one in parts)


def _leaves(block: list[ast.stmt]) -> bool:
    """Check whether what follows a block is not reached from it."""
    last = block[-1] if block else None
    fails = isinstance(last, ast.Assert) and isinstance(last.test, ast.Constant) and not last.test.value
    return fails or isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _named_by(node: ast.AST, scope: _FunctionScope, depth: int = 2 * _DEEPEST) -> set[str]:
    """The names that an expression may stand for: through other names, choices, and tables by their values."""
    inner: Iterable[ast.AST] = ()
    if isinstance(node, ast.Name):
        inner = scope.names.get(node.id, [])
    elif isinstance(node, (ast.IfExp, ast.Dict, ast.Subscript)) or (
        isinstance(node, ast.Call) and last_name(node) in ("get", "wrap_triton", "cast")
    ):
        inner = ast.iter_child_nodes(node)  # `wrap_triton` is torch.library's, and hands on what it is given
    elif isinstance(node, ast.Attribute) and node.attr == "get":
        inner = [node.value]
    names = {dotted_name(node).rpartition(".")[2]} if isinstance(node, ast.expr) else set()
    return names.union(*(_named_by(one, scope, depth - 1) for one in inner if depth))


def _spread(node: ast.expr, scope: _FunctionScope) -> dict[str, ast.expr]:
    """The arguments that `**x` spreads: those of a dict that is seen."""
    node = scope.resolved(node)
    if isinstance(node, ast.Call) and last_name(node) == "dict":
        return {one.arg: one.value for one in node.keywords if one.arg is not None}
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _starred_parts(node: ast.expr, scope: _FunctionScope) -> list[ast.expr] | None:
    """The arguments that a starred one spreads: parts of a tuple that is seen; of `x.stride()[:3]` the strides."""
    node = scope.resolved(node)
    if isinstance(node, ast.IfExp):
        node = node.body
    if isinstance(node, (ast.Tuple, ast.List)):
        return list(node.elts)
    count = ast.unparse(node.slice).removeprefix(":") if isinstance(node, ast.Subscript) else "2"  # or more
    call = node.value if isinstance(node, ast.Subscript) else node
    if not count.isdecimal() or not isinstance(call, ast.Call) or last_name(call) != "stride" or call.args:
        return None
    return [ast.Call(call.func, [ast.Constant(axis)], []) for axis in range(int(count))]


def _part(value: ast.expr, at: int, count: int) -> ast.expr:
    """The expression that the name at a place of a tuple is given: of `M, N = x.shape` M is given `x.shape[0]`."""
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == count:
        return value.elts[at]
    return ast.Subscript(value, ast.Constant(at), ast.Load())


class AxisOf(NamedTuple):
    """An axis of a tensor on the host; negative ones count from the end."""

    tensor: str
    axis: int


def extents_of(launch: SourceLaunch, name: str) -> list[AxisOf]:
    """The axes whose extent a parameter is given: several where a name is given several, as by `K, N = b.shape`."""
    argument = launch.arguments.get(name)
    several = [] if argument is None else launch.ways(argument)
    axes = (_axis_of(launch, one, "shape", "size") for one in several)
    return [one for one in axes if one is not None]


def rank_of(launch: SourceLaunch, tensor: str) -> int | None:
    """The number of axes of a tensor, by its shape taken apart or the strides that are given; None if unseen."""
    values = (one for several in launch.names.values() for one in several if not hasattr(one, "lineno"))  # a `_part`
    parts = [_axis_of(launch, value, "shape") for value in values]
    sources = (parts, launch.strides.values())
    several = ([one.axis for one in axes if one is not None and one.tensor == tensor] for axes in sources)
    return next((max(axes) + 1 for axes in several if max(axes, default=-1) >= 0), None)


def tensor_of(launch: SourceLaunch, name: str) -> str | None:
    """The tensor that a parameter is given, as text; None if it is not seen."""
    argument = launch.arguments.get(name)
    return None if argument is None else ast.unparse(argument)


_KEEPING = ("contiguous", "to", "cuda", "detach", "clone", "half", "float", "bfloat16", "requires_grad_")
_AXIS = re.compile(r"(?P<tensor>.+)\.(?P<attribute>stride|shape|size)(?:\(\))?[\[(](?P<axis>-?\d+)[\])]")


def _axis_of(launch: SourceLaunch, argument: ast.expr, *attributes: str) -> AxisOf | None:
    """The axis that an expression asks a tensor about: `x.stride(0)`, `x.shape[0]`, or a part of what a name holds."""
    node = launch.resolved(argument)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        node = ast.Subscript(launch.resolved(node.value), node.slice, ast.Load())
    match = _AXIS.fullmatch(ast.unparse(node)) if isinstance(node, (ast.Call, ast.Subscript)) else None
    if match is None or match["attribute"] not in attributes:
        return None
    line = max(getattr(one, "lineno", 0) for one in ast.walk(node))
    later = (one for one in launch.names.get(match["tensor"], ()) if getattr(one, "lineno", 0) > line)
    pattern = re.compile(rf"{re.escape(match['tensor'])}\.({'|'.join(_KEEPING)})\([^()]*\)")
    reshaped = any(not pattern.fullmatch(ast.unparse(one)) for one in later)
    return None if reshaped else AxisOf(match["tensor"], int(match["axis"]))
