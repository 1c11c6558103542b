"""Problems that a seed draws, and the bars that speeds at them must reach."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.shipped import drawn_problems

import triton_ops_kernels as kernels


def test_a_seed_draws_the_same_problems_and_another_one_others():
    assert drawn_problems.drawn(3, 15) == drawn_problems.drawn(3, 15)
    assert drawn_problems.drawn(3, 15) != drawn_problems.drawn(4, 15)


def test_every_kernel_is_drawn_at_problems_that_it_and_the_library_take():
    problems = [problem for seed in range(40) for problem in drawn_problems.drawn(seed, 15)]
    for name, shape, dtype in problems:
        specs = kernels.load(name).problem(shape, dtype).specs
        assert all(each.nbytes <= 2**32 for each in specs.values()), (name, shape)
        if name == "fp8_gemm":
            assert all(extent % 16 == 0 for extent in shape[1:3])
    assert {name for name, _, _ in drawn_problems.drawn(0, 15)} == set(drawn_problems.RIVALS)
    odd = [shape for _, shape, _ in problems if any(extent % 2 for extent in shape[:3] if extent > 64)]
    assert len(odd) >= len(problems) / 6


def row(state, speed, **others):
    return {"state": state, "speedup": speed, **others}


def test_a_mean_a_least_a_lost_problem_and_a_long_tune_are_misses():
    good = [row("untuned", 0.9), row("untuned", 1.0), row("tuned", 1.0, tune_s=8.0), row("tuned", 1.2, tune_s=9.0)]
    assert drawn_problems.misses(drawn_problems.summary(good)) == []
    bad = [row("untuned", 0.7), {"state": "untuned"}, row("tuned", 0.96, tune_s=15.5)]
    assert drawn_problems.misses(drawn_problems.summary(bad)) == [
        "untuned: the geometric mean is 0.700, below 0.92",
        "untuned: the least is 0.700, below 0.75",
        "untuned: 1 of 2 problems have no speed",
        "tuned: the geometric mean is 0.960, below 1.05",
        "a tune took 15.5 s, over 15 s",
    ]
