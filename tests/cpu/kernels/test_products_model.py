"""The model of products by several algorithms: which comes first at which problem."""

from __future__ import annotations

import math

import pytest

from triton_ops import Work
from triton_ops.cost_model import Model
from triton_ops.device import DeviceSpec, Machine
from triton_ops_kernels import load
from triton_ops_kernels.matmul.problems import plain_space

pytestmark = pytest.mark.triton

MATMUL = load("matmul")
H200 = Machine.of(DeviceSpec.named("NVIDIA H200"))


def best_by_algorithm(shape, dtype="bfloat16"):
    """The least expected milliseconds of each algorithm, and the best config of all."""
    problem = MATMUL.problem(shape, dtype)
    configs = list(MATMUL.space_for(problem))
    model = Model(MATMUL.work(problem), H200)
    scores = dict(zip(configs, model.score(configs), strict=True))
    assert not any(math.isnan(score) for score in scores.values())
    least = {}
    for config, score in scores.items():
        least[config["ALGORITHM"]] = min(score, least.get(config["ALGORITHM"], math.inf))
    return least, min(scores, key=scores.__getitem__)


def test_large_products_are_walked_over_by_descriptors():
    least, best = best_by_algorithm((4096, 4096, 4096))
    assert least["persistent"] < least["tiles"] < least["split_k"]
    assert least["persistent"] < least["stream_k"]
    assert (best["LOADS"], best["BM"] * best["BN"]) == ("host", 128 * 256)


def test_few_tiles_of_a_long_sum_are_shared():
    least, best = best_by_algorithm((64, 512, 65536))
    assert min(least["split_k"], least["stream_k"]) < 0.5 * least["tiles"]
    assert best["ALGORITHM"] in ("split_k", "stream_k")


def test_a_wave_that_is_nearly_empty_is_shared():
    least, _ = best_by_algorithm((1536, 2816, 16384))  # 132 tiles of 128 by 256: one wave; 12 more with 3,072 columns
    more, _ = best_by_algorithm((1536, 3072, 16384))
    assert least["tiles"] <= least["stream_k"]
    assert more["stream_k"] < more["tiles"]


def test_small_products_need_no_second_launch():
    least, best = best_by_algorithm((256, 256, 1024))
    assert best["ALGORITHM"] in ("tiles", "persistent")
    assert least["tiles"] < least["split_k"]


def test_swapped_operands_of_few_rows_run_on_warp_groups():
    problem = MATMUL.problem((16, 8192, 8192), "bfloat16")
    model = Model(MATMUL.work(problem), H200)
    default = dict(MATMUL.space_for(problem).default_config)
    swapped = {**default, "SWAPPED": True, "BM": 128, "BN": 16, "LOADS": "host"}
    plan = model.work.tiles.plan(swapped, H200)
    assert plan.footprint.registers < model.work.tiles.plan({**default, "BN": 128}, H200).footprint.registers
    assert model.expected_ms(swapped) > 0


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (16, 14336, 4096)])
def test_configs_that_name_no_algorithm_are_forecast_as_plain_tiles(shape):
    problem = MATMUL.problem(shape, "bfloat16")
    work = MATMUL.work(problem)
    plain = Model(Work(work.flops, work.bytes, work.tiles.product), H200)
    for config in list(plain_space(problem))[::7]:
        assert Model(work, H200).expected_ms(config) == pytest.approx(plain.expected_ms(config))


def test_sums_of_short_parts_of_a_step_meet_in_the_same_banks():
    operation = load("fp8_gemm")
    problem = operation.problem((21, 13056, 11600, 1), "bfloat16")
    model = Model(operation.work(problem), Machine.of(DeviceSpec.named("NVIDIA H200")))
    parts = {"FORM": "parts", "BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 4, "num_stages": 4}
    long, short = (model.expected_ms({**parts, "BLOCK_K": step, "SUMS": 4}) for step in (512, 128))
    assert 1.7 * long < short  # 69.8 and 148.7 us on an H200


def test_wide_tiles_by_descriptors_take_less_than_by_pointers_and_narrow_ones_as_much():
    operation = load("matmul")
    problem = operation.problem((700, 1280, 5120), "bfloat16")
    model = Model(operation.work(problem), Machine.of(DeviceSpec.named("NVIDIA H200")))
    tile = {"ALGORITHM": "tiles", "BM": 64, "BK": 64, "num_warps": 4, "num_stages": 7}
    for columns, least, most in ((128, 1.15, 1.3), (32, 1.0, 1.1)):
        described, pointers = (model.expected_ms({**tile, "BN": columns, "LOADS": it}) for it in ("host", "pointers"))
        assert least <= pointers / described <= most


SHARED = {
    "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_SIZE_M": 8, "LOADS": "pointers", "num_warps": 4, "num_stages": 3
}  # fmt: skip


def test_two_products_at_once_are_of_their_operands_dtype_and_share_tiles_as_one_does():
    mlp = load("gated_mlp")
    problem = mlp.problem((29, 640, 11477), "bfloat16")
    model = Model(mlp.work(problem), H200)
    times = [model.expected_ms({**SHARED, "SPLIT": parts}) for parts in (1, 2, 4, 8, 16)]
    assert model.work.dtype == "bfloat16"
    assert times[0] > times[1] > times[2] > times[3] < times[4]  # measured: 365, 197, 100, 56 and 61 us (H200)
