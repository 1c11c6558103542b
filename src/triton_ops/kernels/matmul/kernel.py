"""The Triton kernel: one program computes one BM by BN tile of C = A @ B, walking K in steps of BK.

No TMA and no persistent grid: plain pointer loads, which run on every GPU that Triton knows and take any strides.
"""

from triton_ops._optional import require
from triton_ops.kernels.jit import tile_of

triton = require("triton", "the matmul kernel")
tl = require("triton.language", "the matmul kernel")


def grid(meta):
    """One program per tile of C, in one axis."""
    return (triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"]),)


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP_M: tl.constexpr = 8,
):
    """C[M, N] = A[M, K] @ B[K, N]; float32 accumulator, rounded once to C's dtype; strides in elements."""
    tile_row, tile_column = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP_M)
    m0, n0 = tile_row * BM, tile_column * BN

    # A tile's corner is addressed in 64 bits, since M * K may pass 2^31; inside the tile 32 bits do, and keep the
    # registers for the accumulator.
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_tile = a + m0.to(tl.int64) * stride_am + (m[:, None] * stride_am + k[None, :] * stride_ak)
    b_tile = b + n0.to(tl.int64) * stride_bn + (k[:, None] * stride_bk + n[None, :] * stride_bn)
    in_m = m[:, None] < M - m0
    in_n = n[None, :] < N - n0

    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        left = tl.load(a_tile, mask=in_m & (k[None, :] < K - k0), other=0.0)
        right = tl.load(b_tile, mask=in_n & (k[:, None] < K - k0), other=0.0)
        accumulator = tl.dot(left, right, accumulator)
        a_tile += BK * stride_ak
        b_tile += BK * stride_bk

    corner = c + m0.to(tl.int64) * stride_cm + n0.to(tl.int64) * stride_cn
    c_tile = corner + (m[:, None] * stride_cm + n[None, :] * stride_cn)
    tl.store(c_tile, accumulator.to(c.dtype.element_ty), mask=in_m & in_n)
