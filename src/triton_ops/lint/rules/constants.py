"""Parameters that must be `tl.constexpr` and are not, and those that are and should not be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from triton_ops.lint.kernel import KernelReading
from triton_ops.lint.meaning.terms import constant, parts
from triton_ops.lint.rules.base import Rule, Statement
from triton_ops.lint.rules.indices import all_indices, arguments_in
from triton_ops.lint.source.functions import last_name, parameters_of
from triton_ops.lint.source.launches import SourceLaunch
from triton_ops.lint.source.usage import Uses

_PLACES = ("index", "turn", "program_id", "quotient", "remainder")


def _find_missing(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    """A parameter that decides a shape, and that Triton refuses as a number of the launch."""
    uses = kernel.uses
    deciders = {**dict.fromkeys(sorted(uses.types), 0), **dict.fromkeys(sorted(uses.ranges), 0), **uses.tiles}
    names = [name for name in deciders if name not in kernel.function.constants and name not in uses.pointers]
    for name in names:
        others = frozenset(names) - {name}
        refused = kernel.lowered_with(others, 0)
        accepted = kernel.lowered_with(others | {name}, 0)
        if refused[0]:
            continue  # it is no constant where it matters
        line = deciders[name] or kernel.line
        what = _what_it_decides(uses, name)
        if accepted[0]:
            yield rule.found(kernel, line, f"{name} decides {what}, and is no tl.constexpr: {refused[1]}")
        else:
            yield rule.undecided(kernel, f"{name} decides {what}; with or without tl.constexpr, {accepted[1]}")


def _what_it_decides(uses: Uses, name: str) -> str:
    if name in uses.types:
        return "an element type"
    return "the turns of a loop that is unrolled" if name in uses.ranges - set(uses.tiles) else "a block's extent"


def _find_needless(rule: Rule, kernel: KernelReading) -> Iterable[Statement]:
    """A constant that is a size of each call's data, needed by nothing that is decided when a kernel is compiled."""
    uses = kernel.uses
    deciders = set(uses.tiles) | uses.ranges | uses.types | uses.callables | uses.switches
    for name in kernel.function.parameters:
        if name not in kernel.function.constants or name in deciders or name not in uses.numbers:
            continue
        for launch in kernel.launches:
            if name not in launch.arguments:
                continue
            sizes = [node for node in _factors(launch, launch.arguments[name]) if _varies(node)]
            size = launch.resolved(launch.arguments[name])
            if not sizes or _is_rounded(size) or _is_one_block(kernel, launch, name):
                continue
            if kernel.lowered[0] and _is_needless(kernel, name):
                yield rule.found(
                    kernel, _line_of(kernel, name),
                    f"the launch in line {launch.line} gives {name} = {ast.unparse(size)}, which differs from call to "
                    "call; the kernel compiles with it as a plain argument",
                )  # fmt: skip
                break


def _is_needless(kernel: KernelReading, name: str) -> bool:
    """Check whether the kernel can do with a plain argument that is no width of rows: widths are those of a model."""
    plain = kernel.lowered_without(name)
    if plain is None:
        return False
    is_pitch = any(
        any(one.name in _PLACES for one in monomial)
        and any(one.name == "argument" and one.operands[0] == name for one in monomial)
        for access in plain.facts.accesses
        for monomial in parts(access.offset)
    )
    ends = any(
        name in arguments_in(bound.last) and constant(index.stride) is not None
        for index in all_indices(plain.facts)
        for bound in index.bounds
    )
    return not (is_pitch and ends)


def _is_one_block(kernel: KernelReading, launch: SourceLaunch, name: str) -> bool:
    """Check whether the launch makes a block of all of it, rounded up, so that few such sizes can occur."""
    size = ast.unparse(launch.resolved(launch.arguments[name]))
    blocks = (launch.resolved(node) for tile, node in launch.arguments.items() if tile in kernel.uses.tiles)
    rounded = (one for block in blocks for one in ast.walk(block) if isinstance(one, ast.Call))
    return any(
        last_name(one) == "next_power_of_2" and one.args and ast.unparse(launch.resolved(one.args[0])) == size
        for one in rounded
    )


def _factors(launch: SourceLaunch, node: ast.expr, depth: int = 8) -> Iterator[ast.expr]:
    """The parts of a size, through names and arithmetic, and not into the calls that made them."""
    node = launch.resolved(node)
    yield node
    if depth and isinstance(node, ast.BinOp):
        yield from _factors(launch, node.left, depth - 1)
        yield from _factors(launch, node.right, depth - 1)


def _varies(node: ast.expr) -> bool:
    """The number of all elements, of rows or of a batch: what differs from call to call; widths seldom do."""
    if isinstance(node, ast.Call):
        if last_name(node) == "numel":
            return True
        first = node.args[0] if node.args else None
        return last_name(node) in ("size", "len") and (
            last_name(node) == "len" or (isinstance(first, ast.Constant) and first.value == 0)
        )
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return isinstance(node.slice, ast.Constant) and node.slice.value == 0
    return False


def _is_rounded(node: ast.expr) -> bool:
    """Check whether a size is rounded, so that few values of it occur."""
    return any(
        isinstance(one, ast.Call) and last_name(one) in ("next_power_of_2", "cdiv", "ceil", "min", "max")
        for one in ast.walk(node)
    )


def _line_of(kernel: KernelReading, name: str) -> int:
    lines = (one.lineno for one in parameters_of(kernel.function.node) if one.arg == name)
    return next(lines, kernel.line)


MISSING = Rule(
    id="missing-constexpr",
    level="source",
    symptom="the kernel does not compile: a shape, a step or a type must be known when it is compiled",
    fix="annotate the parameter as tl.constexpr",
    decide=_find_missing,
    needs_ttir=False,
)
OVER = Rule(
    id="over-specialised",
    level="source",
    symptom="every new size compiles the kernel again, which takes from a tenth of a second to many seconds",
    fix="pass the size as a plain argument; Triton specialises on 1 and on multiples of 16 by itself",
    decide=_find_needless,
    needs_ttir=False,
)
