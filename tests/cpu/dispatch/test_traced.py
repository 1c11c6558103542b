"""Sizes that are traced: equal answers to all that was asked of them mean equal results."""

import itertools
import math
import operator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from triton_ops.dispatch.traced import Conditions, Sizes, Traced, plain, put, sizes_seen, traced_in  # noqa: E402

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


def condition_of(pins, doubts):
    """Source that is true for another call."""
    return " or ".join([*(f"{name} != {value}" for name, value in pins.items()), *doubts, "False"])


def is_another(conditions, **sizes):
    _, pins, doubts = conditions.settled()
    return bool(eval(condition_of(pins, doubts), {}, sizes))


@given(SIZES, SIZES)
def test_where_no_condition_differs_the_expression_gives_the_result(size, other):
    one, two, conditions = traced(size, other)
    result = steps_of(one, two)
    assert result == steps_of(size, other)
    same, pins, doubts = conditions.settled()
    text = put(getattr(result, "text", repr(result)), same)
    other_call = compile(condition_of(pins, doubts), "", "eval")
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


@pytest.mark.parametrize(("compare", "answer"), [(operator.eq, True), (operator.ne, False)])
def test_sizes_that_are_equal_stand_for_each_other(compare, answer):
    one, two, conditions = traced(24, 24)
    assert compare(one, two) == answer
    same, pins, doubts = conditions.settled()
    assert (pins, doubts) == ({}, ["v0_n0 != v0_n1"])
    assert put("v0_n0 + v0_n1", same) == "v0_n1 + v0_n1"


def test_traced_sizes_are_found_and_replaced_inside_of_containers():
    size, other, _ = traced(24, 5)
    value = [(size, {"x": other}), slice(size, None), "x"]
    assert list(traced_in(value)) == [size, other, size]
    assert type(plain(value)[0][0]) is int


COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@given(st.integers(0, 6), st.lists(st.tuples(st.sampled_from(COMPARISONS), st.integers(-1, 7)), max_size=4))
def test_another_call_is_one_that_answers_a_comparison_with_a_number_otherwise(size, questions):
    one, _, conditions = traced(size, 0)
    answers = [compare(one, number) for compare, number in questions]
    for other in range(9):
        differs = [compare(other, number) for compare, number in questions] != answers
        assert is_another(conditions, v0_n0=other) == differs, (questions, other)


@given(st.integers(0, 6), st.lists(st.tuples(st.sampled_from(COMPARISONS), st.integers(-4, 4)), max_size=3))
def test_what_is_computed_may_be_below_zero(size, questions):
    one, _, conditions = traced(size, 0)
    answers = [compare(one - 3, number) for compare, number in questions]
    for other in range(9):
        differs = [compare(other - 3, number) for compare, number in questions] != answers
        assert is_another(conditions, v0_n0=other) == differs, (questions, other)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_another_call_is_one_that_answers_a_comparison_of_two_sizes_otherwise(compare):
    for size, other in itertools.product(range(4), repeat=2):
        one, two, conditions = traced(size, other)
        answer = compare(one, two)
        assert answer == compare(size, other)
        for n0, n1 in itertools.product(range(4), repeat=2):
            assert is_another(conditions, v0_n0=n0, v0_n1=n1) == (compare(n0, n1) != answer)


@pytest.mark.parametrize("size", range(9))
def test_the_bits_of_a_size_are_those_of_the_sizes_that_are_the_same(size):
    one, _, conditions = traced(size, 0)
    assert one.bit_length() == size.bit_length()
    for other in range(18):
        assert is_another(conditions, v0_n0=other) == (other.bit_length() != size.bit_length())


def test_what_limits_exclude_is_not_asked_again():
    size, _, conditions = traced(4, 0)
    assert (size < 6, size != 7, size != 6) == (True, True, True)
    assert conditions.settled()[2] == ["v0_n0 > 5"]
    assert size != 5
    assert conditions.settled()[2] == ["v0_n0 > 5", "v0_n0 == 5"]


def test_a_division_is_asked_after_what_excludes_zero():
    size, other, conditions = traced(24, 5)
    assert size % other == 4
    assert other != 0
    assert conditions.settled()[2] == ["v0_n1 == 0", "(v0_n0 % v0_n1) != 4"]


COMPUTED = (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.lshift, operator.rshift,
    operator.and_, operator.or_, operator.xor,
)  # fmt: skip


@pytest.mark.parametrize("compute", COMPUTED)
@pytest.mark.parametrize(("first", "second"), [(24, 5), (7, 3), (1, 1)])
def test_what_is_computed_is_an_expression_and_no_condition(compute, first, second):
    one, two, conditions = traced(first, second)
    for result in (compute(one, two), compute(one, second), compute(first, two)):
        assert int.__int__(result) == compute(first, second) == eval(result.text, {}, {"v0_n0": first, "v0_n1": second})
    assert int.__int__(-one) == -first == eval((-one).text, {}, {"v0_n0": first})
    assert conditions.settled() == ({}, {}, [])


def test_what_changes_nothing_is_no_step_of_an_expression():
    size, _, _ = traced(24, 0)
    assert all(same is size for same in (size + 0, 0 + size, size * 1, 1 * size))
    assert [each.text for each in (size + 1, size * 0)] == ["(v0_n0 + 1)", "(v0_n0 * 0)"]


def recorded(call, *tensors):
    """What a call gives, the shape and strides or the numbers that its trace tells of that, and the conditions."""
    sizes = Sizes()
    for place, tensor in enumerate(tensors):
        sizes.begin(f"v{place}", tensor)
    with sizes_seen(lambda: SimpleNamespace(sizes=sizes)):
        result = call(*tensors)
    return result, sizes.of(result) if isinstance(result, torch.Tensor) else result, sizes.conditions


def memory_of(result):
    return (tuple(result.shape), tuple(result.stride())) if isinstance(result, torch.Tensor) else plain(result)


def sizes_of(*tensors):
    return {
        f"v{place}_{kind}{axis}": number
        for place, tensor in enumerate(tensors)
        for kind, numbers in (("n", tensor.shape), ("s", tensor.stride()))
        for axis, number in enumerate(numbers)
    }


def worked_out(value, conditions, sizes):
    """What a trace tells, for other sizes."""
    if isinstance(value, (tuple, list)):
        return tuple(worked_out(each, conditions, sizes) for each in value)
    return eval(put(value.text, conditions.settled()[0]), {}, sizes) if isinstance(value, Traced) else value


TRACED = {
    "shape": lambda x: x.shape,
    "size": lambda x: x.size(),
    "stride": lambda x: x.stride(),
    **{f"size of {axis}": lambda x, axis=axis: x.size(axis) for axis in range(-3, 3)},
    **{f"stride of {axis}": lambda x, axis=axis: x.stride(axis) for axis in range(-3, 3)},
    "numel": lambda x: x.numel(),
    "nelement": lambda x: x.nelement(),
    "is_contiguous": lambda x: x.is_contiguous(),
    "new_empty": lambda x: x.new_empty(x.shape),
    "new_empty of numbers": lambda x: x.new_empty(x.shape[2], x.shape[0] + 1, dtype=torch.int8),
    "new_zeros": lambda x: x.new_zeros([x.shape[1], 3]),
    "empty": lambda x: torch.empty(x.shape[1], x.shape[2]),
    "zeros": lambda x: torch.zeros((x.shape[0], 2, x.shape[1])),
    "new_empty_strided": lambda x: x.new_empty_strided((x.shape[1], x.shape[0]), (1, x.shape[1])),
    "as_strided": lambda x: x.as_strided((x.shape[2], x.shape[0]), (x.stride(2), x.stride(0))),
    "as_strided from a place": lambda x: x.as_strided((x.shape[0], 2), (x.stride(0), 1), 1),
    "detach": lambda x: x.detach(),
    "contiguous": lambda x: x.contiguous(),
    "empty_like": torch.empty_like,
    "empty_like of a dtype": lambda x: torch.empty_like(x, dtype=torch.int8, device="cpu"),
    **{
        f"transpose {one} {other}": lambda x, one=one, other=other: x.transpose(one, other)
        for one, other in itertools.product(range(-3, 3), repeat=2)
    },
    "t": lambda x: x.view(-1, x.shape[2]).t(),
    "view": lambda x: x.view(x.shape[1], x.shape[0], x.shape[2]),
    "view of a shape": lambda x: x.view(x.shape),
    "view of a list": lambda x: x.view([x.shape[0] * x.shape[1], x.shape[2]]),
    **{
        f"{name} {shape}": lambda x, name=name, shape=shape: getattr(x, name)(*shape)
        for name in ("view", "reshape")
        for shape in [(-1,), (-1, 2), (2, -1), (1, -1, 4), ((2, -1, 2),), ([-1, 4],)]
    },
    "view of the rest": lambda x: x.view(x.shape[2], -1, x.shape[0]),
    "reshape of the rest": lambda x: x.reshape(-1, x.shape[1]),
}
"""Calls of every function of torch that is traced, for a tensor of three axes."""
SHAPES = [(3, 4, 8), (5, 4, 8), (3, 6, 8), (3, 4, 12), (6, 10, 4), (1, 4, 8), (3, 1, 8), (0, 4, 8), (2, 2, 2)]


@pytest.mark.parametrize("name", TRACED)
@pytest.mark.parametrize("shape", [(3, 4, 8), (2, 6, 4)])
def test_a_trace_tells_the_shape_and_strides_that_torch_gives_at_other_sizes(name, shape):
    x, call = torch.zeros(shape), TRACED[name]
    result, told, conditions = recorded(call, x)
    assert plain(told) == memory_of(result) == memory_of(call(x))
    assert not is_another(conditions, **sizes_of(x))
    same = [each for each in map(torch.zeros, SHAPES) if not is_another(conditions, **sizes_of(each))]
    for other in same:
        assert worked_out(told, conditions, sizes_of(other)) == memory_of(call(other)), tuple(other.shape)
    assert {tuple(each.shape) for each in same} >= {(5, 4, 8), (3, 6, 8), (3, 4, 12)}, "sizes are pinned"


PINNED = {
    "expand": lambda x: x.expand(2, *x.shape),
    "slice": lambda x: x[1:],
    "unsqueeze": lambda x: x.unsqueeze(0),
    "flatten": lambda x: x.flatten(),
    "view of a dtype": lambda x: x.view(torch.int32),
    "contiguous of a turned one": lambda x: x.transpose(0, 1).contiguous(),
    "empty_like of a turned one": lambda x: torch.empty_like(x.transpose(0, 2)),
    "empty_like of a format": lambda x: torch.empty_like(x, memory_format=torch.contiguous_format),
    "reshape of a turned one": lambda x: x.transpose(0, 1).reshape(-1),
    "transpose by names": lambda x: x.transpose(dim0=0, dim1=2),
    "size by a name": lambda x: x.size(dim=1),
    "stride by a name": lambda x: x.stride(dim=1),
    "is_contiguous of a format": lambda x: x.is_contiguous(memory_format=torch.contiguous_format),
    "contiguous of a format": lambda x: x.contiguous(memory_format=torch.contiguous_format),
    "view by a name": lambda x: x.view(size=(8, 12)),
    "view of a named dtype": lambda x: x.view(dtype=torch.int32),
    "reshape by a name": lambda x: x.reshape(shape=(8, 12)),
    "as_strided by names": lambda x: x.as_strided(size=(2, 2), stride=(1, 1)),
    "as_strided from a named place": lambda x: x.as_strided((2, 2), (1, 1), storage_offset=1),
    "new_empty_strided by names": lambda x: x.new_empty_strided(size=(2, 2), stride=(1, 1)),
    "empty_like by a name": lambda x: torch.empty_like(input=x),
    "empty of a format": lambda x: torch.empty(1, 1, *x.shape[:2], memory_format=torch.channels_last),
    "new_empty of a named shape": lambda x: x.new_empty(size=(x.shape[0], x.shape[1])),
}


@pytest.mark.parametrize("name", PINNED)
def test_sizes_of_what_is_not_traced_are_the_same_at_each_call(name):
    x, call = torch.zeros(3, 4, 8), PINNED[name]
    result, told, conditions = recorded(call, x)
    assert plain(told) == memory_of(result) == memory_of(call(x))
    names = ("v0_n0", "v0_n1") if name == "empty of a format" else sizes_of(x)
    assert conditions.settled()[1] == {each: sizes_of(x)[each] for each in names}


@pytest.mark.parametrize("call", [lambda x: x.t(), lambda x: x.transpose(0, 0), lambda x: x.transpose(-1, -1)])
@pytest.mark.parametrize("shape", [(), (6,)])
def test_to_turn_a_tensor_of_fewer_than_two_axes_gives_what_torch_gives(call, shape):
    x = torch.zeros(shape)
    result, told, _ = recorded(call, x)
    assert plain(told) == memory_of(result) == memory_of(call(x))


@pytest.mark.parametrize("error", [None, ValueError])
def test_arguments_count_as_looked_at_only_while_a_function_runs(error):
    sizes, told = Sizes(), []

    def function():
        told.append(sizes.told)
        if error:
            raise error

    with pytest.raises(error) if error else nullcontext():
        sizes.seen(function, (), {})
    assert (told, sizes.told) == ([True], False)


EDGES = [
    torch.empty_strided(shape, stride)
    for shape in itertools.product((0, 1, 2), (0, 1, 3))
    for stride in itertools.product((0, 1, 2, 3), (0, 1, 2))
]
"""Tensors of two axes, of which some are stored row by row without gaps."""


@pytest.mark.parametrize("shape", sorted({tuple(each.shape) for each in EDGES}))
def test_a_tensor_is_told_to_be_contiguous_where_torch_says_so(shape):
    for x in (each for each in EDGES if tuple(each.shape) == shape):
        answer, _, conditions = recorded(lambda x: x.is_contiguous(), x)
        assert answer == x.is_contiguous()
        for other in EDGES:
            assert is_another(conditions, **sizes_of(other)) or other.is_contiguous() == answer


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 4), (4, 1)])
@pytest.mark.parametrize("extents", [(-1, 2), (4, -1), (-1,)])
def test_views_of_an_empty_tensor_and_of_one_row_are_those_of_torch(shape, extents):
    x = torch.zeros(shape)
    result, told, conditions = recorded(lambda x: x.view(*extents), x)
    assert plain(told) == memory_of(result)
    for other in map(torch.zeros, [(0, 4), (0, 6), (4, 0), (1, 4), (1, 8), (8, 1), (2, 4)]):
        if not is_another(conditions, **sizes_of(other)):
            assert worked_out(told, conditions, sizes_of(other)) == memory_of(other.view(*extents))
