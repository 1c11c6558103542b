"""The Triton kernels: layer normalisation over rows, and its gradient.

A row that fits into one block is read once and stays in registers. A longer one is walked over in chunks, whose means
and sums of squares are merged as Chan, Golub and LeVeque do, so that a large mean costs no accuracy.

The gradient's programs each walk over many whole rows, and add up the gradients of weight and bias of their rows in
registers. Of rows that are too long for that, one launch keeps four numbers each, and another one reads input and
gradient once more, by columns, to write dx and add up the other gradients: five arrays pass through memory in place of
three. A last launch sums what programs have left. No program waits for another and nothing is added atomically, so that
equal launches of one config give equal bits on one device.
"""

from __future__ import annotations

from triton_ops.base import require
from triton_ops_kernels.jit import widened

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
    x, weight, bias, out, rows, eps,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, EVICT: tl.constexpr = "none",
    SPREAD: tl.constexpr = False,
):  # fmt: skip
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
    x, weight, grad, dx, partial, rows, eps,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dx, and in partial[0, program] and partial[1, program] what the program's rows add to dweight and dbias.

    With n = (x - mean) * scale and g = grad * weight: dx = (g - mean(g) - n * mean(g * n)) * scale, dweight is the sum
    of grad * n over the rows, dbias that of grad. `partial` is [2, programs, COLUMNS], float32 or float64, and need not
    hold zeros. BLOCK_SIZE holds a whole row. Mean and scale are computed again, which costs no memory traffic.

    The weights of a tile of several rows are read before the walk: in it they would go through shared memory for every
    tile, while the warps wait for each other. One row has more of them, and reads them again to keep its registers.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    tile = tl.arange(0, ROWS)
    own = partial + program.to(tl.int64) * COLUMNS + lane
    in_row = lane < COLUMNS
    dweight = tl.zeros((ROWS, BLOCK_SIZE), dtype=partial.dtype.element_ty)
    dbias = tl.zeros((ROWS, BLOCK_SIZE), dtype=partial.dtype.element_ty)
    if weight is not None and ROWS > 1:
        w = widened(tl.load(weight + lane, mask=in_row, other=0.0))
    for first in tl.range(program * ROWS, rows, programs * ROWS, num_stages=STAGES):
        in_rows = first + tile < rows
        inside = in_rows[:, None] & in_row
        start = (first + tile).to(tl.int64)[:, None] * COLUMNS
        values = widened(tl.load(x + start + lane, mask=inside, other=0.0))
        g = widened(tl.load(grad + start + lane, mask=inside, other=0.0))
        apart = values - (tl.sum(values, 1) / COLUMNS)[:, None]
        if BLOCK_SIZE > COLUMNS:
            apart = tl.where(in_row, apart, 0.0)
        scale = tl.rsqrt(tl.sum(apart * apart, 1) / COLUMNS + eps)
        scale = tl.where(in_rows, scale, 0.0)[:, None]  # without eps, rows past the last one would be 0 * infinity
        n = apart * scale
        dweight += g * n
        dbias += g
        if weight is not None:
            if ROWS == 1:
                w = widened(tl.load(weight + lane, mask=in_row, other=0.0, eviction_policy="evict_last"))
            g = g * w
        found = (g - (tl.sum(g, 1) / COLUMNS)[:, None] - n * (tl.sum(g * n, 1) / COLUMNS)[:, None]) * scale
        tl.store(dx + start + lane, found.to(dx.dtype.element_ty), mask=inside)
    tl.store(own, tl.sum(dweight, 0)[None, :], mask=in_row)
    tl.store(own + programs.to(tl.int64) * COLUMNS, tl.sum(dbias, 0)[None, :], mask=in_row)


@triton.jit
def layer_norm_backward_statistics_kernel(
    x, weight, grad, statistics, rows, eps,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """In statistics[:, row]: the mean of x, its scale, and the means of g and of g * n, of rows in several chunks.

    Every lane of the block keeps the means, the squares and the products of the columns that it sees, updated as
    Welford does; lanes are merged at the end. Chunks then wait for no sums over a program, and x and grad are read
    once. `statistics` is [4, rows], float32 or float64.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = row < rows
    start = row[:, None] * COLUMNS
    lane = tl.arange(0, BLOCK_SIZE)[None, :]
    KIND: tl.constexpr = statistics.dtype.element_ty
    CHUNKS: tl.constexpr = (COLUMNS + BLOCK_SIZE - 1) // BLOCK_SIZE
    mean_x = tl.zeros((ROWS, BLOCK_SIZE), dtype=KIND)
    mean_g = tl.zeros((ROWS, BLOCK_SIZE), dtype=KIND)
    squares = tl.zeros((ROWS, BLOCK_SIZE), dtype=KIND)
    products = tl.zeros((ROWS, BLOCK_SIZE), dtype=KIND)
    for nth in tl.range(0, CHUNKS, num_stages=STAGES):
        column = nth * BLOCK_SIZE + lane
        in_row = column < COLUMNS
        inside = in_rows[:, None] & in_row
        values = widened(tl.load(x + start + column, mask=inside, other=0.0))
        g = widened(tl.load(grad + start + column, mask=inside, other=0.0))
        if weight is not None:
            g = g * widened(tl.load(weight + column, mask=in_row, other=0.0, eviction_policy="evict_last"))
        apart = values - mean_x
        apart_g = g - mean_g
        if COLUMNS % BLOCK_SIZE != 0:
            apart = tl.where(in_row, apart, 0.0)
            apart_g = tl.where(in_row, apart_g, 0.0)
        share = 1.0 / tl.cast(nth + 1, KIND)
        mean_x += apart * share
        mean_g += apart_g * share
        squares += apart * (values - mean_x)
        products += apart_g * (values - mean_x)

    count = tl.where((CHUNKS - 1) * BLOCK_SIZE + lane < COLUMNS, CHUNKS, CHUNKS - 1).to(KIND)
    mean = tl.sum(mean_x * count, 1) / COLUMNS
    all_g = tl.sum(mean_g * count, 1) / COLUMNS
    apart = mean_x - mean[:, None]
    scale = tl.rsqrt(tl.sum(squares + count * apart * apart, 1) / COLUMNS + eps)
    all_gx = tl.sum(products + count * apart * (mean_g - all_g[:, None]), 1) / COLUMNS
    all_gn = tl.where(scale == 0.0, 0.0, all_gx * scale)  # squares over the largest number have a scale of 0
    place = statistics + row
    tl.store(place, mean, mask=in_rows)
    tl.store(place + rows, scale, mask=in_rows)
    tl.store(place + tl.cast(rows, tl.int64) * 2, all_g, mask=in_rows)
    tl.store(place + tl.cast(rows, tl.int64) * 3, all_gn, mask=in_rows)


@triton.jit
def layer_norm_backward_columns_kernel(
    x, weight, grad, dx, statistics, partial, rows,
    COLUMNS: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dx, and in partial[0, part] and partial[1, part] what one part of the rows adds to dweight and dbias.

    It takes what `layer_norm_backward_statistics_kernel` has left. The last rows come first: L2 may still hold them.
    """
    part, parts = tl.program_id(1), tl.num_programs(1)
    column = tl.program_id(0) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)[None, :]
    in_columns = column < COLUMNS
    tile = tl.arange(0, TILE_ROWS)
    each = tl.cdiv(tl.cdiv(rows, TILE_ROWS), parts)
    dweight = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=partial.dtype.element_ty)
    dbias = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=partial.dtype.element_ty)
    if weight is not None:
        w = widened(tl.load(weight + column, mask=in_columns, other=0.0))
    for nth in tl.range(0, each, num_stages=STAGES):
        row = ((parts - part) * each - 1 - nth).to(tl.int64) * TILE_ROWS + tile
        in_rows = row < rows
        inside = in_rows[:, None] & in_columns
        found_at = statistics + row
        mean = tl.load(found_at, mask=in_rows, other=0.0)[:, None]
        scale = tl.load(found_at + rows, mask=in_rows, other=0.0)[:, None]
        mean_g = tl.load(found_at + tl.cast(rows, tl.int64) * 2, mask=in_rows, other=0.0)[:, None]
        mean_gn = tl.load(found_at + tl.cast(rows, tl.int64) * 3, mask=in_rows, other=0.0)[:, None]
        place = row[:, None] * COLUMNS + column
        values = widened(tl.load(x + place, mask=inside, other=0.0))
        g = widened(tl.load(grad + place, mask=inside, other=0.0))
        n = (values - mean) * scale
        dweight += g * n
        dbias += g
        if weight is not None:
            g = g * w
        tl.store(dx + place, ((g - mean_g - n * mean_gn) * scale).to(dx.dtype.element_ty), mask=inside)
    own = partial + part.to(tl.int64) * COLUMNS + column
    tl.store(own, tl.sum(dweight, 0)[None, :], mask=in_columns)
    tl.store(own + parts.to(tl.int64) * COLUMNS, tl.sum(dbias, 0)[None, :], mask=in_columns)
