"""Verification: right passes, wrong does not, and what was not written cannot hide."""

from __future__ import annotations

import math

import pytest
import torch

from triton_ops import KernelTypeError
from triton_ops.backend import Arguments
from triton_ops.runner.verify import Verifier


def verdict(found, expected):
    return Verifier(expected, (), Arguments()).wrong(lambda: found)


RIGHT = torch.linspace(-3, 3, 1000)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_passes(dtype):
    exact = RIGHT.double()
    assert verdict(exact.to(dtype), exact) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_wrong_element_fails(dtype):
    found = RIGHT.to(dtype).clone()
    found[500] += 1
    assert "0.10% of the elements differ" in verdict(found, RIGHT)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_not_a_number_fails_where_none_is_expected(bad):
    found = RIGHT.clone()
    found[3] = bad
    assert verdict(found, RIGHT) is not None
    assert verdict(RIGHT, found) is not None


def test_expected_nan_and_infinity_pass():
    expected = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    assert verdict(expected.clone(), expected) is None
    assert verdict(torch.tensor([math.nan, -math.inf, -math.inf, 1.0]), expected) is not None


def test_shapes_numbers_and_structure():
    assert "shape" in verdict(torch.zeros(3), torch.zeros(4))
    assert verdict(torch.zeros(0), torch.zeros(0)) is None
    assert verdict(1.0, 1.0) is None
    assert verdict(1.0, 2.0) is not None
    assert verdict((1.0, torch.ones(2)), [1.0, torch.ones(2)]) is None
    assert "returns 1 results instead of 2" in verdict(1.0, (1.0, 2.0))
    assert verdict({"a": 1.0}, {"a": 1.0}) is None
    assert verdict({"a": 1.0}, {"a": 2.0}) is not None
    assert verdict(torch.arange(4), torch.arange(4)) is None
    assert verdict(torch.arange(4), torch.tensor([0, 1, 2, 4])) is not None
    assert verdict("x", 1.0) is not None


def test_what_is_not_written_is_wrong():
    out = torch.ones(8)

    def half():
        out[:4] = 1

    verifier = Verifier(torch.ones(8), ("out",), Arguments(keyword={"out": out}))
    assert "50.00%" in verifier.wrong(half)
    assert verifier.wrong(lambda: out.fill_(1)) is None


def test_a_reference_with_another_number_of_results_is_refused():
    with pytest.raises(KernelTypeError, match="the reference returns 2 results, the kernel writes 1"):
        Verifier((1, 2), ("out",), Arguments(keyword={"out": torch.ones(1)}))
