"""Classes of sizes: one size stands for each, and rules that change at ends of classes are the same for all of it."""

from hypothesis import given
from hypothesis import strategies as st

from triton_ops.values import TensorSpec, class_cut, contiguous_stride, typical, typical_argument, typical_memory

SIZES = st.integers(0, 1 << 20)


@given(SIZES)
def test_the_size_that_stands_for_a_class_is_in_it(size):
    stands = typical(size)
    between = range(min(size, stands), max(size, stands) + 1)
    assert all(typical(other) == stands for other in between if alike(other, size))


def alike(one, other):
    return all((one % multiple == 0) == (other % multiple == 0) for multiple in (8, 16))


@given(SIZES, st.integers(0, 20))
def test_a_class_lies_on_one_side_of_each_power_of_two_and_has_one_alignment(size, exponent):
    limit, stands = 1 << exponent, typical(size)
    assert (size < limit, size <= limit) == (stands < limit, stands <= limit)
    assert alike(size, stands)


def test_small_sizes_and_ends_of_parts_stand_alone():
    assert [typical(size) for size in (*range(16), 16, 32, 64, 80, 96, 1024, 1280)] == [
        *range(16), 16, 32, 64, 80, 96, 1024, 1280,
    ]  # fmt: skip
    assert [typical(size) for size in (17, 24, 33, 1025, 1032, 1040, 1279)] == [25, 24, 49, 1153, 1160, 1152, 1153]


@given(st.lists(st.integers(2, 5000), min_size=1, max_size=4), st.randoms())
def test_memory_without_gaps_has_none_where_it_stands_for_a_class(shape, random):
    order = random.sample(range(len(shape)), len(shape))
    steps = dict(zip(order, contiguous_stride([shape[axis] for axis in order]), strict=True))
    own = [steps[axis] for axis in range(len(shape))]
    sizes, stride = typical_memory(shape, own)
    assert sizes == tuple(map(typical, shape))
    assert [stride[axis] for axis in order] == [*contiguous_stride([sizes[axis] for axis in order])]
    for multiple in (8, 16):  # what is aligned where it stands for a class is aligned in all of it
        assert all(step % multiple == 0 for step, stands in zip(own, stride, strict=True) if stands % multiple == 0)


def test_strides_with_gaps_stay():
    assert typical_memory((2, 1001), (4096, 1)) == ((2, 961), (4096, 1))


def test_booleans_and_other_arguments_stay():
    assert [typical_argument(value) for value in (True, None, 0.5, "silu", 1001)] == [True, None, 0.5, "silu", 961]
    spec = TensorSpec((1001, 100), "float16", aligned=False)
    assert typical_argument(spec) == TensorSpec((961, 105), "float16", aligned=False)


def test_a_range_cuts_a_part_if_it_holds_some_of_it():
    cuts = [class_cut(1000, low, high) for low, high in ((513, 1024), (897, 1023), (900, 1024), (1, 1000), (1, 896))]
    assert cuts == [False, False, True, True, False]
