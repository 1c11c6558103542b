"""Which tensors a rule can describe is said before any config is tried."""

import pytest

from triton_ops import KernelTypeError, TensorSpec
from triton_ops.backend.descriptors import check_declared
from triton_ops.exceptions import ShapeMismatchError

RULES = {"x": ("BM", "BK")}


@pytest.mark.parametrize("value", [TensorSpec((64, 32), "float16"), TensorSpec((64, 8), "float16", stride=(32, 1))])
def test_a_tensor_whose_rows_are_multiples_of_16_bytes_can_be_described(value):
    check_declared("k", RULES, {"x": value, "n": 3})
    check_declared("k", RULES, {"n": 3})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (TensorSpec((64, 7), "float16"), "has strides 7x1: 7 elements are 14 bytes, no multiple of 16"),
        (TensorSpec((64, 32), "float16", stride=(1, 64)), "has strides 1x64; the last one must be 1"),
        (TensorSpec((64, 32), "float16", aligned=False), "does not start at a multiple of 16 bytes"),
        (TensorSpec((64,), "float16"), r"has 1 axes, and its block shape \('BM', 'BK'\) has 2"),
    ],
)
def test_another_tensor_is_refused_with_its_name(value, said):
    with pytest.raises(ShapeMismatchError, match=f"x of k .*{said}"):
        check_declared("k", RULES, {"x": value})


def test_what_is_no_tensor_is_refused_with_its_type():
    with pytest.raises(KernelTypeError, match="x of k is described by a rule, and was given int"):
        check_declared("k", RULES, {"x": 3})


def test_a_descriptor_that_the_caller_made_is_judged_by_its_own_strides():
    torch, host = pytest.importorskip("torch"), pytest.importorskip("triton.tools.tensor_descriptor")
    tensor = torch.zeros(64, 32, dtype=torch.float16)
    made = host.TensorDescriptor(tensor, [64, 32], [32, 1], [16, 16])
    check_declared("k", {}, {"tiles": made})
    made.strides = [7, 1]
    with pytest.raises(ShapeMismatchError, match=r"tiles of k .*has strides 7x1: 7 elements are 14 bytes"):
        check_declared("k", {}, {"tiles": made})
    shifted = host.TensorDescriptor.from_tensor(tensor, [16, 16])
    shifted.base = tensor.flatten()[1:]
    with pytest.raises(ShapeMismatchError, match=r"tiles of k .*does not start at a multiple of 16 bytes"):
        check_declared("k", {}, {"tiles": shifted})
