"""Sizes that are traced: equal answers to all that was asked of them mean equal results."""

import itertools
import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.dispatch.traced import Conditions, Traced, plain, put, traced_in

SIZES = st.integers(0, 300)


def steps_of(size, other):
    """A computation that branches: its result, and what it decided on the way."""
    total = (size + 3) * other - size // 2
    if size > other:
        total = total << 1
    if size % 8 == 0:
        total += other % 5
    if other == 7 or size.bit_length() > 6:
        total = -total
    return max(total, size, 4)


def traced(size, other):
    conditions = Conditions()
    return Traced.of(size, "v0_n0", conditions), Traced.of(other, "v0_n1", conditions), conditions


@given(SIZES, SIZES)
def test_where_no_condition_differs_the_expression_gives_the_result(size, other):
    one, two, conditions = traced(size, other)
    result = steps_of(one, two)
    assert result == steps_of(size, other)
    same, pins, doubts = conditions.settled()
    text = put(getattr(result, "text", repr(result)), same)
    other_call = compile(
        " or ".join([*(f"{name} != {value}" for name, value in pins.items()), *doubts, "False"]), "", "eval"
    )
    for new_size, new_other in itertools.product((*range(0, 301, 12), size), (*range(0, 301, 11), other)):
        sizes = {"v0_n0": new_size, "v0_n1": new_other}
        assert eval(other_call, {}, sizes) or eval(text, {}, sizes) == steps_of(new_size, new_other)


@given(SIZES, SIZES)
def test_the_call_that_was_recorded_meets_its_own_conditions(size, other):
    one, two, conditions = traced(size, other)
    steps_of(one, two)
    _, pins, doubts = conditions.settled()
    sizes = {"v0_n0": size, "v0_n1": other}
    assert all(sizes[name] == value for name, value in pins.items())
    assert not any(eval(doubt, {}, sizes) for doubt in doubts)


TAKEN = (hash, int, float, str, repr, round, abs, bool, math.sqrt, operator.inv, lambda size: size / 2, "{}".format)


@pytest.mark.parametrize("take", TAKEN)
def test_what_takes_a_size_as_it_is_pins_it(take):
    size, _, conditions = traced(24, 1)
    assert take(size) == take(24)
    assert conditions.settled()[1] == {"v0_n0": 24}


def test_sizes_that_are_equal_stand_for_each_other():
    one, two, conditions = traced(24, 24)
    assert one == two
    same, pins, doubts = conditions.settled()
    assert (pins, doubts) == ({}, ["v0_n0 != v0_n1"])
    assert put("v0_n0 + v0_n1", same) == "v0_n1 + v0_n1"


def test_traced_sizes_are_found_and_replaced_inside_of_containers():
    size, other, _ = traced(24, 5)
    value = [(size, {"x": other}), slice(size, None), "x"]
    assert list(traced_in(value)) == [size, other, size]
    assert type(plain(value)[0][0]) is int
