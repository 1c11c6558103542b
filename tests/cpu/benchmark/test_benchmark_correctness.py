"""`CorrectnessVerifier` and the checks beside it: elements, shapes, NaN, and the rule for verdicts."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.near import drawn
from triton_ops.benchmark import CorrectnessVerifier
from triton_ops.benchmark.correctness import verify_fp8_accuracy, verify_nan_inf_propagation
from triton_ops.exceptions import KernelTypeError, SettingsError

RIGHT = torch.tensor([1.0, -2.0, 0.0, 4.0])


def test_results_within_tolerance_are_right_and_have_nine_figures():
    right, details = CorrectnessVerifier(rtol=1e-2, atol=1e-3).verify(RIGHT + torch.tensor([0.005, 0, 5e-4, 0]), RIGHT)
    assert right
    assert details["is_correct"]
    assert details["num_violations"] == 0
    assert details["max_abs_diff"] == pytest.approx(0.005, rel=1e-4)
    assert details["mean_abs_diff"] == pytest.approx(0.0055 / 4, rel=1e-4)
    assert set(details) == {
        "is_correct", "max_abs_diff", "mean_abs_diff", "max_rel_diff", "mean_rel_diff", "num_violations",
        "total_elements", "rtol", "atol",
    }  # fmt: skip


def test_elements_beyond_the_tolerance_are_counted():
    right, details = CorrectnessVerifier().verify(RIGHT + torch.tensor([0.1, 0.0, 0.0, 0.1]), RIGHT)
    assert not right
    assert (details["num_violations"], details["total_elements"]) == (2, 4)
    assert CorrectnessVerifier(rtol=0.2).verify_allclose(RIGHT * 1.1, RIGHT)
    assert CorrectnessVerifier().compute_relative_error(RIGHT * 1.1, RIGHT) == pytest.approx(0.1, rel=1e-4)


def test_another_shape_is_wrong():
    right, details = CorrectnessVerifier().verify(RIGHT, RIGHT[:3])
    assert not right
    assert (details["num_violations"], details["max_abs_diff"]) == (4, math.inf)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_equal_themselves_and_nothing_else(value):
    odd = torch.tensor([1.0, value])
    assert CorrectnessVerifier().verify(odd, odd.clone())[1]["max_abs_diff"] == 0
    for result, right in ((odd, torch.ones(2)), (torch.ones(2), odd)):
        verdict, details = CorrectnessVerifier().verify(result, right)
        assert not verdict
        assert (details["num_violations"], details["max_abs_diff"]) == (1, math.inf)


@pytest.mark.parametrize("share", [np.float32(0.25), Fraction(1, 4), 1])
def test_a_tolerance_may_be_any_real_number(share):
    assert CorrectnessVerifier(rtol=share).verify(RIGHT * 1.2, RIGHT)[0]


def test_empty_results_are_right():
    assert CorrectnessVerifier().verify(torch.zeros(0), torch.zeros(0))[0]


@pytest.mark.parametrize("bad", [{"rtol": -1.0}, {"atol": math.nan}, {"rtol": math.inf}])
def test_tolerances_are_finite_and_not_negative(bad):
    with pytest.raises(SettingsError):
        CorrectnessVerifier(**bad)


def product(a, b):
    return a @ b


def test_the_rule_takes_a_low_precision_result_that_elements_would_refuse():
    a, b = drawn(64, 256, dtype=torch.bfloat16), drawn(256, 64, dtype=torch.bfloat16)
    result = (a.float() @ b.float()).bfloat16()
    verifier = CorrectnessVerifier()
    assert not verifier.verify_allclose(result, a.double() @ b.double())
    assert verifier.verify_by_rule(result, product, (a, b)) == (True, "")


def test_the_rule_finds_a_step_that_was_left_out():
    a, b = drawn(64, 256, dtype=torch.bfloat16), drawn(256, 64, dtype=torch.bfloat16)
    right, how = CorrectnessVerifier().verify_by_rule(a[:, :224] @ b[:224], product, (a, b))
    assert not right
    assert "elements are off" in how or "of the elements are off" in how


def test_the_rule_judges_arguments_that_a_kernel_writes():
    x, out = drawn(4, 80), torch.empty(4, 80)
    reference = lambda x, out: torch.softmax(x, -1)  # noqa: E731
    verifier, kwargs = CorrectnessVerifier(), {"x": x, "out": out}
    assert verifier.verify_by_rule([torch.softmax(x, -1)], reference, kwargs=kwargs, outputs=("out",))[0]
    assert not verifier.verify_by_rule([torch.softmax(x, 0)], reference, kwargs=kwargs, outputs=("out",))[0]


def test_accuracy_of_8_bit_floats_is_relative_to_the_whole():
    right = drawn(100, 100)
    assert verify_fp8_accuracy(right * 1.005, right)[0]
    near, details = verify_fp8_accuracy(right * 1.02, right)
    assert not near
    assert details["relative_error"] == pytest.approx(0.02, rel=1e-3)
    assert verify_fp8_accuracy(right * 1.02, right, 0.03)[0]
    assert not verify_fp8_accuracy(right, right[:3])[0]
    assert verify_fp8_accuracy(torch.tensor([1.5]), torch.tensor([1.0]), 0.5)[0], "the tolerance itself is right"
    assert verify_fp8_accuracy(torch.zeros(3), torch.zeros(3))[0]


@pytest.mark.parametrize(
    ("output", "nan", "inf", "right"),
    [
        ([1.0], False, False, True),
        ([math.nan], True, False, True),
        ([1.0], True, False, False),
        ([math.inf], False, True, True),
        ([math.nan], False, True, True),
        ([1.0], False, True, False),
        ([math.inf], True, True, False),
    ],
)
def test_nan_must_stay_nan_and_infinity_may_become_nan(output, nan, inf, right):
    result, details = verify_nan_inf_propagation(torch.tensor(output), nan, inf)
    assert result is right
    assert details["is_correct"] is right
    assert len(details) == 7


@pytest.mark.parametrize("wrong", ["1", None, -1.0, math.nan, math.inf, True, [0.1]])
def test_tolerances_are_finite_numbers(wrong):
    with pytest.raises(SettingsError, match="finite number"):
        CorrectnessVerifier(rtol=wrong)
    with pytest.raises(SettingsError, match="finite number"):
        CorrectnessVerifier(atol=wrong)
    with pytest.raises(SettingsError, match="finite number"):
        verify_fp8_accuracy(torch.ones(2), torch.ones(2), wrong)


def test_imaginary_parts_count():
    real, turned = RIGHT + 0j, RIGHT + 1j
    assert CorrectnessVerifier().verify_allclose(turned, turned)
    assert not CorrectnessVerifier().verify_allclose(turned, real)
    assert not CorrectnessVerifier().verify_allclose(RIGHT, turned)
    assert not verify_fp8_accuracy(turned, real)[0]


def test_8_bit_floats_are_asked_for_nan():
    codes = torch.tensor([1.0, math.nan]).to(torch.float8_e4m3fn)
    assert verify_nan_inf_propagation(codes, True, True)[0]
    assert not verify_nan_inf_propagation(codes[:1], False, True)[0]


@pytest.mark.parametrize("wrong", [RIGHT.to_sparse(), RIGHT.to("meta")])
def test_what_has_no_elements_in_order_is_refused(wrong):
    for call in (
        lambda: CorrectnessVerifier().verify(wrong, RIGHT), lambda: CorrectnessVerifier().verify(RIGHT, wrong),
        lambda: verify_fp8_accuracy(RIGHT, wrong), lambda: verify_nan_inf_propagation(wrong, True, False),
    ):  # fmt: skip
        with pytest.raises(KernelTypeError, match="cannot be compared"):
            call()


@pytest.mark.parametrize("wrong", [[1.0], None, 1.0, "tensor"])
def test_what_is_no_tensor_is_refused(wrong):
    good = torch.ones(1)
    for call in (
        lambda: CorrectnessVerifier().verify(wrong, good), lambda: CorrectnessVerifier().verify(good, wrong),
        lambda: verify_fp8_accuracy(wrong, good), lambda: verify_nan_inf_propagation(wrong, True, False),
    ):  # fmt: skip
        with pytest.raises(KernelTypeError, match=r"not a torch.Tensor"):
            call()


def test_the_rule_needs_a_function_and_a_tuple_of_arguments():
    x = torch.ones(3)
    with pytest.raises(SettingsError, match="reference is None"):
        CorrectnessVerifier().verify_by_rule(x, None, (x,))
    with pytest.raises(SettingsError, match="args is a Tensor"):
        CorrectnessVerifier().verify_by_rule(x, torch.neg, x)
