"""The kernels that a file defines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from triton_ops.lint.source.functions import (
    KernelFunction,
    decorator_layers,
    dotted_name,
    innermost_kernel,
    kernel_function,
    parameters_of,
)
from triton_ops.lint.source.island import Island, bound_names, used_names

_DEEPEST = 4


@dataclass(frozen=True, eq=False)
class DefinedKernel:
    """A kernel as its file defines it.

    Attributes:
        kernel: The JIT function with its syntax; None if it could not be made.
        decorated: The object of that name, with its decorators.
        why: Why it could not be made.
    """

    name: str
    kernel: KernelFunction | None = None
    decorated: Any = None
    why: str = ""


def defined_kernels(island: Island) -> list[DefinedKernel]:
    """The kernels of a file in their order, without the functions that kernels alone call."""
    kernels = [one for name in _candidates(island) if (one := _kernel_named(island, name)) is not None]
    helpers = {id(callee.function) for one in kernels if one.kernel for callee in one.kernel.callees()}
    launched = _launched_names(island.tree)
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
            yield from (name for name in bound_names(statement) if _defines_kernel(island, statement, name))
        elif isinstance(statement, ast.Assign) and _assigns_kernel(island, statement.value):
            yield from bound_names(statement)


def _defines_kernel(island: Island, statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(one, ast.FunctionDef) and one.name == name and _has_mark(island, one) for one in ast.walk(statement)
    )


def _has_mark(island: Island, node: ast.FunctionDef) -> bool:
    return any(_of_triton(island, one, _DEEPEST) for one in node.decorator_list)


def _assigns_kernel(island: Island, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _makes_kernel(value) and _of_triton(island, value, _DEEPEST)


def _makes_kernel(call: ast.Call) -> bool:
    names = [dotted_name(one) for one in ast.walk(call) if isinstance(one, (ast.Attribute, ast.Name))]
    return any(name.rpartition(".")[2] in ("jit", "autotune", "heuristics") for name in names)


def _of_triton(island: Island, node: ast.AST, depth: int) -> bool:
    """Check whether an expression uses what comes from a package of Triton's name, through other names of the file."""
    names = set(used_names(node))
    for statement in island.tree.body:
        mine = names.intersection(bound_names(statement))
        if isinstance(statement, ast.Import):
            sources = [one.name for one in statement.names if (one.asname or one.name.partition(".")[0]) in mine]
        elif isinstance(statement, ast.ImportFrom):
            sources = [statement.module or ""] if mine else []
        else:
            if mine and depth and statement is not node and _of_triton(island, statement, depth - 1):
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


def _launched_names(tree: ast.Module) -> set[str]:
    return {
        dotted_name(node.func.value).rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    }


def _nested_kernels(island: Island) -> Iterator[DefinedKernel]:
    """Kernels inside of functions and classes, which exist only while these run."""
    for statement in island.tree.body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for one in ast.walk(statement):
            if (
                isinstance(one, ast.FunctionDef)
                and one is not statement
                and _has_constants(one)
                and _has_mark(island, one)
            ):
                yield DefinedKernel(
                    one.name, why=f"it is defined inside of {statement.name}, and is made only when that runs"
                )


def tuned_with(decorated: Any) -> tuple[tuple[dict[str, Any], ...], dict[str, Any], tuple[str, ...] | None]:
    """Configs, heuristics and key of the decorators around a kernel; None for the key of a kernel that is not tuned."""
    configs: list[dict[str, Any]] = []
    heuristics: dict[str, Any] = {}
    key: tuple[str, ...] | None = None
    for layer in decorator_layers(decorated):
        for config in getattr(layer, "configs", None) or ():
            options = {
                name: getattr(config, name)
                for name in ("num_warps", "num_stages", "maxnreg")
                if getattr(config, name, None)
            }
            configs.append({**getattr(config, "kwargs", {}), **options})
        if isinstance(getattr(layer, "values", None), dict):
            heuristics.update(layer.values)
        if hasattr(layer, "configs"):
            names = getattr(layer, "keys", None) or getattr(layer, "key", None) or ()
            key = tuple(str(name) for name in names) if not callable(names) else ()
    return tuple(configs), heuristics, key
