"""What a Triton kernel only writes is read from its source; what may be read is never taken for an output."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from triton_ops.backend import KernelSource, last_name  # noqa: E402

pytestmark = pytest.mark.triton


@triton.jit
def helper(p):
    tl.store(p, 0)


@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def in_place(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = x + i
    tl.store(p, tl.load(p) + 1)


@triton.jit
def summed(x, total, BLOCK: tl.constexpr):
    tl.atomic_add(total, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


@triton.jit
def by_helper(x, y):
    helper(y)
    tl.store(x, 1)


@triton.jit
def carried(x, y, n, BLOCK: tl.constexpr):
    p = y + tl.arange(0, BLOCK)
    for _ in range(n):
        tl.store(p, tl.load(x + tl.arange(0, BLOCK)))
        p += BLOCK


@triton.jit
def by_blocks(x, y, last, N, BLOCK: tl.constexpr):
    a = tl.make_block_ptr(x, (N,), (1,), (0,), (BLOCK,), (0,))
    b = tl.make_block_ptr(y, (N,), (1,), (0,), (BLOCK,), (0,))
    b = tl.advance(b, (0,))
    tl.store(b, tl.load(a).to(y.dtype.element_ty))
    tl.store(last + tl.arange(0, BLOCK), a)


@triton.jit
def by_descriptors(x, y, N, BLOCK: tl.constexpr):
    a = tl.make_tensor_descriptor(x, (N,), (1,), (BLOCK,))
    b = tl.make_tensor_descriptor(y, (N,), (1,), (BLOCK,))
    b.store([0], a.load([0]))


@triton.jit
def moved(p, by):
    return p + by


@triton.jit
def of_its_dtype(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i).to(y.dtype.element_ty)
    tl.store(y + i, value)


@triton.jit
def chosen(x, y, last, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    target = tl.where(i < n, y + i, last + i)
    tl.store(tl.broadcast_to(target, (BLOCK,)), tl.load(x + i))


@triton.jit
def by_function(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    source, first = moved(x, i), 0
    tl.store(moved(y, i) + first, tl.load(source))


@pytest.mark.parametrize(
    ("kernel", "outputs"),
    [
        (plain, {"y"}), (in_place, set()), (summed, set()), (by_helper, {"x"}), (carried, {"y"}),
        (by_blocks, {"y", "last"}), (by_descriptors, {"y"}), (of_its_dtype, {"y"}), (chosen, {"y", "last"}),
        (by_function, set()),
    ],
)  # fmt: skip
def test_outputs_are_what_is_stored_to_and_nothing_else(kernel, outputs):
    tensors = {"x", "y", "total", "last"}
    for one in (kernel, triton.heuristics({"BLOCK": lambda _: 4})(kernel)):
        assert tensors.intersection(KernelSource.read(one).written_only) == outputs


def test_a_pointer_is_followed_through_functions_that_return_it():
    source = KernelSource.read(by_function)
    (stored,) = (call for call in source.calls if last_name(call) == "store")
    assert source.pointers(stored.args[0]) == ["y"]
    assert KernelSource.read(moved).returned == ("p", "by")


def test_what_has_no_source_has_no_outputs():
    assert KernelSource.of(len) is None
