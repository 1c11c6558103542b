"""The JIT functions of a file as their authors wrote them: syntax, parameters, decorators."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triton_ops.backend import is_jit_function
from triton_ops.lint.island import Island, bound_names, used_names

_MOST_LAYERS = 16


@dataclass(frozen=True, eq=False)
class KernelFunction:
    """A JIT function with its syntax, whose lines are those of the file."""

    function: Any
    node: ast.FunctionDef

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters, in order."""
        return tuple(one.arg for one in parameters_of(self.node))

    @cached_property
    def constants(self) -> frozenset[str]:
        """Parameters that are annotated as `tl.constexpr`."""
        return frozenset(p.name for p in self.function.params if p.is_constexpr)

    @cached_property
    def assignments(self) -> dict[str, list[ast.expr]]:
        """The expressions that each local name is given, wherever that is."""
        values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.node):
            for target, value in _bindings(node):
                values.setdefault(target, []).append(value)
        return values

    def callee(self, call: ast.Call) -> KernelFunction | None:
        """The JIT function that a call in this function runs; None for any other call."""
        function = _look_up(call.func, self.function.fn.__globals__)
        return kernel_function(function) if is_jit_function(function) and not _of_triton(function) else None

    def callees(self) -> Iterator[KernelFunction]:
        """The JIT functions that it calls."""
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call) and (callee := self.callee(node)) is not None:
                yield callee


_functions: dict[int, tuple[Any, KernelFunction]] = {}


def kernel_function(function: Any) -> KernelFunction:
    """A JIT function with its syntax, which is read once; raises OSError or SyntaxError if it cannot be."""
    if id(function) not in _functions:
        lines, first = inspect.getsourcelines(function.fn)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        node = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
        ast.increment_lineno(tree, first - 1)
        _functions[id(function)] = function, KernelFunction(function, node)
    return _functions[id(function)][1]


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
    """Check whether a JIT function has no decorator such as `triton.autotune` around it."""
    return is_jit_function(layer) and not hasattr(layer, "configs") and not hasattr(layer, "values")


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


def last_name(call: ast.Call) -> str:
    """The last part of the name that is called, such as `load`; `?` for what has none."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else "?"


def argument(call: ast.Call, place: int, *names: str) -> ast.expr | None:
    """An argument of a call, by its place or by one of its names; None if it is not given."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    return call.args[place] if 0 <= place < len(call.args) else None


def is_language(call: ast.Call, function: KernelFunction) -> bool:
    """Check whether a call is of Triton's language, or a method of one of its values."""
    value = _look_up(call.func, function.function.fn.__globals__)
    return isinstance(call.func, ast.Attribute) if value is None else _of_triton(value)


def _of_triton(value: Any) -> bool:
    module = getattr(value, "__module__", "") or ""
    return module.partition(".")[0] == "triton"


def _look_up(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _look_up(node.value, names)
        return None if owner is None else getattr(owner, node.attr, None)
    return None


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _pairs(node.target, node.value)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        yield node.target.id, ast.copy_location(value, node)
    elif isinstance(node, ast.For):
        yield from _pairs(node.target, node.iter)
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
        for at, inner in enumerate(target.elts):
            yield from _pairs(inner, parts[at] if parts else value)


_DEEPEST = 4


@dataclass(frozen=True, eq=False)
class DefinedKernel:
    """A kernel as its file defines it, `decorated` as it stands there, or the reason why it could not be made."""

    name: str
    kernel: KernelFunction | None = None
    decorated: Any = None
    why: str = ""


def defined_kernels(island: Island) -> list[DefinedKernel]:
    """The kernels of a file in their order, without the functions that kernels alone call."""
    kernels = [one for name in _candidates(island) if (one := _kernel_named(island, name)) is not None]
    helpers = {id(callee.function) for one in kernels if one.kernel for callee in one.kernel.callees()}
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
        return DefinedKernel(name, kernel_function(inner), decorated)
    except (OSError, SyntaxError, StopIteration) as error:
        return DefinedKernel(name, why=f"its source cannot be read: {error}")


def _helps(kernel: KernelFunction, helpers: set[int]) -> bool:
    """Check whether a function is there for kernels to call: others call it, or it returns something."""
    returns = any(isinstance(one, ast.Return) and one.value is not None for one in ast.walk(kernel.node))
    return id(kernel.function) in helpers or returns


def _nested_kernels(island: Island) -> Iterator[DefinedKernel]:
    """Kernels inside of functions and classes, which exist only while these run."""
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
