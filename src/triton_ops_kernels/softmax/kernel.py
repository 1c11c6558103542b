"""The Triton kernels: softmax over rows, and its gradient; a program takes ROWS rows at once.

A row that fits into one block is read once and stays in registers. A longer one is read twice, in chunks: once for its
largest value and the sum of exponentials, rescaled as the largest value grows, and once to write. The second time it
comes out of L2.

The gradient reads a longer row backwards the second time, since what was read last is still in L2 where the rows of all
programs together are more than that holds. SPLIT programs may share such a row, in two launches: few rows leave most
multiprocessors without work else. Sums are added in a fixed order, so that equal launches give equal bits.
"""

from __future__ import annotations

from triton_ops.base import require
from triton_ops_kernels.jit import widened

triton = require("triton", "the softmax kernel")
tl = require("triton.language", "the softmax kernel")


def grid(meta):
    """One program per ROWS rows."""
    return (triton.cdiv(meta["x"].numel() // meta["COLUMNS"], meta["ROWS"]),)


def gradient_grid(meta):
    """SPLIT programs per ROWS rows."""
    return (triton.cdiv(meta["out"].numel() // meta["COLUMNS"], meta["ROWS"]) * meta["SPLIT"],)


def is_split(meta):
    """Tell whether several programs share a row, so that a second launch has to write dx."""
    return meta["SPLIT"] > 1


def part_sums(meta, programs):
    """Elements of the scratch: a sum for each row and part."""
    return programs * meta["ROWS"]


@triton.jit
def softmax_kernel(x, out, rows, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """out[row] = exp(x[row] - max) / sum(exp(x[row] - max)), in float32 or float64, rounded once."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < rows)[:, None]
    start = row[:, None] * COLUMNS
    lane = tl.arange(0, BLOCK_SIZE)[None, :]

    if BLOCK_SIZE >= COLUMNS:
        inside = in_rows & (lane < COLUMNS)
        values = widened(tl.load(x + start + lane, mask=inside, other=float("-inf")))
        raised = tl.exp(values - tl.max(values, 1)[:, None])
        tl.store(out + start + lane, (raised / tl.sum(raised, 1)[:, None]).to(out.dtype.element_ty), mask=inside)
    else:
        highest = tl.max(widened(tl.load(x + start + lane, mask=in_rows, other=float("-inf"))), 1)
        shift = tl.where(highest == float("-inf"), 0.0, highest)  # exp(-inf - -inf) would be NaN
        total = tl.zeros_like(highest)
        for first in tl.range(0, COLUMNS, BLOCK_SIZE):
            inside = in_rows & (first + lane < COLUMNS)
            values = widened(tl.load(x + start + first + lane, mask=inside, other=float("-inf")))
            highest = tl.maximum(highest, tl.max(values, 1))
            new_shift = tl.where(highest == float("-inf"), 0.0, highest)
            total = total * tl.exp(shift - new_shift) + tl.sum(tl.exp(values - new_shift[:, None]), 1)
            shift = new_shift
        for first in tl.range(0, COLUMNS, BLOCK_SIZE):
            inside = in_rows & (first + lane < COLUMNS)
            values = widened(tl.load(x + start + first + lane, mask=inside, other=float("-inf")))
            found = tl.exp(values - shift[:, None]) / total[:, None]
            tl.store(out + start + first + lane, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    out, grad, dx, rows,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, EVICT: tl.constexpr = "none",
    SPLIT: tl.constexpr = 1,
    parts=None,
):  # fmt: skip
    """dx[row] = out[row] * (grad[row] - sum(out[row] * grad[row])), in float32 or float64, rounded once.

    With SPLIT above 1 it writes the sum of one part of a row to parts[row, part], and dx is left to
    `softmax_backward_rest_kernel`. EVICT is of rows in chunks: with `loads`, what is read again stays in L2 longest,
    and leaves it first once it is; with `all`, what is read for the last time and what is written leave first.
    """
    row = (tl.program_id(0) // SPLIT).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < rows)[:, None]
    start = row[:, None] * COLUMNS
    lane = tl.arange(0, BLOCK_SIZE)[None, :]

    if SPLIT > 1:
        EACH: tl.constexpr = (COLUMNS + BLOCK_SIZE * SPLIT - 1) // (BLOCK_SIZE * SPLIT) * BLOCK_SIZE
        first = tl.program_id(0) % SPLIT * EACH
        inner = products(out + start, grad + start, first, EACH, in_rows, COLUMNS, ROWS, BLOCK_SIZE, EVICT)
        tl.store(parts + row * SPLIT + tl.program_id(0) % SPLIT, inner.to(tl.float32), mask=row < rows)
    elif BLOCK_SIZE >= COLUMNS:
        inside = in_rows & (lane < COLUMNS)
        y = widened(tl.load(out + start + lane, mask=inside, other=0.0))
        g = widened(tl.load(grad + start + lane, mask=inside, other=0.0))
        found = y * (g - tl.sum(y * g, 1)[:, None])
        tl.store(dx + start + lane, found.to(dx.dtype.element_ty), mask=inside)
    else:
        inner = products(out + start, grad + start, 0, COLUMNS, in_rows, COLUMNS, ROWS, BLOCK_SIZE, EVICT)
        write_back(out + start, grad + start, dx + start, inner, 0, COLUMNS, in_rows, COLUMNS, BLOCK_SIZE, EVICT)


@triton.jit
def softmax_backward_rest_kernel(
    out, grad, dx, rows, parts,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLIT: tl.constexpr,
    EVICT: tl.constexpr = "none",
):  # fmt: skip
    """Write dx of one part of a row, from the sums of all parts. The last rows come first: L2 still holds them."""
    place = tl.num_programs(0) - 1 - tl.program_id(0)
    row = (place // SPLIT).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < rows)[:, None]
    start = row[:, None] * COLUMNS
    inner = tl.sum(tl.load(parts + row[:, None] * SPLIT + tl.arange(0, SPLIT)[None, :], mask=in_rows, other=0.0), 1)
    EACH: tl.constexpr = (COLUMNS + BLOCK_SIZE * SPLIT - 1) // (BLOCK_SIZE * SPLIT) * BLOCK_SIZE
    first = place % SPLIT * EACH
    write_back(out + start, grad + start, dx + start, inner, first, EACH, in_rows, COLUMNS, BLOCK_SIZE, EVICT)


@triton.jit
def products(
    out, grad, first, EXTENT: tl.constexpr, in_rows, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """sum(out * grad) over EXTENT columns from `first` on, chunk by chunk; lanes are added up at the end."""
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    AGAIN: tl.constexpr = "evict_last" if EVICT == "loads" else ""
    inner = widened(tl.zeros((ROWS, BLOCK_SIZE), dtype=out.dtype.element_ty))
    for nth in tl.range(0, (EXTENT + BLOCK_SIZE - 1) // BLOCK_SIZE):
        at = first + nth * BLOCK_SIZE
        inside = in_rows & (at + lane < COLUMNS)
        y = widened(tl.load(out + at + lane, mask=inside, other=0.0, eviction_policy=AGAIN))
        inner += y * widened(tl.load(grad + at + lane, mask=inside, other=0.0, eviction_policy=AGAIN))
    return tl.sum(inner, 1)


@triton.jit
def write_back(
    out, grad, dx, inner, first, EXTENT: tl.constexpr, in_rows, COLUMNS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    EVICT: tl.constexpr,
):  # fmt: skip
    """Write dx of EXTENT columns from `first` on, beginning at their end, which was read last: L2 may hold it."""
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    LAST: tl.constexpr = "" if EVICT == "none" else "evict_first"
    WRITTEN: tl.constexpr = "evict_first" if EVICT == "all" else ""
    CHUNKS: tl.constexpr = (EXTENT + BLOCK_SIZE - 1) // BLOCK_SIZE
    for nth in tl.range(0, CHUNKS):
        at = first + (CHUNKS - 1 - nth) * BLOCK_SIZE
        inside = in_rows & (at + lane < COLUMNS)
        y = widened(tl.load(out + at + lane, mask=inside, other=0.0, eviction_policy=LAST))
        g = widened(tl.load(grad + at + lane, mask=inside, other=0.0, eviction_policy=LAST))
        found = (y * (g - inner[:, None])).to(dx.dtype.element_ty)
        tl.store(dx + at + lane, found, mask=inside, eviction_policy=WRITTEN)
