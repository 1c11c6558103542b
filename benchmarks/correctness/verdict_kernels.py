"""Operations on which verdicts are tried: attention and matmul with faults planted by a constant, and kernels without.

A fault is a number, `FAULT`, and 0 is none. Faults of attention are those of `ATTENTION_FAULTS`, in order, from 1 on;
those of matmul are in `MATMUL_FAULTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional

from triton_ops import Operation, TensorSpec, TritonKernel, Work

ATTENTION_FAULTS = (
    "last block dropped", "last key dropped", "causal off by one", "no rescale", "stale probabilities", "scale 1 % off",
    "probabilities in float8", "bfloat16 accumulator", "values flipped",
)  # fmt: skip
MATMUL_FAULTS = ("mask of K off by one", "mask of M off by one", "last block dropped", "bfloat16 accumulator")


@triton.jit
def attention_kernel(  # noqa: C901 - one branch for each fault
    q, k, v, out, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FAULT: tl.constexpr = 0
):  # fmt: skip
    """Causal attention over [heads, S, D]; float32 accumulators, probabilities in V's dtype; or the fault."""
    m0 = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM  # the longest rows first
    base = tl.program_id(1).to(tl.int64) * S * D
    m = m0 + tl.arange(0, BM)
    n = tl.arange(0, BN)
    d = tl.arange(0, D)
    queries = tl.load(q + base + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    factor = scale * 1.4426950408889634
    if FAULT == 6:
        factor = factor * 1.01
    highest = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    before = tl.zeros((BM, BN), tl.float32)
    end = min(m0 + BM, S)
    if FAULT == 1:
        end = min(end, S - BN)
    for start in range(0, end, BN):
        column = start + n
        inside = column < S
        keys = tl.load(k + base + column[None, :] * D + d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(queries, keys) * factor
        seen = (column[None, :] <= m[:, None]) & inside[None, :]
        if FAULT == 2:
            seen = seen & (column[None, :] != S - 1)
        if FAULT == 3:
            seen = ((column[None, :] < m[:, None]) | (column[None, :] == 0)) & inside[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        rescale = tl.exp2(highest - higher)
        p = tl.exp2(scores - higher[:, None])
        weight = weight * rescale + tl.sum(p, 1)
        if FAULT == 5:
            fresh = p
            p = tl.where((n[None, :] < 16) & (start == 2 * BN), before, p)
            before = fresh
        if FAULT == 7:
            p = p.to(tl.float8e4nv).to(tl.float32)
        if FAULT != 4:
            total = total * rescale[:, None]
        row = column
        if FAULT == 9:
            row = tl.where(start == BN, start + BN - 1 - n, column)
        values = tl.load(v + base + row[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(p.to(values.dtype), values, total)
        if FAULT == 8:
            total = total.to(tl.bfloat16).to(tl.float32)
        highest = higher
    result = total / weight[:, None]
    tl.store(out + base + m[:, None] * D + d[None, :], result.to(out.dtype.element_ty), mask=m[:, None] < S)


def attention_grid(meta: Any) -> tuple[int, int]:
    """One program for each block of rows of each head."""
    batch, heads, length, _ = meta["q"].shape
    return (triton.cdiv(length, meta["BM"]), batch * heads)


def attention_arguments(B: int = 4, H: int = 32, S: int = 4096, D: int = 128, dtype: str = "bfloat16") -> dict:
    """Queries, keys, values and the result, [B, H, S, D]."""
    spec = TensorSpec((B, H, S, D), dtype)
    return {
        "q": spec, "k": spec, "v": spec, "out": TensorSpec((B, H, S, D), dtype, fill="empty"),
        "S": S, "scale": 1 / math.sqrt(D), "D": D,
    }  # fmt: skip


def attention_reference(q, k, v, out, S, scale, D):  # noqa: ARG001 - called with the kernel's arguments
    """Torch's fused attention, in the precision of its inputs."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


attention = Operation(
    "attention",
    TritonKernel(attention_kernel, attention_grid, outputs=("out",)),
    {"BM": [128, 32, 64, 256], "BN": [64, 16, 32, 128], "num_warps": [8, 4], "num_stages": [2, 1, 3, 4, 5]},
    attention_arguments,
    reference=attention_reference,
    dtypes=("bfloat16", "float16"),
)


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FAULT: tl.constexpr = 0
):  # fmt: skip
    """C[M, N] = A[M, K] @ B[K, N], row-major, float32 accumulator, products in TF32 for float32; or the fault."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = K
    if FAULT == 1:
        inner = K - 1
    if FAULT == 3:
        inner = K - BK
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < inner), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < inner) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        if FAULT == 4:
            total = total.to(tl.bfloat16).to(tl.float32)
    rows = M
    if FAULT == 2:
        rows = M - 1
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < rows) & (n[None, :] < N))


def matmul_grid(meta: Any) -> tuple[int, int]:
    """One program per tile."""
    return (triton.cdiv(meta["M"], meta["BM"]), triton.cdiv(meta["N"], meta["BN"]))


def matmul_arguments(M: int = 1024, N: int = 1024, K: int = 1000, dtype: str = "bfloat16") -> dict:
    """A, B and C, row-major."""
    return {
        "a": TensorSpec((M, K), dtype), "b": TensorSpec((K, N), dtype), "c": TensorSpec((M, N), dtype, fill="empty"),
        "M": M, "N": N, "K": K,
    }  # fmt: skip


product = Operation(
    "product",
    TritonKernel(matmul_kernel, matmul_grid, outputs=("c",)),
    {"BM": [64, 32, 128], "BN": [64, 128], "BK": [32, 64], "num_warps": [4, 8]},
    matmul_arguments,
    reference=lambda a, b, **_: a @ b,
    work=lambda problem: Work(2.0 * problem["M"] * problem["N"] * problem["K"]),
    dtypes=("bfloat16", "float16", "float32"),
)


@triton.jit
def gelu_kernel(x, out, N, BLOCK: tl.constexpr):
    """The error-function form of gelu."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
    result = 0.5 * part * (1 + tl.erf(part * 0.7071067811865476))
    tl.store(out + at, result.to(out.dtype.element_ty), mask=at < N)


gelu = Operation(
    "gelu",
    TritonKernel(gelu_kernel, lambda meta: (triton.cdiv(meta["N"], meta["BLOCK"]),), outputs=("out",)),
    {"BLOCK": [1024, 256, 512, 4096], "num_warps": [4, 8]},
    lambda N=1 << 22, dtype="float32": {
        "x": TensorSpec((N,), dtype), "out": TensorSpec((N,), dtype, fill="empty"), "N": N,
    },
    reference=lambda x, **_: torch.nn.functional.gelu(x),
    dtypes=("float32", "bfloat16", "float16"),
)  # fmt: skip


def closed_gated_mlp(arguments: Mapping[str, Any]) -> Callable[..., torch.Tensor]:
    """A reference that closes over its tensors; both products are rounded before they are joined."""
    x, gate, up = arguments["x"], arguments["gate_weight"], arguments["up_weight"]
    return lambda **_: functional.silu(x @ gate.mT) * (x @ up.mT)
