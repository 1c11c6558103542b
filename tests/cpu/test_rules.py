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
from triton_ops.analysis import foresee
from triton_ops.analysis.blocks import Blocks, SteppedDimension, blocks_of
from triton_ops.backend import Arguments
from triton_ops.backend.offline import AheadOfTime
from triton_ops.hardware import TARGETS, named_target
from triton_ops.kernels import load
from triton_ops.space import Config
from triton_ops.trial import Status

pytestmark = pytest.mark.triton

PRODUCT = plain_product.operation.kernel
SQUARE = Arguments(keyword=plain_product.arguments(4096, 4096, 4096))
FEW_ROWS = Arguments(keyword=plain_product.arguments(16, 4096, 4096))
SHIPPED = [load("matmul"), load("rmsnorm_rope")]
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


def verdict(config, arguments=SQUARE, arch="sm_90", kernel=PRODUCT):
    return foresee(AheadOfTime(kernel, arguments, named_target(arch)), config)


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"num_warps": "4"}, "constraint", "num_warps is '4' of type str; it must be an int"),
        ({"num_warps": 3}, "constraint", "num_warps is 3; it must be a power of two"),
        ({"num_warps": 0}, "constraint", "num_warps is 0"),
        ({"num_ctas": 3}, "constraint", "num_ctas is 3; it must be a power of two"),
        ({"num_warps": 64}, "resources", "64 warps of 32 are 2,048 threads per block; sm_90 has 1,024"),
        ({"BM": 96}, "constraint", "BM is 96; Triton's ranges must be powers of two"),
        ({"BK": 1 << 21}, "constraint", "BK is 2,097,152; a block has at most 1,048,576 elements"),
        ({"BM": 256}, "deferred", "256 by 128 takes 256 registers of each thread: 256 or more spill"),
    ],
)
def test_the_reason_of_each_rule_has_its_numbers(change, status, reason):
    found = verdict(Config({**TILE, **change}))
    assert (found.status.value, found.deferred) == (status, status == "deferred")
    assert reason in found.reason


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
    assert deferred == {"sm_80", "sm_86", "sm_89", "sm_90", "sm_120"}, "elsewhere 256 accumulators have room"


def test_blocks_are_read_from_the_source():
    blocks = blocks_of(plain_product.product, {**SQUARE.keyword, **TILE})
    assert blocks.ranges == (("BM", 128), ("BN", 128), ("BK", 64))
    assert blocks.accumulators == ((128, 128),)
    assert [(found.extent, found.size, found.tile) for found in blocks.stepped] == [
        ("M", 4096, 128), ("N", 4096, 128), ("K", 4096, 64),
    ]  # fmt: skip
    assert blocks_of(plain_product.product, {}) == Blocks(), "nothing is guessed"


def test_blocks_in_conditional_code_are_not_judged():
    values = {"n": 100, "BLOCK": 64, "SPLIT": 3}
    blocks = blocks_of(branches, values)
    assert blocks.ranges == (("HALF", 32), ("WIDTH * 2", 64)), "not the branch, not the unrolled loop, not the rebound"
    assert blocks.stepped == (SteppedDimension("n", 100, "HALF", 32),)
    assert blocks_of(branches, {"BLOCK": 64, "TWICE": 0}).ranges == (("WIDTH * 2", 64),)


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
    target = named_target(arch)
    arguments = Arguments(keyword={**SQUARE.keyword, "M": extent})
    found = verdict(Config({**TILE, "BM": rows, "BN": columns, "num_warps": warps}), arguments, arch)
    possible = (
        warps & (warps - 1) == rows & (rows - 1) == columns & (columns - 1) == 0
        and warps * target.warp_size <= target.threads_per_block
    )
    assert (found is None or found.deferred) == possible
    assert found is None or re.search(r"\d", found.reason)
    assert found is None or found.status in (Status.CONSTRAINT, Status.RESOURCES, Status.DEFERRED)


@pytest.mark.parametrize("operation", SHIPPED, ids=lambda operation: operation.name)
def test_no_default_of_a_shipped_kernel_is_refused_or_deferred(operation):
    for shape, dtype in operation.problems.values():
        problem = operation.problem(shape, dtype)
        default = operation.space_for(problem).default
        for target in TARGETS.values():
            ahead = AheadOfTime(operation.kernel, Arguments(keyword=dict(problem.arguments)), target)
            assert foresee(ahead, default) is None
