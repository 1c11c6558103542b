"""Small kernels of every kind, for tests that compile them and for tests that launch them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

ROWS, COLUMNS = 256, 128


@triton.jit
def copy_in_kernel(x, out, rows, stride, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Copies through descriptors that the kernel makes."""
    source = tl.make_tensor_descriptor(x, shape=[rows, WIDTH], strides=[stride, 1], block_shape=[BLOCK, WIDTH])
    target = tl.make_tensor_descriptor(out, shape=[rows, WIDTH], strides=[stride, 1], block_shape=[BLOCK, WIDTH])
    at = tl.program_id(0) * BLOCK
    target.store([at, 0], source.load([at, 0]))


@triton.jit
def copy_descriptors(x, out, BLOCK: tl.constexpr):
    """Copies through descriptors that are arguments."""
    at = tl.program_id(0) * BLOCK
    out.store([at, 0], x.load([at, 0]))


def row_blocks(meta):
    """One program for each block of rows."""
    return (triton.cdiv(ROWS, meta["BLOCK"]),)


def set_blocks(values):
    """The hook of configs whose descriptors follow BLOCK."""
    for name in ("x", "out"):
        values[name].block_shape = [values["BLOCK"], COLUMNS]


@triton.jit
def add_up(x, total, n, BLOCK: tl.constexpr):
    """Adds x to one number; it must be zero before."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))


def flat_blocks(meta):
    """One program for each block of elements."""
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def zero_total(values):
    """The hook of configs that need the total to be zero."""
    values["total"].zero_()


@triton.jit
def mixed(parts, out, n, nothing, kind: tl.constexpr, dtype: tl.constexpr, factor: tl.constexpr, BLOCK: tl.constexpr):
    """Takes a tuple of tensors and a number, None, a string, a dtype and a constexpr object."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    result = tl.load(parts[0] + at, mask=at < n) + parts[2]
    if nothing is None:
        result += tl.load(parts[1] + at, mask=at < n)
    if kind == "scaled":
        result *= factor
    tl.store(out + at, result.to(dtype), mask=at < n)


@triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Doubles x; whether a mask is needed is computed."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + at, 2 * tl.load(x + at))
    else:
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@gluon.jit
def gluon_copy(x, out, n, BLOCK: gl.constexpr, num_warps: gl.constexpr):
    """Copies in Gluon."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    gl.store(out + at, gl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def partial_sums(x, parts, n, BLOCK: tl.constexpr):
    """The sum of each block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))


@triton.jit
def last_sum(parts, out, count, MOST: tl.constexpr):
    """The sum of all parts."""
    at = tl.arange(0, MOST)
    tl.store(out, tl.sum(tl.load(parts + at, mask=at < count, other=0.0), axis=0))


def sum_in_two(x, out, *, BLOCK, num_warps):
    """Two launches with scratch between them."""
    assert x.is_cuda
    assert x.device.type == "cuda"
    count = triton.cdiv(x.numel(), BLOCK)
    parts = torch.empty(count, device="cuda", dtype=torch.float32)
    partial_sums[(count,)](x, parts, x.numel(), BLOCK, num_warps=num_warps)
    last_sum[(1,)](parts, out, count, triton.next_power_of_2(count))


def sum_that_looks(x, out, *, BLOCK, num_warps):
    """The same, but it reads a value of a tensor before it launches."""
    if float(x[0]) < 10.0:
        sum_in_two(x, out, BLOCK=BLOCK, num_warps=num_warps)


def sum_of_torch(x, out, *, BLOCK, num_warps):
    """No launch of a Triton kernel at all."""
    out.copy_(x.sum())


def sum_on_all_units(x, out, *, BLOCK):
    """A launch whose grid is the number of multiprocessors."""
    units = torch.cuda.get_device_properties(x.device).multi_processor_count
    parts = torch.empty(units, device=x.device)
    with torch.cuda.device(x.device):
        partial_sums[(units,)](x, parts, x.numel(), BLOCK)
        last_sum[(1,)](parts, out, units, triton.next_power_of_2(units))
