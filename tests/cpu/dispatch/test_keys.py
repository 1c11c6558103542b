"""The problem of a call of a decorated kernel: it tells what Triton makes other code for, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.decorated_kernels import add, scale, theirs
from triton_ops.dispatch.calls import Calls
from triton_ops.values import Mapper

pytestmark = pytest.mark.triton

X = torch.zeros(64)
CALLS = Calls.of(theirs.fn, (), Mapper())
numbers = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-8, 8).map(lambda n: 8 * n),
    st.integers(-2, 2).flatmap(lambda n: st.sampled_from([n + (1 << 31), n - (1 << 31)])),
)


def problem_of(number, calls=CALLS):
    return calls.problem((X, X, number), {"BLOCK": 64}).problem


def specialised(number):
    """What Triton makes code for: an argument that is 1 is a constant, of others their width and 16 as a factor."""
    return "1" if number == 1 else (number % 16 == 0, -(1 << 31) <= number < 1 << 31)


@given(numbers, numbers)
@example(8, 16)
@example(24, 48)
@example(1, 17)
@example((1 << 31) - 1, 1 << 31)
@example(-(1 << 31), -(1 << 31) - 16)
def test_whole_numbers_have_one_key_exactly_where_triton_makes_one_program_of_them(one, other):
    assert (problem_of(one) == problem_of(other)) == (specialised(one) == specialised(other))


def test_a_value_that_decides_stands_in_the_key_and_another_one_may_not_be_borrowed_for_it():
    calls = Calls.of(theirs.fn, ("n",), Mapper())
    call = calls.problem((X, X, 48), {"BLOCK": 64})
    assert call.problem == {
        "x_ptr": "float32", "x_ptr:class": "aligned", "out_ptr": "float32", "out_ptr:class": "aligned", "n": 48,
        "BLOCK:class": 64,
    }  # fmt: skip
    assert call.loose == {"x_ptr:class", "out_ptr:class", "BLOCK:class"}
    assert call.label == "n=48 float32"


def test_a_tensor_has_its_shape_where_it_decides_and_its_alignment():
    calls = Calls.of(theirs.fn, ("x_ptr",), Mapper())
    call = calls.problem((torch.zeros(2, 3, dtype=torch.float16), torch.zeros(65)[1:], 1), {"BLOCK": 64})
    assert {name: call.problem[name] for name in ("x_ptr", "out_ptr", "out_ptr:class", "n:class")} == {
        "x_ptr": "float16 2x3", "out_ptr": "float32", "out_ptr:class": "not aligned", "n:class": "1"
    }  # fmt: skip


def test_nothing_a_bool_and_a_float_may_stand_for_each_other_and_say_which_they_are():
    calls = Calls.of(scale.fn.fn, (), Mapper())
    for value, word in ((None, "NoneType"), (True, "bool"), (0.5, "float")):
        call = calls.problem((X, X, 64, value), {"name": "by", "BLOCK": 64, "EVEN": True})
        assert call.problem["factor"] == word
        assert "factor" in call.loose


def test_within_a_bucket_the_class_of_a_number_stays_a_part_of_the_key():
    calls = Calls.of(add.fn, ("n",), Mapper.of({"n": "pow2"}))
    one, other, third = (calls.problem((X, X, X, n), {"BLOCK": 64}) for n in (40, 48, 56))
    assert one.problem == third.problem != other.problem
    assert one.asked["n"] == 40
    assert {name for name in one.problem if one.problem[name] != other.problem[name]} == {"n:class"}
    assert "n:class" in one.loose
