"""What is read of shipped kernels beside what they declare."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
from tests.cpu.tuner.test_inferred_model import H200, OPTIONS, model_of, work_of  # noqa: E402
from triton_ops.backend import Arguments  # noqa: E402  # noqa: E402
from triton_ops.cost_model import (  # noqa: E402
    Model,
)
from triton_ops_kernels import load  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (512, 4096, 14336)])
def test_a_matmul_that_declares_nothing_has_the_forecasts_of_one_that_does(shape):
    operation = load("matmul")
    problem = operation.problem(shape, "bfloat16")
    declared, arguments = Model(operation.work(problem), H200), Arguments(keyword=dict(problem.arguments))
    for tile in ({"BM": 128, "BN": 256, "BK": 64}, {"BM": 64, "BN": 64, "BK": 32}, {"BM": 16, "BN": 128, "BK": 128}):
        result = model_of(work_of(operation.kernel, {**tile, "GROUP_M": 8}, arguments))
        for options in ({"num_warps": 4, "num_stages": 3}, {"num_warps": 8, "num_stages": 5}):
            config = {**tile, "GROUP_M": 8, **options}
            assert result.expected_ms(config) == pytest.approx(declared.expected_ms(config), rel=0.02)


def test_of_the_gradient_of_attention_both_launches_are_read():
    operation = load("attention_backward")
    problem = operation.problem((1, 4, 2, 512, 512, 64, 64, 2), "bfloat16")
    assert operation.work(problem).tiles is None
    usual = {"Q_ROWS": 64, "Q_KEYS": 64, "K_KEYS": 64, "K_ROWS": 64, **OPTIONS}
    times = {}
    for name in ("", "Q_KEYS", "K_ROWS"):
        work = work_of(
            operation.kernel, {**usual, name: 32} if name else usual, Arguments(keyword=dict(problem.arguments))
        )
        assert [len(launch.products) for launch in work.launches] == [0, 6, 8]  # with a mask, and without one
        times[name] = model_of(work).expected_ms(OPTIONS)
    assert all(math.isfinite(ms) and ms > 0 for ms in times.values())
    assert len(set(times.values())) == 3
