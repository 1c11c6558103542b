"""Forms in Gluon, whose groups of warps wait for each other: right by the rule for odd, few and many tiles."""

import pytest
import torch

from tests.gpu.test_kernel_families_on_gpu import judged
from triton_ops.backend import Arguments
from triton_ops.device import gpu_missing
from triton_ops.kernels.fp8_gemm import operation as fp8_gemm
from triton_ops.space import Config

pytestmark = pytest.mark.gpu

FP8_SHAPES = [
    (2568, 1032, 1040, 1), (264, 520, 4096, 2), (64, 256, 16, 2), (4104, 8200, 400, 2), (4104, 8200, 112, 1),
]  # fmt: skip

if gpu_missing() is None:
    from benchmarks.kernels.mlp_forms import mlp_forms


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


@pytest.mark.parametrize("ahead", [1, 2, 4])
@pytest.mark.parametrize("shape", [(64, 264, 1040, 3), (40, 512, 7168, 3), (64, 128, 112, 3)])
def test_scales_that_are_read_steps_ahead_are_right_by_the_rule(shape, ahead):
    few = {"LOADS": "host", "BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "AHEAD": ahead, "num_warps": 4}
    values = fp8_gemm.materialise(fp8_gemm.problem(shape, "bfloat16"), "cuda")
    right, why = judged(fp8_gemm, Config(few, num_stages=4), values)
    assert right, why


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("shape", [(300, 520, 72), (128, 128, 64), (40, 264, 16), (2568, 2056, 528)])
def test_groups_of_warps_of_the_gated_mlp_are_right_by_the_rule(shape, joined):
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_SIZE_M": 4, "BUFFERS": 4, "num_warps": 4}
    values = mlp_forms.materialise(mlp_forms.problem(shape, "bfloat16"), "cuda")
    right, why = judged(mlp_forms, Config(tile, FORM="gluon", JOINED=joined), values)
    assert right, why
