"""Products that are scaled before they are added to a sum: both are held, and the arithmetic waits for the product."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.drawn_kernels import jitted
from tests.strategies import examples
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend.offline import kernel_work
from triton_ops.cost_model import Model
from triton_ops.cost_model.inferred import InferredTiles
from triton_ops.device import DeviceSpec, Machine, Target
from triton_ops.space import Config
from triton_ops.values import TensorSpec, Work

pytestmark = pytest.mark.triton

H200, SM_90 = Machine.of(DeviceSpec.named("NVIDIA H200")), Target.named("sm_90")
EXTENT = 2048
PARAMETERS = "a, b, scales, out, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr"
BODY = """
m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
total = tl.zeros((BM, BN), tl.float32)
for first in range(0, K, BK):
    k = first + tl.arange(0, BK)
    left, right = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + n[None, :] * K + k[:, None])
    scale = tl.load(scales + first // BK * N + n)
    {step}
tl.store(out + m[:, None] * N + n[None, :], total)
"""
BESIDE = [
    "total += tl.dot(left, right) * scale[None, :]",
    "total += tl.dot(left, right).to(tl.float32) * scale[None, :]",
    "total = total + scale[None, :] * tl.dot(left, right)",
    "part = tl.dot(left, right)\n    total += part * scale[None, :] * 0.5",
    "total = tl.where(scale[None, :] > 0, total + tl.dot(left, right) * scale[None, :], total)",
]
ALONE = [
    "total += tl.dot(left, right)",
    "total = tl.dot(left, right, total)",
    "total = tl.dot(left, right, total * scale[None, :])",
    "total = total * scale[None, :]\n    total += tl.dot(left, right)",
]
DTYPES = st.sampled_from(["float16", "bfloat16", "float8_e4m3fn"])
SIDES = st.sampled_from([64, 128, 256])


def work_of(step, dtype, rows, columns):
    operand, out = TensorSpec((EXTENT, EXTENT), dtype), TensorSpec((EXTENT, EXTENT), "float32")
    kernel = TritonKernel(jitted(PARAMETERS, BODY.format(step=step)), lambda _: (EXTENT // rows, EXTENT // columns))
    config = Config(BM=rows, BN=columns, BK=64)
    arguments = Arguments((operand, operand, out, out, EXTENT, EXTENT))
    work = kernel_work(kernel, config, arguments.described(), SM_90)
    assert not work.silent
    return work


def plan(step, dtype, rows, columns, warps):
    """What is guessed of a block, and the expected time of a launch."""
    work = work_of(step, dtype, rows, columns)
    model = Model(Work(tiles=InferredTiles(lambda _: work)), H200)
    config = {"BM": rows, "BN": columns, "BK": 64, "num_warps": warps, "num_stages": 3}
    return model.work.tiles.plan(config, H200).footprint, model.expected_ms(Config(config))


@examples(12)
@given(step=st.sampled_from(BESIDE), dtype=DTYPES, rows=SIDES, columns=SIDES)
def test_what_is_computed_from_a_product_is_added_to_a_sum_beside_it(step, dtype, rows, columns):
    [product] = work_of(step, dtype, rows, columns).launches[0].products
    assert product.beside


@examples(12)
@given(step=st.sampled_from(ALONE), dtype=DTYPES, rows=SIDES, columns=SIDES)
def test_a_product_that_is_added_up_in_place_has_no_sum_beside_it(step, dtype, rows, columns):
    """Of eight bits Triton 3.7 adds nothing up in place where the kernel adds it by itself."""
    [product] = work_of(step, dtype, rows, columns).launches[0].products
    assert product.beside == (dtype == "float8_e4m3fn" and "+= tl.dot" in step)


@examples(20)
@given(beside=st.sampled_from(BESIDE), dtype=DTYPES, rows=SIDES, columns=SIDES, warps=st.sampled_from([4, 8]))
def test_a_sum_beside_a_product_takes_registers_and_its_arithmetic_takes_time(beside, dtype, rows, columns, warps):
    held, ms = plan(beside, dtype, rows, columns, warps)
    alone, alone_ms = plan(ALONE[1], dtype, rows, columns, warps)
    assert held.registers >= min(alone.registers + rows * columns // (32 * warps), 255)
    assert held.spill_bytes >= alone.spill_bytes
    assert (held.spill_bytes > 0) == (2 * rows * columns // (32 * warps) >= 255 or alone.spill_bytes > 0)
    assert ms > alone_ms


def test_scores_that_become_weights_are_no_sum():
    """Attention's sums of rows are small, and the other sum is what the second product adds to in place."""
    body = """
    m, d, total, rows = tl.arange(0, 64), tl.arange(0, 64), tl.zeros((64, 64), tl.float32), tl.zeros((64,), tl.float32)
    left = tl.load(a + m[:, None] * 64 + d[None, :])
    for first in range(0, K, 64):
        keys = tl.load(b + (first + m)[None, :] * 64 + d[:, None])
        weights = tl.exp(tl.dot(left, keys) * 0.1)
        rows += tl.sum(weights, 1)
        total = tl.dot(weights.to(tl.float16), tl.load(c + (first + m)[:, None] * 64 + d[None, :]), total)
    tl.store(out + m[:, None] * 64 + d[None, :], total / rows[:, None])
    """
    half, out = TensorSpec((EXTENT, 64), "float16"), TensorSpec((64, 64), "float32")
    kernel = TritonKernel(jitted("a, b, c, out, K", body), lambda _: (1,))
    work = kernel_work(kernel, Config(), Arguments((half, half, half, out, EXTENT)).described(), SM_90)
    assert [product.beside for product in work.launches[0].products] == [False, False]
