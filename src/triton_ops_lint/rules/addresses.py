"""Addresses that do not fit their tensor, or that several programs share."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from math import prod

from triton_ops.kernel_ir import AccessFact, Fact, KernelFacts, SourcePlace, Term
from triton_ops_lint.indices import STEPPING, Index, indices, root_name
from triton_ops_lint.jit_functions import AxisOf, extents_of, rank_of, tensor_of
from triton_ops_lint.memory_watch import CONFLICT, OUTSIDE, UNWRITTEN
from triton_ops_lint.reading import KernelReading, Variant
from triton_ops_lint.rules.rule import Seen, Statement, in_each_variant, rule

_AXES = "xyz"
_WAITING = ("exch", "tt.atomic_cas")  # atomic operations by which programs may wait for each other
_ENDLESS = ("program_id", "quotient", "carried", "load")
_WIDE_ROW = 64  # elements, from which on rows may be as many as make 2^31
_ROW = 16  # elements of a row, of which no memory holds 2^31


@rule(
    "cross-program-atomic",
    symptom="results differ in their last bits from run to run, the output must be zeroed before each launch, and "
    "speed depends on how programs collide",
    fix="two passes: each program stores its partial result, and a second kernel adds them up in a fixed order",
)
@in_each_variant
def cross_program_atomic(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """An atomic sum of floating point to which several programs add.

        tl.atomic_add(out, tl.sum(v))                         # bad
        tl.store(partial + tl.program_id(0), tl.sum(v))       # good: a second kernel adds up in a fixed order

    It is a finding if the address does not depend on a `program_id` that the kernel uses, or depends on data that
    is not the begin of the program's own part. Sums of whole numbers, maxima and minima do not depend on the order,
    and are none.
    """
    facts = variant.facts
    for access in facts.accesses:
        if access.kind != "atomic" or "fadd" not in access.does or _counts(access):
            continue
        if shared := _sharing(kernel, variant, access):
            yield Seen(access, f"tl.atomic_add on {access.type.element}: {shared}")


def _counts(access: AccessFact) -> bool:
    """Check whether whole numbers are added, whose sum is the same in any order."""
    term = access.value.term if access.value is not None else access.offset
    while term.name == "choose":
        term = term.operands[1]
    return KernelFacts.does(term) == "counts" or (term.name == "number" and float(term.operands[0]).is_integer())


def _sharing(kernel: KernelReading, variant: Variant, access: AccessFact) -> str:
    """Words for how several programs add to one element; empty if each has elements of its own."""
    facts = variant.facts
    several = (one for one in _programs(facts) if not kernel.is_single(variant, one.operands[0]))
    conditions = [*access.path.named(Term.ZERO), *access.mask.named(Term.ZERO)]  # by which one program alone adds
    programs = [one for one in several if not any(one.number in each.inside for each in conditions)]
    for program in sorted(programs, key=lambda one: one.number in access.offset.inside):
        if program.number not in access.offset.inside:
            return (
                f"the address does not depend on program_id({program.operands[0]}), so that all "
                f"programs along {_AXES[program.operands[0]]} add to it"
            )
        part = _unused_part(facts, access, program)
        if part:
            return f"the address does not depend on {part}, so that programs that differ in it add to the same elements"
    axes = {facts.terms.index(axis).number for axis in range(len(access.type.shape))}
    loads = access.offset.named("load")
    alone = bool(loads) and not access.offset.inside & axes  # a block that begins where data says is its own
    one_element = alone and not all(_is_bound(facts, one) for one in loads)
    if not access.root.argument or one_element or any(one.inside & axes for one in loads):
        return "the address is data, so that any program may add to any element"
    return ""


def _is_bound(facts: KernelFacts, load: Term) -> bool:
    """Check whether a number is the begin of a program's part: the one after it is loaded too, as the end."""
    programs = {one.number for one in load.named("program_id")}
    others = (one for one in facts.loads if one is not load and one.operands[:2] == load.operands[:2])
    apart = (facts.terms.add((1, one.operands[2]), (-1, load.operands[2])) for one in others)
    return bool(programs) and any(not one.inside & programs for one in apart)


def _programs(facts: KernelFacts) -> list[Term]:
    """The program numbers that decide what the kernel reads, writes or computes."""
    terms = [term for loop in facts.loops for term in (loop.lower, loop.upper)]
    for access in facts.accesses:
        terms += [access.offset, access.mask, access.path, *([access.value.term] if access.value else ())]
    return sorted(facts.terms.symbols("program_id", terms))


def _unused_part(facts: KernelFacts, access: AccessFact, program: Term) -> str:
    """A quotient or remainder of the program's number that decides what is read, and not where it is added to."""
    mine = set(access.offset.inner())
    if any(program in monomial for monomial in access.offset.parts):
        return ""
    deciding = [access.offset for access in facts.accesses if access.kind == "load"]
    deciding += [term for loop in facts.loops for term in (loop.lower, loop.upper)]
    all_quotients = (one for term in deciding for one in term.named("quotient", "remainder") if not one.named("load"))
    others = list(dict.fromkeys(one for one in all_quotients if program.number in one.inside))
    quotients = [one for one in mine if one.name in ("quotient", "remainder")]
    if quotients and all(one in mine or any(one in set(two.inner()) for two in quotients) for one in others):
        return ""
    return next((one.words for one in others if one not in mine), "")


def _overlaps_of(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    facts = variant.facts
    locked = any(access.does in _WAITING for access in facts.accesses)
    for access in facts.accesses:
        if access.kind != "store":
            continue
        for program in _programs(facts):
            value = access.value.term if access.value else access.offset
            around = (loop for loop in facts.loops if loop.number in access.loops)
            turns = (term for loop in around for term in (loop.lower, loop.upper))
            places = (access.offset, access.mask, access.path, access.root, *turns)
            if any(_depends(facts, term, program) for term in places) or not _depends(facts, value, program):
                continue
            if kernel.is_single(variant, program.operands[0]):
                continue
            place = f"the store to {root_name(access)} goes to the same place for every {program.words}"
            what = f"{place}, and what it stores differs"
            why = "the kernel has a lock, whose order is not followed" if locked else _promise(kernel, access, program)
            yield f"line {kernel.place(access).line}: {what}; {why}" if why else Seen(access, what)
        if (step := _narrow_step(kernel, variant, access)) is not None:
            yield Seen(access, step)
    if not locked:
        yield from _others_stores(kernel, variant)


def _promise(kernel: KernelReading, access: AccessFact, program: Term) -> str:
    """What a caller may see to with one program along that axis: a switch for the store, or a config of such blocks."""
    place, axis = kernel.place(access), program.operands[0]
    if kernel.prunes and any(all(one.may_follow(axis, name) for one in kernel.launches) for name in kernel.uses.tiles):
        return "a function leaves configs out, and may leave out those with several such programs"
    switches = kernel.function.constants | kernel.uses.optional
    tests = (one for one in ast.walk(kernel.function.node) if isinstance(one, ast.If) and place.file == kernel.file)
    for node in (one for one in tests if one.lineno < place.line <= (one.end_lineno or 0)):
        names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)} & switches
        if any(all(one.may_follow(axis, name) for one in kernel.launches) for name in names):
            return f"{min(names)} decides whether it is there, and may say that there is one such program"
    return ""


def _depends(facts: KernelFacts, term: Term, symbol: Term) -> bool:
    """Check whether a term depends on a symbol, also through what loops carry and what was loaded."""
    queue, numbers = [term], set()
    while queue:
        for one in queue.pop().inner():
            if one is symbol or one.name in ("was there", "scaled dot"):
                return True
            if one.name in ("carried", "after", "turn", "turns") and one.number not in numbers:
                numbers.add(one.number)
                loops = [loop for loop in (*facts.loops, *facts.whiles) if loop.number == one.operands[0]]
                queue += [term for loop in loops for term in (loop.lower, loop.upper, *loop.ends)]
                carried = (value for loop in loops for value in loop.carried if value.place == one.operands[:2])
                queue += [term for value in carried for term in (value.begin, value.next)]
    return False


def _narrow_step(kernel: KernelReading, variant: Variant, access: AccessFact) -> str | None:
    """Blocks of neighbouring programs that overlap: the step between them is smaller than the block."""
    if not kernel.function.constants <= variant.guess.known_names | {name for c in kernel.configs for name in c}:
        return None
    for index in indices(variant.facts, access):
        for program in (one for one in index.stepping if one.name == "program_id"):
            step = index.term.parts.get((program,), 0)
            inside = program.number in access.mask.inside
            if 0 < step < index.reach and not inside and index.stride.constant == 1:
                return f"programs step by {step} and store {index.reach}, so that neighbours write the same elements"
    return None


def _others_stores(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """Loads of what a neighbouring program stores in the same launch."""
    facts, terms = variant.facts, variant.facts.terms
    stores = [one for one in facts.accesses if one.kind == "store" and one.root.argument and not one.loops]
    own = {(one.root, one.offset) for one in stores}  # which a program may read before it stores there
    for load in (one for one in facts.accesses if one.kind == "load" and not one.loops):
        for store in stores if (load.root, load.offset) not in own else ():  # else it stores them too
            if load.root is not store.root or load.type.shape != store.type.shape or not store.type.shape:
                continue
            apart = terms.add((1, load.offset), (-1, store.offset)).constant
            along = (one for one in indices(facts, store) if one.stepping and one.stride.constant == 1)
            if apart and any(abs(apart) < one.reach for one in along):
                side, line = "before" if apart < 0 else "after", kernel.place(store).line
                what = f"this reads {root_name(load)} {abs(apart)} elements {side} what line {line} stores there"
                edge = "at the edge of a block that is another program's, which may run before or after"
                if variant.is_guessed(apart):
                    yield f"line {kernel.place(load).line}: {what}; how far that is callers decide"
                else:
                    yield Seen(load, f"{what}: {edge}", fix="write the result to another tensor")


def _observed(kind: str, kernel: KernelReading) -> Iterator[Statement]:
    """A rule's decision by what was seen of a kind; nothing where no run was asked for."""
    if kernel.run is None:
        return
    observations = [one for one in kernel.run.observations if (one.kind, one.kernel) == (kind, kernel.name)]
    yield from (Seen(SourcePlace(one.file, one.line), one.evidence, level="run") for one in observations)
    if not observations and (why := kernel.run.why_open(kind, kernel.name)):
        yield why


@rule(
    "overlapping-writes",
    symptom="results depend on which program runs last: several write the same elements, or read what another writes",
    fix="let the address depend on every program_id that the launch has, or store from one program alone",
)
def overlapping_writes(kernel: KernelReading) -> Iterable[Statement]:
    """Stores of several programs to one address, and loads of what a neighbour stores in the same launch.

    It is a finding if address, mask and path do not depend on a `program_id` on which the value depends, or if
    blocks are larger than the step between programs. With `--run`, two programs that write different values to one
    element are one too.

    A grid with one program along that axis is none: by an assertion, a constant, or a block for all of a row.
    Undecided: kernels with locks, a store that a switch leaves out where no launch is in the file, configs that a
    function prunes, and a distance that callers give.
    """
    statements = in_each_variant(_overlaps_of)(kernel)
    open_already = any(isinstance(one, str) for one in statements)
    observations = _observed(CONFLICT, kernel)
    return [*statements, *(one for one in observations if not isinstance(one, str) or not open_already)]


@rule(
    "outside-tensor",
    "run",
    symptom="wrong results or an illegal address: elements are read or written that belong to no tensor of the launch",
    fix="a mask or an extent that fits the tensor, and the strides that it has",
)
def outside_tensor(kernel: KernelReading) -> Iterator[Statement]:
    """Reads and writes outside of the tensors of a launch, as a run with `--run` sees them.

    The kernel gets addresses at which no tensor is within reach of another, and every address of a load, store or
    atomic operation is looked up. Bytes between the rows of a tensor with gaps are outside, too. The access is left
    out, and the run goes on.
    """
    return _observed(OUTSIDE, kernel)


@rule(
    "never-written",
    "run",
    symptom="some elements of the result hold what the memory held before",
    fix="programs and blocks for all of the result; or zero it before each launch, if that is meant",
)
def never_written(kernel: KernelReading) -> Iterator[Statement]:
    """Elements of a result that nothing writes, as a run with `--run` sees them.

    They are elements of an output, or of a returned tensor that kernels write, that still hold the NaN or largest
    number of before. An output that is zeroed before each launch is whole.
    """
    return _observed(UNWRITTEN, kernel)


@rule(
    "stride-order",
    symptom="wrong results or illegal addresses for transposed and non-square tensors; contiguous square ones may pass",
    fix="pass x.stride(0), x.stride(1) in the order in which the kernel multiplies them by row and column",
)
@in_each_variant
def stride_order(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """A stride that belongs to another axis than the index that it multiplies.

        kernel[grid](x, y, M, N, x.stride(1), x.stride(0))    # bad: the kernel multiplies the row by the first
        kernel[grid](x, y, M, N, x.stride(0), x.stride(1))    # good

    The TTIR says which argument multiplies an index, and which one ends it. A launch in the file says of which axis
    of the tensor each is the stride or the extent. `i * M + j`, where `i` ends at `M` and `j` at `N`, is a finding
    too: rows are as far apart as there are rows.

    Axes of equal extents may be swapped on purpose, and are no finding. Undecided: an index without an end, strides
    of another tensor, and launches in other files.
    """
    open_roots: dict[str, None] = {}
    for access in variant.facts.accesses:
        along, root = indices(variant.facts, access), root_name(access)
        strided = [(index, name) for index in along if (name := index.stride.lone_argument[0])]
        yield from _pitch(access, along, strided)
        for index, name in strided:
            verdict = _by_launch(kernel, root, index, name, strided)
            if verdict:
                yield Seen(access, verdict)
            elif verdict is None and len(strided) > 1:
                open_roots[root] = None
    if open_roots:
        why = "is decided by callers, and no launch in the file shows it"
        yield f"which axis each stride of {', '.join(open_roots)} belongs to {why}"


def _by_launch(
    kernel: KernelReading, root: str, index: Index, name: str, strided: list[tuple[Index, str]]
) -> str | None:
    """Words for what a launch shows to be wrong; empty if it shows that all is right, and None if it shows nothing."""
    verdict: str | None = None
    for launch in kernel.launches:
        tensor = tensor_of(launch, root)
        stride = launch.strides.get(name)
        if stride is None or tensor is None or stride.tensor != tensor:
            continue
        for end in sorted(index.ends):
            lone = end in launch.arguments and len(launch.given(launch.arguments[end])) == 1  # else axes are as long
            extents = [one for one in extents_of(launch, end) if one.tensor == tensor and lone]
            rank = rank_of(launch, tensor)
            alike = {launch.strides.get(stride_name) for one, stride_name in strided if end in one.ends}
            if extents and all(_different(stride, one, rank) and one not in alike for one in extents):
                where = " or ".join(str(one.axis) for one in extents)
                return (
                    f"line {launch.line} gives {name} the stride of axis {stride.axis} of {tensor}; the index "
                    f"that it multiplies ends at {end}, the extent of axis {where}"
                )
            verdict = "" if extents else verdict
    return verdict


def _different(one: AxisOf, other: AxisOf, rank: int | None) -> bool:
    if (one.axis < 0) == (other.axis < 0):
        return one.axis != other.axis
    return rank is not None and one.axis % rank != other.axis % rank


def _pitch(access: AccessFact, along: Iterable[Index], strided: list[tuple[Index, str]]) -> Iterator[Statement]:
    """`i * M + j` where i ends at M and j at N: rows are as far apart as there are rows."""
    inner = [one for one in along if one.stride.constant == 1 and len(one.ends) == 1]
    for outer, pitch in (pair for pair in strided if pair[0].ends == {pair[1]}):
        for one in inner:
            if one.ends != outer.ends:
                (width,) = one.ends
                yield Seen(
                    access,
                    f"rows are {pitch} elements apart, which is the number of rows; a row has {width}",
                    fix=f"multiply the row by {width}",
                )  # fmt: skip


@rule(
    "offset-overflow",
    symptom="illegal addresses or wrong results for tensors of 2^31 elements and more; smaller ones pass",
    fix="compute the offset of rows in 64 bits: tl.program_id(0).to(tl.int64)",
)
@in_each_variant
def offset_overflow(kernel: KernelReading, variant: Variant) -> Iterator[Statement]:
    """A product of 32 bits in an address that is widened after it may have overflowed.

        row = (tl.program_id(0) * stride).to(tl.int64)        # bad
        row = tl.program_id(0).to(tl.int64) * stride          # good

    It is a finding also where another term of the address is multiplied in 64 bits. It is none where the launch
    says that this one is of an inner axis, or where the tensor has one element for each 16 and more of the other.

    Undecided: a product that is never widened, since how large tensors are is not in the file; a row whose width is
    a number; one beside heads or groups that a remainder counts; and one that is widened without its sign. Blocks
    of an index that a mask ends are no rows.
    """
    facts = variant.facts
    wide = dict(_growing(kernel, variant, 64))
    places = {(kernel.place(one), term.words) for other in kernel.variants for term, one in _growing(kernel, other, 64)}
    own = {(kernel.place(one), term.words) for term, one in wide.items()}
    products = {product for product, _ in _growing(kernel, variant, 32)}
    factors = [factor for one in facts.multiplications if one.bits == 64 for factor in (one.one, one.other)]
    widened = {product for product in products if any(_has(term, product) for term in facts.widenings)}
    mixed = [one.offset for one in facts.accesses if any(_has(one.offset, term) for term in wide)]
    whole = products.intersection(facts.widenings)  # of which those count that are widened for their tensor's size
    whole = {one for one in whole if not any(_has(offset, one) for offset in mixed)}
    for product, one in _growing(kernel, variant, 32):
        accesses = [access for access in facts.accesses if _has(access.offset, product)]
        counts = any(_has(factor, product) for factor in factors)  # of rows, which have many elements each
        is_of_address = product in widened or any(_has(term, product) for term in facts.narrow)
        if not accesses or not is_of_address or counts or (kernel.place(one), product.words) in places - own:
            continue  # a switch of the kernel decides how wide it is, or no address needs it
        what = f"{product.words} is multiplied in 32 bits"
        beside = {term for term in wide for access in accesses if _has(access.offset, term)} - {product}
        heads = {one for one in beside if any(part.operands[1].arguments for part in one.named("remainder"))}
        orders = {_is_outer(kernel, product, term) for term in beside - heads}  # few, and not widened for their number
        is_outer = not beside or (True in orders and False not in orders)
        if product in wide and not beside and any(one.argument for m in product.parts for one in m):
            yield Seen(one, f"{what}; line {kernel.place(wide[product]).line} multiplies by the same in 64 bits")
        elif product.named("load") or _is_smaller(facts, product, products | set(wide)):
            continue  # as wide as what the tensor holds, or of a tensor that is full long after another
        elif product in widened and product.arguments and is_outer:
            yield Seen(
                one, f"{what} and made 64 bits wide afterwards: it has overflowed by then",
                fix="widen a factor before the product: pid.to(tl.int64) * stride",
            )  # fmt: skip
        elif not beside and product.arguments and any(_is_smaller(facts, rows, {product}) for rows in whole):
            yield Seen(one, f"{what}; that of a tensor with one element for each of its rows is made 64 bits wide")
        elif not beside or ((product in widened or product.arguments) and False not in orders):
            yield f"{what}, which overflows for tensors of 2^31 elements and more; their size is not in the file"


def _growing(kernel: KernelReading, variant: Variant, bits: int) -> list[tuple[Term, Fact]]:
    """The products of so many bits of a row and its stride, which is an argument or a number."""
    several = variant.facts.growing(bits, _WIDE_ROW)
    return [(product, one) for product, one, step in several if not step or _is_row(kernel, variant, product, step)]


def _is_row(kernel: KernelReading, variant: Variant, product: Term, step: int) -> bool:
    """Check whether a place times a number is a row, and no block of an index that masks end.

    Remainders and iterations of loops have ends of their own.
    """
    if not any(part.name in _ENDLESS for monomial in product.parts for part in monomial):
        return False
    constants = variant.guess.constants.items()
    sizes = [v for name, v in constants if type(v) is int and v >= _WIDE_ROW and name not in kernel.uses.tiles]
    is_size = any(step % size == 0 for size in sizes)
    accesses = (access for access in variant.facts.accesses if _has(access.offset, product))
    return any(not _ends(access, product) and (is_size or not _may_be_blocks(access, step)) for access in accesses)


def _conditions(access: AccessFact) -> list[Term]:
    """The sums that are at least 0 where the mask and the way to an access let an element pass."""
    return [one.operands[0] for whole in (access.mask, access.path) for one in whole.named(Term.AT_LEAST_ZERO)]


def _ends(access: AccessFact, product: Term) -> bool:
    """Check whether a condition compares what a product is part of, so that it is a place in a row that ends."""
    return any(all(sums.parts.get(m) == -c for m, c in product.parts.items()) for sums in _conditions(access))


def _may_be_blocks(access: AccessFact, step: int) -> bool:
    """Check whether a step may be that from block to block of a row, of which no condition speaks."""
    blocks = [extent for extent in access.type.shape if extent > 1 and step % extent == 0]
    return bool(blocks) and not any(sums.named("index") for sums in _conditions(access))


def _is_outer(kernel: KernelReading, product: Term, wide: Term) -> bool | None:
    """Check whether launches give a product the stride of an axis outside of that of a wide one; None if unseen.

    The stride of an inner axis stays within one element of the outer one.
    """
    for launch in kernel.launches:
        mine, other = ([launch.strides.get(name) for name in sorted(one.arguments)] for one in (product, wide))
        for one, beside in itertools.product(filter(None, mine), filter(None, other)):
            if one.tensor == beside.tensor and (one.axis < 0) == (beside.axis < 0):
                return one.axis < beside.axis
    return None


def _is_smaller(facts: KernelFacts, product: Term, others: Iterable[Term]) -> bool:
    """Check whether its counter, or what it loads, steps through whole rows, for each of which this one has an element.

    That tensor is as large as all memory before this product overflows.
    """
    counters = set(product.named(*STEPPING))
    stepping = (one for one in others if counters.intersection(one.named(*STEPPING)))
    alike = [one for one in stepping if all(_has(load.operands[2], product) for load in one.named("load"))]
    mine, *sizes = (
        max((prod(access.type.shape) for access in facts.accesses if _has(access.offset, one)), default=1)
        for one in (product, *alike)
    )
    return any(size >= _ROW * mine for size in sizes)


def _has(term: Term, product: Term) -> bool:
    sums, mine = term.parts, product.parts
    return bool(mine) and all(sums.get(m) == c for m, c in mine.items())
