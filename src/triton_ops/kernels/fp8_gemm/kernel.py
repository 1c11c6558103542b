"""The Triton kernel: C = A @ B of 8-bit floats, divided by their scales, in tiles of BLOCK_M by BLOCK_N.

Hopper's tensor cores keep about 14 bits while they add up products of 8-bit floats. So their sums are promoted: added
to float32 registers after every PROMOTE terms, unless the caller takes the faster sums. With a scale for every block of
128 terms, each step's sum is promoted by its scales anyway.

Loads are of pointers, for any strides, or of tensor descriptors, which Hopper's TMA copies. With PROGRAMS a program
walks over many tiles, so that the loads of one begin while another is written.
"""

from triton_ops._optional import require
from triton_ops.kernels.jit import described, multiplicand, tile_of
from triton_ops.kernels.tiles import programs_for

triton = require("triton", "the fp8_gemm kernel")
tl = require("triton.language", "the fp8_gemm kernel")


def grid(meta):
    """One program per tile of C, or PROGRAMS per multiprocessor."""
    tiles = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return programs_for(tiles, meta, "a")


@triton.jit
def summed(
    left, right, total, k0, m0, n0, a_scale, b_scale, M, N,
    stride_asm, stride_ask, stride_bsk, stride_bsn,
    BLOCKED: tl.constexpr, FAST: tl.constexpr, PROMOTE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """`total` with the products of one step added."""
    left = multiplicand(left)
    right = multiplicand(right)
    if BLOCKED:
        m = m0 + tl.arange(0, BLOCK_M)
        n = n0 + tl.arange(0, BLOCK_N)
        block = k0 // 128
        a_block = tl.load(a_scale + m * stride_asm + block * stride_ask, mask=m < M, other=1.0)
        if BLOCK_N <= 128:  # one scale of B for the whole tile
            factors = (1.0 / (a_block * tl.load(b_scale + block * stride_bsk + n0 // 128 * stride_bsn)))[:, None]
        else:
            b_block = tl.load(b_scale + block * stride_bsk + n // 128 * stride_bsn, mask=n < N, other=1.0)
            factors = (1.0 / a_block)[:, None] * (1.0 / b_block)[None, :]
        return total + tl.dot(left, right, out_dtype=tl.float32) * factors
    if PROMOTE > 0:
        return tl.dot(left, right, total, max_num_imprecise_acc=PROMOTE)
    if FAST:
        return tl.dot(left, right, total)
    return tl.dot(left, right, total, max_num_imprecise_acc=min(128, BLOCK_K))


@triton.jit
def fp8_gemm_kernel(
    a,
    b,
    c,
    a_scale,
    b_scale,
    bias,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_asm,
    stride_ask,
    stride_bsk,
    stride_bsn,
    BLOCKED: tl.constexpr,
    FAST: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr = 8,
    PROMOTE: tl.constexpr = 0,
    DESCRIPTORS: tl.constexpr = False,
    PROGRAMS: tl.constexpr = 0,
):
    """C[M, N] = (A[M, K] / a_scale) @ (B[K, N] / b_scale) + bias, rounded once; C is row-major; strides in elements.

    Not BLOCKED: a scale for each row of A and each column of B, where a stride of 0 shares one. BLOCKED: a scale for
    each 128 terms of a row of A, and for each 128 by 128 tile of B. `bias` is [N], or None. With DESCRIPTORS the
    neighbours in memory of A and of B are those along K.
    """
    tile_rows, tile_columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if DESCRIPTORS:
        a_tiles = described(a, M, K, stride_am, BLOCK_M, BLOCK_K)
        b_tiles = described(b, N, K, stride_bn, BLOCK_N, BLOCK_K)
    # Without PROGRAMS there are as many programs as tiles, and each has one: the compiler sees no loop.
    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = tile_rows * tile_columns if PROGRAMS > 0 else first + 1
    for tile in tl.range(first, last, step, flatten=PROGRAMS > 0):
        tile_row, tile_column = tile_of(tile, tile_rows, tile_columns, GROUP_SIZE_M)
        m0, n0 = tile_row * BLOCK_M, tile_column * BLOCK_N
        m = tl.arange(0, BLOCK_M)
        n = tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if DESCRIPTORS:
            for k0 in range(0, K, BLOCK_K):
                total = summed(
                    a_tiles.load([m0, k0]), b_tiles.load([n0, k0]).T, total, k0, m0, n0, a_scale, b_scale, M, N,
                    stride_asm, stride_ask, stride_bsk, stride_bsn, BLOCKED, FAST, PROMOTE, BLOCK_M, BLOCK_N, BLOCK_K,
                )  # fmt: skip
        else:
            # A tile's corner is addressed in 64 bits, since M * K may pass 2^31; inside the tile 32 bits do.
            k = tl.arange(0, BLOCK_K)
            a_tile = a + m0.to(tl.int64) * stride_am + (m[:, None] * stride_am + k[None, :] * stride_ak)
            b_tile = b + n0.to(tl.int64) * stride_bn + (k[:, None] * stride_bk + n[None, :] * stride_bn)
            in_m = m[:, None] < M - m0
            in_n = n[None, :] < N - n0
            for k0 in range(0, K, BLOCK_K):
                left = tl.load(a_tile, mask=in_m & (k[None, :] < K - k0), other=0.0)
                right = tl.load(b_tile, mask=in_n & (k[:, None] < K - k0), other=0.0)
                total = summed(
                    left, right, total, k0, m0, n0, a_scale, b_scale, M, N,
                    stride_asm, stride_ask, stride_bsk, stride_bsn, BLOCKED, FAST, PROMOTE, BLOCK_M, BLOCK_N, BLOCK_K,
                )  # fmt: skip
                a_tile += BLOCK_K * stride_ak
                b_tile += BLOCK_K * stride_bk
        row, column = m0 + m, n0 + n
        if not BLOCKED:
            a_row = tl.load(a_scale + row * stride_asm, mask=row < M, other=1.0)
            b_column = tl.load(b_scale + column * stride_bsn, mask=column < N, other=1.0)
            total = total * (1.0 / a_row)[:, None] * (1.0 / b_column)[None, :]
        if bias is not None:
            total += tl.load(bias + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
        place = row.to(tl.int64)[:, None] * N + column[None, :]
        tl.store(c + place, total.to(c.dtype.element_ty), mask=(row < M)[:, None] & (column < N)[None, :])
