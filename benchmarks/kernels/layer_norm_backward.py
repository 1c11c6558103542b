"""The backward of layer normalisation in two stages, without atomics: rows, then the sum of the programs' parts."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_ops import ConfigSpace, LauncherKernel, Operation, Problem, TensorSpec, Work

_MULTIPROCESSORS = 132  # of an H100 and an H200
_PARTS = 32  # parts that a program of the second stage takes at once


@triton.jit
def rows_kernel(dy, x, weight, mean, scale, dx, dweights, dbiases, rows, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program takes every so-manieth row, and adds up its part of the gradients of weight and bias."""
    at = tl.arange(0, BLOCK)
    inside = at < COLUMNS
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    dbias = tl.zeros((BLOCK,), dtype=tl.float32)
    first = tl.program_id(0)
    for row in range(first, rows, tl.num_programs(0)):
        start = row.to(tl.int64) * COLUMNS
        gradient = tl.load(dy + start + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + start + at, mask=inside, other=0.0).to(tl.float32)
        by = tl.load(scale + row)
        normal = tl.where(inside, (value - tl.load(mean + row)) * by, 0.0)
        weighted = factor * gradient
        along = tl.sum(normal * weighted, axis=0) / COLUMNS
        level = tl.sum(weighted, axis=0) / COLUMNS
        tl.store(dx + start + at, ((weighted - normal * along - level) * by).to(dx.dtype.element_ty), mask=inside)
        dweight += gradient * normal
        dbias += gradient
    tl.store(dweights + first * COLUMNS + at, dweight, mask=inside)
    tl.store(dbiases + first * COLUMNS + at, dbias, mask=inside)


@triton.jit
def columns_kernel(
    dweights, dbiases, dweight, dbias, parts, COLUMNS: tl.constexpr, PARTS: tl.constexpr, TILE: tl.constexpr
):
    """The gradients of weight and bias: the sums of all parts, for TILE columns."""
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    weights = tl.zeros((PARTS, TILE), dtype=tl.float32)
    biases = tl.zeros((PARTS, TILE), dtype=tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & (column < COLUMNS)[None, :]
        at = part[:, None] * COLUMNS + column[None, :]
        weights += tl.load(dweights + at, mask=inside, other=0.0)
        biases += tl.load(dbiases + at, mask=inside, other=0.0)
    tl.store(dweight + column, tl.sum(weights, axis=0), mask=column < COLUMNS)
    tl.store(dbias + column, tl.sum(biases, axis=0), mask=column < COLUMNS)


def launch(dy, x, weight, mean, scale, dx, dweight, dbias, *, PROGRAMS, TILE, num_warps):
    """Fill `dx`, `dweight` and `dbias`; the scratch tensors have one row for each program of the first stage."""
    rows, columns = x.shape
    programs = min(PROGRAMS, rows)
    dweights, dbiases = torch.empty((2, programs, columns), device=x.device, dtype=torch.float32).unbind()
    block = triton.next_power_of_2(columns)
    rows_kernel[(programs,)](
        dy, x, weight, mean, scale, dx, dweights, dbiases, rows, columns, block, num_warps=num_warps
    )
    columns_kernel[(triton.cdiv(columns, TILE),)](dweights, dbiases, dweight, dbias, programs, columns, _PARTS, TILE)


def _arguments(rows: int = 8192, columns: int = 4096, dtype: str = "bfloat16"):
    """Mean and scale are given numbers: what they were made of does not matter to the backward."""
    matrix, vector = TensorSpec((rows, columns), dtype), TensorSpec((rows,), "float32")
    sums = TensorSpec((columns,), "float32", fill="empty")
    return {
        "dy": matrix, "x": matrix, "weight": TensorSpec((columns,), dtype), "mean": vector, "scale": vector,
        "dx": TensorSpec((rows, columns), dtype, fill="empty"), "dweight": sums, "dbias": sums,
    }  # fmt: skip


def _reference(dy, x, weight, mean, scale, dx, dweight, dbias):  # noqa: ARG001 - called with all arguments
    wide = torch.promote_types(x.dtype, torch.float32)
    gradient, by = dy.to(wide), scale[:, None]
    normal = (x.to(wide) - mean[:, None]) * by
    weighted = weight.to(wide) * gradient
    along = (normal * weighted).mean(-1, keepdim=True)
    level = weighted.mean(-1, keepdim=True)
    return ((weighted - normal * along - level) * by).to(x.dtype), (gradient * normal).sum(0), gradient.sum(0)


def _work(problem: Problem) -> Work:
    """Both matrices read once, the gradient of x written once."""
    return Work(bytes=3.0 * problem["x"].nbytes)


layer_norm_backward = Operation(
    "layer_norm_backward",
    LauncherKernel(launch, outputs=("dx", "dweight", "dbias")),
    ConfigSpace(
        {
            "PROGRAMS": [_MULTIPROCESSORS // 2, _MULTIPROCESSORS, 2 * _MULTIPROCESSORS, 4 * _MULTIPROCESSORS],
            "TILE": [32, 64, 128],
            "num_warps": [4, 8, 16],
        },
        default={"PROGRAMS": _MULTIPROCESSORS, "TILE": 64, "num_warps": 8},
    ),
    _arguments,
    reference=_reference,
    work=_work,
    dtypes=("bfloat16", "float16", "float32"),
    device="cuda",
)
