"""The Triton kernels: layer normalisation over rows, and its gradient.

A row that fits into one block is read once and stays in registers. A longer one is walked over in chunks, whose means
and sums of squares are merged as Chan, Golub and LeVeque do, so that a large mean costs no accuracy.

The gradient's programs each walk over many whole rows, and add up the gradients of weight and bias of their rows in
registers. Of a row that is too long for that, one program writes dx and keeps the row's mean and scale, and another
launch reads input and gradient by columns. A last launch sums what programs have left. No program waits for another
and nothing is added atomically, so that equal launches of one config give equal bits on one device.
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
    EVICT: tl.constexpr = "none",
    SPREAD: tl.constexpr = False,
):
    """out[row] = (x[row] - mean) / sqrt(variance + eps) * weight + bias, in float32 or float64, rounded once.

    weight and bias may be None, which stands for 1 and for 0. What is read for the last time, and what is written,
    leaves L2 first by EVICT: `none`, `loads` or `all`. With SPREAD, threads read the weights of every row that they
    hold; else they are read once, and go through shared memory where a tile has several rows.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < rows)[:, None]
    start = row[:, None] * COLUMNS
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    LAST: tl.constexpr = "" if EVICT == "none" else "evict_first"
    WRITTEN: tl.constexpr = "evict_first" if EVICT == "all" else ""

    if BLOCK_SIZE >= COLUMNS:
        in_row = lane < COLUMNS
        over = lane + (tl.arange(0, ROWS) * 0)[:, None] if SPREAD else lane
        if weight is not None:  # before the row, so that their loads do not wait for its sums
            w = widened(tl.load(weight + over, mask=over < COLUMNS, other=0.0, eviction_policy="evict_last"))
        if bias is not None:
            b = widened(tl.load(bias + over, mask=over < COLUMNS, other=0.0, eviction_policy="evict_last"))
        values = widened(tl.load(x + start + lane, mask=in_rows & in_row, other=0.0, eviction_policy=LAST))
        apart = tl.where(in_row, values - (tl.sum(values, 1) / COLUMNS)[:, None], 0.0)
        found = apart * tl.rsqrt(tl.sum(apart * apart, 1) / COLUMNS + eps)[:, None]
        if weight is not None:
            found = found * w
        if bias is not None:
            found = found + b
        tl.store(
            out + start + lane, found.to(out.dtype.element_ty), mask=in_rows & in_row, eviction_policy=WRITTEN
        )  # fmt: skip
    else:
        mean, scale = row_statistics(x, start, in_rows, eps, COLUMNS, BLOCK_SIZE)
        for first in tl.range(0, COLUMNS, BLOCK_SIZE):
            in_row = first + lane < COLUMNS
            inside = in_rows & in_row
            values = widened(tl.load(x + start + first + lane, mask=inside, other=0.0, eviction_policy=LAST))
            found = (values - mean[:, None]) * scale[:, None]
            if weight is not None:
                found = found * widened(tl.load(weight + first + lane, mask=in_row, other=0.0))
            if bias is not None:
                found = found + widened(tl.load(bias + first + lane, mask=in_row, other=0.0))
            tl.store(
                out + start + first + lane, found.to(out.dtype.element_ty), mask=inside, eviction_policy=WRITTEN
            )  # fmt: skip


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
    STAGES: tl.constexpr,
):
    """dx, and in partial[0, program] and partial[1, program] what the program's rows add to dweight and dbias.

    With n = (x - mean) * scale and g = grad * weight: dx = (g - mean(g) - n * mean(g * n)) * scale, dweight is the sum
    of grad * n over the rows, dbias that of grad. `partial` is [2, programs, COLUMNS], float32 or float64, and need not
    hold zeros. BLOCK_SIZE holds a whole row. Mean and scale are computed again, which costs no memory traffic.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    tile = tl.arange(0, ROWS)
    own = partial + program.to(tl.int64) * COLUMNS + lane
    in_row = lane < COLUMNS
    dweight = tl.zeros((ROWS, BLOCK_SIZE), dtype=partial.dtype.element_ty)
    dbias = tl.zeros((ROWS, BLOCK_SIZE), dtype=partial.dtype.element_ty)
    for first in tl.range(program * ROWS, rows, programs * ROWS, num_stages=STAGES):
        inside = (first + tile < rows)[:, None] & in_row
        start = (first + tile).to(tl.int64)[:, None] * COLUMNS
        values = widened(tl.load(x + start + lane, mask=inside, other=0.0))
        g = widened(tl.load(grad + start + lane, mask=inside, other=0.0))
        apart = tl.where(inside, values - (tl.sum(values, 1) / COLUMNS)[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(apart * apart, 1) / COLUMNS + eps)[:, None]
        n = tl.where(inside, apart * scale, 0.0)  # without eps, rows past the last one would be 0 * infinity
        dweight += g * n
        dbias += g
        if weight is not None:
            g = g * widened(tl.load(weight + lane, mask=in_row, other=0.0, eviction_policy="evict_last"))
        found = (g - (tl.sum(g, 1) / COLUMNS)[:, None] - n * (tl.sum(g * n, 1) / COLUMNS)[:, None]) * scale
        tl.store(dx + start + lane, found.to(dx.dtype.element_ty), mask=inside)
    tl.store(own, tl.sum(dweight, 0)[None, :], mask=in_row)
    tl.store(own + programs.to(tl.int64) * COLUMNS, tl.sum(dbias, 0)[None, :], mask=in_row)


@triton.jit
def layer_norm_backward_rows_kernel(
    x, weight, grad, dx, statistics, rows, eps, COLUMNS: tl.constexpr, BLOCK_SIZE: tl.constexpr
):  # fmt: skip
    """Dx of one row in chunks, and its mean and scale in statistics[0, row] and statistics[1, row]."""
    row = tl.program_id(0).to(tl.int64)
    start = row * COLUMNS + tl.zeros((1, 1), dtype=tl.int64)
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    mean, scale = row_statistics(x, start, start >= 0, eps, COLUMNS, BLOCK_SIZE)
    one = tl.arange(0, 1)
    tl.store(statistics + row + one, mean)
    tl.store(statistics + rows + row + one, scale)
    in_all = tl.zeros((1, BLOCK_SIZE), dtype=statistics.dtype.element_ty)
    in_all_n = tl.zeros((1, BLOCK_SIZE), dtype=statistics.dtype.element_ty)
    CHUNKS: tl.constexpr = (COLUMNS + BLOCK_SIZE - 1) // BLOCK_SIZE
    for nth in tl.range(0, CHUNKS):  # back and forth: what was read last is the likeliest to be in a cache
        column = (CHUNKS - 1 - nth) * BLOCK_SIZE + lane
        inside = column < COLUMNS
        values = widened(tl.load(x + start + column, mask=inside, other=0.0))
        g = widened(tl.load(grad + start + column, mask=inside, other=0.0))
        if weight is not None:
            g = g * widened(tl.load(weight + column, mask=inside, other=0.0))
        in_all += g
        in_all_n += g * ((values - mean[:, None]) * scale[:, None])
    mean_g = tl.sum(in_all, 1) / COLUMNS
    mean_gn = tl.sum(in_all_n, 1) / COLUMNS
    for nth in tl.range(0, CHUNKS):
        column = nth * BLOCK_SIZE + lane
        inside = column < COLUMNS
        values = widened(tl.load(x + start + column, mask=inside, other=0.0))
        g = widened(tl.load(grad + start + column, mask=inside, other=0.0))
        n = (values - mean[:, None]) * scale[:, None]
        if weight is not None:
            g = g * widened(tl.load(weight + column, mask=inside, other=0.0))
        found = (g - mean_g[:, None] - n * mean_gn[:, None]) * scale[:, None]
        tl.store(dx + start + column, found.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_backward_columns_kernel(
    x, grad, statistics, partial, rows, COLUMNS: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLUMNS: tl.constexpr
):  # fmt: skip
    """In partial[0, part] and partial[1, part] what every part-th tile of rows adds to dweight and dbias."""
    part, parts = tl.program_id(1), tl.num_programs(1)
    column = tl.program_id(0) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)[None, :]
    tile = tl.arange(0, TILE_ROWS)
    dweight = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=partial.dtype.element_ty)
    dbias = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=partial.dtype.element_ty)
    for first in tl.range(part * TILE_ROWS, rows, parts * TILE_ROWS):
        row = first + tile
        inside = (row < rows)[:, None] & (column < COLUMNS)
        mean = tl.load(statistics + row, mask=row < rows, other=0.0)[:, None]
        scale = tl.load(statistics + rows + row, mask=row < rows, other=0.0)[:, None]
        place = row.to(tl.int64)[:, None] * COLUMNS + column
        values = widened(tl.load(x + place, mask=inside, other=0.0))
        g = widened(tl.load(grad + place, mask=inside, other=0.0))
        dweight += tl.where(inside, g * (values - mean) * scale, 0.0)
        dbias += g
    own = partial + part.to(tl.int64) * COLUMNS + column
    tl.store(own, tl.sum(dweight, 0)[None, :], mask=column < COLUMNS)
    tl.store(own + parts.to(tl.int64) * COLUMNS, tl.sum(dbias, 0)[None, :], mask=column < COLUMNS)
