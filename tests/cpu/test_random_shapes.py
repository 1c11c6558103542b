"""Every shipped kernel on random shapes, configs and inputs, by the rule for verdicts: a sample of the benchmark."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from benchmarks.random_shapes import INTERPRETED, ON_A_GPU, Case, cases, drawn_shape, main, wrong

from triton_ops import kernels

pytestmark = pytest.mark.triton

SAMPLE = 4
SMALL = replace(INTERPRETED, side=40, row=300, elements=400, tokens=8)


def sampled(name):
    found = list(cases(name, SAMPLE, seed=11, sizes=SMALL))
    return len(found), [f"{case}: {how}" for case in found if (how := wrong(case, "cpu")) is not None]


@pytest.mark.parametrize("name", kernels.names())
def test_results_of_random_cases_are_right_and_the_same_twice(interpreted, name):
    assert interpreted(sampled, name) == (SAMPLE, [])


def broken():
    """What is found of a softmax whose grid leaves out the last rows."""
    case = next(case for case in cases("softmax", 99, 1, SMALL) if case.shape[0] > 5 and case.fill == "uniform")
    kernel = kernels.load("softmax").kernel
    whole = kernel.grid
    object.__setattr__(kernel, "grid", lambda meta: (whole(meta)[0] - 1,))
    try:
        return wrong(replace(case, config={"BLOCK_SIZE": 64, "ROWS": 1, "num_warps": 1}), "cpu")
    finally:
        object.__setattr__(kernel, "grid", whole)


def test_a_kernel_that_leaves_out_rows_is_found(interpreted):
    assert "softmax" in interpreted(broken)


@pytest.mark.parametrize("name", kernels.names())
def test_shapes_fit_the_kernel_and_vary(name):
    operation, rng = kernels.load(name), random.Random(3)
    for sizes in (INTERPRETED, ON_A_GPU):
        shapes = {drawn_shape(operation, rng, sizes) for _ in range(40)}
        assert len(shapes) >= 15
        for shape in shapes:
            problem = operation.problem(shape)
            assert operation.space_for(problem).default_config
            assert max(spec.numel for spec in problem.specs.values()) < 2**31


def test_inputs_are_of_every_kind_and_a_seed_gives_the_same_cases():
    found = list(cases("gated_mlp", 200, 5, INTERPRETED))
    fills = Counter(case.fill for case in found)
    assert set(fills) == {"uniform", "zeros", "denormal", "large", "nan", "infinity"}
    assert fills["uniform"] > 90
    assert found == list(cases("gated_mlp", 200, 5, INTERPRETED))
    assert found != list(cases("gated_mlp", 200, 6, INTERPRETED))
    assert str(Case(kernel="k", shape=(1, 2), dtype="float16", fill="nan", config={"B": 1}, seed=3)) == (
        "k 1x2 float16, nan, seed 3, (B=1)"
    )


def test_a_kernel_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--kernels", "softmaxx"])
    assert "softmaxx" in capsys.readouterr().err
