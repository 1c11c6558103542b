"""The Triton kernel of the grouped product: runs of rows of x, each times a weight of its own, as the experts of a MoE.

How many rows a group has is read on the device. A program finds the group and the place of its tile from the number of
tiles of all groups, which it counts once, in registers. Loads are of pointers, for any strides and for rows by index,
or of tensor descriptors, which Hopper's TMA copies.
"""

from __future__ import annotations

from triton_ops.base import require
from triton_ops_kernels.jit import described, tile_of, widened
from triton_ops_kernels.tiles import programs_for

triton = require("triton", "the grouped_matmul kernel")
tl = require("triton.language", "the grouped_matmul kernel")


def grid(meta):
    """One program per tile that there may be, or PROGRAMS per multiprocessor; a group may end within a tile."""
    row_tiles = meta["M"] // meta["BLOCK_M"] + min(meta["GROUPS"], meta["M"])
    return programs_for(row_tiles * triton.cdiv(meta["N"], meta["BLOCK_N"]), meta, "x")


@triton.jit
def described_groups(
    base, groups, rows, columns, stride_g, stride, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr
):  # fmt: skip
    """A tensor descriptor of a matrix for each group, with `columns` neighbours in memory."""
    return tl.make_tensor_descriptor(
        base, shape=[groups, rows, columns], strides=[stride_g, stride, 1], block_shape=[1, BLOCK_ROWS, BLOCK_COLUMNS]
    )


@triton.jit
def row_at(places, inside, M):
    """Ends of groups, within the rows whatever they hold, so that no end has a program leave the tensors."""
    return tl.minimum(tl.maximum(tl.load(places, mask=inside, other=0), 0), M).to(tl.int32)


@triton.jit
def product(
    x_rows, w_tile, K, stride_xk, stride_wk, in_n, PRECISION: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The product of rows of x with a tile of a weight, by pointers to the first elements of the rows and columns."""
    k = tl.arange(0, BLOCK_K)
    x_tile = x_rows[:, None] + k[None, :] * stride_xk
    w_tile = w_tile[None, :] + k[:, None] * stride_wk
    total = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=x_rows.dtype.element_ty))
    for k0 in range(0, K, BLOCK_K):
        if EVEN:
            left = tl.load(x_tile)
            right = tl.load(w_tile, mask=in_n[None, :], other=0.0)
        else:
            left = tl.load(x_tile, mask=(k < K - k0)[None, :], other=0.0)
            right = tl.load(w_tile, mask=in_n[None, :] & (k < K - k0)[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=total.dtype)
        x_tile += BLOCK_K * stride_xk
        w_tile += BLOCK_K * stride_wk
    return total


@triton.jit
def product_described(
    x_rows, x_tiles, w_tiles, m0, group, n0, K, stride_xk, PRECISION: tl.constexpr, EVEN: tl.constexpr,
    GATHERED: tl.constexpr, ALONG_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same by a descriptor of the weights, and by one of x unless its rows are found by index."""
    k = tl.arange(0, BLOCK_K)
    total = widened(tl.zeros((BLOCK_M, BLOCK_N), dtype=w_tiles.dtype))
    for k0 in range(0, K, BLOCK_K):
        if GATHERED:
            x_tile = x_rows[:, None] + (k0 + k)[None, :] * stride_xk
            left = tl.load(x_tile) if EVEN else tl.load(x_tile, mask=(k < K - k0)[None, :], other=0.0)
        else:
            left = x_tiles.load([m0, k0])
        if ALONG_K:
            right = w_tiles.load([group, n0, k0]).reshape([BLOCK_N, BLOCK_K]).T
        else:
            right = w_tiles.load([group, k0, n0]).reshape([BLOCK_K, BLOCK_N])
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=total.dtype)
    return total


@triton.jit
def grouped_matmul_kernel(
    x, weight, out, ends, gather, M, N, K, stride_xm, stride_xk, stride_wg, stride_wk, stride_wn,
    GROUPS: tl.constexpr, BLOCK_G: tl.constexpr, EVEN: tl.constexpr, ALONG_K: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr = 8,
    DESCRIPTORS: tl.constexpr = False, PROGRAMS: tl.constexpr = 0,
):  # fmt: skip
    """out[m, N] = x[m, K] @ weight[g, K, N] for the rows m of group g, from ends[g - 1] to ends[g]; rounded once.

    `out` is row-major. With `gather` row m of the product is row gather[m] of x. BLOCK_G is GROUPS padded, EVEN says
    that K is a multiple of every BLOCK_K, ALONG_K that a weight's elements along K are neighbours; strides in elements.
    """
    g = tl.arange(0, BLOCK_G)
    end = row_at(ends + g, g < GROUPS, M)
    start = row_at(ends + g - 1, (g > 0) & (g < GROUPS), M)
    tile_columns = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(tl.maximum(end - start, 0), BLOCK_M) * tile_columns
    tiles_to = tl.cumsum(tiles, 0)
    if DESCRIPTORS:
        x_tiles = described(x, M, K, stride_xm, BLOCK_M, BLOCK_K) if gather is None else None
        if ALONG_K:
            w_tiles = described_groups(weight, GROUPS, N, K, stride_wg, stride_wn, BLOCK_N, BLOCK_K)
        else:
            w_tiles = described_groups(weight, GROUPS, K, N, stride_wg, stride_wk, BLOCK_K, BLOCK_N)

    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = tl.sum(tiles, 0)
    if PROGRAMS == 0:
        last = tl.minimum(last, first + 1)
    for tile in tl.range(first, last, step):
        group = tl.sum((tiles_to <= tile).to(tl.int32), 0)
        own = g == group
        row_0 = tl.sum(tl.where(own, start, 0), 0)
        row_end = tl.sum(tl.where(own, end, 0), 0)
        place = tile - tl.sum(tl.where(own, tiles_to - tiles, 0), 0)
        tile_row, tile_column = tile_of(place, tl.cdiv(row_end - row_0, BLOCK_M), tile_columns, GROUP_SIZE_M)
        m0 = row_0 + tile_row * BLOCK_M
        n0 = tile_column * BLOCK_N
        row = m0 + tl.arange(0, BLOCK_M)
        n = tl.arange(0, BLOCK_N)
        in_rows = row < row_end
        if gather is None:
            source = tl.minimum(row, M - 1).to(tl.int64)
        else:
            source = tl.load(gather + row, mask=in_rows, other=0).to(tl.int64)
        x_rows = x + source * stride_xm
        if DESCRIPTORS:
            total = product_described(
                x_rows, x_tiles, w_tiles, m0, group, n0, K, stride_xk, PRECISION, EVEN, gather is not None, ALONG_K,
                BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
        else:
            w_tile = weight + group.to(tl.int64) * stride_wg + n0.to(tl.int64) * stride_wn + n * stride_wn
            total = product(
                x_rows, w_tile, K, stride_xk, stride_wk, n < N - n0, PRECISION, EVEN, BLOCK_M, BLOCK_N, BLOCK_K
            )
        o_tile = out + row.to(tl.int64)[:, None] * N + (n0 + n)[None, :]
        tl.store(o_tile, total.to(out.dtype.element_ty), mask=in_rows[:, None] & (n < N - n0)[None, :])
