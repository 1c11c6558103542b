"""Verdicts on a GPU: TF32 is known by its instructions, and faults are found at every tile."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu


def tuned(operation, tmp_path, **more):
    from triton_ops import tune

    return tune(operation, search="exhaustive", cache_dir=tmp_path, **more)


def test_products_of_float32_are_judged_as_tf32_where_the_code_multiplies_in_it(tmp_path):
    from benchmarks.correctness.verdict_kernels import product

    from triton_ops import Config

    config = Config(BM=64, BN=64, BK=32, num_warps=4)
    given = product.materialise(product.problem((512, 512, 500), "float32"), "cuda")
    assert product.kernel.compile(config, given).tf32
    assert product.kernel.compile(config, given).atomics is False
    half = product.materialise(product.problem((512, 512, 500), "float16"), "cuda")
    assert product.kernel.compile(config, half).tf32 is False
    result = tuned(
        product, tmp_path, shape=(512, 512, 500), dtype="float32", space=[dict(config), {**config, "BK": 64}]
    )
    assert result.totals == {"ok": 2}
    assert result.verified == "the reference in float64"


def test_a_golden_result_that_does_not_fit_into_memory_is_computed_in_float32(tmp_path):
    """Scores of 4 x 32 heads by 4096 x 4096 take 17 GB each in float64, and several at a time."""
    from benchmarks.correctness.verdict_kernels import attention

    space = [
        {"BM": 128, "BN": 64, "num_warps": 8, "num_stages": 2},
        {"BM": 64, "BN": 32, "num_warps": 4, "num_stages": 3},
    ]
    result = tuned(attention, tmp_path, shape=(4, 32, 4096, 128), space=space)
    assert result.totals == {"ok": 2}
    assert result.verified in ("the reference in float64", "the reference in float32")


def test_planted_faults_of_a_product_are_wrong_at_every_tile(tmp_path):
    from benchmarks.correctness.verdict_kernels import MATMUL_FAULTS, product
    from benchmarks.correctness.verdicts import MATMUL_TILES, normal, planted

    given = normal(product.materialise(product.problem((1024, 1024, 1000), "bfloat16"), "cuda").keyword)
    result = planted(product, MATMUL_FAULTS, MATMUL_TILES[:2], given, str(tmp_path))
    assert result["passed"], result["rows"]


def test_gated_mlps_are_right_against_a_reference_that_closes_over_its_tensors(tmp_path):
    """The reference rounds both products; the kernel does not, and is nearer to the golden result."""
    from benchmarks.correctness.verdict_kernels import closed_gated_mlp
    from benchmarks.correctness.verdicts import normal

    import triton_ops_kernels as kernels

    operation = kernels.load("gated_mlp")
    problem = operation.problem((512, 1024, 1024), "bfloat16")
    given = normal(operation.materialise(problem, "cuda").keyword)
    space = [dict(config) for config in list(operation.space_for(problem))[::80]]
    result = tuned(operation, tmp_path, kwargs=given, space=space, reference=closed_gated_mlp(given))
    assert "wrong" not in result.totals
    assert result.verified == "the reference in float64"


def test_a_reference_that_launches_a_kernel_is_in_part_in_its_own_precision(tmp_path):
    import torch
    from benchmarks.correctness.verdict_kernels import gelu, gelu_kernel

    given = gelu.materialise(gelu.problem((1 << 16,), "bfloat16"), "cuda").keyword
    x = given["x"]

    def reference(**_):
        outcome = torch.empty_like(x)
        gelu_kernel[(128,)](x, outcome, 1 << 16, BLOCK=512)
        return outcome

    result = tuned(gelu, tmp_path, kwargs=given, reference=reference)
    assert set(result.totals) == {"ok"}
    assert result.verified == "the reference in float64 but for a kernel that takes addresses"


def test_convolutions_of_float32_may_be_computed_in_tf32_as_torch_does_by_default():
    import torch
    from torch.nn import functional

    from triton_ops.backend import Arguments
    from triton_ops.evaluation import ReferenceResults

    draw = torch.Generator("cuda").manual_seed(0)
    x, weight = (torch.randn(shape, generator=draw, device="cuda") for shape in ((8, 40, 40, 40), (40, 40, 3, 3)))
    for reference_allows in (False, True):
        torch.backends.cudnn.allow_tf32 = True
        right = ReferenceResults(lambda x, weight: functional.conv2d(x, weight, padding=1), Arguments((x, weight)))
        torch.backends.cudnn.allow_tf32 = reference_allows
        found = functional.conv2d(x, weight, padding=1)
        torch.backends.cudnn.allow_tf32 = True
        assert right.difference([found]) is None
        assert right.difference([found + found.abs().max() / 64]) is not None
