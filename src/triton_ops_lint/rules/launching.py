"""Launches that do not fit their kernel: grids, constants, keys."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from triton_ops.backend import KernelSource, last_name
from triton_ops.kernel_ir import AccessFact, Term
from triton_ops_lint.indices import Index, all_indices, root_name
from triton_ops_lint.jit_functions import SourceLaunch, parameters_of, tensor_of
from triton_ops_lint.reading import KernelReading, Variant
from triton_ops_lint.rules.rule import Seen, Statement, once, rule

_PLACES = ("index", "turn", "program_id", "quotient", "remainder")


@rule(
    "missing-constexpr",
    "source",
    symptom="the kernel does not compile: a shape, a step or a type must be known when it is compiled",
    fix="annotate the parameter as tl.constexpr",
)
def missing_constexpr(kernel: KernelReading) -> Iterable[Statement]:
    """A parameter that decides a shape, a loop that is written out or a type, and is no `tl.constexpr`.

        def kernel(x, n, BLOCK): ... tl.arange(0, BLOCK)                  # bad: it does not compile
        def kernel(x, n, BLOCK: tl.constexpr): ... tl.arange(0, BLOCK)    # good

    Parameters that reach `tl.arange`, shapes, unrolled loops or element types, also through functions that are
    called, are given to Triton's front end as numbers and as constants. It is a finding if the front end takes the
    constants alone.
    """
    uses = kernel.uses
    deciders = {**dict.fromkeys(sorted(uses.types), 0), **dict.fromkeys(sorted(uses.ranges), 0), **uses.tiles}
    names = [name for name in deciders if name not in kernel.function.constants and name not in uses.pointers]
    accepted, why = kernel.lowered_with(frozenset(names), 0) if names else ((), "")
    if names and not accepted and kernel.lowered_with(frozenset(), 0)[0]:
        return  # they are no constants where it matters
    for name in names:
        refused = kernel.without(accepted[0], name) if accepted else why
        if isinstance(refused, Variant):
            continue
        line = deciders[name] or kernel.line
        extent = "how many times a loop is written out" if name in uses.ranges - set(uses.tiles) else "a block's extent"
        what = "an element type" if name in uses.types else extent
        if accepted:
            yield Seen(line, f"{name} decides {what}, and is no tl.constexpr: {refused}")
        else:
            yield f"{name} decides {what}; with or without tl.constexpr, {why}"


@rule(
    "over-specialised",
    "source",
    symptom="every new size compiles the kernel again, which takes from a tenth of a second to many seconds",
    fix="pass the size as a plain argument; Triton specialises on 1 and on multiples of 16 by itself",
)
def over_specialised(kernel: KernelReading) -> Iterable[Statement]:
    """A `tl.constexpr` that is a size of each call's data, so that each new size compiles the kernel again.

    A launch gives it the number of elements or rows (`numel()`, `shape[0]`, `len`) unrounded, no shape, unrolled
    loop, type or switch needs it, and the kernel compiles without it.

    Nothing is found for the width of rows, which is that of a model, for the size of a table that every program
    reads, and for a ratio of two sizes. Nor is it for a size that the launching function makes a block of, and for
    an argument by which no programs are counted.

    Undecided: rows that programs choose by numbers that they load, and parts whose lengths are loaded. So are the
    first extent of a tensor where another is a plain argument, and a size that a tune's key has as it is beside
    buckets of another.
    """
    uses = kernel.uses
    deciders = set(uses.tiles) | uses.ranges | uses.types | uses.callables | uses.switches
    for name in kernel.function.parameters if kernel.variants else ():
        if name not in kernel.function.constants or name in deciders or name not in uses.numbers:
            continue
        for launch in kernel.launches:
            if name not in launch.arguments:
                continue
            sizes = [node for node in _factors(launch, launch.arguments[name]) if _varies(launch, node)]
            size = launch.resolved(launch.arguments[name])
            few = _is_rounded(size) or _is_rounded_up(launch, name) or launch.is_of_settings(name)
            if not few and not all(_is_table(kernel, launch, one) for one in sizes) and _is_needless(kernel, name):
                if doubt := _doubt(kernel, launch, name, sizes):
                    yield doubt
                    break
                lines = (one.lineno for one in parameters_of(kernel.function.node) if one.arg == name)
                yield Seen(
                    next(lines, kernel.line),
                    f"the launch in line {launch.line} gives {name} = {ast.unparse(size)}, which differs from call to "
                    "call; the kernel compiles with it as a plain argument",
                )  # fmt: skip
                break


def _doubt(kernel: KernelReading, launch: SourceLaunch, name: str, sizes: list[ast.expr]) -> str:
    """Words for why few values of a size may be meant; empty where nothing says so."""
    key = kernel.key or ()
    calls = (value for one in key if isinstance(value := launch.value(one), ast.Call))
    parts = (part for call in calls for one in call.args for part in launch.inner(one))
    if name in key and any(_varies(launch, part) for part in parts):
        return f"the key of the tune has {name} as it is beside buckets of a size, as if it took few values"
    if all(_is_table(kernel, launch, one, by_data=True) for one in sizes):
        return f"{name} is the size of a tensor whose rows are chosen by data, which may be a table"
    plain = ((one, node) for one, node in launch.arguments.items() if one not in kernel.function.constants)
    beside = [one for one, node in plain if any(_varies(launch, part) for part in _factors(launch, node))]
    if beside and not any(isinstance(one, ast.Call) and last_name(one) != "size" for one in sizes):
        return f"{beside[0]} is a size that is no constant beside it, so that {name} may be one of a model"
    accesses = [access for one in sizes for access in _accesses_of(kernel, launch, one)]
    facts = kernel.variants[0].facts
    limits = [*(access.mask for access in facts.accesses), *(loop.upper for loop in facts.loops)]
    ends = {load.operands[1] for limit in limits for load in limit.named("load")}
    if accesses and all(one.root in ends and not one.type.shape for one in accesses):
        return f"{name} is the number of parts whose lengths are loaded, as of sequences or of a model's experts"
    return ""


def _is_needless(kernel: KernelReading, name: str) -> bool:
    """Check whether a plain argument would do that is work of a call: neither a width of rows nor a table's length."""
    plain = kernel.without(kernel.variants[0], name)
    if not isinstance(plain, Variant):
        return False
    offsets, ends = [access.offset for access in plain.facts.accesses], list(_ends_of(plain))
    if not any(_has_outside_of_data(one, name) for one in (*offsets, *ends)):
        return False
    pitches = [monomial for one in offsets for monomial in one.parts if any(_counts(part, name) for part in monomial)]
    ended = [one for one in all_indices(plain.facts) if any(name in bound.last.arguments for bound in one.bounds)]
    if ended and not any(one.stepping for one in ended):
        return False  # one block has all of it
    if not any(_counts(term, name) and term.named("program_id", "num_programs") for term in ends):
        return bool(pitches) and not any(one.named("index") for monomial in pitches for one in monomial)
    steps = (monomial for monomial in pitches if any(one.argument == name for one in monomial))
    by_rows = any(one.name in _PLACES for monomial in steps for one in monomial)
    return not (by_rows and any(one.stride.constant is not None for one in ended)) and not _is_of_columns(
        plain, name, ended
    )


def _counts(term: Term, name: str) -> bool:
    """Check whether an argument is part of a term, but for what is divided by it alone, as programs are by heads."""
    divides = term.name in ("quotient", "remainder") and term.operands[1].lone_argument == (name, 1)
    inner = term.operands[:1] if divides else term.direct()
    return term.argument == name or any(name in one.arguments and _counts(one, name) for one in inner)


def _is_of_columns(variant: Variant, name: str, ends: Sequence[Index]) -> bool:
    """Check whether an argument, which ends these indices, ends nothing but the columns of blocks with rows."""
    paths = (access.path.arguments for access in variant.facts.accesses)
    last = all(0 < one.axis == len(one.access.type.shape) - 1 for one in ends)
    return bool(ends) and last and not any(name in one for one in paths)


def _ends_of(variant: Variant) -> Iterator[Term]:
    """The conditions on elements and on the way to them, and each loop as the sum of its bounds and its step."""
    terms = variant.facts.terms
    for access in variant.facts.accesses:
        yield from (one.operands[0] for whole in (access.mask, access.path) for one in whole.comparisons())
    yield from (terms.add((1, loop.lower), (1, loop.upper), (1, loop.step)) for loop in variant.facts.loops)


def _has_outside_of_data(sums: Term, name: str) -> bool:
    """Check whether an argument is in a sum, and neither joined with an index or a page that was loaded nor its end."""
    loads = [(one, factor) for monomial, factor in sums.parts.items() for one in monomial if one.named("load")]
    if loads and (any(abs(factor) > 1 for _, factor in loads) or not any(one.name in _PLACES for one in sums.direct())):
        return False
    return any(name in one.arguments and not one.named("load") for monomial in sums.parts for one in monomial)


def _is_table(kernel: KernelReading, launch: SourceLaunch, size: ast.expr, *, by_data: bool = False) -> bool:
    """Check whether a size is that of a table or a weight: programs read all of it alike, or choose rows `by_data`."""
    accesses = _accesses_of(kernel, launch, size)
    factors = [one for access in accesses for monomial in access.offset.parts for one in monomial]
    return bool(accesses) and not any(
        one.named("program_id") and not (by_data and one.named("load")) for one in factors
    )


def _accesses_of(kernel: KernelReading, launch: SourceLaunch, size: ast.expr) -> list[AccessFact]:
    """The accesses to the tensor of which a launch gives a size."""
    owner = size.value if isinstance(size, ast.Subscript) else size.func if isinstance(size, ast.Call) else size
    tensor = ast.unparse(owner.value) if isinstance(owner, ast.Attribute) else ""
    tensor = ast.unparse(size.args[0]) if isinstance(size, ast.Call) and last_name(size) == "len" else tensor
    return [one for one in kernel.variants[0].facts.accesses if tensor_of(launch, root_name(one)) == tensor]


def _is_rounded_up(launch: SourceLaunch, name: str) -> bool:
    """Check whether the function makes a block of all of it, or of its multiple, so that few such sizes can occur."""
    calls = KernelSource.calls_in(launch.around, "next_power_of_2")
    sizes = [launch.resolved(one) for call in calls for one in call.args]
    products = [one for one in sizes if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult)]
    sides = [launch.resolved(side) for one in products for side in (one.left, one.right)]
    return launch.text(name) in map(ast.unparse, (*sizes, *sides))


def _factors(launch: SourceLaunch, node: ast.expr, depth: int = 8) -> Iterator[ast.expr]:
    """The parts that a size grows with, through names and arithmetic, and not into the calls that made them."""
    node = launch.resolved(node)
    yield node
    if not depth or not isinstance(node, ast.BinOp):
        return
    right = list(_factors(launch, node.right, depth - 1))
    divides = isinstance(node.op, (ast.FloorDiv, ast.Div, ast.Mod))
    if not divides or not any(_varies(launch, one) for one in right):  # what varies in both parts cancels
        yield from _factors(launch, node.left, depth - 1)
        yield from () if divides else right


def _varies(launch: SourceLaunch, node: ast.expr) -> bool:
    """The number of all elements, of rows or of a batch: what differs from call to call; widths seldom do."""
    if isinstance(node, ast.Call):
        first = ast.unparse(node.args[0]) if node.args else ""
        if last_name(node) == "len":  # of a tensor that the kernel is given; that of a list is a model's
            return first in map(ast.unparse, launch.arguments.values())
        return last_name(node) == "numel" or (last_name(node) == "size" and first == "0")
    return isinstance(node, ast.Subscript) and ast.unparse(node).endswith(".shape[0]")


def _is_rounded(node: ast.expr) -> bool:
    """Check whether a size is rounded, so that few values of it occur."""
    return any(KernelSource.calls_in(node, "next_power_of_2", "cdiv", "ceil", "min", "max"))


@rule(
    "narrow-key",
    symptom="the config that was tuned for one size is used for another, for which it is slow, without a word",
    fix="key on the extents that change the best tile: those that loops and tiled axes end at",
)
@once
def narrow_key(kernel: KernelReading) -> Iterator[Statement]:
    """A key of `triton.autotune` without an extent that decides the work of a program.

    It is a finding for a kernel with several configs whose loop steps by a tuned extent and ends at an argument
    that the key lacks. So it is where an argument ends a tuned axis of the stored tile while that of the other axis
    is in the key, unless the launch makes one from the other.

    An argument that ends the only tuned axis, or of which no axis is in the key, is undecided: one config may be
    meant for all sizes. Dtypes are in Triton's key by themselves.
    """
    variant, extents = kernel.tuned if kernel.key is not None and len(kernel.configs) > 1 else (None, {})
    if variant is None:
        return
    key = set(kernel.key or ())
    for loop in variant.facts.loops:
        if loop.upper.named("program_id", "load"):  # each program has an end of its own, which no key can hold
            continue
        ends = loop.upper.arguments - key
        by = {loop.step.constant, *(one.operands[1].constant for one in loop.upper.named("quotient"))}
        if ends and not by.isdisjoint(extents) and not _is_derived(kernel, ends, key):
            names = ", ".join(sorted(ends))
            yield Seen(
                loop,
                f"this loop runs to {names}, and the key is {sorted(key)}: the config that was best for the first "
                f"{names} is used for every other",
            )  # fmt: skip
    limits = _tiled_limits(variant, extents, axes=2)
    in_loops = {name for loop in variant.facts.loops for name in loop.upper.arguments}
    for name in sorted((limits | _tiled_limits(variant, extents, axes=1)) - key - in_loops):
        if _is_derived(kernel, {name}, key):
            continue
        what = f"{name} ends a tuned axis of the tile, and the key {sorted(key)} leaves it out"
        if name in limits and limits & key:
            also = ", ".join(sorted(limits & key))
            yield Seen(kernel.line, f"{what}, although it has {also}")
        else:
            yield f"{what}; it may vary little"


def _is_derived(kernel: KernelReading, names: set[str], key: set[str]) -> bool:
    """Check whether launches make the arguments from others in the key, or those from them, such as buckets."""
    for launch in kernel.launches:
        nodes = [launch.arguments[name] for name in key if name in launch.arguments]
        key_parts = {ast.unparse(launch.resolved(part)) for node in nodes for part in launch.inner(node)}
        own = [launch.arguments[name] for name in names if name in launch.arguments]
        mine = {ast.unparse(launch.resolved(node)) for node in own}
        parts = {ast.unparse(launch.resolved(part)) for node in own for part in launch.inner(node)}
        if (mine and mine <= key_parts) or parts.intersection(ast.unparse(launch.resolved(node)) for node in nodes):
            return True
    return False


@rule(
    "idle-key",
    "source",
    symptom="a tune is repeated for values that change nothing, or sizes that the key should tell apart share a config",
    fix="leave the name out of the key, or give the kernel a bucket of the size",
)
def idle_key(kernel: KernelReading) -> Iterator[Statement]:
    """A name in a key of `triton.autotune` that the kernel never reads.

    It is no argument of the kernel, which Triton passes over without a word, or an argument that neither the kernel
    nor its heuristics read and that a launch gives the size of a tensor as it is. A size that is rounded is meant
    so.

    Undecided: a size that also decides how many programs there are, one that callers choose, and one that a pruning
    function may read.
    """
    names = {one.id for one in ast.walk(kernel.function.node) if isinstance(one, ast.Name)}
    by_heuristics = {name for one in kernel.heuristics.values() for name in _texts_of(one)}
    for name in kernel.key or ():
        if name not in kernel.function.parameters:
            # 3.6 and 3.7 do; versions with triton-lang/triton#11602 refuse the kernel
            yield Seen(kernel.line, f"the key has {name}, which is no argument: Triton passes over it")
        elif name not in names | by_heuristics:
            yield from _of_no_use(kernel, name)


def _texts_of(function: Any) -> tuple[Any, ...]:
    # A heuristic reads arguments by their names, as in `args["N"]`.
    return getattr(getattr(function, "__code__", None), "co_consts", ())


def _is_size(node: ast.expr) -> bool:
    """Check whether an expression is a size of a tensor as it is."""
    sizes = ("size", "numel", "len")
    return last_name(node) in sizes if isinstance(node, ast.Call) else isinstance(node, ast.Subscript)


def _of_no_use(kernel: KernelReading, name: str) -> Iterator[Statement]:
    what = f"the key has {name}, which the kernel never reads, and each new value of it is tuned anew"
    values = [(one, value) for one in kernel.launches if (value := one.value(name)) is not None]
    plain = [one for one in values if _is_size(one[1])]
    if kernel.prunes:
        yield f"{what}; a function that leaves configs out may read it"
    elif not values or any(isinstance(value, ast.Name) for _, value in values):
        yield f"{what}; whether it is a bucket of a size is decided by callers"
    elif any(
        one.grid is not None and ast.unparse(value) in map(ast.unparse, one.inner(one.grid)) for one, value in plain
    ):
        yield f"{what}; it decides how many programs there are, and the best config may depend on that"
    elif plain:
        yield Seen(kernel.line, f"{what}: line {plain[0][0].line} gives {ast.unparse(plain[0][1])}")


def _limits(variant: Variant, chosen: Callable[[Index], bool]) -> set[str]:
    """The arguments at which chosen indices end that step from program to program."""
    indices = (one for one in all_indices(variant.facts) if chosen(one))
    stepping = (one for one in indices if any(symbol.name == "program_id" for symbol in one.stepping))
    bounds = (bound for index in stepping for bound in index.bounds if bound.fits)
    lone = (m[0] for bound in bounds for m in bound.last.parts if len(m) == 1)  # a product ends several axes as one
    return {one.argument for one in lone} - {""}


def _tiled_limits(variant: Variant, extents: Mapping[int, str], axes: int) -> set[str]:
    """Those of a stored block of so many axes and more whose indices step by tuned tiles."""
    return _limits(
        variant, lambda one: one.access.kind == "store" and len(one.access.type.shape) >= axes and one.extent in extents
    )


@rule(
    "changed-global",
    "source",
    symptom="a changed setting has no effect on a kernel that is compiled already, or the launch is refused",
    fix="pass the value as a tl.constexpr parameter",
)
def changed_global(kernel: KernelReading) -> Iterable[Statement]:
    """A global that the kernel reads, and that the file changes after the kernel is made.

    A function of the file declares it `global` and assigns it, or the file gives it another value below the kernel.
    A changed source needs nothing: Triton's cache and this package's records are keyed by it.
    """
    for name, line_read in _globals_read(kernel).items():
        for node in (one for one in ast.walk(kernel.tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))):
            inner = list(ast.walk(node))
            is_declared = any(isinstance(one, ast.Global) and name in one.names for one in inner)
            statements = (one for one in inner if isinstance(one, ast.stmt) and is_declared)
            if (line := next((one.lineno for one in statements if _assigns(one, name)), None)) is not None:
                yield Seen(
                    line_read,
                    f"the kernel reads the global {name}, which {node.name} changes in line {line}: code that is "
                    "compiled keeps the value that it was compiled with, and Triton refuses the next launch",
                )  # fmt: skip
        assigned = [statement for statement in kernel.tree.body if _assigns(statement, name)]
        lines = [statement.lineno for statement in assigned]
        if not any(isinstance(one, ast.AugAssign) for one in assigned) and len(set(map(ast.unparse, assigned))) == 1:
            continue  # the same value again
        # above the kernel once, and below it again, where launches may have compiled it already
        for line in (line for line in lines[1:] if line > kernel.line > lines[0]):
            yield Seen(
                line_read,
                f"the global {name} has one value in line {lines[0]} and another in line {line}; which of them a "
                "compiled kernel holds depends on when it was first launched",
            )  # fmt: skip


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
    targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


@rule(
    "static-grid",
    "source",
    symptom="the end of large inputs is never computed, or the tuned block sizes do not fit the number of programs",
    fix="make the grid from the size of the data and the block: (triton.cdiv(n, BLOCK),)",
)
def static_grid(kernel: KernelReading) -> Iterable[Statement]:
    """A grid that follows neither the size of the data nor the tuned block.

    It is a finding where the grid is made of numbers while an index that steps from program to program ends at an
    argument, unless programs go on to further blocks. So it is where the tuned block is the step between programs,
    and the grid is no function of the config or reads nothing of it.
    """
    for launch in kernel.launches:
        if launch.grid is None:
            continue
        if not kernel.variants:
            yield f"how it steps from program to program cannot be read: {kernel.lowered[1]}"
            return
        stepped = _limits(
            kernel.variants[0], lambda index: any(len(m) == 1 and m[0].name == "program_id" for m in index.term.parts)
        )
        tuned_extents = _tuned_steps(kernel)
        strides = _strides_the_grid(kernel)
        if tuned_extents and not _may_follow_config(launch) and not (_is_function(launch) and strides):
            yield Seen(
                launch.line,
                f"the grid {ast.unparse(launch.grid)} is no function of the config, and {', '.join(tuned_extents)}, by "
                "which programs step, differs between configs: with blocks smaller than the grid was made for, some "
                "elements are never computed; with larger ones, programs are left over",
                fix=f"grid = lambda meta: (triton.cdiv(n, meta[{tuned_extents[0]!r}]),)",
            )  # fmt: skip
        elif stepped and _is_fixed(launch) and not strides and not all(map(launch.is_number, stepped)):
            yield Seen(
                launch.line,
                f"the grid {ast.unparse(launch.grid)} does not depend on {', '.join(sorted(stepped))}, at which the "
                "stepped index ends: elements beyond the last program are never computed",
            )  # fmt: skip


def _tuned_steps(kernel: KernelReading) -> list[str]:
    variant, extents = kernel.tuned
    along = () if variant is None else all_indices(variant.facts)
    return sorted({extents[i.extent] for i in along if i.extent in extents and i.plain and i.tiled("program_id")})


def _may_follow_config(launch: SourceLaunch) -> bool:
    """Check whether a grid may follow the config: a function does that reads its first parameter, or cannot be read."""
    grid = launch.grid
    if not isinstance(grid, ast.Lambda):
        return _is_function(launch)
    parameters = [*grid.args.posonlyargs, *grid.args.args, grid.args.vararg, grid.args.kwarg]
    names = {one.arg for one in parameters[:1] + parameters[-2:] if one is not None}
    inside = launch.made_from(grid)
    nodes = [inner for one in inside for inner in ast.walk(one)]
    return not inside or any(isinstance(one, ast.Name) and one.id in names for one in nodes)


def _is_function(launch: SourceLaunch) -> bool:
    return isinstance(launch.grid, (ast.Lambda, ast.Name, ast.Attribute, ast.Call))


def _is_fixed(launch: SourceLaunch) -> bool:
    assert launch.grid is not None
    grid = launch.grid.body if isinstance(launch.grid, ast.Lambda) else launch.grid
    names = [one for one in ast.walk(grid) if isinstance(one, (ast.Name, ast.Attribute, ast.Call))]
    return all(isinstance(one, ast.Name) and isinstance(launch.literal(one), int) for one in names)


def _strides_the_grid(kernel: KernelReading) -> bool:
    """Check whether programs go on to further blocks, so that any number of them does all the work."""
    facts = kernel.variants[0].facts
    starts = (term for loop in facts.loops for term in (loop.step, loop.lower))
    return any(term.named("num_programs", "program_id") for term in starts) or any(
        access.offset.named("num_programs") for access in facts.accesses
    )
