"""Winners and code that are kept for longer than they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from triton_ops.lint.kernel import KernelReading, Variant
from triton_ops.lint.meaning.facts import LoopFact
from triton_ops.lint.meaning.terms import constant, inner_terms
from triton_ops.lint.rules.base import Rule, Statement, once
from triton_ops.lint.rules.indices import all_indices, arguments_in


def _narrow_key(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    """A tuned kernel whose work per program is decided by an extent that the key leaves out."""
    if kernel.key is None or len(kernel.configs) < 2:
        return []
    variant, extents = kernel.tuned
    return [] if variant is None else once(_left_out_extents(rule, kernel, variant, extents))


def _left_out_extents(
    rule: Rule, kernel: KernelReading, variant: Variant, extents: Mapping[int, str]
) -> Iterator[Statement]:
    key = set(kernel.key or ())
    for loop in variant.facts.loops:
        if any(one.name in ("program_id", "load") for one in inner_terms(loop.upper)):
            continue
        ends = arguments_in(loop.upper) - key
        if ends and _is_tuned(extents, loop) and not _is_derived(kernel, ends, key):
            names = ", ".join(sorted(ends))
            yield rule.found(
                kernel, loop,
                f"this loop runs to {names}, and the key is {sorted(key)}: the config that was best for the first "
                f"{names} is used for every other",
            )  # fmt: skip
    limits = _tiled_limits(variant, extents, axes=2)
    for name in sorted((limits | _tiled_limits(variant, extents, axes=1)) - key):
        if not _is_derived(kernel, {name}, key) and not any(
            name in arguments_in(loop.upper) for loop in variant.facts.loops
        ):
            if name in limits and limits & key:
                yield rule.found(
                    kernel, kernel.line,
                    f"{name} ends a tuned axis of the tile, and the key {sorted(key)} leaves it out, although it has "
                    f"{', '.join(sorted(limits & key))}",
                )  # fmt: skip
            else:
                yield rule.undecided(
                    kernel,
                    f"{name} ends a tuned axis of the tile, and the key {sorted(key)} leaves it "
                    "out; it may vary little",
                )


def _is_tuned(extents: Mapping[int, str], loop: LoopFact) -> bool:
    by = {constant(loop.step)}
    by |= {constant(one.operands[1]) for one in inner_terms(loop.upper) if one.name == "quotient"}
    return any(extent in by for extent in extents)


def _is_derived(kernel: KernelReading, names: set[str], key: set[str]) -> bool:
    """Check whether launches make the arguments from others in the key, or those from them, such as buckets."""
    for launch in kernel.launches:
        nodes = [launch.arguments[name] for name in key if name in launch.arguments]
        key_parts = {ast.unparse(launch.resolved(part)) for node in nodes for part in launch.inner(node)}
        mine = {ast.unparse(launch.resolved(launch.arguments[name])) for name in names if name in launch.arguments}
        if mine and mine <= key_parts:
            return True
    return False


def _tiled_limits(variant: Variant, extents: Mapping[int, str], axes: int) -> set[str]:
    """Arguments that end an index of a stored block of so many axes and more, and that step by tuned tiles."""
    return {
        name
        for index in all_indices(variant.facts)
        if index.access.kind == "store" and len(index.access.type.shape) >= axes and index.extent in extents
        if any(one.name == "program_id" for one in index.stepping)
        for bound in index.bounds
        if bound.fits
        for name in arguments_in(bound.last)
    }


def _find_changed_globals(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    """A global that the kernel holds as a constant, and that the file gives another value after the kernel is made."""
    globals_read = _globals_read(kernel)
    for node in ast.walk(kernel.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            declared = {name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names}
            for name in sorted(declared & set(globals_read)):
                line = next(
                    (one.lineno for one in ast.walk(node) if isinstance(one, ast.stmt) and _assigns(one, name)), None
                )
                if line is not None:
                    yield rule.found(
                        kernel, globals_read[name],
                        f"the kernel reads the global {name}, which {node.name} changes in line {line}: code that is "
                        "compiled keeps the value that it was compiled with, and Triton refuses the next launch",
                    )  # fmt: skip
    first_lines: dict[str, int] = {}
    for statement in kernel.tree.body:
        for name in globals_read:
            if _assigns(statement, name):
                if name in first_lines and statement.lineno > kernel.line > first_lines[name]:
                    yield rule.found(
                        kernel, globals_read[name],
                        f"the global {name} has one value in line {first_lines[name]} and another in "
                        f"line {statement.lineno}; which of "
                        "them a compiled kernel holds depends on when it was first launched",
                    )  # fmt: skip
                first_lines.setdefault(name, statement.lineno)


def _globals_read(kernel: KernelReading) -> dict[str, int]:
    """Names from outside of the kernel that it reads as values, with their lines."""
    local = set(kernel.function.parameters) | set(kernel.function.assignments)
    values = kernel.function.function.fn.__globals__
    lines: dict[str, int] = {}
    for node in ast.walk(kernel.function.node):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in local and node.id in values:
            value = getattr(values[node.id], "value", values[node.id])
            if isinstance(value, (bool, int, float, str)):
                lines.setdefault(node.id, node.lineno)
    return lines


def _assigns(node: ast.AST, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)] if isinstance(
        node, (ast.AugAssign, ast.AnnAssign)
    ) else []  # fmt: skip
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


NARROW_KEY = Rule(
    id="narrow-key",
    level="ttir",
    symptom="the config that was tuned for one size is used for another, for which it is slow, without a word",
    fix="key on the extents that change the best tile: those that loops and tiled axes end at",
    decide=_narrow_key,
)
CHANGED_GLOBAL = Rule(
    id="changed-global",
    level="source",
    symptom="a changed setting has no effect on a kernel that is compiled already, or the launch is refused",
    fix="pass the value as a tl.constexpr parameter",
    decide=_find_changed_globals,
    needs_ttir=False,
)
