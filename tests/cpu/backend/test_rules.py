"""The free rules: a refused config cannot be launched, a deferred config can, and each reason has its numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

import triton
import triton.language as tl

from tests import plain_product
from triton_ops.backend import Arguments, LauncherKernel, TritonCompiler, TritonKernel
from triton_ops.backend.kernel_source import Blocks, SteppedDimension, blocks_of
from triton_ops.device import Target
from triton_ops.device.specs import TARGETS
from triton_ops.space import Config
from triton_ops.values import Compiled, Resources, Status, TensorSpec

pytestmark = pytest.mark.triton

PRODUCT = plain_product.operation.kernel
SQUARE = Arguments(keyword=plain_product.arguments(4096, 4096, 4096))
FEW_ROWS = Arguments(keyword=plain_product.arguments(16, 4096, 4096))
TILE = Config(BM=128, BN=128, BK=64, GROUP_M=8, num_warps=4, num_stages=3)
WIDTH = tl.constexpr(32)


@triton.jit
def branches(x, n, BLOCK: tl.constexpr, SPLIT: tl.constexpr, TWICE: tl.constexpr = 2):
    HALF: tl.constexpr = BLOCK // TWICE
    i = tl.arange(0, HALF)
    j = tl.arange(0, WIDTH * 2)
    if SPLIT > 0:
        k = tl.arange(0, SPLIT)
    for _ in tl.static_range(SPLIT):
        k = tl.arange(0, SPLIT)
    BLOCK2 = BLOCK
    BLOCK2 = 7
    m = tl.arange(0, BLOCK2)
    for start in range(0, n, HALF):
        tl.store(x + start + i + j + k + m, 0)


@triton.jit
def added(total, x, ROWS: tl.constexpr, n=64):
    left = tl.load(x + tl.arange(0, ROWS)[:, None] + tl.arange(0, 16)[None, :])
    for _ in tl.range(0, n, ROWS, warp_specialize=ROWS == 32):
        total = tl.dot(left, left.T, total)
    return total


@triton.jit
def never_ends(x, n, WIDE: tl.constexpr):
    never_ends(x, n, WIDE * 2)


@triton.jit
def helpers(x, n, scale, BLOCK: tl.constexpr, KIND: tl.constexpr, TIMES: tl.constexpr = 1):
    if scale is None and KIND != "none":
        columns = tl.arange(0, BLOCK * 2 if KIND == "wide" else BLOCK)
        tl.store(x + columns, 0)
    elif n > 1000:
        tl.store(x + tl.arange(0, TIMES * 8), 0)
        return
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    total = added(total, x, BLOCK, n=n)
    for _ in range(0, TIMES, 1):
        added(*(total, x, BLOCK))
    never_ends(x, n, 2)


@triton.jit
def added_with_sums(total, sums, left):
    total = tl.dot(left, left.T, total)
    return total, sums + tl.sum(total, 1)


@triton.jit
def handed_back(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    left = tl.load(x + i[:, None] + i[None, :])
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    other = tl.zeros((BLOCK, BLOCK // 2), dtype=tl.float32)
    for _ in range(n):
        total, sums = added_with_sums(total, sums, left)
        other += tl.dot(left, left)
    tl.store(x + i, sums + tl.sum(total, 1) + tl.sum(other, 1))


def verdict(config, arguments=SQUARE, arch="sm_90", kernel=PRODUCT):
    return TritonCompiler(kernel, arguments, Target.named(arch)).objection(config)


ROW = Arguments((TensorSpec((1 << 21,), "float32"), 1 << 21))


@pytest.mark.parametrize(
    ("block", "warps", "reason"),
    [
        (16_384, 4, ""),
        (32_768, 4, "BLOCK of 32,768 is 256 elements per thread: 256 or more spill"),
        (32_768, 8, ""),
        (1 << 20, 4, "BLOCK of 1,048,576 is 8192 elements per thread: 256 or more spill"),
        (1 << 21, 4, "BLOCK is 2,097,152; a block has at most 1,048,576 elements"),
    ],
)
def test_a_block_is_put_off_from_the_first_size_that_spills_and_refused_above_the_largest(block, warps, reason):
    result = verdict(Config(BLOCK=block, num_warps=warps), ROW, kernel=TritonKernel(filled, lambda _: (1,)))
    assert (result.reason if result else "") == reason


@pytest.mark.parametrize(("rows", "tile", "reason"), [
    (1, 16, ""), (1, 32, "BM is 32, over twice the padded M of 1"), (16, 32, ""), (17, 64, ""),
    (17, 128, "BM is 128, over twice the padded M of 32"),
])  # fmt: skip
def test_a_tile_of_twice_the_rows_is_tried_and_a_wider_one_is_put_off(rows, tile, reason):
    result = verdict(Config({**TILE, "BM": tile}), Arguments(keyword={**SQUARE.keyword, "M": rows}))
    assert (result.reason if result else "") == reason


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"num_warps": "4"}, "constraint", "num_warps is '4' of type str; it must be an int"),
        ({"num_warps": True}, "constraint", "num_warps is True of type bool; it must be an int"),
        ({"num_warps": 3}, "constraint", "num_warps is 3; it must be a power of two"),
        ({"num_warps": 0}, "constraint", "num_warps is 0"),
        ({"num_ctas": 3}, "constraint", "num_ctas is 3; it must be a power of two"),
        ({"num_warps": 64}, "resources", "64 warps of 32 are 2,048 threads per block; sm_90 has 1,024"),
        ({"num_stages": 1_000_000}, "resources", "num_stages is 1,000,000; Triton writes a loop out for each"),
        ({"BM": 96}, "constraint", "BM is 96; Triton's ranges must be powers of two"),
        ({"BK": 1 << 21}, "constraint", "BK is 2,097,152; a block has at most 1,048,576 elements"),
        ({"BM": 256}, "deferred", "256 by 128 takes 256 registers of each thread: 256 or more spill"),
    ],
)
def test_the_reason_of_each_rule_has_its_numbers(change, status, reason):
    result = verdict(Config({**TILE, **change}))
    assert (result.status.value, result.deferred) == (status, status == "deferred")
    assert reason in result.reason


def test_a_good_config_passes_on_every_target():
    for arch in TARGETS:
        assert verdict(TILE, arch=arch) is None
        assert verdict(TILE, FEW_ROWS, arch).reason == "BM is 128, over twice the padded M of 16"
    assert verdict(Config({**TILE, "BM": 32}), FEW_ROWS) is None


def test_the_limits_of_the_rules_are_those_of_the_target():
    warps = Config({**TILE, "num_warps": 32, "BM": 256, "BN": 256})
    assert verdict(warps, arch="sm_90") is None
    assert "32 warps of 64 are 2,048 threads" in verdict(warps, arch="gfx942").reason
    wide = Config({**TILE, "BM": 256, "BN": 256, "num_warps": 8})
    deferred = {arch for arch in TARGETS if verdict(wide, arch=arch)}
    old = {"sm_70", "sm_75"}
    old |= {"sm_80", "sm_86", "sm_89", "sm_90"}
    assert deferred == old | {"sm_120", "sm_121"}, "elsewhere 256 accumulators have room"


def test_blocks_are_read_from_the_source():
    blocks = blocks_of(plain_product.product, {**SQUARE.keyword, **TILE})
    assert blocks.ranges == (("BM", 128), ("BN", 128), ("BK", 64))
    assert blocks.accumulators == ((128, 128),)
    assert [(result.extent, result.size, result.tile) for result in blocks.stepped] == [
        ("M", 4096, 128), ("N", 4096, 128), ("K", 4096, 64),
    ]  # fmt: skip
    assert blocks_of(plain_product.product, {}) == Blocks(), "nothing is guessed"


def test_blocks_in_branches_that_are_not_taken_and_in_unrolled_loops_are_not_judged():
    blocks = blocks_of(branches, {"n": 100, "BLOCK": 64, "SPLIT": 0})
    assert blocks.ranges == (("HALF", 32), ("WIDTH * 2", 64)), "not the branch, not the unrolled loop, not the rebound"
    taken = blocks_of(branches, {"n": 100, "BLOCK": 64, "SPLIT": 3})
    assert taken.ranges == (*blocks.ranges, ("SPLIT", 3))
    assert blocks.stepped == (SteppedDimension("n", 100, "HALF", 32),)
    assert blocks_of(branches, {"BLOCK": 64, "TWICE": 0}).ranges == (("WIDTH * 2", 64),)


@triton.jit
def running_code(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK if "".__class__.__mro__[1].__subclasses__() else 16)
    tl.store(x + i + tl.arange(0, BLOCK * 2), 0)


def test_no_expression_of_a_kernel_that_is_read_calls_anything():
    assert blocks_of(running_code, {"BLOCK": 64}).ranges == (("BLOCK * 2", 128),)


def test_helpers_count_with_what_they_are_called_with():
    blocks = blocks_of(helpers, {"n": 100, "scale": None, "BLOCK": 64, "KIND": "wide"})
    assert blocks.ranges == (("BLOCK * 2 if KIND == 'wide' else BLOCK", 128), ("BLOCK", 64), ("16", 16))
    assert blocks.accumulators == ((64, 64),), "made here, and added to in the helper"
    assert SteppedDimension("n", 100, "BLOCK", 64) in blocks.stepped, "by the names of the caller"
    assert not any(stepped.size == 64 for stepped in blocks.stepped), "no default of a call that is not known"
    assert blocks_of(helpers, {"n": 100, "scale": None, "BLOCK": 32, "KIND": "wide"}).warp_specialized


def test_accumulators_that_are_added_to_in_place_or_handed_back_by_a_helper_count():
    blocks = blocks_of(handed_back, {"n": 100, "BLOCK": 64})
    assert blocks.accumulators == ((64, 64), (64, 32)), "no row of sums beside them"


def test_conditions_that_arguments_decide_take_one_side():
    other = blocks_of(helpers, {"n": 100, "scale": None, "BLOCK": 64, "KIND": "narrow"})
    assert other.ranges[0][1] == 64
    assert blocks_of(helpers, {"n": 100, "scale": 2.0, "BLOCK": 64, "KIND": "none"}).ranges[0] == ("BLOCK", 64)
    ended = blocks_of(helpers, {"n": 2000, "scale": 2.0, "BLOCK": 64, "KIND": "wide"})
    assert (ended.ranges, ended.accumulators) == ((("TIMES * 8", 8),), ()), "nothing after the return"
    unknown = blocks_of(helpers, {"n": 2000, "BLOCK": 64})
    assert unknown.ranges == (("BLOCK", 64), ("16", 16)), "neither side of what nobody knows"


@triton.jit
def conditional(x, A, B):
    if not A:
        tl.store(x + tl.arange(0, 16), 0)
    if A and B:
        tl.store(x + tl.arange(0, 32), 0)
    if A or B:
        tl.store(x + tl.arange(0, 64), 0)
    if not (A and not B):
        tl.store(x + tl.arange(0, 128), 0)


@pytest.mark.parametrize("known", [{}, *({"A": a} for a in (0, 1)), *({"B": b} for b in (0, 1)),
                                   *({"A": a, "B": b} for a in (0, 1) for b in (0, 1))])  # fmt: skip
def test_a_condition_holds_where_it_does_whatever_is_not_known(known):
    every = [{"A": a, "B": b, **known} for a in (0, 1) for b in (0, 1)]
    holds = {
        16: all(not each["A"] for each in every),
        32: all(each["A"] and each["B"] for each in every),
        64: all(each["A"] or each["B"] for each in every),
        128: all(not (each["A"] and not each["B"]) for each in every),
    }
    assert [size for _, size in blocks_of(conditional, known).ranges] == [size for size in holds if holds[size]]


def test_a_kernel_without_source_is_not_judged():
    space = {}
    exec("def f(x, BLOCK): pass", space)
    assert blocks_of(space["f"], {"BLOCK": 3}) == Blocks()


@given(
    st.sampled_from(sorted(TARGETS)),
    st.sampled_from([1, 2, 3, 4, 8, 16, 32, 64]),
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from([1, 7, 16, 100, 4096]),
)
def test_only_configs_that_cannot_be_launched_are_refused(arch, warps, rows, columns, extent):
    target = Target.named(arch)
    arguments = Arguments(keyword={**SQUARE.keyword, "M": extent})
    result = verdict(Config({**TILE, "BM": rows, "BN": columns, "num_warps": warps}), arguments, arch)
    possible = (
        warps & (warps - 1) == rows & (rows - 1) == columns & (columns - 1) == 0
        and warps * target.warp_size <= target.threads_per_block
    )
    assert (result is None or result.deferred) == possible
    assert result is None or re.search(r"\d", result.reason)
    assert result is None or result.status in (Status.CONSTRAINT, Status.RESOURCES, Status.DEFERRED)


@triton.jit
def filled(x, n, BLOCK: tl.constexpr):
    at = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 0.0, mask=at < n)


X = TensorSpec((1 << 20,), "float32")
EXTENTS = st.tuples(*3 * [st.integers(0, 1 << 33) | st.sampled_from([65_535, 65_536, 2**31 - 1, 2**31])])


@given(extents=EXTENTS, axes=st.integers(1, 3), ctas=st.sampled_from([1, 2]))
def test_a_grid_over_the_devices_limit_is_refused_before_it_is_compiled(extents, axes, ctas):
    """CUDA C++ Programming Guide: 2^31 - 1 blocks on the first axis, 65,535 on each other."""
    kernel = TritonKernel(filled, grid=lambda _: extents[:axes], outputs=("x",))
    compiler = TritonCompiler(kernel, Arguments((X, 1 << 20)), Target.named("sm_90"))
    refused = compiler.grid_objection(Config(BLOCK=64, num_ctas=ctas))
    blocks = (extents[0] * ctas, *extents[1:axes])
    over = [axis for axis, most in enumerate((2**31 - 1, 65_535, 65_535)[:axes]) if blocks[axis] > most]
    assert (refused.status if over else refused) == (Status.GRID if over else None)
    assert not over or refused.reason.startswith(
        f"its grid has {blocks[over[0]]:,} blocks on axis {over[0]}; sm_90 takes"
    )
    assert TritonCompiler(kernel, compiler.arguments, Target.named("gfx942")).grid_objection(Config(BLOCK=64)) is None


def test_a_program_that_is_known_from_a_smaller_grid_is_refused_for_a_larger_one():
    kernel = TritonKernel(filled, grid=lambda given: (1, given["n"] // given["BLOCK"]), outputs=("x",))
    small, large = (TritonCompiler(kernel, Arguments((X, n)), Target.named("sm_90")) for n in (1 << 20, 1 << 26))
    small.remember(compiled := Compiled(Config(BLOCK=512), Status.OK, resources=Resources()))
    assert small.recalled(compiled.config).status is Status.OK
    assert large.recalled(compiled.config) is None
    assert large.grid_objection(compiled.config).status is Status.GRID


def launches(x, n, *, BLOCK):
    filled[(1, n // BLOCK)](x, n, BLOCK)
    filled[lambda given: (1, given["n"] // given["BLOCK"])](x, n=n, BLOCK=BLOCK)


def test_a_function_that_launches_too_many_blocks_is_refused_before_a_kernel_is_compiled(monkeypatch):
    pytest.importorskip("torch")
    kernel = LauncherKernel(launches, outputs=("x",))
    compiler = TritonCompiler(kernel, Arguments((X, 1 << 20)), Target.named("sm_90"))
    monkeypatch.setattr(triton.compiler.compiler, "make_backend", None)  # nothing is compiled
    refused = compiler.compile(Config(BLOCK=8))
    assert (refused.status, refused.reason) == (
        Status.GRID,
        "its grid has 131,072 blocks on axis 1; sm_90 takes 65,535 there",
    )
