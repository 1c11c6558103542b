"""A matrix product of one program for each tile, whose whole text stands in one kernel; and its operation."""

from __future__ import annotations

import triton
import triton.language as tl

from triton_ops import ConfigSpace, Operation, TensorSpec, TritonKernel


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr = 8):
    """C[M, N] = A[M, K] @ B[K, N], all row-major."""
    pid = tl.program_id(0)
    tile_rows, tile_columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP_M * tile_columns) * GROUP_M
    place, here = pid % (GROUP_M * tile_columns), min(tile_rows - first, GROUP_M)
    m0, n0 = (first + place % here) * BM, place // here * BN
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    in_m = m[:, None] < M - m0
    in_n = n[None, :] < N - n0
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        left = tl.load(a + (m0 + m)[:, None] * K + (k0 + k)[None, :], mask=in_m & (k[None, :] < K - k0), other=0.0)
        right = tl.load(b + (k0 + k)[:, None] * N + (n0 + n)[None, :], mask=in_n & (k[:, None] < K - k0), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + (m0 + m)[:, None] * N + (n0 + n)[None, :], total.to(c.dtype.element_ty), mask=in_m & in_n)


def arguments(M: int, N: int, K: int, dtype: str = "bfloat16"):
    """The kernel's arguments by name."""
    a, b, c = (TensorSpec(shape, dtype) for shape in ((M, K), (K, N), (M, N)))
    return {"a": a, "b": b, "c": c, "M": M, "N": N, "K": K}


def grid(meta):
    """One program for each tile."""
    return (triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"]),)


operation = Operation(
    "plain_product",
    TritonKernel(product, grid, outputs=("c",)),
    ConfigSpace({
        "BM": [16, 32, 64, 128, 256], "BN": [32, 64, 128, 256], "BK": [32, 64, 128], "GROUP_M": [8],
        "num_warps": [4, 8], "num_stages": [2, 3, 4, 5],
    }),
    arguments,
    dtypes=("bfloat16", "float16"),
    problems={"4096": ((4096, 4096, 4096), "bfloat16")},
)  # fmt: skip
