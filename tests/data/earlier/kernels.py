"""Kernels whose records, run logs, lockfile and misses lie beside this file, as the code of 778696e8 wrote them."""

import functools

import numpy as np
import triton
import triton.language as tl

from triton_ops import Config, Operation, TensorSpec, TritonKernel, autotune, choose, operation


@operation(space={"step": [1, 4, 16]}, arguments=lambda rows=256: {"rows": rows})
def column_sums(rows, step):
    """The sums of columns, some rows at a time."""
    x = np.arange(rows * 16).reshape(rows, 16)
    total = np.zeros(x.shape[1], dtype=np.int64)
    for at in range(0, len(x), step):
        total += x[at : at + step].sum(axis=0)
    return total


def product(x, y, tile):
    """A matrix product, some rows at a time; it is tuned as a callable, without an operation."""
    return np.concatenate([x[at : at + tile] @ y for at in range(0, len(x), tile)])


def blocks(meta):
    """One program for each block of numbers."""
    return (triton.cdiv(meta["count"], meta["BLOCK"]),)


@triton.jit
def twice(value):
    """Both a helper and a part of the kernel's identity."""
    return value * 2


@triton.jit
def doubled_kernel(x, out, count, BLOCK: tl.constexpr):
    """Each number twice, a block of numbers in a program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, twice(tl.load(x + at, mask=at < count)), mask=at < count)


def doubled_arguments(count: int = 512, dtype: str = "float32"):
    """The kernel's arguments for that many numbers."""
    return {"x": TensorSpec((count,), dtype), "out": TensorSpec((count,), dtype, fill="empty"), "count": count}


doubled = Operation(
    "doubled",
    TritonKernel(doubled_kernel, grid=blocks, outputs=("out",)),
    {"BLOCK": [128, 512]},
    doubled_arguments,
)


class Scale:
    """What a function holds; it counts by its class and its attributes."""

    def __init__(self, factors):
        self.factors = factors


def scaled_by(scale, rows, count, step):
    """Rows times the factors that an object holds, some at a time."""
    x = np.arange(count * rows).reshape(count, rows)
    return np.concatenate([x[at : at + step] * scale.factors[0] for at in range(0, count, step)])


scaled = functools.partial(scaled_by, Scale([3, 4]), 16)


@autotune([Config(BLOCK=64), Config(BLOCK=256)], key=["count"])
@triton.jit
def halved(x, out, count, BLOCK: tl.constexpr):
    """Half of each number; a kernel under the decorator."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < count) / 2, mask=at < count)


def by_product(x):
    """The sums of rows by a product."""
    return x @ x.new_ones(x.shape[1])


def by_sum(x):
    """The same by a sum."""
    return x.sum(1)


row_sums = choose({"product": by_product, "sum": by_sum}, name="row sums", budget_s=3)
