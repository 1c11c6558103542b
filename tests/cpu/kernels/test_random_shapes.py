"""Every shipped kernel on random shapes, configs and inputs, by the rule for verdicts: a sample of the benchmark."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from benchmarks.correctness.random_shapes import (
    BOUNDS,
    INTERPRETED,
    ON_A_GPU,
    Case,
    cases,
    drawn_shape,
    launched,
    main,
    spoil,
    wrong,
)

import triton_ops_kernels as kernels
from triton_ops.benchmark import check_result
from triton_ops.space import Config

pytestmark = pytest.mark.triton

SAMPLE = 4
SMALL = replace(INTERPRETED, side=40, row=300, elements=400, tokens=8)


def sampled(name):
    result = list(cases(name, SAMPLE, seed=11, sizes=SMALL))
    return len(result), [f"{case}: {how}" for case in result if (how := wrong(case, "cpu")) is not None]


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


FORWARD = {"BLOCK_M": 16, "BLOCK_N": 32, "GROUP_HEADS": 1, "SPLITS": 1, "num_warps": 8, "num_stages": 3}
BACKWARD = {"Q_ROWS": 64, "Q_KEYS": 64, "K_KEYS": 64, "K_ROWS": 64, "num_warps": 4, "num_stages": 2}
ROUNDED = {
    "one row": ("attention", (1, 1, 1, 1, 62, 16, 8, 1), "uniform", 723),
    "few terms": ("attention_backward", (1, 1, 1, 9, 5, 8, 24, 2), "uniform", 171),
    "rows of few terms": ("attention_backward", (2, 6, 2, 17, 10, 48, 32, 2), "uniform", 115),
}
CANCELLED = {
    "one key": ("attention_backward", (2, 4, 2, 11, 1, 16, 8, 1), "large", 58),
    "all weight on one key": ("attention_backward", (2, 3, 3, 12, 14, 64, 16, 2), "large", 25),
}


def case_of(kernel, shape, fill, seed):
    config = FORWARD if kernel == "attention" else BACKWARD
    return Case(kernel=kernel, shape=shape, dtype="float16", fill=fill, config=config, seed=seed)


def judged(what):
    """How a case is wrong, and whether the bound of rounding had to say so."""
    by_bound = []
    return wrong(case_of(*what), "cpu", by_bound), len(by_bound)


def by_the_rule(what):
    """The outputs of a case with the inputs that its operation draws, judged by the rule alone."""
    case = case_of(*what)
    operation = kernels.load(case.kernel)
    values = operation.materialise(operation.problem(case.shape, case.dtype), "cpu", case.seed).keyword
    return len(check_result(operation, Config(case.config), values))


@pytest.mark.parametrize("what", ROUNDED)
def test_roundings_between_two_products_are_part_of_what_the_rule_allows(interpreted, what):
    assert interpreted(by_the_rule, ROUNDED[what]) == (1 if ROUNDED[what][0] == "attention" else 3)


@pytest.mark.parametrize("what", CANCELLED)
def test_what_is_left_of_equal_numbers_is_within_what_rounding_can_do(interpreted, what):
    assert interpreted(judged, CANCELLED[what]) == (None, 1)


def excesses(kernel):
    """By how much results are beyond the bound of rounding: as they are, with another scale, and with a lost key."""
    case = case_of(kernel, (1, 2, 1, 9, 7, 16, 8, 1), "uniform", 3)
    operation = kernels.load(case.kernel)
    problem = operation.problem(case.shape, case.dtype)
    values = dict(operation.materialise(problem, "cpu", case.seed).keyword)
    spoil(values, problem.specs, case)
    result = []
    for scale, lost in ((1.0, 0), (1.02, 0), (1.0, 1)):
        changed = {**values, "scale": scale * values["scale"], "k": values["k"].clone()}
        changed["k"][:, :, :lost] = 0
        result.append(BOUNDS[case.kernel](values, launched(operation, Config(case.config), changed)))
    return result


@pytest.mark.parametrize("kernel", ["attention", "attention_backward"])
def test_the_bound_of_rounding_holds_and_finds_what_is_wrong(interpreted, kernel):
    right, scaled, lost = interpreted(excesses, kernel)
    assert right < 1 < min(scaled, lost)


def lost_values(kernel):
    """The excess over the bound of results that lost a NaN or an infinity, and of results as they are."""
    case = case_of(kernel, (1, 2, 1, 9, 12, 16, 8, 2), "uniform", 3)
    operation = kernels.load(case.kernel)
    problem = operation.problem(case.shape, case.dtype)
    values = dict(operation.materialise(problem, "cpu", case.seed).keyword)
    values["v"][:, :, :2, 0], values["v"][:, :, :2, 1] = math.nan, math.inf
    spoil(values, problem.specs, case)
    result = launched(operation, Config(case.config), values)
    lost = [each.nan_to_num(nan=1.0, posinf=1.0, neginf=1.0) for each in result]
    return BOUNDS[kernel](values, result), BOUNDS[kernel](values, lost)


@pytest.mark.parametrize("kernel", ["attention", "attention_backward"])
def test_the_bound_of_rounding_takes_no_number_for_nan_or_infinity(interpreted, kernel):
    right, lost = interpreted(lost_values, kernel)
    assert right < 1
    assert lost == math.inf


@pytest.mark.parametrize("shape", [(40, 1), (40, 2), (7, 300), (300, 7)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bound_of_the_layer_norms_gradient_holds_and_finds_what_is_wrong(shape, dtype):
    operation = kernels.load("layer_norm_backward")
    values = operation.materialise(operation.problem(shape, dtype), "cpu", 5).keyword
    right = operation.reference(**values)
    excess = BOUNDS["layer_norm_backward"]
    assert excess(values, right) <= 1
    one_unit = 2.0**-24 * values["eps"] ** -0.5 * values["grad"].abs()  # of a product that is subtracted unrounded
    if shape[1] == 1:
        assert excess(values, (right[0] + one_unit, *right[1:])) <= 1
    for place in range(3):
        wrongly = [each + 0.05 * (place == nth) for nth, each in enumerate(right)]
        assert excess(values, wrongly) > 1, place


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
    result = list(cases("gated_mlp", 200, 5, INTERPRETED))
    fills = Counter(case.fill for case in result)
    assert set(fills) == {"uniform", "zeros", "denormal", "large", "nan", "infinity"}
    assert fills["uniform"] > 90
    assert result == list(cases("gated_mlp", 200, 5, INTERPRETED))
    assert result != list(cases("gated_mlp", 200, 6, INTERPRETED))
    assert str(Case(kernel="k", shape=(1, 2), dtype="float16", fill="nan", config={"B": 1}, seed=3)) == (
        "k 1x2 float16, nan, seed 3, (B=1)"
    )


def test_a_kernel_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--kernels", "softmaxx"])
    assert "softmaxx" in capsys.readouterr().err
