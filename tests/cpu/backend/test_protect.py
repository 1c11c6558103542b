"""What a candidate writes is found and taken back, whatever view of the memory it wrote through."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import tensor_specs
from triton_ops.backend import Arguments, Protection, fill_with_poison

torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    left: object
    right: object


def test_a_write_is_found_and_taken_back():
    x = torch.arange(6.0)
    kept = Protection([x])
    assert not kept.changed()
    x[3] = -1
    assert kept.changed()
    kept.restore()
    assert not kept.changed()
    assert x.equal(torch.arange(6.0))


@given(tensor_specs())
def test_any_layout_is_protected(spec):
    x = spec.create_tensor(fill_value=1)
    kept = Protection([x])
    if spec.numel == 0:
        assert not kept.changed()
        return
    x.untyped_storage().fill_(0)
    assert kept.changed()
    kept.restore()
    assert (x.to(torch.complex64) == 1).all()


def test_a_write_outside_the_view_but_inside_its_memory_is_found():
    base = torch.zeros(8)
    kept = Protection([base[:4]])
    base[7] = 1
    assert kept.changed()
    kept.restore()
    assert not base.any()


def test_nan_and_negative_zero_are_bytes_like_others():
    x = torch.tensor([float("nan"), 0.0])
    kept = Protection([x])
    assert not kept.changed()
    x[1] = -0.0  # equal to 0.0 as a number
    assert kept.changed()


def test_tensors_that_share_memory_are_saved_once():
    base = torch.arange(4.0)
    kept = Protection([base, base[2:], base.view(2, 2)])
    assert len(kept._saved) == 1
    base.zero_()
    kept.restore()
    assert base.equal(torch.arange(4.0))


def test_a_leaf_that_needs_gradients_can_be_restored():
    weight = torch.nn.Parameter(torch.ones(3))
    kept = Protection([weight])
    with torch.no_grad():
        weight.zero_()
    kept.restore()
    assert weight.equal(torch.ones(3))


def test_no_tensors_is_nothing_to_protect():
    kept = Protection([])
    kept.restore()
    assert not kept.changed()


def test_tensors_are_found_inside_containers():
    a, b, c, d, e = (torch.zeros(1) for _ in range(5))
    arguments = Arguments((a, [b, 3], "text"), {"many": {"c": c, "deep": (d, None)}, "p": Pair(e, 1)})
    assert [id(t) for t in arguments.tensors()] == [id(t) for t in (a, b, c, d, e)]


@pytest.mark.parametrize("value", [None, 1, "x", [1.0], object(), range(3)])
def test_what_is_no_tensor(value):
    assert not Arguments.is_tensor(value)
    assert not Arguments.is_tensor(torch)
    assert Arguments.is_tensor(torch.zeros(()))


def test_map_rebuilds_containers_around_new_tensors():
    x = torch.ones(1)
    before = Arguments((x, [x], (x, 2), Pair(x, 1)), {"named": {"x": x}, "n": 3})
    after = before.map(lambda tensor: tensor + 1)
    assert [t.item() for t in after.tensors()] == [2.0] * 5
    assert [t.item() for t in before.tensors()] == [1.0] * 5
    assert [type(value) for value in after.positional[1:]] == [list, tuple, Pair]
    assert (after.positional[2][1], after.keyword["n"]) == (2, 3)


@given(tensor_specs())
def test_a_private_copy_is_equal_and_elsewhere(spec):
    x = spec.create_tensor(fill_value=1)
    (copy,) = Protection.private_copy(Arguments((x,))).positional
    assert (copy.shape, copy.stride(), copy.dtype) == (x.shape, x.stride(), x.dtype)
    assert copy.storage_offset() == x.storage_offset()
    if spec.numel:
        assert copy.to(torch.complex64).equal(x.to(torch.complex64))
        assert copy.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_a_private_copy_keeps_who_shares_memory_with_whom():
    base = torch.arange(8.0)
    kept = Protection([base])
    arguments = Arguments((base[:4], base[2:6]), {"whole": Pair(base, None)})
    left, right, whole = Protection.private_copy(arguments).tensors()
    left.fill_(7)
    assert right.tolist() == [7, 7, 4, 5]
    assert whole.tolist() == [7, 7, 7, 7, 4, 5, 6, 7]
    assert not kept.changed()


def test_a_private_copy_keeps_requires_grad():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.int32)
    a, b = Protection.private_copy(Arguments((x, y))).positional
    assert (a.requires_grad, a.is_leaf, b.requires_grad) == (True, True, False)


@pytest.mark.parametrize("order", [1, -1])
def test_storages_over_one_numpy_array_are_saved_whole(order):
    array = np.arange(4.0)
    views = [torch.from_numpy(array[:2]), torch.from_numpy(array)][::order]
    kept = Protection(views)
    array[3] = -1
    assert kept.changed()
    kept.restore()
    assert array.tolist() == [0, 1, 2, 3]
    copies = {len(copy): copy for copy in Protection.private_copy(Arguments(tuple(views))).positional}
    copies[2].fill_(7)
    assert copies[4].tolist() == [7, 7, 2, 3]
    assert array.tolist() == [0, 1, 2, 3]


# What no right result holds


@pytest.mark.parametrize(("dtype", "values"), [
    ("float32", (np.nan, np.finfo("f4").max)), ("complex64", (np.nan, np.finfo("f4").max)),
    ("int16", (32_767, 32_677)), ("uint8", (255, 165)), ("bool", (False, True)),
])  # fmt: skip
@pytest.mark.parametrize("make", [np.ones, lambda n, dtype: torch.ones(n, dtype=getattr(torch, dtype))])
def test_poison_is_one_of_two_values_that_no_right_result_holds(dtype, values, make):
    output = make(3, dtype)
    for pattern, value in enumerate(values):
        fill_with_poison(output, pattern)
        assert np.array_equal(np.asarray(output), np.full(3, value, dtype), equal_nan=dtype in ("float32", "complex64"))


def test_arrays_that_cannot_be_written_or_hold_no_numbers_are_not_poisoned():
    constant, texts, objects = np.ones(2), np.array(["a", "b"]), np.array([1, None])
    constant.flags.writeable = False
    for array in (constant, texts, objects):
        before = array.tolist()
        fill_with_poison(array)
        assert array.tolist() == before


# Shapes and storages of tensors


def resized(x):
    x.resize_(0)


def grown(x):
    x.resize_(1000)


def emptied(x):
    x.untyped_storage().resize_(0)


def replaced(x):
    x.set_()


def converted(x):
    x.data = x.half()


def transposed(x):
    x.t_()


def recorded(x):
    x.requires_grad_()


def turned_into_a_result(x):
    x.mul_(torch.ones(2, 3, requires_grad=True))


@pytest.mark.parametrize(
    "change", [resized, grown, emptied, replaced, converted, transposed, recorded, turned_into_a_result]
)
def test_another_shape_or_storage_is_found_and_taken_back(change):
    x, other = torch.tensor([[0.0, 1, 2], [3, 4, 5]]), torch.ones(2)
    kept = Protection([x, other])
    change(x)
    assert kept.differing() == {id(x)}
    kept.restore()
    assert not kept.changed()
    assert x.equal(torch.arange(6.0).view(2, 3))
    assert (x.requires_grad, x.is_leaf) == (False, True)


# NumPy arrays and containers


@st.composite
def arrays(draw):
    """A view of an array: any order, steps, direction, dtype and alignment; or a broadcast one."""
    dtype = draw(st.sampled_from(["f8", "f4", "i2", "?", "c16", "O", "i4,f8"]))
    base = np.zeros((draw(st.integers(0, 4)), 6), dtype, order=draw(st.sampled_from("CF")))
    base[...] = np.arange(base.size).reshape(base.shape) % 3 if dtype != "i4,f8" else np.ones(base.shape, dtype)
    rows, columns = (slice(None, None, draw(st.sampled_from([1, 2, -1]))) for _ in range(2))
    view = base[rows, columns]
    return np.broadcast_to(view, (2, *view.shape)) if draw(st.booleans()) else view


@given(arrays())
def test_a_copy_of_an_array_is_equal_and_elsewhere_and_lies_alike(array):
    (copy,) = Protection.private_copy(Arguments((array,))).positional
    assert np.array_equal(copy, array)
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
    assert not np.shares_memory(copy, array)
    if not array.dtype.hasobject:  # arrays of objects copy themselves
        assert (copy.strides, copy.flags.writeable) == (array.strides, array.flags.writeable)
        assert (copy.ctypes.data - array.ctypes.data) % 64 == 0


@given(arrays())
def test_a_write_to_an_array_is_found_and_taken_back(array):
    before = array.copy()
    kept = Protection([array])
    if not array.flags.writeable or not array.size:
        assert not kept.changed()
        return
    array[...] = np.ones_like(array) if array.dtype.hasobject else np.zeros_like(array)
    assert kept.changed() == (not np.array_equal(array, before))
    kept.restore()
    assert np.array_equal(array, before)
    assert not kept.changed()


def test_copies_of_arrays_share_memory_as_the_arrays_do():
    base = np.arange(8.0)
    left, (right,) = Protection.private_copy(Arguments((base[:4], [base[2:6]]))).positional
    left[...] = 7
    assert right.tolist() == [7, 7, 4, 5]
    assert base.tolist() == list(range(8))


def test_containers_are_copied_and_restored_with_the_objects_that_were_in_them():
    held = object()
    given = {"list": [3, 1, held], "set": {1}, "bytes": bytearray(b"ab"), "dict": {"a": [1.0]}}
    copy = Protection.private_copy(Arguments((), given)).keyword
    kept = Protection(copy.values())
    assert not kept.changed()
    copy["list"].remove(held)
    copy["list"].sort()
    copy["set"].add(2)
    copy["bytes"] += b"c"
    copy["dict"]["a"].append(2.0)
    assert len(kept.differing()) == 4
    kept.restore()
    assert copy == given == {"list": [3, 1, held], "set": {1}, "bytes": bytearray(b"ab"), "dict": {"a": [1.0]}}


def test_a_copied_result_does_not_follow_later_writes():
    x, a = torch.ones(2), np.ones(2)
    copy = Protection.value_copy({"both": (x, [a])})
    x.zero_()
    a[...] = 0
    assert copy["both"][0].tolist() == copy["both"][1][0].tolist() == [1, 1]
