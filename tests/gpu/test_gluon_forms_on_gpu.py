"""Forms in Gluon, whose groups of warps wait for each other: right by the rule for odd, few and many tiles."""

import math

import pytest
import torch

from tests.gpu.test_kernel_families_on_gpu import judged
from triton_ops import flash_attention, flash_attention_with_lse
from triton_ops.backend import Arguments
from triton_ops.space import Config
from triton_ops_kernels.attention import operation as attention
from triton_ops_kernels.fp8_gemm import operation as fp8_gemm

pytestmark = pytest.mark.gpu

FP8_SHAPES = [
    (2568, 1032, 1040, 1), (264, 520, 4096, 2), (64, 256, 16, 2), (4104, 8200, 400, 2), (4104, 8200, 112, 1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the matrix instructions of whole groups are Hopper's")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("dtype", "buffers"), [("bfloat16", 4), ("float32", 3)])
@pytest.mark.parametrize("shape", FP8_SHAPES)
def test_groups_of_warps_that_promote_by_turns_are_right_by_the_rule(shape, dtype, buffers, apart, biased):
    own = {"FORM": "gluon", "BUFFERS": buffers, "APART": apart, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128}
    values = fp8_gemm.materialise(fp8_gemm.problem(shape, dtype), "cuda")
    if biased:
        bias = torch.linspace(-3, 3, shape[1], device="cuda")
        values = Arguments(keyword={**values.keyword, "bias": bias})
    right, why = judged(fp8_gemm, Config(own, GROUP_SIZE_M=4, num_warps=4, num_stages=4), values)
    assert right, why


STEPS = [(40, 264, 1040, 2), (64, 2944, 976, 1), (33, 75, 144, 2), (512, 4104, 112, 1), (200, 2048, 7168, 2)]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("shape", STEPS)
def test_groups_of_warps_that_take_steps_by_turns_are_right_by_the_rule(shape, columns, dtype, biased):
    own = {"FORM": "steps", "BUFFERS": 8, "BLOCK_M": 64, "BLOCK_N": columns, "BLOCK_K": 128}
    values = fp8_gemm.materialise(fp8_gemm.problem(shape, dtype), "cuda")
    if biased:
        bias = torch.linspace(-3, 3, shape[1], device="cuda")
        values = Arguments(keyword={**values.keyword, "bias": bias})
    right, why = judged(fp8_gemm, Config(own, num_warps=4, num_stages=4), values)
    assert right, why


@pytest.mark.parametrize("ahead", [1, 2, 4])
@pytest.mark.parametrize("shape", [(64, 264, 1040, 3), (40, 512, 7168, 3), (64, 128, 112, 3)])
def test_scales_that_are_read_steps_ahead_are_right_by_the_rule(shape, ahead):
    few = {"LOADS": "host", "BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "AHEAD": ahead, "num_warps": 4}
    values = fp8_gemm.materialise(fp8_gemm.problem(shape, "bfloat16"), "cuda")
    right, why = judged(fp8_gemm, Config(few, num_stages=4), values)
    assert right, why


WALKS = [
    ((1, 2, 1, 64, 1, 128, 128, 2), "bfloat16"),
    ((2, 6, 3, 515, 777, 64, 128, 2), "float16"),
    ((1, 4, 4, 777, 515, 128, 64, 2), "bfloat16"),  # the first queries see no key
    ((3, 8, 2, 1000, 1500, 128, 128, 1), "bfloat16"),
    ((1, 10, 5, 64, 4160, 64, 64, 2), "bfloat16"),
    ((2, 24, 8, 1100, 1100, 64, 64, 2), "float16"),  # several tiles for each program
    ((1, 8, 8, 4096, 4096, 128, 128, 2), "float16"),
]


ATTENDS = {"BLOCK_M": 128, "BLOCK_N": 128, "DESCRIPTORS": True, "num_warps": 4, "num_stages": 2, "FORM": "gluon"}


@pytest.mark.parametrize("fill", [None, "outliers"])
@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize(("shape", "dtype"), WALKS)
def test_groups_of_warps_that_attend_are_right_by_the_rule(shape, dtype, heads, fill):
    problem = attention.problem(shape, dtype)
    values = attention.materialise(problem, "cuda")
    if fill is not None:
        specs = {name: problem.specs[name] for name in ("q", "k", "v")}
        drawn = {
            name: type(spec)(spec.shape, dtype, fill=fill).create_tensor("cuda", 7) for name, spec in specs.items()
        }
        values = Arguments(keyword={**values.keyword, **drawn})
    right, why = judged(attention, Config(ATTENDS, GROUP_HEADS=heads), values)
    assert right, why


def test_attention_in_gluon_has_the_logarithms_layouts_and_nan_of_the_other_form():
    torch.manual_seed(0)
    packed = torch.randn(2, 300, 12, 64, device="cuda", dtype=torch.bfloat16)
    q, k, v = (packed[:, :, part].transpose(1, 2) for part in (slice(0, 8), slice(8, 10), slice(10, 12)))
    plain = flash_attention(q.contiguous(), k.contiguous(), v.contiguous(), True, config=ATTENDS)
    out, lse = flash_attention_with_lse(q, k, v, True, config=ATTENDS)
    assert torch.equal(out, plain)
    assert out.transpose(1, 2).is_contiguous()
    scores = q.double() @ k.repeat_interleave(4, 1).double().mT / 8
    scores = scores.masked_fill(torch.ones(300, 300, device="cuda").triu(1).bool(), -math.inf)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-4)
    q = q.contiguous()
    q[0, 3, 77, 5] = math.nan
    spoilt = flash_attention(q, k, v, True, config=ATTENDS).isnan().any(-1)
    assert spoilt.nonzero().tolist() == [[0, 3, 77]]
    endless = torch.full_like(v[:, :, :100], math.inf)
    blind, none = flash_attention_with_lse(q[:, :, :200], k[:, :, :100], endless, True, config=ATTENDS)
    assert none[:, :, :100].isneginf().all()
    assert blind[:, :, :100].eq(0).all()


def test_equal_calls_of_attention_in_gluon_give_equal_bits_and_gradients_of_the_other_form():
    torch.manual_seed(0)
    q = torch.randn(2, 16, 1024, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(2, 4, 1024, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    first = flash_attention(q, k, v, True, config=ATTENDS)
    for _ in range(20):
        assert torch.equal(flash_attention(q, k, v, True, config=ATTENDS), first)
    ours = torch.autograd.grad(first, (q, k, v), torch.ones_like(first))
    theirs = torch.autograd.grad(flash_attention(q, k, v, True), (q, k, v), torch.ones_like(first))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.double() - b.double()).norm() / b.double().norm() <= 2**-6
