"""The Triton kernels: softmax over rows, and its gradient; a program takes ROWS rows at once.

A row that fits into one block is read once and stays in registers. A longer one is read twice, in chunks: once for its
largest value and the sum of exponentials, rescaled as the largest value grows, and once to write. The second time it
comes out of L2.
"""

from triton_ops._optional import require
from triton_ops.kernels.jit import widened

triton = require("triton", "the softmax kernel")
tl = require("triton.language", "the softmax kernel")


def grid(meta):
    """One program per ROWS rows."""
    return (triton.cdiv(meta["x"].numel() // meta["COLUMNS"], meta["ROWS"]),)


def gradient_grid(meta):
    """One program per ROWS rows."""
    return (triton.cdiv(meta["out"].numel() // meta["COLUMNS"], meta["ROWS"]),)


@triton.jit
def softmax_kernel(
    x,
    out,
    rows,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
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
    out,
    grad,
    dx,
    rows,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """dx[row] = out[row] * (grad[row] - sum(out[row] * grad[row])), in float32 or float64, rounded once."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < rows)[:, None]
    start = row[:, None] * COLUMNS
    lane = tl.arange(0, BLOCK_SIZE)[None, :]

    if BLOCK_SIZE >= COLUMNS:
        inside = in_rows & (lane < COLUMNS)
        y = widened(tl.load(out + start + lane, mask=inside, other=0.0))
        g = widened(tl.load(grad + start + lane, mask=inside, other=0.0))
        found = y * (g - tl.sum(y * g, 1)[:, None])
        tl.store(dx + start + lane, found.to(dx.dtype.element_ty), mask=inside)
    else:
        y = widened(tl.load(out + start + lane, mask=in_rows, other=0.0))
        inner = tl.zeros_like(tl.sum(y, 1))
        for first in tl.range(0, COLUMNS, BLOCK_SIZE):
            inside = in_rows & (first + lane < COLUMNS)
            y = widened(tl.load(out + start + first + lane, mask=inside, other=0.0))
            g = widened(tl.load(grad + start + first + lane, mask=inside, other=0.0))
            inner += tl.sum(y * g, 1)
        for first in tl.range(0, COLUMNS, BLOCK_SIZE):
            inside = in_rows & (first + lane < COLUMNS)
            y = widened(tl.load(out + start + first + lane, mask=inside, other=0.0))
            g = widened(tl.load(grad + start + first + lane, mask=inside, other=0.0))
            found = y * (g - inner[:, None])
            tl.store(dx + start + first + lane, found.to(dx.dtype.element_ty), mask=inside)
