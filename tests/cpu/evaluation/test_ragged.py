"""The smaller problem of odd extents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triton_ops import Operation, ShapeMismatchError, TensorSpec
from triton_ops.backend import FunctionKernel
from triton_ops.evaluation import Assignment
from triton_ops.evaluation.cases import ragged_shape
from triton_ops.evaluation.station import Inline
from triton_ops.request import TuneOptions, TuneProblem


@pytest.mark.parametrize(
    ("shape", "odd"),
    [
        ((4096, 4096, 4096), (1040, 1040, 1040)),
        ((512, 64, 32), (496, 48, 16)),
        ((1000, 777, 515), None),
        ((5000, 1, 16), (1031, 1, 16)),
        ((16, 16, 16), None),
    ],
)
def test_odd_multiples_of_16_and_small_odd_numbers(shape, odd):
    """An extent that is no multiple of 16 is odd enough, whatever tile divides it."""
    operation = Operation(
        "three", FunctionKernel(max), [{"n": 1}], lambda A, B, C: {"x": TensorSpec((A, B, C), "float32")}
    )
    assert ragged_shape(operation, shape, None) == odd


def test_what_an_operation_refuses_keeps_its_extent():
    def arguments(rows, columns):
        if columns % 64:
            raise ShapeMismatchError(f"{columns} is not a multiple of 64")
        return {"x": TensorSpec((rows, columns), "float32")}

    operation = Operation("picky", FunctionKernel(max), [{"n": 1}], arguments)
    assert ragged_shape(operation, (512, 512), None) == (496, 512)
    assert ragged_shape(operation, (7, 512), None) is None


def test_integers_that_follow_from_an_extent_are_specialised_as_before():
    """A row of 18,432 columns has 144 groups of 128, a multiple of 16; one of 1,040 has 9, and one of 2,032 has 16."""

    def arguments(rows, columns):
        return {"x": TensorSpec((rows, columns), "float32"), "groups": -(-columns // 128)}

    operation = Operation("by groups", FunctionKernel(max), [{"n": 1}], arguments)
    assert ragged_shape(operation, (4096, 18432), None) == (1040, 2032)
    assert ragged_shape(operation, (4096, 4096), None) == (1040, 2032)
    assert ragged_shape(operation, (4096, 1280), None) == (1040, 1040)


def test_a_flag_that_follows_from_an_extent_stays_as_it_is():
    """Code for rows that tiles divide is other code, which would not be launched on the odd extents."""

    def arguments(rows, columns):
        return {"x": TensorSpec((rows, columns), "float32"), "EVEN": columns % 128 == 0, "mode": "wide"}

    operation = Operation("by flag", FunctionKernel(max), [{"n": 1}], arguments)
    assert ragged_shape(operation, (4096, 4096), None) == (1040, 4096)
    assert ragged_shape(operation, (4096, 1000), None) == (1040, 1000)
    assert ragged_shape(operation, (4096, 1008), None) == (1040, 1008)


def row_sums(x, *, n):
    return x[:, : -n or None].sum(1) if x.shape[1] % 32 else x.sum(1)


def test_a_tune_tries_odd_extents_and_names_them_where_a_config_is_wrong_there():
    operation = Operation(
        "row_sums", FunctionKernel(row_sums), [{"n": 0}, {"n": 1}],
        lambda rows, columns: {"x": TensorSpec((rows, columns), "float32")}, reference=lambda x: x.sum(1),
        device="cpu",
    )  # fmt: skip
    request = TuneProblem(target=operation, shape=(64, 64)).request().checked()
    for odd, statuses in ((True, ["ok", "wrong"]), (False, ["ok", "ok"])):
        assignment = replace(Assignment.of(request, TuneOptions(effort="quick"), None), odd=odd)
        station = Inline(assignment)
        trials = [station.attempt(config, None) for config in request.space]
        assert [str(trial.status) for trial in trials] == statuses
        assert trials[1].error.startswith("at 48x48, " if odd else "")
