"""Configs of the documents, exactly as they are written there, drive the shipped kernels."""

import pytest
import torch
import triton

import triton_ops_kernels as kernels
from tests.near import drawn
from triton_ops import FP8_GEMM_CONFIGS, GATED_MLP_CONFIGS, RMSNORM_ROPE_CONFIGS, matmul
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.device import Target
from triton_ops.space import ConfigSpace
from triton_ops.values import Status

pytestmark = pytest.mark.triton

LESSON = [
    triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=4, num_stages=3),
    triton.Config({"BM": 128, "BN": 256, "BK": 32}, num_warps=8, num_stages=3),
    triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_warps=4, num_stages=4),
]
CORNERS = {"rmsnorm_rope": RMSNORM_ROPE_CONFIGS, "gated_mlp": GATED_MLP_CONFIGS, "fp8_gemm": FP8_GEMM_CONFIGS}
SHAPES = {"rmsnorm_rope": (1, 64, 4096, 32), "gated_mlp": (256, 512, 256), "fp8_gemm": (256, 256, 512, 2)}


def called_with_the_lesson():
    """The largest error of the shipped product with each of the three configs."""
    a, b = drawn(65, 40, dtype=torch.float16), drawn(40, 33, dtype=torch.float16)
    right = a.double() @ b.double()
    return [float((matmul(a, b, config=config) - right).abs().max()) for config in ConfigSpace.from_user(LESSON)]


def test_the_lessons_three_configs_run_on_the_shipped_product(interpreted):
    errors = interpreted(called_with_the_lesson)
    assert len(errors) == 3
    assert max(errors) < 0.01


def compiled(name, shape, dtype, configs):
    operation = kernels.load(name)
    arguments = Arguments(keyword=dict(operation.problem(shape, dtype).arguments))
    ahead = TritonCompiler(operation.kernel, arguments, Target.named("sm_90")).pack().load()
    return [ahead.compile(config).status for config in configs]


def test_the_lessons_three_configs_compile_for_hopper():
    assert compiled("matmul", (512, 512, 512), "bfloat16", ConfigSpace.from_user(LESSON)) == [Status.OK] * 3


@pytest.mark.parametrize("name", CORNERS)
def test_the_least_and_the_largest_config_of_a_documented_space_compile_for_hopper_or_say_what_they_lack(name):
    documented = CORNERS[name]
    corners = [{tunable: values[place] for tunable, values in documented.items()} for place in (0, -1)]
    dtype = "bfloat16"
    configs = [next(iter(ConfigSpace.from_user([corner]))) for corner in corners]
    least, largest = compiled(name, SHAPES[name], dtype, configs)
    assert least == Status.OK
    assert largest in (Status.OK, Status.RESOURCES, Status.DEFERRED)
