"""A matrix product whose long inner dimension is divided among programs, and the sum of their parts: two launches."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from benchmarks.kernels.matmul import product, reference, work
from triton_ops import ConfigSpace, LauncherKernel, Operation

_SUMMED = 1024  # elements per program of the second launch


@triton.jit
def part_kernel(a, b, parts, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """One part of one tile: every SPLIT-th step of the inner dimension."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(part * BK, K, SPLIT * BK):
        at = start + inner
        left = tl.load(a + row[:, None] * K + at[None, :], mask=(row < M)[:, None] & (at < K)[None, :], other=0.0)
        right = tl.load(
            b + column[None, :] * K + at[:, None], mask=(column < N)[None, :] & (at < K)[:, None], other=0.0
        )
        total = tl.dot(left, right, total)
    inside = (row < M)[:, None] & (column < N)[None, :]
    tl.store(parts + part.to(tl.int64) * M * N + row[:, None] * N + column[None, :], total, mask=inside)


@triton.jit
def sum_kernel(parts, c, size, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """C = the sum of all parts."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < size)


def launch(a, b, c, *, BM, BN, BK, SPLIT, num_warps, num_stages):
    """C = a bᵀ; the scratch tensor has one plane for each part."""
    (m, k), n = a.shape, b.shape[0]
    parts = torch.empty((SPLIT, m, n), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(m, BM), triton.cdiv(n, BN), SPLIT)
    part_kernel[grid](a, b, parts, m, n, k, BM, BN, BK, SPLIT, num_warps=num_warps, num_stages=num_stages)
    sum_kernel[(triton.cdiv(m * n, _SUMMED),)](parts, c, m * n, SPLIT, _SUMMED)


def _arguments(M: int = 64, N: int = 4096, K: int = 16384, dtype: str = "bfloat16"):
    return product(M, N, K, dtype)


split_k_matmul = Operation(
    "split_k_matmul",
    LauncherKernel(launch, outputs=("c",)),
    ConfigSpace(
        {
            "BM": [64],
            "BN": [64, 128],
            "BK": [64, 128],
            "SPLIT": [1, 2, 4, 8, 16],
            "num_warps": [4],
            "num_stages": [3, 4],
        },
        default={"BM": 64, "BN": 128, "BK": 64, "SPLIT": 4, "num_warps": 4, "num_stages": 3},
    ),
    _arguments,
    reference=reference,
    work=work,
    dtypes=("bfloat16", "float16"),
    device="cuda",
)
