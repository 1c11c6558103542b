"""First picks of shipped kernels beside recorded times."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.model.model_quality import read, time_ms

import triton_ops_kernels as kernels
from triton_ops.cost_model import Model
from triton_ops.device import Machine
from triton_ops.space import Config
from triton_ops_kernels.matmul.problems import plain_space

pytestmark = pytest.mark.triton
from tests.cpu.kernels.test_first_picks import H200  # noqa: E402


@pytest.mark.parametrize(
    ("recording", "shape", "dtype"),
    [
        ("matmul_bf16-2048x6144x3072", (2048, 6144, 3072), "bfloat16"),
        ("matmul_fp8-4096x5120x8192", (4096, 5120, 8192), "float8_e4m3fn"),
    ],
)
def test_a_pick_is_near_the_best_of_recorded_times_whatever_the_default_is(recording, shape, dtype):
    operation = kernels.load("matmul")
    problem = operation.problem(shape, dtype)
    space = plain_space(problem)
    rows = read(Path(__file__).resolve().parents[3] / "benchmarks" / "recordings" / f"{recording}.json.gz")["rows"]
    times = {Config(row["config"]): time_ms(row) for row in rows if row["status"] == "ok"}
    model = Model(operation.work(problem), Machine.of(H200))
    defaults = (space.default_config, *random.Random(0).sample(list(times), 20))
    picks = {it: model.first_pick(replace(space, default=it), [], operation.least_gain) for it in defaults}
    assert times[picks[space.default_config].config] < times[space.default_config]
    near = [times[pick.config] < 1.02 * min(times.values()) for pick in picks.values() if pick is not None]
    assert len(near) >= 19
    assert all(near)
