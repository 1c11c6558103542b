"""Values of many programs are what NumPy makes of all their elements, written out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.kernel_ir.trace import FARTHEST, Value, _row, elementwise

PROGRAMS, EXTENTS = 3, (2, 3, 2)


def written_out(value):
    """All elements, of shape (programs, *extents)."""
    elements = np.asarray(value.base).reshape(-1, 1, 1, 1)
    for at, axis in value.axes.items():
        shape = [len(axis), 1, 1, 1]
        shape[1 + at] = EXTENTS[at]
        elements = elements * axis.reshape(shape) if value.truth else elements + axis.reshape(shape)
    return np.broadcast_to(elements, (PROGRAMS, *EXTENTS))


@st.composite
def values(draw, *, truth=False, axes=(0, 1, 2), low=-9, high=9):
    """A value that differs along some of these axes."""
    numbers = st.integers(0, 1) if truth else st.integers(low, high)

    def array(*shape):
        size = int(np.prod(shape))
        return np.array(draw(st.lists(numbers, min_size=size, max_size=size)), dtype=np.int64).reshape(shape)

    along = draw(st.lists(st.sampled_from(axes), unique=True)) if axes else []
    base = array(PROGRAMS)
    rows = {at: array(draw(st.sampled_from([1, PROGRAMS])), EXTENTS[at]) for at in along}
    return Value(base, rows, draw(st.booleans()), truth)


@given(values(), values(), st.sampled_from([1, -1, 3]))
def test_a_sum_is_that_of_all_elements(one, other, factor):
    result = one.plus(other, factor)
    assert result.made_up == (one.made_up or other.made_up)
    more = written_out(other)
    if result.made_up and factor != 1:  # numbers that stand in for data stay small
        assert ((written_out(result) - written_out(one) - factor * more) % FARTHEST == 0).all()
    else:
        assert (written_out(result) == written_out(one) + factor * more).all()


@given(values(axes=(1,)), values(axes=(1,)), values(), values(axes=()))
def test_a_product_is_that_of_all_elements_where_one_axis_differs_or_one_factor_is_alike(one, other, many, alike):
    for a, b in ((one, other), (many, alike), (alike, many)):
        exact = a.times(b)
        assert exact.made_up == (a.made_up or b.made_up)
        apart = written_out(exact) - written_out(a) * written_out(b)
        assert (apart % FARTHEST == 0).all()
        assert exact.made_up or not apart.any()


@given(values(truth=True), values(truth=True))
def test_a_conjunction_is_that_of_all_elements_and_what_is_unknown_counts_as_true(one, other):
    both, unknown = one.and_also(other), Value(made_up=True)
    assert both.truth
    assert (written_out(both) == written_out(one) * written_out(other)).all()
    for both in (one.and_also(unknown), unknown.and_also(one)):
        assert both.made_up
        assert (written_out(both) == written_out(one)).all()


@given(
    st.booleans().flatmap(lambda truth: st.tuples(values(truth=truth), values(truth=truth))),
    values(truth=True, axes=()),
)
def test_a_choice_by_program_takes_all_elements_of_either(pair, condition):
    one, other = pair
    result = one.where(condition.base, other)
    holds = condition.base.astype(bool).reshape(-1, 1, 1, 1)
    assert (written_out(result) == np.where(holds, written_out(one), written_out(other))).all()
    unknown = Value(made_up=True)
    assert (one.where(condition.base, unknown).base is None) == (not condition.base.all())
    assert (unknown.where(condition.base, one).base is None) == bool(condition.base.any())
    assert one.where(condition.base, unknown).made_up == (one.made_up or not condition.base.all())


@given(values(axes=(2,)), values(axes=(2,)), values(axes=(0,)))
def test_a_function_is_that_of_all_elements_along_one_axis_and_unknown_along_two(one, other, across):
    result, less = elementwise(np.maximum, one, other), elementwise(np.less, one, other, truth=True)
    assert (written_out(result) == np.maximum(written_out(one), written_out(other))).all()
    assert (written_out(less) == np.less(written_out(one), written_out(other))).all()
    assert (less.truth, result.truth) == (True, False)
    assert result.made_up == less.made_up == (one.made_up or other.made_up)
    apart = elementwise(np.maximum, one, across)
    assert (apart.base is None) == bool(one.axes and across.axes)
    assert elementwise(np.maximum, one, Value()).base is None
    assert elementwise(np.less, one, Value(), truth=True).truth


@given(values(), values())
def test_equal_values_have_equal_elements_and_a_copy_is_equal(one, other):
    copy = Value(one.base.copy(), {at: axis.copy() for at, axis in one.axes.items()})
    assert one.equals(copy)
    assert not one.equals(other) or (written_out(one) == written_out(other)).all()
    assert not one.equals(Value())
    assert not Value().equals(one)
    for at, axis in one.axes.items():
        assert not one.equals(Value(one.base, {**one.axes, at: axis + 1}))
        assert not one.equals(Value(one.base, {other: axis for other, axis in one.axes.items() if other != at}))
    assert not one.equals(Value(one.base + 1, one.axes))
    for result in (one.plus(Value()), Value().plus(one), one.times(Value()), Value().times(one)):
        assert (result.base, result.made_up) == (None, one.made_up)


@given(st.integers(FARTHEST // 2, FARTHEST - 1), st.integers(2, 1000))
def test_numbers_in_place_of_data_stay_below_the_farthest(far, factor):
    one = Value(np.array([far]), {0: np.array([[far, 1]])}, made_up=True)
    by = Value(np.array([factor]))
    for result in (one.times(by), Value(np.array([0])).plus(one, factor)):
        assert result.base == far * factor % FARTHEST
        assert result.axes[0].tolist() == [[far * factor % FARTHEST, factor]]
    exact = Value(np.array([far])).times(by)
    assert exact.base == far * factor


@given(st.integers(1, 4), st.sampled_from([2, 4]), st.booleans(), st.booleans(), st.data())
def test_a_row_is_that_of_one_program_without_what_its_mask_leaves_out(length, programs, alike, masked_alike, data):
    def rows(numbers, count):
        one = st.lists(numbers, min_size=length, max_size=length)
        return np.array(data.draw(st.lists(one, min_size=count, max_size=count)))

    axis, mask = (
        rows(st.integers(-9, 9), 1 if alike else programs),
        rows(st.integers(0, 1), 1 if masked_alike else programs),
    )
    for program in range(programs):
        expected = np.broadcast_to(axis, (programs, length))[program]
        inside = np.broadcast_to(mask, (programs, length))[program] == 1
        assert _row(axis, None, program).tolist() == expected.tolist()
        assert _row(axis, mask, program).tolist() == expected[inside].tolist()
