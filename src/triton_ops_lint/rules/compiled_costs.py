"""Costs that a kernel shows when it is compiled, for a GPU that need not be here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import gcd, prod
from typing import Any

from triton_ops.backend import Built, CandidateError
from triton_ops.base import counted
from triton_ops.exceptions import TritonKernelError
from triton_ops.kernel_ir import AccessFact, SourcePlace, Term
from triton_ops.tuner import RequestedTune
from triton_ops_lint.indices import Index, indices
from triton_ops_lint.parameters import EVEN, LEAST_EXTENT
from triton_ops_lint.reading import KernelReading, Variant, compile_variant, in_words, known_configs, stated_configs
from triton_ops_lint.rules.rule import Seen, Statement, UndecidedError, once, rule

_HEAVY = 64
"""Elements per thread of the largest tile from which a config is compiled: below, nothing has spilled."""
_SPILLED_BYTES = 64  # a few registers that are spilled outside of loops cost nothing
_MOST_COMPILED = 4  # until one fits; each takes up to seconds


@rule(
    "register-spill",
    "binary",
    symptom="slow by a large factor: values that do not fit into registers go to local memory and come back",
    fix="a smaller tile, more warps, fewer accumulators; triton-ops explain spills tries the cures",
)
def register_spill(kernel: KernelReading) -> Iterable[Statement]:
    """A config that spills registers to local memory.

    Of the configs of `triton.autotune`, of launches that write their tiles out, and of defaults, the largest for
    its warps that the target takes is compiled, if its largest tile has 64 elements per thread or more. A frame of
    more than 64 bytes is a finding.

    Numbers are compiled as multiples of 16. A stride is 1 where a launch gives it that of the last axis, or,
    without such a launch, where it is the last of an access. Elements have the type in which the launching function
    makes the tensor, else 16 bits.

    Undecided: tiles that only callers know, a config that `early_config_prune` may leave out, and a spill that only
    a stride other than 1 has. `triton-ops explain spills` tries the cures.
    """
    tiles = kernel.uses.tiles
    several = [([one[name] for name in one if name in tiles], one) for one in _configs(kernel)]
    several.sort(key=lambda one: prod(one[0]) / one[1]["num_warps"], reverse=True)
    for _, config in several[:_MOST_COMPILED]:
        variant = kernel.with_values(config)
        if variant is None:
            yield f"it cannot be lowered with {in_words(config)}"
            return
        elements = _largest(variant) // (config["num_warps"] * kernel.target.warp_size)
        if elements < _HEAVY:
            return
        resources = _compiled(kernel, _contiguous(variant), config).resources(kernel.target)
        registers, limits = resources.registers or 0, kernel.target.limits
        if limits and not limits.residents(registers, resources.shared_bytes or 0, config["num_warps"]).blocks:
            continue  # no multiprocessor takes it: it is never launched
        why = "; by the arguments of a call, a function may leave out this one" if kernel.prunes else ""
        if (resources.spill_bytes or 0) <= _SPILLED_BYTES:
            resources = _compiled(kernel, variant, config).resources(kernel.target)
            why += "; with 1 for the last stride of each tensor it does not, and which is 1 is not in the file"
        if (resources.spill_bytes or 0) > _SPILLED_BYTES:
            spills = (
                f"compiled for {kernel.target.arch} with {in_words(config)} it takes {resources.registers} registers "
                f"and spills {resources.spill_bytes:,} bytes per thread; its largest tile alone has {elements} "
                f"elements per thread{why}"
            )
            yield spills if why else Seen(kernel.line, spills)
        return


def _contiguous(variant: Variant) -> Variant:
    """A variant with 1 for the last stride of each access of which no launch says along which axis neighbours lie."""
    guess, names = variant.guess, [*variant.guess.types]
    last: set[str] = set()
    for access in variant.facts.accesses:
        strides = [one.stride for one in indices(variant.facts, access)]
        arguments = {one.lone_argument[0] for one in strides} - {""}
        if len(strides) < sum(extent > 1 for extent in access.type.shape):  # an index is a remainder or the like
            factors = (m for m in access.offset.parts if len(m) > 1)
            arguments |= {one.argument for m in factors for one in m} - {""}
        is_known = any(one.constant in (1, -1) for one in strides) or guess.ones & access.offset.arguments
        last |= {max(arguments, key=names.index)} if arguments and not is_known else set()
    return replace(variant, guess=replace(guess, ones=guess.ones | last))


_FEWEST_ELEMENTS = 1 << 12  # of a tile: 32 for each thread of four warps


def _configs(kernel: KernelReading) -> list[dict[str, Any]]:
    """The known configs; undecided where there are none, unless all tiles are too small to spill."""
    if kernel.uses.descriptors and not kernel.guesses:
        raise UndecidedError("the blocks of the descriptors that it is given are not in the file")
    configs = list(known_configs(kernel))
    if not configs and _largest(kernel.variants[0]) >= _FEWEST_ELEMENTS:
        raise UndecidedError("the tiles and warps that it is launched with are not in the file")
    return configs


def _compiled(kernel: KernelReading, variant: Variant, config: Mapping[str, Any]) -> Built:
    """A variant that is compiled; what no GPU takes and whatever the compiler raises leave the rule undecided."""
    if why := _refusal(kernel, config):
        raise UndecidedError(why)
    try:
        return compile_variant(kernel, variant, config)
    except Exception as error:
        why = f"{kernel.target.arch} refuses {in_words(config)}: {CandidateError.one_line(error)}"
        raise UndecidedError(why) from error


def _refusal(kernel: KernelReading, config: Mapping[str, Any]) -> str:
    """Words for why a config cannot be launched or compiled; empty if nothing in its options and loops says so."""
    variant = kernel.with_values({name: config[name] for name in kernel.uses.ranges & config.keys()})
    loops = variant.facts.loops if variant else ()
    stages = (config.get("num_stages"), *(loop.operation.attribute("tt.num_stages") for loop in loops))
    unknown = sorted(config.keys() - {*kernel.function.parameters} - kernel.options)
    why = kernel.target.refusal(config["num_warps"], max(int(one or 0) for one in stages))
    why = f"Triton has no {', '.join(unknown)} for {kernel.target.arch}" if unknown else why
    return why and f"{in_words(config)} is refused: {why}"


def _largest(variant: Variant) -> int:
    """The elements of the largest block that is accessed, reduced or made by a product."""
    facts = variant.facts
    shapes = [*(one.type.shape for one in facts.accesses), *(one.type.shape for one in facts.products)]
    shapes += [value.type.shape for reduction in facts.reductions for value in reduction.inputs]
    return max(map(prod, shapes), default=1)


_FEWEST_STAGES = 3  # with fewer there is nothing to give up
_FEW_WARPS = 4  # one for each scheduler: what one waits for, no other hides


@rule(
    "lost-occupancy",
    "binary",
    symptom="a third slower and more: buffers of the pipeline keep a second block away, so that nothing runs while "
    "the only block waits",
    fix="one stage fewer, or smaller tiles; triton-ops explain shows the residents of a config",
)
def lost_occupancy(kernel: KernelReading) -> Iterable[Statement]:
    """Stages of a pipeline whose buffers keep a second block away.

    A kernel that is launched with one known config of three stages or more is compiled with them and with one
    fewer. It is a finding if three things hold. One block of at most four warps is alone on a multiprocessor for
    its shared memory. One stage fewer makes room for another block. A product of the loop waits for another of the
    same iteration, as in attention. In recorded spaces on an H200 all 9 such configs were slower with more stages,
    by 34 % in the median.

    Of plain products 42 of 62 were, so that these are undecided. So is a config that the target refuses, or that
    takes minutes to compile: more than 64 stages.
    """
    whys = (why for one in stated_configs(kernel) if (why := _refusal(kernel, one)))
    refused = {why.rpartition(" is refused: ")[2]: why for why in whys}
    yield from refused.values()
    configs = list(known_configs(kernel))
    stages = int(configs[0].get("num_stages") or 0) if len(configs) == 1 and not refused else 0
    variant = kernel.with_values(configs[0]) if stages >= _FEWEST_STAGES else None
    if variant is None or not any(product.loops for product in variant.facts.products):
        return
    if (limits := kernel.target.limits) is None:
        yield f"what a multiprocessor of {kernel.target.arch} holds is not known"
        return
    several = (configs[0], {**configs[0], "num_stages": stages - 1})
    resources = [_compiled(kernel, variant, one).resources(kernel.target) for one in several]
    warps = configs[0]["num_warps"]
    before, after = (limits.residents(one.registers or 0, one.shared_bytes or 0, warps) for one in resources)
    if not before.blocks or before.warps > _FEW_WARPS or after.blocks < 2 * before.blocks:
        return
    evidence = (
        f"on {kernel.target.arch} a multiprocessor holds {before.blocks} block of {before.warps_per_block} warps, "
        f"{before.occupancy:.0%} of its warps, limited by {' and '.join(before.limited_by)}; with one stage fewer it "
        f"holds {after.blocks}"
    )
    chained = next((one for one in variant.facts.products if one.loops and variant.facts.waits(one)), None)
    if chained is None:
        yield f"{evidence}; whether that is faster differs from product to product: measure it"
    else:
        why = f"the product in line {kernel.place(chained).line} waits for another of its iteration"
        yield Seen(kernel.line, f"{evidence}, and {why}")


_NARROW_BYTES = 4  # less than a word at a time
_WIDEST_BYTES = 16


def _down_columns(kernel: KernelReading, variant: Variant, access: AccessFact) -> str | None:
    """The stride by which a block of one axis goes down a column, which programs or turns choose one by one."""
    along = indices(variant.facts, access)
    stride = along[0].stride.lone_argument[0] if len(along) == 1 else ""
    steps = [m[0] for m, c in access.offset.parts.items() if len(m) == 1 and abs(c) == 1]
    varies = any(one.name in ("program_id", "turn", "quotient", "remainder") for one in steps)
    return stride if stride and varies and stride not in kernel.ones else None


@rule(
    "narrow-access",
    "binary",
    symptom="a fraction of the bandwidth: threads move few bytes at a time, or memory moves what nobody uses",
    fix="let neighbouring threads take neighbouring elements, from a multiple of 16 bytes on: load whole rows and "
    "tl.split, tl.reshape or tl.trans them in registers, or pad what is stored",
)
@once
def narrow_access(kernel: KernelReading) -> Iterator[Statement]:
    """A load or store that moves few bytes of a thread at a time.

        even = tl.load(x + 2 * at, mask=at < n)               # bad: half of what is moved is used
        pair = tl.load(x + first + tl.arange(0, 2 * B), mask=..., other=0.0)    # good
        even, odd = tl.split(tl.reshape(pair, (B, 2)))

    Of the largest blocks an access is suspect whose neighbours lie apart by a number, or whose address or mask is a
    number of elements beside a multiple of 16 bytes. It is compiled, with a config that the source names or with
    one warp, and the widths in the PTX of its line decide. Arguments are taken as multiples of 16, and strides as
    those of contiguous tensors.

    The misaligned one of several shifted reads of a stencil is meant so. Undecided: a block that goes down a column
    by a stride that is an argument, and AMD. Not seen: tensors of 32 bits that are one element off, gathers, and
    rows that data begins.
    """
    variant = kernel.variants[0]
    for access in variant.facts.accesses:
        if (stride := _down_columns(kernel, variant, access)) is not None:
            where = f"line {kernel.place(access).line}: neighbours lie {stride} apart, and programs side by side"
            yield f"{where}; whether rows could be read instead is not in the file"
    suspects = list(_suspects(variant))
    if not suspects:
        return
    if kernel.target.vendor.assembly != "ptx":
        yield f"how wide {kernel.target.arch} loads each line is not read; PTX is"
        return
    configs = list(known_configs(kernel))
    config = configs[0] if configs else {"num_warps": 1}
    with_tiles = kernel.with_values(config) or variant
    widths = _compiled(kernel, with_tiles, config).ptx.widths()
    files = {file for _, file, _ in widths}
    for access, cause, gap in _suspects(with_tiles):
        place = kernel.place(access)
        own = place.file.rpartition("/")[2]  # Triton's cache answers with the binary of equal code in another file
        file = own if own in files or len(files) != 1 else min(files)
        line_widths = widths.get((access.kind, file, place.line))
        if not line_widths:
            yield f"line {place.line}: {cause}; no load or store of PTX names the line"
            continue
        item = access.type.item_bytes
        room = min(_WIDEST_BYTES, prod(access.type.shape) * item // (kernel.target.warp_size * config["num_warps"]))
        if (gap > 1 and max(line_widths) <= item) or (max(line_widths) < _NARROW_BYTES <= room):
            usage = f"; {min(1.0, 1 / gap):.0%} of what is moved is used" if gap > 1 else ""
            moves = f"a thread moves {counted(max(line_widths), 'byte')} at a time, of {_WIDEST_BYTES} at most{usage}"
            compiled = f"compiled for {kernel.target.arch} with {in_words(config)}"
            yield Seen(access, f"{cause}: {compiled}, {moves}")


def _suspects(variant: Variant) -> Iterator[tuple[AccessFact, str, int]]:
    """The accesses of the largest blocks that may be narrow: the cause, and how many elements apart neighbours lie."""
    accesses = [one for one in variant.facts.accesses if one.kind in ("load", "store") and prod(one.type.shape) > 1]
    largest = max((prod(one.type.shape) for one in accesses), default=0)
    for access in accesses:
        along = indices(variant.facts, access)
        axes = sum(extent > 1 for extent in access.type.shape)
        if 2 * prod(access.type.shape) < largest or len(along) < axes:
            continue
        strides = [index.stride.constant for index in along]
        if any(stride is None for stride in strides):
            continue  # one of them is 1 for contiguous tensors
        gap = min(abs(stride) for stride in strides if stride is not None)
        if gap > 1 and not variant.is_guessed(gap):
            yield access, f"neighbours lie {counted(gap, 'element')} apart in memory", gap
        elif gap == 1 and not any(variant.is_guessed(stride or 0) for stride in strides):
            cause = _misalignment(variant, access, along[[abs(s or 0) for s in strides].index(1)])
            if cause:
                yield access, cause, gap


def _misalignment(variant: Variant, access: AccessFact, index: Index) -> str:
    """Words for why the address or the mask is no multiple of a word; empty if it is, or if that depends on data."""
    symbol, item = variant.facts.terms.index(index.axis), access.type.item_bytes
    steps = {m: c for m, c in access.offset.parts.items() if symbol not in m}
    moves = any(c * item % _NARROW_BYTES for m, c in steps.items() if any(one.name == "turn" for one in m))
    if moves or _is_shifted(variant, access) or index.extent * item < _WIDEST_BYTES:
        return ""  # a window's reads begin everywhere
    if (shift := _odd_part(steps, item)) is not None:
        by_callers = abs(shift) + 1 >= LEAST_EXTENT and variant.is_guessed(abs(shift) + 1)
        return "" if by_callers else f"it begins {counted(shift, 'element')} after a multiple of {_WIDEST_BYTES} bytes"
    for condition in access.mask.conjuncts:
        sums = condition.operands[0].parts if condition.name == Term.AT_LEAST_ZERO else {}
        if sums.get((symbol,), 0) != -1:
            continue
        end = {m: c for m, c in sums.items() if symbol not in m}
        end[()] = end.get((), 0) + 1
        if (shift := _odd_part(end, item)) is not None and shift < 0:
            return f"its mask ends {counted(-shift, 'element')} before a multiple of {_WIDEST_BYTES} bytes"
    return ""


def _odd_part(sums: dict[tuple[Term, ...], int], item: int) -> int | None:
    """The number that keeps a sum from being a multiple of a word; None if it is one, or if data says."""
    even = {m: EVEN if any(one.argument for one in m) else 1 for m in sums}
    remainders = [(m, c) for m, c in sums.items() if gcd(c * even[m] * item, _WIDEST_BYTES) < _NARROW_BYTES]
    if len(remainders) != 1 or remainders[0][0] != ():
        return None
    return remainders[0][1]


def _is_shifted(variant: Variant, access: AccessFact) -> bool:
    """Check whether one of two offsets cannot be aligned: stencils read at both, ends of parts begin with a 0."""
    others = [one for one in variant.facts.accesses if one is not access and one.root is access.root]
    mine, *sums = ({m: c for m, c in one.offset.parts.items() if m} for one in (access, *others))
    return mine in sums or any(one.kind == access.kind == "store" and one.offset.constant == 0 for one in others)


_MEMORY_BYTES = 32  # that global memory moves while the banks take a step, or less
_EXCHANGE_STEPS = 100  # that barriers and one access to shared memory take without conflicts, or less


@rule(
    "bank-conflict",
    "binary",
    symptom="slow by a factor beside a kernel that moves as much: threads ask one bank of shared memory for different "
    "words, and wait for each other",
    fix="let tiles of 32 bits lie in memory along the axis of the sum, so that they are not transposed on the way; "
    "multiply them in 16 bits, which the hardware transposes; or reduce columns once, after the loop",
)
def bank_conflict(kernel: KernelReading) -> Iterable[Statement]:
    """Tiles whose threads wait for one bank of shared memory.

        acc += tl.dot(p, v.to(tl.float32))              # bad: products of 32 bits want v transposed
        acc += tl.dot(p.to(tl.float16), v)              # good: the hardware transposes elements of 16 bits
        acc += tl.sum(x, 0)                             # bad: each turn exchanges columns through shared memory
        acc += x                                        # good: one tl.sum(acc, 0) after the loop

    A kernel whose loop has products with tiles of float32, or reduces along another axis than the last, is
    compiled. The addresses that the first warp asks for in the first turn are computed from the PTX. A line is a
    finding if its steps beyond the fewest take longer than all that loops move in global memory, at 32 bytes a
    step, and than the 100 steps that an exchange waits.

    Undecided: an address that data decides, the conflicts of one of several configs, tiles that only callers know,
    and AMD. What the tensor memory accelerator and `wgmma` read on their own is not seen.
    """
    facts = kernel.variants[0].facts
    tiles = [side.type for one in facts.products if one.loops for side in (one.left, one.right)]
    tiles += [one.type for one in facts.accesses if tiles and one.kind == "load" and len(one.type.shape) > 1]
    columns = any(one.loops and one.axis < len(one.inputs[0].type.shape) - 1 for one in facts.reductions)
    if not columns and all(tile.element != "f32" for tile in tiles):
        return
    if kernel.target.vendor.assembly != "ptx":
        raise UndecidedError(f"which banks of shared memory {kernel.target.arch} asks for is not read; PTX is")
    configs = _configs(kernel)
    for config in configs[:1]:
        variant = kernel.with_values(config) or kernel.variants[0]
        kinds = (one.type for one in variant.facts.accesses if one.loops)
        steps = sum(prod(kind.shape) * kind.item_bytes for kind in kinds) // _MEMORY_BYTES
        waits = _compiled(kernel, _contiguous(variant), config).ptx.bank_waits()
        frames = (frame for one in (*facts.accesses, *facts.reductions, *facts.products) for frame in one.frames)
        files = {frame.file.rpartition("/")[2]: frame.file for frame in frames}
        for (file, line), more in waits.items():
            if more is None:
                yield f"line {line}: which banks of shared memory it asks for is not read from its PTX"
            elif (more := more * config["num_warps"]) > max(steps, _EXCHANGE_STEPS):
                what = (
                    f"compiled for {kernel.target.arch} with {in_words(config)}, shared memory takes {more:,} further "
                    f"steps of its banks in each iteration; global memory takes {steps:,} of {_MEMORY_BYTES} bytes"
                )
                many = f"line {line}: {what}; of {len(configs)} configs a tune may choose one without"
                yield many if len(configs) > 1 else Seen(SourcePlace(files.get(file, kernel.file), line), what)


_WORTH_SAYING = 0.05  # a share of time by which a config must be expected to be ahead of a list


@rule(
    "short-list",
    "model",
    symptom="slower than it could be at this launch: the list of configs lacks one that is expected to be faster",
    fix="add the config, or let autotune look for such: widen=True; a tune measures what is expected here",
)
def short_list(kernel: KernelReading) -> Iterable[Statement]:
    """A config that a list lacks, and that the model expects to be more than 5 % faster than all of it.

        triton-ops lint file.py:kernel@run --shape 4096x4096,4096x4096 --rule short-list

    It is asked of a kernel with a list of which `prune_configs_by` leaves nothing out, at a launch that the TARGET
    names with its arguments. The model of `triton-ops explain rank` reads configs of the list and around it for
    `--gpu`, and compiles its leading picks, in 5 to 10 s. This is an expectation, which `triton-ops tune --widen`
    measures.
    """
    operation = kernel.operation
    try:
        expectation = None if operation is None else RequestedTune.expectation_of_list(operation, kernel.gpu)
    except TritonKernelError as error:
        raise UndecidedError(error.message) from error
    if operation is None or expectation is None:
        return
    pick, seeds = list(expectation.pair)[-1], getattr(operation.space, "seeds", ())
    if math.isnan(expectation.gain) and expectation.pair.size.total > 1:
        yield f"the model {expectation.forecast}"
    elif expectation.gain > _WORTH_SAYING and pick not in seeds:
        others = [f"{name}={value}" for name, value in pick.items() if value not in {seed[name] for seed in seeds}]
        lacks = ", ".join(others) or "a combination of its values"
        yield Seen(kernel.line, f"this list misses {lacks}: a model of {expectation.device} {expectation.forecast}")
