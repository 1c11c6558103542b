"""Kernels whose records, run logs, lockfile and misses lie beside this file, as the code of c7a3538a wrote them."""

import numpy as np
import triton
import triton.language as tl

from triton_ops import Operation, TensorSpec, TritonKernel, operation


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
