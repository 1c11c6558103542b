"""Forms in Gluon, whose groups of warps wait for each other: right by the rule for odd, few and many tiles."""

import pytest
import torch

from tests.gpu.test_kernel_families_on_gpu import judged
from triton_ops.hardware import gpu_missing
from triton_ops.space import Config

pytestmark = pytest.mark.gpu

FP8_SHAPES = [
    (2568, 1032, 1040, 1), (264, 520, 4096, 2), (64, 256, 16, 2), (4104, 8200, 400, 2), (4104, 8200, 112, 1),
]  # fmt: skip

if gpu_missing() is None:
    from benchmarks.kernels.gluon_fp8 import gluon_fp8
    from benchmarks.kernels.mlp_forms import mlp_forms


@pytest.fixture(autouse=True)
def hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the matrix instructions of whole groups are Hopper's")


@pytest.mark.parametrize("how", [{}, {"EARLY": True}, {"APART": True}, {"EARLY": True, "APART": True}])
@pytest.mark.parametrize("shape", FP8_SHAPES)
@pytest.mark.parametrize("columns", [128, 256])
def test_groups_of_warps_that_promote_by_turns_are_right_by_the_rule(shape, columns, how):
    tile = {"BLOCK_M": 128, "BLOCK_N": columns, "BLOCK_K": 128, "GROUP_SIZE_M": 4, "BUFFERS": 3, "num_warps": 4}
    values = gluon_fp8.materialise(gluon_fp8.problem(shape, "bfloat16"), "cuda")
    right, why = judged(gluon_fp8, Config(tile, **how), values)
    assert right, why


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("shape", [(300, 520, 72), (128, 128, 64), (40, 264, 16), (2568, 2056, 528)])
def test_groups_of_warps_of_the_gated_mlp_are_right_by_the_rule(shape, joined):
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_SIZE_M": 4, "BUFFERS": 4, "num_warps": 4}
    values = mlp_forms.materialise(mlp_forms.problem(shape, "bfloat16"), "cuda")
    right, why = judged(mlp_forms, Config(tile, FORM="gluon", JOINED=joined), values)
    assert right, why
