"""Kernels over rows with a tunable for their form: the shipped ones, and others that may read memory faster.

- `streams`: whole rows in registers. Programs may walk over many rows (PROGRAMS for each multiprocessor), with the
  loads of STAGES rows in flight, and what is read once can leave the caches first (EVICT). A weight that is read as one
  row goes through shared memory to the threads that hold a tile of several rows; SPREAD reads it for every row.
- `back`: of rows that are read twice, the second time begins at their end, which is still in L2 where the rows of all
  programs together do not fit.
- `split`: SPLIT programs share a row; a second launch, which begins with the last rows, finishes what they have found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import triton
import triton.language as tl

from triton_ops.backend import FormsKernel, Operation, StagedKernel, TritonKernel
from triton_ops.kernels import load
from triton_ops.kernels.jit import widened
from triton_ops.kernels.tiles import programs_for


@triton.jit
def layer_norm_streams(
    x, weight, bias, out, rows, eps, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    PROGRAMS: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """The shipped layer norm for rows that fit into a block; weight and bias are read once by each program."""
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    in_row = lane < COLUMNS
    over = lane + (tl.arange(0, ROWS) * 0)[:, None] if SPREAD else lane
    w = widened(tl.load(weight + over, mask=over < COLUMNS, other=0.0, eviction_policy="evict_last"))
    b = widened(tl.load(bias + over, mask=over < COLUMNS, other=0.0, eviction_policy="evict_last"))
    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = tl.cdiv(rows, ROWS) if PROGRAMS > 0 else first + 1
    for tile in tl.range(first, last, step, num_stages=STAGES):
        row = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & in_row
        place = row[:, None] * COLUMNS + lane
        values = widened(tl.load(x + place, mask=inside, other=0.0, eviction_policy=EVICT))
        apart = tl.where(in_row, values - (tl.sum(values, 1) / COLUMNS)[:, None], 0.0)
        found = apart * tl.rsqrt(tl.sum(apart * apart, 1) / COLUMNS + eps)[:, None] * w + b
        tl.store(out + place, found.to(out.dtype.element_ty), mask=inside, eviction_policy=EVICT)


@triton.jit
def rmsnorm_rope_streams(
    x, weight, cos, sin, out, seq_len, eps, HIDDEN: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    PROGRAMS: tl.constexpr, STAGES: tl.constexpr, EVICT: tl.constexpr, rows=0,
):  # fmt: skip
    """The shipped kernel with the row in registers: BLOCK_SIZE, in pairs, holds it whole."""
    HALF: tl.constexpr = HEAD_DIM // 2
    lane = tl.arange(0, BLOCK_SIZE)
    inside = lane < HIDDEN // 2
    at = lane // HALF * HEAD_DIM + lane % HALF
    w_u = widened(tl.load(weight + at, mask=inside, other=0.0, eviction_policy="evict_last"))
    w_v = widened(tl.load(weight + at + HALF, mask=inside, other=0.0, eviction_policy="evict_last"))
    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = rows if PROGRAMS > 0 else first + 1
    for row in tl.range(first, last, step, num_stages=STAGES):
        place = tl.cast(row, tl.int64) * HIDDEN + at
        angle = tl.cast(row % seq_len, tl.int64) * HEAD_DIM + lane % HALF
        u = widened(tl.load(x + place, mask=inside, other=0.0, eviction_policy=EVICT))
        v = widened(tl.load(x + place + HALF, mask=inside, other=0.0, eviction_policy=EVICT))
        c, s = widened(tl.load(cos + angle)), widened(tl.load(sin + angle))
        scale = tl.rsqrt(tl.sum(u * u + v * v) / HIDDEN + eps)
        u *= scale * w_u
        v *= scale * w_v
        tl.store(out + place, (u * c - v * s).to(out.dtype.element_ty), mask=inside, eviction_policy=EVICT)
        tl.store(out + place + HALF, (v * c + u * s).to(out.dtype.element_ty), mask=inside, eviction_policy=EVICT)


@triton.jit
def softmax_backward_back(
    out, grad, dx, rows, COLUMNS: tl.constexpr, BLOCK_SIZE: tl.constexpr,  # noqa: ARG001 - one program for each row
    STAGES: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """The gradient of a row in chunks: forward for the inner product, and back from the end to write."""
    start = tl.program_id(0).to(tl.int64) * COLUMNS
    lane = tl.arange(0, BLOCK_SIZE)
    inner = widened(tl.zeros((BLOCK_SIZE,), dtype=out.dtype.element_ty))
    for first in tl.range(0, COLUMNS, BLOCK_SIZE, num_stages=STAGES):
        inside = first + lane < COLUMNS
        y = widened(tl.load(out + start + first + lane, mask=inside, other=0.0))
        inner += y * widened(tl.load(grad + start + first + lane, mask=inside, other=0.0))
    total = tl.sum(inner)
    chunks: tl.constexpr = (COLUMNS + BLOCK_SIZE - 1) // BLOCK_SIZE
    for nth in tl.range(0, chunks, num_stages=STAGES):
        place = (chunks - 1 - nth) * BLOCK_SIZE + lane
        inside = place < COLUMNS
        y = widened(tl.load(out + start + place, mask=inside, other=0.0, eviction_policy=EVICT))
        g = widened(tl.load(grad + start + place, mask=inside, other=0.0, eviction_policy=EVICT))
        tl.store(dx + start + place, (y * (g - total)).to(dx.dtype.element_ty), mask=inside, eviction_policy=EVICT)


@triton.jit
def softmax_backward_parts(
    out, grad, dx, rows,  # noqa: ARG001 - the second launch writes dx
    COLUMNS: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLIT: tl.constexpr,
    EVICT: tl.constexpr, parts=None,  # noqa: ARG001 - what is read here is read again
):  # fmt: skip
    """parts[row, part] = the inner product of a part of a row's result and gradient."""
    row, part = tl.program_id(0).to(tl.int64) // SPLIT, tl.program_id(0) % SPLIT
    lane = tl.arange(0, BLOCK_SIZE)
    each: tl.constexpr = (COLUMNS + BLOCK_SIZE * SPLIT - 1) // (BLOCK_SIZE * SPLIT) * BLOCK_SIZE
    inner = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for first in tl.range(0, each, BLOCK_SIZE):
        place = part * each + first + lane
        inside = place < COLUMNS
        y = tl.load(out + row * COLUMNS + place, mask=inside, other=0.0).to(tl.float32)
        inner += y * tl.load(grad + row * COLUMNS + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(parts + tl.program_id(0), tl.sum(inner))


@triton.jit
def softmax_backward_rest(
    out, grad, dx, rows, parts, COLUMNS: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLIT: tl.constexpr,
    EVICT: tl.constexpr,
):  # fmt: skip
    """Dx of a part of a row; the last part of the last row comes first, since its inputs are still in L2."""
    turned = rows * SPLIT - 1 - tl.program_id(0)
    row, part = turned.to(tl.int64) // SPLIT, turned % SPLIT
    total = tl.sum(tl.load(parts + row * SPLIT + tl.arange(0, SPLIT)))
    lane = tl.arange(0, BLOCK_SIZE)
    each: tl.constexpr = (COLUMNS + BLOCK_SIZE * SPLIT - 1) // (BLOCK_SIZE * SPLIT) * BLOCK_SIZE
    for first in tl.range(0, each, BLOCK_SIZE):
        place = part * each + (each - BLOCK_SIZE - first) + lane
        inside = place < COLUMNS
        y = tl.load(out + row * COLUMNS + place, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
        g = tl.load(grad + row * COLUMNS + place, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
        found = (y * (g - total)).to(dx.dtype.element_ty)
        tl.store(dx + row * COLUMNS + place, found, mask=inside, eviction_policy=EVICT)


def _norm_grid(meta: Mapping[str, Any]) -> tuple[int]:
    return programs_for(triton.cdiv(meta["x"].numel() // meta["COLUMNS"], meta["ROWS"]), meta, "x")


def _rope_grid(meta: Mapping[str, Any]) -> tuple[int]:
    return programs_for(meta["x"].numel() // meta["HIDDEN"], meta, "x")


def _rope_made(meta: Mapping[str, Any]) -> dict[str, int]:
    return {"rows": meta["x"].numel() // meta["HIDDEN"]}


def _one_a_row(meta: Mapping[str, Any]) -> tuple[int]:
    return (meta["out"].numel() // meta["COLUMNS"],)


def _split_grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (meta["out"].numel() // meta["COLUMNS"] * meta["SPLIT"],)


def _always(_meta: Mapping[str, Any]) -> bool:
    return True


def _one_each(_meta: Mapping[str, Any], programs: int) -> int:
    return programs


def _with_forms(name: str, **forms: TritonKernel | StagedKernel) -> Operation:
    """A shipped operation whose kernel has further forms. Its space is that of the shipped form."""
    shipped = load(name)
    return replace(shipped, name=f"{name}_forms", kernel=FormsKernel({"shipped": shipped.kernel, **forms}))


layer_norm_forms = _with_forms("layer_norm", streams=TritonKernel(layer_norm_streams, _norm_grid, outputs=("out",)))
rmsnorm_rope_forms = _with_forms(
    "rmsnorm_rope", streams=TritonKernel(rmsnorm_rope_streams, _rope_grid, outputs=("out",), made=_rope_made)
)
softmax_backward_forms = _with_forms(
    "softmax_backward",
    back=TritonKernel(softmax_backward_back, _one_a_row, outputs=("dx",)),
    split=StagedKernel(
        TritonKernel(softmax_backward_parts, _split_grid, outputs=("dx",)),
        TritonKernel(softmax_backward_rest, _split_grid, outputs=("dx",)),
        when=_always, scratch="parts", elements=_one_each,
    ),
)  # fmt: skip
