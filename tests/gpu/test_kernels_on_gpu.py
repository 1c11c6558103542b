"""The shipped kernels' numbers on a real GPU, beside float64: every dtype, odd sizes, strides, and configs."""

import itertools
import random

import pytest
import torch

import triton_ops_kernels as kernels
from triton_ops.backend import Arguments, CandidateError

pytestmark = pytest.mark.gpu

MATMUL_DTYPES = ["bfloat16", "float16", "float8_e4m3fn"]
MATMUL_SHAPES = [
    (256, 384, 512),
    (129, 257, 515),  # rows that no 16-byte load fits
    (1, 1024, 2048),
    (100, 1, 64),
    (300, 72, 1),
    (16 * 9 + 1, 96, 48),  # a last group with fewer tile rows
]
# Twice the rounding of the output, and for float8 room for the tensor cores' own short sums.
MATMUL_ERROR = {"bfloat16": 2**-8, "float16": 2**-10, "float8_e4m3fn": 2**-7}
LARGE_BYTES = 24 * 2**30  # what the tests with 64-bit offsets need, with room for the allocator


@pytest.fixture(scope="module")
def matmul():
    from triton_ops_kernels.matmul import matmul

    return matmul


@pytest.fixture(scope="module")
def fused():
    from triton_ops_kernels import fused_rmsnorm_rope

    return fused_rmsnorm_rope


def uniform(*shape, dtype, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.rand(shape, generator=generator, device="cuda") * 2 - 1).to(getattr(torch, dtype))


def needs_float8(dtype):
    if dtype == "float8_e4m3fn" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("float8_e4m3fn needs compute capability 8.9")


def needs_memory():
    if torch.cuda.mem_get_info()[0] < LARGE_BYTES:
        pytest.skip(f"needs {LARGE_BYTES >> 30} GiB of free GPU memory")


def assert_product(found, a, b, dtype):
    right = a.double() @ b.double()
    error = (found.double() - right).abs().max().item()
    assert error <= right.abs().max().item() * MATMUL_ERROR[dtype]
    assert found.dtype == (torch.bfloat16 if dtype == "float8_e4m3fn" else a.dtype)


@pytest.mark.parametrize("dtype", MATMUL_DTYPES)
@pytest.mark.parametrize("shape", MATMUL_SHAPES)
def test_matmul_of_every_shape(matmul, shape, dtype):
    needs_float8(dtype)
    M, N, K = shape
    a, b = uniform(M, K, dtype=dtype), uniform(K, N, dtype=dtype, seed=1)
    assert_product(matmul(a, b), a, b, dtype)


@pytest.mark.parametrize("dtype", MATMUL_DTYPES)
@pytest.mark.parametrize("layout", ["a-columns", "b-columns", "both-columns", "gaps", "misaligned"])
def test_matmul_of_every_layout(matmul, layout, dtype):
    needs_float8(dtype)
    M, N, K = 200, 136, 264
    a, b = uniform(M, K, dtype=dtype), uniform(K, N, dtype=dtype, seed=1)
    if layout in ("a-columns", "both-columns"):
        a = uniform(K, M, dtype=dtype).t()
    if layout in ("b-columns", "both-columns"):
        b = uniform(N, K, dtype=dtype, seed=1).t()
    if layout == "gaps":
        a, b = uniform(2 * M, 3 * K, dtype=dtype)[::2, ::3], uniform(2 * K, 2 * N, dtype=dtype)[::2, ::2]
    if layout == "misaligned":
        a, b = uniform(M, K + 3, dtype=dtype)[:, 1:-2], uniform(K, N + 3, dtype=dtype)[:, 1:-2]
    assert_product(matmul(a, b), a, b, dtype)


def test_matmul_writes_into_a_strided_out(matmul):
    a, b = uniform(100, 64, dtype="bfloat16"), uniform(64, 50, dtype="bfloat16", seed=1)
    whole = torch.full((50, 200), float("nan"), dtype=torch.bfloat16, device="cuda")
    out = whole.t()[::2]
    assert matmul(a, b, out=out) is out
    assert_product(out, a, b, "bfloat16")
    assert whole[:, 1::2].isnan().all()  # nothing beside it was touched


def test_matmul_without_a_sum_is_zero(matmul):
    a, b = uniform(9, 0, dtype="float16"), uniform(0, 7, dtype="float16")
    assert torch.equal(matmul(a, b), torch.zeros(9, 7, dtype=torch.float16, device="cuda"))


def test_matmul_counts_rows_beyond_31_bits(matmul):
    needs_memory()
    M, N, K = 70_000, 64, 32_768  # A holds 2.3e9 elements
    a = torch.empty(M, K, dtype=torch.bfloat16, device="cuda")
    a[:-300].zero_()
    a[-300:] = uniform(300, K, dtype="bfloat16")
    b = uniform(K, N, dtype="bfloat16", seed=1)
    result = matmul(a, b)
    assert not result[:-300].any()
    assert_product(result[-300:], a[-300:], b, "bfloat16")


def sample_configs(shape, dtype, count):
    operation = kernels.load("matmul")
    problem = operation.problem(shape, dtype)
    return random.Random(0).sample(list(operation.space_for(problem)), count)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(512, 640, 768), (509, 643, 771)])
def test_matmul_configs_that_load_are_right(shape, dtype):
    needs_float8(dtype)
    operation = kernels.load("matmul")
    arguments = operation.materialise(operation.problem(shape, dtype), "cuda")
    a, b, c = (arguments.keyword[name] for name in "abc")
    loaded = 0
    for config in sample_configs(shape, dtype, 16):
        try:
            executable = operation.kernel.compile(config, arguments)
        except CandidateError:
            continue  # too much shared memory for this device
        loaded += 1
        c.fill_(float("nan"))
        executable.launch(arguments)
        assert_product(c, a, b, dtype)
    assert loaded >= 8


def angles(seq, head_dim, dtype):
    place = torch.arange(seq, device="cuda", dtype=torch.float64)
    turns = 10_000.0 ** -(torch.arange(0, head_dim, 2, device="cuda", dtype=torch.float64) / head_dim)
    table = torch.outer(place, turns).repeat(1, 2)
    return table.cos().to(getattr(torch, dtype)), table.sin().to(getattr(torch, dtype))


def by_rotate_half(x, weight, cos, sin, eps):
    """The formula of the models: y cos + rotate_half(y) sin, over whole tables, in float64."""
    x, weight, cos, sin = (tensor.double() for tensor in (x, weight, cos, sin))
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    y = y.unflatten(-1, (-1, cos.shape[-1]))
    first, second = y.chunk(2, dim=-1)
    return (y * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]).flatten(-2)


def rmsnorm_inputs(batch, seq, hidden, heads, dtype):
    x = uniform(batch, seq, hidden, dtype=dtype)
    return x, uniform(hidden, dtype=dtype, seed=1), *angles(seq, hidden // heads, dtype)


ROUNDING = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-20}
ALL_CONFIGS = list(itertools.product([64, 128, 256, 512, 1024], [2, 4, 8], [1, 2, 3]))


def assert_rotated(found, x, weight, cos, sin, dtype, eps=1e-6):
    right = by_rotate_half(x, weight, cos, sin, eps)
    assert (found.shape, found.dtype) == (x.shape, x.dtype)
    torch.testing.assert_close(found.double(), right, rtol=ROUNDING[dtype], atol=1e-5)


@pytest.mark.parametrize(("block", "warps", "stages"), ALL_CONFIGS)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 64, 4096, 32), "bfloat16"), ((2, 33, 1920, 20), "float16"), ((1, 17, 1040, 13), "float32")],
    ids=["heads of 128", "heads of 96", "heads of 80"],
)
def test_every_rmsnorm_rope_config(fused, block, warps, stages, shape, dtype):
    inputs = rmsnorm_inputs(*shape, dtype)
    config = {"BLOCK_SIZE": block, "num_warps": warps, "num_stages": stages}
    assert_rotated(fused(*inputs, config=config), *inputs, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("shape", [(4, 128, 4096, 32), (3, 7, 30, 3), (2, 5, 12, 6), (1, 1, 8192, 64), (2, 3, 64, 1)])
def test_rmsnorm_rope_with_the_default_config(fused, shape, dtype):
    inputs = rmsnorm_inputs(*shape, dtype)
    assert_rotated(fused(*inputs, check_halves=True), *inputs, dtype)


def test_rmsnorm_rope_takes_four_axes_a_head_count_and_eps(fused):
    x, weight, cos, sin = rmsnorm_inputs(2, 16, 512, 4, "bfloat16")
    result = fused(x, weight, cos[None, :, None], sin[None, :, None], 0.25, 4)
    assert_rotated(result, x, weight, cos, sin, "bfloat16", eps=0.25)


def test_rmsnorm_rope_of_a_misaligned_tensor(fused):
    x, weight, cos, sin = rmsnorm_inputs(2, 16, 512, 4, "bfloat16")
    shifted = torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].view_as(x).copy_(x)
    assert_rotated(fused(shifted, weight, cos, sin), x, weight, cos, sin, "bfloat16")


def test_rmsnorm_rope_lets_nan_and_infinity_through_in_their_row_only(fused):
    x, weight, cos, sin = rmsnorm_inputs(1, 3, 512, 4, "bfloat16")
    x[0, 1, 5], x[0, 2, 7] = float("nan"), float("inf")
    result = fused(x, weight, cos, sin)[0]
    assert result[0].isfinite().all()
    assert result[1].isnan().all()
    assert result[2].isnan().sum() == 2


def test_rmsnorm_rope_counts_rows_beyond_31_bits(fused):
    needs_memory()
    seq, hidden = 530_000, 4096  # 2.2e9 elements
    x = torch.ones(1, seq, hidden, dtype=torch.bfloat16, device="cuda")
    x[:, -2:] = uniform(1, 2, hidden, dtype="bfloat16")
    weight, (cos, sin) = uniform(hidden, dtype="bfloat16", seed=1), angles(seq, 128, "bfloat16")
    result = fused(x, weight, cos, sin)[:, -2:]
    assert_rotated(result, x[:, -2:], weight, cos[-2:], sin[-2:], "bfloat16")


@pytest.mark.parametrize("name", kernels.names())
def test_operation_agrees_with_its_reference_on_its_first_problem(name):
    operation = kernels.load(name)
    problem = operation.problem(*next(iter(operation.problems.values())))
    arguments: Arguments = operation.materialise(problem, "cuda")
    executable = operation.kernel.compile(operation.space_for(problem).default_config, arguments)
    executable.launch(arguments)
    right = operation.reference(**arguments.keyword)
    for output, expected in zip(operation.kernel.outputs, right if isinstance(right, tuple) else (right,), strict=True):
        rounding = torch.finfo(expected.dtype).eps  # of 8-bit values, which are compared as numbers, it is the larger
        result, right_result = arguments.keyword[output].float(), expected.float()
        # A sum near zero of large terms is off by a share of the terms: products of 8 bits are added up in few bits.
        atol = max(1e-2, 2**-10 * right_result.square().mean().sqrt().item()) if name == "fp8_gemm" else 1e-2
        torch.testing.assert_close(result, right_result, rtol=max(2**-7, rounding), atol=atol)
