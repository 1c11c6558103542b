"""The JIT functions of a file as their authors wrote them: syntax, parameters, decorators, launches.

Names are followed to what they were last given within the launching function; nothing of it is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from triton_ops.backend import KernelSource, Layers, last_name
from triton_ops.lint.island import Island, bound_names, used_names

_MOST_LAYERS = 16


def innermost_kernel(layer: Any) -> Any:
    """The JIT function inside decorators such as `triton.autotune`; None if there is none."""
    *_, last = decorator_layers(layer)
    return last if _is_bare(last) else None


def decorator_layers(layer: Any) -> Iterator[Any]:
    """A decorated kernel with what is inside of it, down to the JIT function."""
    for _ in range(_MOST_LAYERS):
        yield layer
        inner = getattr(layer, "fn", None) or getattr(layer, "__wrapped__", None)
        if _is_bare(layer) or inner is None:
            return
        layer = inner


def _is_bare(layer: Any) -> bool:
    return Layers.is_jit(layer) and not hasattr(layer, "configs") and not hasattr(layer, "values")


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """The parameters of a function, but for `*args` and `**kwargs`."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def dotted_name(node: ast.expr) -> str:
    """A name with its dots, such as `tl.load`; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


_DEEPEST = 4


@dataclass(frozen=True, eq=False)
class DefinedKernel:
    """A kernel as its file defines it, `decorated` as it stands there, or the reason why it could not be made."""

    name: str
    kernel: KernelSource | None = None
    decorated: Any = None
    why: str = ""


def defined_kernels(island: Island) -> list[DefinedKernel]:
    """The kernels of a file in their order, without the functions that kernels alone call."""
    kernels = [one for name in _candidates(island) if (one := _kernel_named(island, name)) is not None]
    sources = [one.kernel for one in kernels if one.kernel is not None]
    helpers = {id(one.function) for kernel in sources for one in map(kernel.callee, kernel.calls) if one is not None}
    calls = (node.func for node in ast.walk(island.tree) if isinstance(node, ast.Call))
    launched = {dotted_name(func.value).rpartition(".")[2] for func in calls if isinstance(func, ast.Subscript)}
    launchable = [
        one for one in kernels if one.kernel is None or one.name in launched or not _helps(one.kernel, helpers)
    ]
    return [*launchable, *_nested_kernels(island)]


def _candidates(island: Island) -> Iterator[str]:
    for statement in island.tree.body:
        if isinstance(statement, ast.FunctionDef):
            if _has_mark(island, statement) or (statement.decorator_list and _has_constants(statement)):
                yield statement.name
        elif isinstance(statement, (ast.If, ast.Try)):
            inner = [one for one in ast.walk(statement) if isinstance(one, ast.FunctionDef)]
            kernels = {one.name for one in inner if _has_mark(island, one)}
            yield from (name for name in bound_names(statement) if name in kernels)
        elif isinstance(statement, ast.Assign) and _makes_kernel(island, statement.value):
            yield from bound_names(statement)


def _has_mark(island: Island, node: ast.FunctionDef) -> bool:
    return any(_kernels_of_triton(island, one, _DEEPEST) for one in node.decorator_list)


def _makes_kernel(island: Island, value: ast.expr) -> bool:
    names = [dotted_name(one) for one in ast.walk(value) if isinstance(one, (ast.Attribute, ast.Name))]
    makes = any(name.rpartition(".")[2] in ("jit", "autotune", "heuristics") for name in names)
    return isinstance(value, ast.Call) and makes and _kernels_of_triton(island, value, _DEEPEST)


def _kernels_of_triton(island: Island, node: ast.AST, depth: int) -> bool:
    """Check whether an expression uses what comes from a package of Triton's name, through other names of the file."""
    names = set(used_names(node))
    for statement in island.tree.body:
        mine = names.intersection(bound_names(statement))
        if isinstance(statement, ast.Import):
            sources = [one.name for one in statement.names if (one.asname or one.name.partition(".")[0]) in mine]
        elif isinstance(statement, ast.ImportFrom):
            sources = [statement.module or ""] if mine else []
        else:
            if mine and depth and statement is not node and _kernels_of_triton(island, statement, depth - 1):
                return True
            continue
        if any(source.startswith("triton") for source in sources):
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


def _helps(kernel: KernelSource, helpers: set[int]) -> bool:
    """Check whether a function is there for kernels to call: others call it, or it returns something."""
    returns = any(isinstance(one, ast.Return) and one.value is not None for one in ast.walk(kernel.node))
    return id(kernel.function) in helpers or returns


def _nested_kernels(island: Island) -> Iterator[DefinedKernel]:
    for statement in island.tree.body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        why = f"it is defined inside of {statement.name}, and is made only when that runs"
        inner = (one for one in ast.walk(statement) if isinstance(one, ast.FunctionDef) and one is not statement)
        yield from (DefinedKernel(one.name, why=why) for one in inner if _has_constants(one) and _has_mark(island, one))


def tuned_with(decorated: Any) -> tuple[tuple[dict[str, Any], ...], dict[str, Any], tuple[str, ...] | None]:
    """Configs, heuristics and key of the decorators around a kernel; None for the key of a kernel that is not tuned."""
    configs: list[dict[str, Any]] = []
    heuristics: dict[str, Any] = {}
    key: tuple[str, ...] | None = None
    for layer in decorator_layers(decorated):
        for config in getattr(layer, "configs", None) or ():
            options = {name: getattr(config, name, None) for name in ("num_warps", "num_stages", "maxnreg")}
            options = {name: value for name, value in options.items() if value}
            configs.append({**getattr(config, "kwargs", {}), **options})
        if isinstance(getattr(layer, "values", None), dict):
            heuristics.update(layer.values)
        if hasattr(layer, "configs"):
            names = getattr(layer, "keys", None) or getattr(layer, "key", None) or ()
            key = tuple(str(name) for name in names) if not callable(names) else ()
    return tuple(configs), heuristics, key


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceLaunch:
    """One launch by a function, or by the module, with what the names there were given.

    The grid is as it is written, with a name replaced by what it was given; None if it is not seen.
    """

    line: int
    grid: ast.expr | None
    arguments: dict[str, ast.expr]
    names: dict[str, list[ast.expr]]
    around: ast.AST

    def resolved(self, node: ast.expr, depth: int = 8) -> ast.expr:
        """An expression, with a name that was given one value replaced by that."""
        if depth and isinstance(node, ast.Name):
            values = self.names.get(node.id, [])
            if len(values) == 1 and values[0] is not node:
                return self.resolved(values[0], depth - 1)
        return node

    def inner(self, node: ast.expr) -> Iterator[ast.expr]:
        """All expressions that an expression is made of, through the names of the launching function."""
        names: set[str] = set()
        queue: list[ast.AST] = [node]
        while queue:
            for one in ast.walk(queue.pop()):
                if isinstance(one, ast.expr):
                    yield one
                if isinstance(one, ast.Name) and one.id not in names:
                    names.add(one.id)
                    queue += self.names.get(one.id, ())

    def made_from(self, function: ast.Lambda) -> list[ast.AST]:
        """The body of a lambda, or of the `def` that it stands for; empty if that is not seen."""
        if hasattr(function, "lineno"):
            return [function.body]
        functions = (one for one in ast.walk(self.around) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
        whole = (one for one in functions if one is not self.around and function.body in ast.walk(one))
        return [statement for one in whole for statement in one.body]

    def literal(self, node: ast.expr) -> Any:
        """The number, truth value or text that an expression is; None if that is not seen."""
        value = self.resolved(node)
        return value.value if isinstance(value, ast.Constant) else None


class _FunctionScope(NamedTuple):
    node: ast.AST
    names: dict[str, list[ast.expr]]


def launches(tree: ast.Module, kernel: str, parameters: tuple[str, ...]) -> tuple[SourceLaunch, ...]:
    """The launches `kernel[grid](…)` in a file, and those by `kernel.run(…, grid=…)` and `kernel.warmup`."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = _names_in((one for one in tree.body if not isinstance(one, definitions)), {})
    return tuple(_launches_in(tree, _FunctionScope(tree, names), kernel, parameters))


def _launches_in(
    node: ast.AST, scope: _FunctionScope, kernel: str, parameters: tuple[str, ...]
) -> Iterator[SourceLaunch]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            own: dict[str, list[ast.expr]] = {one.arg: [] for one in parameters_of(inner)}  # they hide the module's
            names = {**scope.names, **_names_in(inner.body, own)}
            yield from _launches_in(inner, _FunctionScope(inner, names), kernel, parameters)
            continue
        if isinstance(inner, ast.Call) and (grid := _launch_grid(inner, kernel, scope)) is not None:
            yield _launch(inner, grid[0], scope, parameters)
        yield from _launches_in(inner, scope, kernel, parameters)


def _launch_grid(call: ast.Call, kernel: str, scope: _FunctionScope) -> tuple[ast.expr | None] | None:
    func = call.func
    if isinstance(func, ast.Name):  # launcher = kernel[grid]; launcher(...)
        values = scope.names.get(func.id, [])
        func = values[0] if len(values) == 1 and isinstance(values[0], ast.Subscript) else func
    if isinstance(func, ast.Subscript) and _names_kernel(func.value, kernel, scope):
        return (func.slice,)
    if isinstance(func, ast.Attribute) and func.attr in ("run", "warmup") and _names_kernel(func.value, kernel, scope):
        return (next((k.value for k in call.keywords if k.arg == "grid"), None),)
    return None


def _names_kernel(node: ast.expr, kernel: str, scope: _FunctionScope) -> bool:
    if dotted_name(node).rpartition(".")[2] == kernel:
        return True
    values = scope.names.get(node.id, []) if isinstance(node, ast.Name) else []
    return any(dotted_name(one).rpartition(".")[2] == kernel for one in values)


def _launch(call: ast.Call, grid: ast.expr | None, scope: _FunctionScope, parameters: tuple[str, ...]) -> SourceLaunch:
    arguments: dict[str, ast.expr] = {}
    place = 0
    for one in call.args:
        if isinstance(one, ast.Starred):
            parts = _starred_parts(one.value, scope)
            if parts is None:
                break
            arguments.update(zip(parameters[place:], parts, strict=False))
            place += len(parts)
        elif place < len(parameters):
            arguments[parameters[place]] = one
            place += 1
    arguments.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    launch = SourceLaunch(line=call.lineno, grid=None, arguments=arguments, names=scope.names, around=scope.node)
    return launch if grid is None else replace(launch, grid=launch.resolved(grid))


def _starred_parts(node: ast.expr, scope: _FunctionScope) -> list[ast.expr] | None:
    """The arguments that a starred one spreads: parts of a tuple that is seen; of `x.stride()` the strides in order."""
    if isinstance(node, ast.Name) and len(values := scope.names.get(node.id, [])) == 1:
        node = values[0]
    if isinstance(node, (ast.Tuple, ast.List)):
        return list(node.elts)
    if isinstance(node, ast.Call) and last_name(node) == "stride" and not node.args:
        is_method = isinstance(node.func, ast.Attribute)
        return [ast.Call(node.func, [ast.Constant(axis)], []) for axis in range(2)] if is_method else None
    return None


def _names_in(statements: Iterable[ast.stmt], names: dict[str, list[ast.expr]]) -> dict[str, list[ast.expr]]:
    for statement in statements:
        _collect(statement, names)
    return names


def _collect(node: ast.AST, names: dict[str, list[ast.expr]]) -> None:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            _assign(target, node.value, names)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        _assign(node.target, node.value, names)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        names.setdefault(node.target.id, []).append(node.value)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
        names.setdefault(node.name, []).extend(ast.Lambda(node.args, value) for value in returned)
        return
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, (ast.Lambda, ast.ClassDef)):
            _collect(inner, names)


def _assign(target: ast.expr, value: ast.expr, names: dict[str, list[ast.expr]]) -> None:
    if isinstance(target, ast.Name):
        names.setdefault(target.id, []).append(value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for at, inner in enumerate(target.elts):
            _assign(inner, _part(value, at, len(target.elts)), names)


def _part(value: ast.expr, at: int, count: int) -> ast.expr:
    """The expression that the name at a place of a tuple is given: of `M, N = x.shape` M is given `x.shape[0]`."""
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == count:
        return value.elts[at]
    return ast.Subscript(value, ast.Constant(at), ast.Load())


class AxisOf(NamedTuple):
    """An axis of a tensor on the host; negative ones count from the end."""

    tensor: str
    axis: int


def stride_of(launch: SourceLaunch, name: str) -> AxisOf | None:
    """The axis whose stride a parameter is given; None if that is not seen."""
    argument = launch.arguments.get(name)
    return None if argument is None else _axis_of(launch, argument, "stride")


def extents_of(launch: SourceLaunch, name: str) -> list[AxisOf]:
    """The axes whose extent a parameter is given: several where a name is given several, as by `K, N = b.shape`."""
    argument = launch.arguments.get(name)
    if argument is None:
        return []
    several = launch.names.get(argument.id, []) if isinstance(argument, ast.Name) else [argument]
    axes = [_axis_of(launch, one, attribute) for one in several for attribute in ("shape", "size")]
    return [one for one in axes if one is not None]


def rank_of(launch: SourceLaunch, tensor: str) -> int | None:
    """The number of axes of a tensor, where its shape is taken apart; None if it is not."""
    axes = [
        axis.axis
        for values in launch.names.values()
        for one in values
        if isinstance(one, ast.Subscript) and (axis := _axis_of(launch, one, "shape")) is not None
        if axis.tensor == tensor and axis.axis >= 0
    ]
    return max(axes) + 1 if axes else None


def tensor_of(launch: SourceLaunch, name: str) -> str | None:
    """The tensor that a parameter is given, as text; None if it is not seen."""
    argument = launch.arguments.get(name)
    return None if argument is None else ast.unparse(argument)


def _axis_of(launch: SourceLaunch, argument: ast.expr, attribute: str) -> AxisOf | None:
    node = launch.resolved(argument)
    if isinstance(node, ast.Subscript):  # x.stride()[0], x.shape[0], x.size()[0]
        owner, place = node.value, node.slice
        if isinstance(owner, ast.Name):
            owner = launch.resolved(owner)
        if isinstance(owner, ast.Call) and last_name(owner) == attribute and not owner.args:
            return _axis(owner.func, place)
        if isinstance(owner, ast.Attribute) and owner.attr == attribute:
            return _axis(owner, place)
    if isinstance(node, ast.Call) and last_name(node) == attribute and node.args:
        return _axis(node.func, node.args[0])
    return None


def _axis(accessor: ast.expr, place: ast.expr) -> AxisOf | None:
    if not isinstance(accessor, ast.Attribute):
        return None
    if isinstance(place, ast.UnaryOp) and isinstance(place.op, ast.USub) and isinstance(place.operand, ast.Constant):
        axis = -int(str(place.operand.value))
    elif isinstance(place, ast.Constant) and type(place.value) is int:
        axis = place.value
    else:
        return None
    return AxisOf(ast.unparse(accessor.value), axis)
