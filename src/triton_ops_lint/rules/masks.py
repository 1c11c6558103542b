"""Missing masks, and masks that do not fit the index: decided by addresses and conditions, not by names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from triton_ops.backend import KernelSource, last_name
from triton_ops.kernel_ir import Term
from triton_ops_lint.indices import Index, IndexBound, all_indices, root_name
from triton_ops_lint.jit_functions import SourceLaunch, extents_of, parameters_of
from triton_ops_lint.reading import KernelReading, Variant
from triton_ops_lint.rules.rule import Seen, Statement, in_each_variant, once, rule

_UNSEEN = "whether the extents are multiples of the block is decided by callers, and no launch in the file shows it"
_CHECKED = (
    "the caller tests a remainder, so the extents may be multiples of the block; the test itself is not understood"
)
_BRANCHED = "another branch ends the index, and the condition between both is not understood"
_MADE_ELSEWHERE = "the file rounds sizes of tensors up to whole blocks; whether that of this one, callers decide"
_BY_DATA = "blocks go on to a number that is loaded; whether it is a multiple of the block is up to callers"


@dataclass(frozen=True, eq=False)
class _UnmaskedIndex:
    """An index that no condition ends; kind of access, argument and index are its key in all variants."""

    index: Index
    variant: Variant
    key: tuple[str, str, str]


@rule(
    "missing-mask",
    symptom="wrong results or an illegal address for sizes that the block does not divide; sizes that it divides pass",
    fix="compare the index with the extent, and pass the result as mask= (and other= to a load)",
)
@once
def missing_mask(kernel: KernelReading) -> Iterable[Statement]:
    """An index of a block that no condition ends, with evidence that it can pass the end of the data.

        tl.store(y + at, v)                     # bad
        tl.store(y + at, v, mask=at < n)        # good

    An address is taken apart into an index for each axis of its block. A mask, an `if`, an early return, `% n`,
    `boundary_check` and the shape of a descriptor end an index.

    Evidence is one of these: another access of the kernel ends the same index; the index runs through a loop whose
    end only the launch knows; the launch rounds the number of blocks up, or makes the block the next power of two;
    or a kernel without any mask is given an argument that it never uses.

    Nothing is found where the file promises that sizes fit. Such are a switch like `EVEN_K`, an assertion at every
    launch, and sizes that launches write out and the block divides. So are rows that the launching function rounds
    up or pads, and a loop that leaves the last block to an access with a mask.

    Undecided: an index without evidence, a loop to `n + 1` or to another end than masks have, a number of blocks
    that is loaded, a remainder that the file tests, and launches in other files. An index that is data, such as a
    gather, is not seen.
    """
    free, closed = [], set()
    for variant in kernel.variants:
        for index in all_indices(variant.facts):
            key = (index.access.kind, root_name(index.access), index.key.words)
            if index.bounds or index.symbol.number in index.access.mask.inside:
                closed.add((key, _switches(variant)))
            else:
                free.append(_UnmaskedIndex(index, variant, key))
    return _judge(kernel, free, closed)


def _switches(variant: Variant) -> str:
    return repr([(name, value) for name, value in variant.guess.constants.items() if isinstance(value, bool)])


def _judge(
    kernel: KernelReading, free: list[_UnmaskedIndex], closed: set[tuple[tuple[str, str, str], str]]
) -> Iterator[Statement]:
    several = [[launch.counted_by(axis) for launch in kernel.launches] or [set[str]()] for axis in range(3)]
    counts = {axis: set.intersection(*names) for axis, names in enumerate(several)}  # the grid's extents, as arguments
    for one in free:
        if _is_of_switch(one, closed) or one.index.fits_row(counts) or _fits(kernel, one):
            continue
        if _is_of_branch(one.index):
            yield _BRANCHED
            continue
        name, evidence = _evidence_of_other_access(kernel, one)
        if one.index.is_counted or _goes_on(one, name):
            yield _UNSEEN
            continue
        if _is_divided(kernel, one, name):
            continue
        evidence = evidence or _other_evidence(kernel, one, masked=bool(closed))
        if not evidence or _is_read_on(one.index):
            unseen = _CHECKED if kernel.checks_divisibility else _UNSEEN
            yield _BY_DATA if one.index.starts_by_data else unseen
        elif _is_of_caller(kernel, one.index):
            yield _MADE_ELSEWHERE
        else:
            what = f"this {one.index.access.kind} has no mask for {_describe_index(one.index)}"
            yield Seen(one.index.access, f"{what}; {evidence}")


def _fits(kernel: KernelReading, one: _UnmaskedIndex) -> bool:
    """Check whether the kernel or its launches make the tensor fit the blocks."""
    of_kernel = _before_its_own(one) or _is_own_part(one.index) or _is_row(kernel, one.index)
    return of_kernel or _is_whole(kernel, one) or _is_padded(kernel, one.index)


def _is_of_switch(one: _UnmaskedIndex, closed: set[tuple[tuple[str, str, str], str]]) -> bool:
    """Check whether a switch promises that no mask is needed: with others it has one, or the tensor has some."""
    mine = _switches(one.variant)
    of_tensor = {switched for key, switched in closed if key[:2] == one.key[:2]}
    with_others = any(key == one.key and switched != mine for key, switched in closed)
    return with_others or (bool(of_tensor) and mine not in of_tensor)


def _other_evidence(kernel: KernelReading, one: _UnmaskedIndex, *, masked: bool) -> str:
    """A loop, a launch or an argument that shows that an index can pass the end; empty for none."""
    if kernel.checks_divisibility or kernel.prunes:
        return ""
    rows = any(not other.stepping and other.extent == one.index.extent for other in all_indices(one.variant.facts))
    explained = masked or rows or one.index.term.arguments  # a block that programs share is a row's width
    beside = "" if explained else _unused_extent(kernel)
    return _evidence_of_loop(one) or ("" if one.index.starts_by_data else _evidence_of_launch(kernel, one) or beside)


def _is_divided(kernel: KernelReading, one: _UnmaskedIndex, name: str) -> bool:
    """Check whether every launch gives sizes that the block divides, for the end of masks and that of loops."""
    loops = filter(None, map(one.variant.facts.loop_of, one.index.stepping))
    sizes = {name, *(limit for loop in loops for limit in loop.limits)} - {""}
    tiles = _tiles_of(kernel, one) if sizes and kernel.launches else []
    pairs = ((launch, block, size) for launch in kernel.launches for size in sizes for block in tiles)
    divided = [launch.divides(block, size) for launch, block, size in pairs if {block, size} <= launch.arguments.keys()]
    return bool(divided) and all(divided)


def _goes_on(one: _UnmaskedIndex, name: str) -> bool:
    """Check whether a loop goes on beyond the end of masks: to one more, or to an end of its own, as of a buffer."""
    loops = [loop for loop in map(one.variant.facts.loop_of, one.index.stepping) if loop is not None]
    beyond = (loop.upper.arguments and loop.upper.parts.get((), 0) > 0 for loop in loops)
    return any(beyond) or (bool(name) and any(loop.limits and name not in loop.limits for loop in loops))


def _before_its_own(one: _UnmaskedIndex) -> bool:
    """Check whether the index runs through whole blocks up to the program's own, which begins within the data."""
    blocks = one.index.tiled("turn")
    loop = one.variant.facts.loop_of(blocks[0]) if len(blocks) == 1 and len(one.index.stepping) == 1 else None
    if loop is None or loop.lower.constant != 0 or loop.step.constant != one.index.extent:
        return False
    upper = loop.upper.parts
    whole = all(len(m) == 1 and m[0].name == "program_id" and c % one.index.extent == 0 for m, c in upper.items())
    return bool(upper) and whole and one.index.term.parts.get((), 0) == 0


def _is_padded(kernel: KernelReading, index: Index) -> bool:
    """Check whether launches round the rows of the tensor up, or pad it: by what it is made of, or by its pitch."""
    names = [root_name(index.access), *sorted(index.access.offset.arguments)]
    pairs = [(launch, launch.arguments.get(name)) for launch in kernel.launches for name in names]
    return any(_pads(launch, one) for launch, node in pairs if node is not None for one in launch.inner(node))


def _is_of_caller(kernel: KernelReading, index: Index) -> bool:
    """Check whether launching functions are given the tensor, and other functions round sizes up to whole blocks."""
    values = ((launch.value(root_name(index.access)), launch.around) for launch in kernel.launches)
    callers = [isinstance(one, ast.Name) and one.id in {each.arg for each in parameters_of(at)} for one, at in values]
    others = set(ast.walk(kernel.tree)).difference(*(ast.walk(launch.around) for launch in kernel.launches))
    products = (one for one in others if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult))
    pairs = (pair for one in products for pair in ((one.left, one.right), (one.right, one.left)))
    texts = ((ast.unparse(size), ast.unparse(block)) for size, block in pairs if _rounds_up(size) is not None)
    rounded = any(not size.startswith("tl.") and size.endswith((f"{block})", f"// {block}")) for size, block in texts)
    return bool(callers) and all(callers) and rounded


def _pads(launch: SourceLaunch, node: ast.expr) -> bool:
    """`cdiv(n, b) * b`, `n + (b - n % b) % b`, or `F.pad(...)`."""
    if isinstance(node, ast.Call):
        return last_name(node) == "pad"
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mult, ast.Add)):
        return False
    sides = [launch.resolved(one) for one in (node.left, node.right)]
    if isinstance(node.op, ast.Mult):
        return any(_rounds_up(one) is not None for one in sides)
    return any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) for one in sides)


def _describe_index(index: Index) -> str:
    return f"index {index.term.words} of axis {index.axis}, whose block has {index.extent}"


def _evidence_of_other_access(kernel: KernelReading, one: _UnmaskedIndex) -> tuple[str, str]:
    """Another access of the same index has a mask: the argument at which that ends, and words that say so."""
    tiles, (mine, root) = _tile_names(kernel, one), (one.index.term.parts.get((), 0), one.index.access.root)
    alike = len(tiles) + (f"tl.arange(0, {one.index.extent})" in map(ast.unparse, kernel.function.calls))
    if alike > 1 and not one.index.stepping and not one.variant.guess.known_names.issuperset(tiles):
        return "", ""  # one block may be taken for another of the same extent
    for index in all_indices(one.variant.facts):
        if index.extent != one.index.extent or index.key is not one.index.key:
            continue
        if not index.stepping and index.access.root is root and abs(index.term.parts.get((), 0) - mine) >= index.extent:
            continue  # another part of the same tensor
        limits = [bound for bound in index.bounds if bound.fits and not _is_of_guesses(kernel, one, bound)]
        if not index.stepping:  # without those that hold for the whole block, whose extent is the limit itself
            limits = [one for one in limits if (one.last.constant or 0) < index.extent - 1]
        if limits and not _is_local(one.index, limits[0]):
            last = limits[0].last
            sizes = (name for name, size in one.variant.guess.constants.items() if size == (last.constant or 0) + 1)
            words = f"line {kernel.place(index.access).line} ends the same index after {last.words}"
            return last.lone_argument[0] or next(sizes, ""), words
    return "", ""


def _is_read_on(index: Index) -> bool:
    """Check whether other accesses go further along the axis, by an argument or by data, so that it ends elsewhere."""
    (stride, *_), mine = index.stride.parts, index.access
    others = (one.offset for one in index.facts.accesses if one.root is mine.root and one is not mine)
    apart = (monomial for one in others for monomial in index.facts.terms.add((1, one), (-1, mine.offset)).parts)
    along = ([*monomial] for monomial in apart if all(monomial.count(one) >= stride.count(one) for one in stride))
    steps = (one for monomial in along for one in monomial if one not in stride)
    return any(one.argument or one.named("load") for one in steps)


def _is_of_branch(index: Index) -> bool:
    """Check whether the same index is ended where a test fails, such as of a remainder, that holds for this access."""
    alike = (one for one in all_indices(index.facts) if one.bounds and one.key is index.key)
    paths = [(index.access.path.conjuncts, one.access.path.conjuncts) for one in alike if one.extent == index.extent]
    tests = [({*one}, part) for mine, other in paths for one, two in ((mine, other), (other, mine)) for part in two]
    others = ((one, index.facts.terms.refuse(part)) for one, part in tests if part.name != Term.AT_LEAST_ZERO)
    return any(one.issuperset(part.conjuncts) for one, part in others)


def _is_row(kernel: KernelReading, index: Index) -> bool:
    """Check whether the kernel takes rows to be as far apart as the extent that it takes a block to have."""
    text = " ".join(map(ast.unparse, kernel.function.calls))
    sizes = dict(re.findall(r"(?:assume|static_assert)\((\w+) == (\d+)\b", text))
    tiles = {sizes[name] for name in kernel.uses.tiles if name in sizes}
    pitches = index.access.offset.arguments - index.stride.arguments
    return not index.stepping and not tiles.isdisjoint(map(sizes.get, pitches))


def _is_of_guesses(kernel: KernelReading, one: _UnmaskedIndex, bound: IndexBound) -> bool:
    """Check whether a limit is a number that no launch relates to the block or to the number of its turns."""
    last, guess = bound.last.constant, one.variant.guess
    guessed = bool(kernel.function.constants - guess.known_names) and not (one.index.stepping and kernel.launches)
    return last is not None and (guessed or last + 1 not in guess.constants.values())


def _is_own_part(index: Index) -> bool:
    """Check whether programs are counted along all axes of the grid: their parts of a buffer are as large as blocks."""
    monomials = (frozenset(one.name for one in monomial) for monomial in index.term.parts)
    return any(names >= {"program_id", "num_programs"} for names in monomials)


def _is_local(index: Index, bound: IndexBound) -> bool:
    """Check whether the access goes to memory with a pitch of its own, such as a buffer whose rows are rounded up."""
    pitches = index.access.offset.arguments - index.stride.arguments
    own = bool(pitches) and not pitches & bound.last.arguments
    stores = [(one.root, one.offset) for one in index.facts.accesses if one.kind == "store"]
    return (
        (index.access.root, index.access.offset) in stores
        and own
        and index.stride.constant == 1
        and len(index.access.type.shape) == 1
    )


def _evidence_of_loop(one: _UnmaskedIndex) -> str:
    """The index runs through a loop whose end is only known at launch."""
    facts = one.variant.facts
    for turn in (symbol for symbol in one.index.stepping if symbol.name == "turn"):
        loop = facts.loop_of(turn)
        by = one.index.term.parts.get((turn,), 0)
        if loop is None or by != one.index.extent or (upper := loop.upper).constant is not None:
            continue
        if by not in one.variant.guess.constants.values() or upper.named(
            "program_id", "turn", "turns", "carried", "load"
        ):
            continue  # the kernel is written for multiples of this number, or chooses the end
        step, unless = loop.step.constant, f"so its last block passes the end unless {by} divides it"
        if step == by and any(coefficient % by for coefficient in upper.parts.values()):
            return f"the loop runs to {upper.words} in steps of {by}, {unless}"
        if step == 1 and (limit := _rounded_up(upper, by)):
            return f"the loop has as many iterations of {by} as cover {limit}, {unless}"
    return ""


def _rounded_up(term: Term, by: int) -> str:
    """The arguments of which `term` is the quotient by `by`, rounded up, or more; empty if it is none."""
    alone = [m[0] for m, factor in term.parts.items() if factor == 1 and len(m) == 1 and m[0].name == "quotient"]
    blocks = [one.operands[0] for one in alone if one.operands[1].constant == by]
    whole = term.parts.get((), 0) >= 0  # the last block is left out of a loop where it is masked behind it
    return next((" + ".join(sorted(one.arguments)) for one in blocks if whole and one.parts.get((), 0) == by - 1), "")


def _evidence_of_launch(kernel: KernelReading, one: _UnmaskedIndex) -> str:
    if not one.index.plain:
        return ""
    for launch in kernel.launches:
        names = kernel.function.constants & launch.arguments.keys()
        constants = {ast.unparse(launch.arguments[name]) for name in names}  # the sizes that it is compiled for
        for node in _extents_of_grid(launch, one.index):
            size = _rounds_up(node)
            if size is not None and ast.unparse(size) not in constants and not _is_of_other(kernel, one, launch, node):
                return f"the launch in line {launch.line} rounds the number of blocks up: {ast.unparse(node)}"
        tiles = [] if one.index.stepping else _tiles_of(kernel, one)
        block = launch.value(tiles[0]) if len(tiles) == 1 else None
        if isinstance(block, ast.Call) and last_name(block) == "next_power_of_2":
            return f"the launch in line {launch.line} rounds {tiles[0]} up: {ast.unparse(block)}"
    return ""


def _is_of_other(kernel: KernelReading, one: _UnmaskedIndex, launch: SourceLaunch, blocks: ast.expr) -> bool:
    """Check whether a number of blocks is rounded up by another block than the index has, or comes out whole."""
    parts = blocks.args if isinstance(blocks, ast.Call) else [blocks.right] if isinstance(blocks, ast.BinOp) else []
    block = parts[-1] if parts else blocks
    names, tiles = launch.given(block), _tiles_of(kernel, one)
    if names and tiles and not set(names).intersection(tiles):
        return True
    size, number = (launch.literal(part) for part in (_rounds_up(blocks) or blocks, block))
    if not isinstance(number, int) or number < 1:
        return False
    return (not names and number != one.index.extent) or (isinstance(size, int) and size % number == 0)


def _extents_of_grid(launch: SourceLaunch, index: Index) -> Iterator[ast.expr]:
    """The parts of the grid along the axis whose programs step the index; all of it where they are regrouped."""
    if launch.grid is None:
        return
    axes = [one.operands[0] for one in index.tiled("program_id")]
    grid = launch.grid.body if isinstance(launch.grid, ast.Lambda) else launch.grid
    if axes and isinstance(grid, ast.Tuple) and axes[0] < len(grid.elts):
        yield from launch.inner(grid.elts[axes[0]])
    elif axes or any(one.operands[1].named("quotient", "least") for one in index.tiled("quotient", "remainder")):
        yield from launch.inner(launch.grid)


def _tile_names(kernel: KernelReading, one: _UnmaskedIndex) -> list[str]:
    return [n for n, v in one.variant.guess.constants.items() if v == one.index.extent and n in kernel.uses.tiles]


def _tiles_of(kernel: KernelReading, one: _UnmaskedIndex) -> list[str]:
    """The tiles of the block's extent: of several those with which it grows."""
    names = _tile_names(kernel, one)
    return [name for name in names if len(names) == 1 or _grows_with(kernel, one, name)] or names


def _grows_with(kernel: KernelReading, one: _UnmaskedIndex, name: str) -> bool:
    twice, place = 2 * one.index.extent, kernel.place(one.index.access)
    larger = kernel.with_values({name: twice}, one.variant)
    several = [] if larger is None else [index for index in all_indices(larger.facts) if index.extent == twice]
    return any(index.axis == one.index.axis and kernel.place(index.access) == place for index in several)


def _is_whole(kernel: KernelReading, one: _UnmaskedIndex) -> bool:
    """Check whether a block is a whole axis: every launch makes it of a tensor's shape, or the tensor of its extent."""
    names = _tiles_of(kernel, one) if kernel.launches else []
    if not one.index.stepping and all(_makes(each, root_name(one.index.access), names) for each in kernel.launches):
        return bool(names)
    return bool(names) and all(extents_of(launch, name) for launch in kernel.launches for name in names)


def _makes(launch: SourceLaunch, root: str, names: list[str]) -> bool:
    """Check whether a launching function makes a tensor with an axis of the very extent that it gives to a block."""
    tensor = launch.value(root)
    shapes = tensor.args[:1] if isinstance(tensor, ast.Call) and last_name(tensor) in ("empty", "zeros", "full") else []
    axes = (axis for shape in shapes if isinstance(shape, (ast.Tuple, ast.List)) for axis in shape.elts)
    return not {ast.unparse(launch.resolved(axis)) for axis in axes}.isdisjoint(map(launch.text, names))


def _rounds_up(node: ast.expr) -> ast.expr | None:
    """The size that `cdiv(n, b)`, `(n + b - 1) // b`, `-(-n // b)` or `math.ceil(n / b)` rounds up to whole blocks."""
    if isinstance(node, ast.Call) and last_name(node) in ("cdiv", "ceil_div", "ceildiv", "div_up", "ceil"):
        return node.args[0] if node.args else node
    left = node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) else None
    if isinstance(left, ast.UnaryOp) and isinstance(left.op, ast.USub):
        return left.operand
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub) and ast.unparse(left.right) == "1":
        return left.left.left if isinstance(left.left, ast.BinOp) else None
    return None


def _unused_extent(kernel: KernelReading) -> str:
    """The kernel is given a whole number that it never uses, where no launch says what for."""
    if kernel.launches:
        return ""
    names = {node.id for node in ast.walk(kernel.function.node) if isinstance(node, ast.Name)}
    names |= kernel.function.constants | {*(kernel.key or ())}
    spare = [name for name in kernel.function.parameters if name not in names]
    calls = KernelSource.calls_in(kernel.tree, "load", "store")
    pointers = {re.split(r"\W", ast.unparse(one.args[0]))[0] for one in calls if one.args}  # of all kernels of the file
    return (
        f"the kernel is given {spare[0]}, and uses it nowhere" if len(spare) == 1 and spare[0] not in pointers else ""
    )


@rule(
    "wrong-mask",
    symptom="elements beyond the end are read or written: the mask is there, and does not fit the index",
    fix="write the mask as index < extent, with the very index that is accessed",
)
@in_each_variant
def wrong_mask(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """A mask that lets an index pass that is no element's.

        mask = at <= n                                        # bad
        mask = tl.arange(0, B) < n                            # bad, where the access goes to pid * B + tl.arange(0, B)
        left = tl.load(x + at - 1, mask=at < n)               # bad: the first index is -1

    The last index that passes is computed from the mask. It is a finding if it is an extent itself, if the mask is
    of the position within the block while the grid has blocks for all of the data, or if the index begins below 0
    without a condition.

    Ends of parts, which are one more than the parts, places of a window, and rows that are read backwards are none.
    A store of a single block, which may have one element more, is undecided.
    """
    exclusive, terms = _exclusive(variant), variant.facts.terms
    guessed = variant.guess.constants.keys() - variant.guess.known_names
    sizes = [size for name in guessed if type(size := variant.guess.constants[name]) is int]
    # A distance between two sizes that were guessed is no number of the source.
    distances = {one - other for one in sizes for other in sizes}
    for index in all_indices(variant.facts):
        access = index.access
        for bound in index.bounds:
            (name, factor), far = bound.last.lone_argument, bound.last.parts.get((), 0)
            name = name if factor == 1 and far >= 0 else ""  # the last index that passes is n, n + 1 and so on
            whole = name in exclusive and not index.term.parts.get((), 0)  # else ends of parts, after the first begin
            known = whole or bool(index.tiled("program_id"))
            ends = known or access.kind == "store"
            earlier = (terms.add((1, bound.last), (-1, one.last)).constant or 0 for one in index.bounds if one.fits)
            ends &= all(distance <= 0 for distance in earlier)  # another condition lets fewer pass
            if bound.fits and index.plain and name and ends and not _one_more(kernel, variant, index, name):
                last = f"{name}{f' + {far}' if far else ''}"
                what = f"the mask lets index {last} pass, and {name} elements end at {name} - 1"
                yield Seen(access, what) if known else f"{what}; whether there is one more is up to callers"
            elif not bound.fits:
                yield from _beside_the_index(kernel, variant, index, bound)
        first = index.term.parts.get((), 0)
        plain = index.plain and access.kind != "atomic" and not index.has_lower_bound and _from_start(index)
        plain &= (index.stride.constant or 1) > 0  # else it runs backwards, from the last element on
        if first < 0 and plain and -access.offset.parts.get((), 0) not in distances:
            yield Seen(
                access,
                f"the first element of the first program is {first} along axis {index.axis}, "
                "and no mask asks for 0 <= index",
                fix="add `index >= 0` to the mask",
            )  # fmt: skip


def _one_more(kernel: KernelReading, variant: Variant, index: Index, name: str) -> bool:
    """Check whether the kernel or its launch says that a tensor has one element more than `name` says."""
    turns = (loop.upper for loop in variant.facts.loops)
    if any(end.lone_argument[0] == name and end.parts.get((), 0) > 0 for end in turns):
        return True
    if index.term.parts.get((), 0) != 1:
        ends = (one.comparators[0] for one in ast.walk(kernel.function.node) if isinstance(one, ast.Compare))
        return any(ast.unparse(one) == f"{name} + 1" for one in ends)  # `at < n + 1` is meant so
    values = (launch.resolved(launch.arguments[name]) for launch in kernel.launches if name in launch.arguments)
    if any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) for one in values for part in ast.walk(one)):
        return True  # such as of the places of a window in longer rows
    others = [one.offset for one in variant.facts.accesses if one.root is index.access.root]
    before = (variant.facts.terms.add((1, index.access.offset), (-1, one)).constant == 1 for one in others)
    return variant.guess.types.get(root_name(index.access)) == "*i32" and any(before)  # the ends of parts


def _from_start(index: Index) -> bool:
    """Check whether the address begins from the argument itself, and the index is a plain one of programs."""
    rest = [m for m in index.access.offset.parts if any(one.name in ("argument", "load", "carried") for one in m)]
    names = {one.name for one in index.term.inner()}
    return bool(index.access.root.argument) and not rest and names <= {"sum", "program_id", "index"}


def _exclusive(variant: Variant) -> set[str]:
    """Arguments that end an index or a loop elsewhere without being reached themselves."""
    bounds = (bound for index in all_indices(variant.facts) for bound in index.bounds if bound.fits)
    ends = {bound.last.lone_argument[0] for bound in bounds if bound.last.parts.get((), 0) == -1} - {""}
    return ends.union(*(loop.limits for loop in variant.facts.loops))


def _beside_the_index(kernel: KernelReading, variant: Variant, index: Index, bound: IndexBound) -> Iterator[Statement]:
    """A mask of the place within the block alone, where the access steps from block to block."""
    programs = bound.last.named("program_id")
    inside = bound.condition.operands[0].named("program_id", "turn")
    full = any(index.term.parts.get((one,), 0) == index.extent for one in programs)
    if not programs or inside or not full or index.access.path is not variant.facts.terms.true:
        return
    what = f"the mask asks {bound.condition.words}, and the access goes to {_describe_index(index)}"
    grids = [(one, node) for one in kernel.launches if one.grid is not None for node in one.inner(one.grid)]
    sizes = ((launch, _rounds_up(node)) for launch, node in grids)
    names = {ast.unparse(launch.resolved(size)) for launch, size in sizes if size is not None}
    limits = {launch.text(name) for launch in kernel.launches for name in bound.condition.arguments}
    if names & limits:
        yield Seen(
            index.access, f"{what}; the grid has blocks for all of {' '.join(sorted(names & limits))}",
            fix="mask the index that is accessed, with the program's offset in it",
        )  # fmt: skip
    elif not kernel.launches and index.stride.constant == 1 and len(index.access.type.shape) == 1:
        yield f"{what}; no launch in the file says whether each block has a limit of its own"
