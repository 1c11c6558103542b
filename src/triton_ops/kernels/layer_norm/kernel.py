"""The Triton kernels: layer normalisation over rows, and its gradient.

A row that fits into one block is read once and stays in registers. A longer one is walked over in chunks, whose means
and sums of squares are merged as Chan, Golub and LeVeque do, so that a large mean costs no accuracy.

The gradient's programs each walk over many rows, and add up the gradients of weight and bias of their rows: in
registers for whole rows, else in a row of memory of their own. Another launch sums these rows. No program waits for
another and nothing is added atomically, so that equal launches of one config give equal bits on one device.
"""

from triton_ops._optional import require
from triton_ops.kernels.jit import widened

triton = require("triton", "the layer_norm kernel")
tl = require("triton.language", "the layer_norm kernel")


def grid(meta):
    """One program per ROWS rows."""
    return (triton.cdiv(meta["x"].numel() // meta["COLUMNS"], meta["ROWS"]),)


@triton.jit
def row_statistics(x, start, in_rows, eps, COLUMNS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """The mean of each row, and one over its standard deviation, in chunks."""
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    mean = tl.sum(widened(tl.load(x + start + lane, mask=in_rows, other=0.0)), 1) * 0.0
    squares = mean
    for first in tl.range(0, COLUMNS, BLOCK_SIZE):
        inside = first + lane < COLUMNS
        values = widened(tl.load(x + start + first + lane, mask=in_rows & inside, other=0.0))
        count = min(COLUMNS - first, BLOCK_SIZE)
        own = tl.sum(values, 1) / count
        apart = tl.where(inside, values - own[:, None], 0.0)
        gap = own - mean
        squares += tl.sum(apart * apart, 1) + gap * gap * (first * (count / (first + count)))
        mean += gap * (count / (first + count))
    return mean, tl.rsqrt(squares / COLUMNS + eps)


@triton.jit
def layer_norm_kernel(
    x,
    weight,
    bias,
    out,
    rows,
    eps,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """out[row] = (x[row] - mean) / sqrt(variance + eps) * weight + bias, in float32 or float64, rounded once.

    weight and bias may be None, which stands for 1 and for 0.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < rows)[:, None]
    start = row[:, None] * COLUMNS
    lane = tl.arange(0, BLOCK_SIZE)[None, :]

    if BLOCK_SIZE >= COLUMNS:
        in_row = lane < COLUMNS
        values = widened(tl.load(x + start + lane, mask=in_rows & in_row, other=0.0))
        apart = tl.where(in_row, values - (tl.sum(values, 1) / COLUMNS)[:, None], 0.0)
        found = apart * tl.rsqrt(tl.sum(apart * apart, 1) / COLUMNS + eps)[:, None]
        if weight is not None:
            found = found * widened(tl.load(weight + lane, mask=in_row, other=0.0))
        if bias is not None:
            found = found + widened(tl.load(bias + lane, mask=in_row, other=0.0))
        tl.store(out + start + lane, found.to(out.dtype.element_ty), mask=in_rows & in_row)
    else:
        mean, scale = row_statistics(x, start, in_rows, eps, COLUMNS, BLOCK_SIZE)
        for first in tl.range(0, COLUMNS, BLOCK_SIZE):
            in_row = first + lane < COLUMNS
            values = widened(tl.load(x + start + first + lane, mask=in_rows & in_row, other=0.0))
            found = (values - mean[:, None]) * scale[:, None]
            if weight is not None:
                found = found * widened(tl.load(weight + first + lane, mask=in_row, other=0.0))
            if bias is not None:
                found = found + widened(tl.load(bias + first + lane, mask=in_row, other=0.0))
            tl.store(out + start + first + lane, found.to(out.dtype.element_ty), mask=in_rows & in_row)


@triton.jit
def layer_norm_backward_kernel(
    x,
    weight,
    grad,
    dx,
    partial,
    rows,
    eps,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """dx, and in partial[0, program] and partial[1, program] what the program's rows add to dweight and dbias.

    With n = (x - mean) * scale and g = grad * weight: dx = (g - mean(g) - n * mean(g * n)) * scale, dweight is the sum
    of grad * n over the rows, dbias that of grad. `partial` is [2, programs, COLUMNS], float32 or float64, and need not
    hold zeros. Mean and scale are computed again, which costs no memory traffic where a row is in registers.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    tile = tl.arange(0, ROWS)
    own = partial + program.to(tl.int64) * COLUMNS + lane
    other = own + programs.to(tl.int64) * COLUMNS

    if BLOCK_SIZE >= COLUMNS:
        in_row = lane < COLUMNS
        dweight = tl.zeros((ROWS, BLOCK_SIZE), dtype=partial.dtype.element_ty)
        dbias = tl.zeros((ROWS, BLOCK_SIZE), dtype=partial.dtype.element_ty)
        for first in range(program * ROWS, rows, programs * ROWS):
            in_rows = (first + tile < rows)[:, None]
            start = (first + tile).to(tl.int64)[:, None] * COLUMNS
            inside = in_rows & in_row
            values = widened(tl.load(x + start + lane, mask=inside, other=0.0))
            g = widened(tl.load(grad + start + lane, mask=inside, other=0.0))
            apart = tl.where(inside, values - (tl.sum(values, 1) / COLUMNS)[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(apart * apart, 1) / COLUMNS + eps)[:, None]
            n = apart * scale
            dweight += g * n
            dbias += g
            if weight is not None:
                g = g * widened(tl.load(weight + lane, mask=in_row, other=0.0))
            found = (g - (tl.sum(g, 1) / COLUMNS)[:, None] - n * (tl.sum(g * n, 1) / COLUMNS)[:, None]) * scale
            tl.store(dx + start + lane, found.to(dx.dtype.element_ty), mask=inside)
        tl.store(own, tl.sum(dweight, 0)[None, :], mask=in_row)
        tl.store(other, tl.sum(dbias, 0)[None, :], mask=in_row)
    else:
        for column in tl.range(0, COLUMNS, BLOCK_SIZE):
            in_row = column + lane < COLUMNS
            nothing = tl.zeros((1, BLOCK_SIZE), dtype=partial.dtype.element_ty)
            tl.store(own + column, nothing, mask=in_row)
            tl.store(other + column, nothing, mask=in_row)
        tl.debug_barrier()  # the sums are read again by threads that need not be those that wrote them
        for first in range(program * ROWS, rows, programs * ROWS):
            in_rows = (first + tile < rows)[:, None]
            start = (first + tile).to(tl.int64)[:, None] * COLUMNS
            mean, scale = row_statistics(x, start, in_rows, eps, COLUMNS, BLOCK_SIZE)
            mean_g = mean * 0.0
            mean_gn = mean * 0.0
            for column in tl.range(0, COLUMNS, BLOCK_SIZE):
                in_row = column + lane < COLUMNS
                inside = in_rows & in_row
                values = widened(tl.load(x + start + column + lane, mask=inside, other=0.0))
                g = widened(tl.load(grad + start + column + lane, mask=inside, other=0.0))
                n = (values - mean[:, None]) * scale[:, None]
                if weight is not None:
                    g = g * widened(tl.load(weight + column + lane, mask=in_row, other=0.0))
                mean_g += tl.sum(g, 1) / COLUMNS
                mean_gn += tl.sum(g * n, 1) / COLUMNS
            for column in tl.range(0, COLUMNS, BLOCK_SIZE):
                in_row = column + lane < COLUMNS
                inside = in_rows & in_row
                values = widened(tl.load(x + start + column + lane, mask=inside, other=0.0))
                g = widened(tl.load(grad + start + column + lane, mask=inside, other=0.0))
                n = (values - mean[:, None]) * scale[:, None]
                tl.store(own + column, tl.load(own + column, mask=in_row) + tl.sum(g * n, 0)[None, :], mask=in_row)
                tl.store(other + column, tl.load(other + column, mask=in_row) + tl.sum(g, 0)[None, :], mask=in_row)
                if weight is not None:
                    g = g * widened(tl.load(weight + column + lane, mask=in_row, other=0.0))
                found = (g - mean_g[:, None] - n * mean_gn[:, None]) * scale[:, None]
                tl.store(dx + start + column + lane, found.to(dx.dtype.element_ty), mask=inside)
            tl.debug_barrier()
