"""Results that were found right: what has their bits is not judged again, and everything else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import numpy
import torch

from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import Answers, ExpectedResults, RightResults, Standard
from triton_ops.evaluation.judges import Difference, Precision


def test_bits_tell_and_the_zeros_dtypes_and_shapes_are_told_apart():
    right = RightResults()
    right.keep([torch.tensor([0.0, 1.0])])
    assert right.hold([torch.tensor([0.0, 1.0])])
    others = (
        [torch.tensor([-0.0, 1.0])], [torch.tensor([0.0, 1.0 + 1e-6])], [torch.tensor([[0.0, 1.0]])],
        [torch.tensor([0.0, 1.0], dtype=torch.float64)], [torch.tensor([0.0, 1.0])] * 2, [], [1.0],
    )  # fmt: skip
    assert [right.hold(each) for each in others] == [False] * len(others)


def test_a_copy_is_kept_and_of_several_those_that_were_met_last():
    right = RightResults()
    changing = torch.zeros(2)
    right.keep([changing])
    changing += 1
    assert right.hold([torch.zeros(2)])
    for value in (2.0, 3.0):
        right.keep([torch.full((2,), value)])
    assert right.hold([torch.zeros(2)])  # met again, so that another one makes room
    right.keep([torch.full((2,), 4.0)])
    assert [right.hold([torch.full((2,), value)]) for value in (0.0, 2.0, 3.0, 4.0)] == [True, False, True, True]


def test_nothing_is_kept_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(TorchDevice, "free_bytes", 64 * 4)
    right = RightResults()
    right.keep([torch.zeros(2)])
    assert not right.hold([torch.zeros(2)])
    right.keep([torch.zeros(1)])
    assert right.hold([torch.zeros(1)])


@pytest.fixture
def judged(monkeypatch):
    """The results that are judged, in order."""
    seen, difference = [], "triton_ops.evaluation.expected.difference"
    original = ExpectedResults.difference.__globals__["difference"]

    def noted(found, wanted):
        seen.append(found)
        return original(found, wanted)

    monkeypatch.setattr(difference, noted)
    return seen


def expected_of(values: torch.Tensor) -> ExpectedResults:
    result = ExpectedResults.of_own(Standard(), [values])
    result.prepare(tf32=False)
    return result


def test_equal_right_results_are_judged_once_and_wrong_ones_each_time(judged):
    expected = expected_of(torch.ones(1000))
    near, wrong = torch.ones(1000) + 1e-7, torch.zeros(1000)
    assert [expected.difference([near.clone()], tf32=False) for _ in range(3)] == [None] * 3
    assert len(judged) == 1
    for _ in range(2):
        assert isinstance(expected.difference([wrong.clone()], tf32=False), Difference)
    assert len(judged) == 3
    assert isinstance(expected.difference([near, near], tf32=False), Difference)


def test_what_is_right_in_tf32_is_judged_again_for_configs_without_it(judged):
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)) + 1
    standard = Standard(precision=Precision(inputs=("float32",)))
    expected = ExpectedResults(
        standard,
        Answers(low=[values], golden=[values.double()], precision=replace(standard.precision, blur=2.0)),
    )
    for tf32 in (True, False):
        expected.prepare(tf32)
    rough = values * (1 + 2.0**-11)
    assert expected.difference([rough], tf32=True) is None
    assert expected.difference([rough], tf32=True) is None
    assert len(judged) == 1
    assert isinstance(expected.difference([rough], tf32=False), Difference)


def test_scalars_and_arrays_of_numpy_are_kept_as_tensors_are():
    right = RightResults()
    results = [numpy.float64(0.5), numpy.arange(3.0), torch.ones(2)]
    right.keep(results)
    assert right.hold([numpy.float64(0.5), numpy.arange(3.0), torch.ones(2)])
    assert not right.hold([numpy.float64(0.25), numpy.arange(3.0), torch.ones(2)])
