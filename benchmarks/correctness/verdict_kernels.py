"""Operations on which verdicts are tried: attention and matmul with faults planted by a constant, and kernels without.

A fault is a number, `FAULT`, and 0 is none. Faults of attention are those of `ATTENTION_FAULTS`, in order, from 1 on;
those of matmul are in `MATMUL_FAULTS`.

The references at the end close over their tensors and round between their steps, as tests of kernels often do. Each is
made from the arguments of a kernel, and takes no notice of those that it is called with.
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
def layer_norm_kernel(x, weight, bias, out, N, BLOCK: tl.constexpr):
    """Each row of [rows, N] less its mean, by its standard deviation, scaled and shifted; in pieces of BLOCK."""
    row = tl.program_id(0).to(tl.int64) * N
    mean = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean += tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)
    centre = tl.sum(mean, 0) / N
    spread = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)
        spread += tl.where(at < N, (part - centre) * (part - centre), 0.0)
    scale = 1 / tl.sqrt(tl.sum(spread, 0) / N + 1e-5)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=at < N, other=0.0).to(tl.float32)
        b = tl.load(bias + at, mask=at < N, other=0.0).to(tl.float32)
        tl.store(out + row + at, ((part - centre) * scale * w + b).to(out.dtype.element_ty), mask=at < N)


def by_row(meta: Any) -> tuple[int]:
    """One program per row."""
    return (meta["x"].shape[0],)


def layer_norm_arguments(rows: int = 4096, N: int = 4096, dtype: str = "bfloat16") -> dict:
    """The input, [rows, N], weight and bias, [N], and the result."""
    row = TensorSpec((N,), dtype)
    return {
        "x": TensorSpec((rows, N), dtype), "weight": row, "bias": row,
        "out": TensorSpec((rows, N), dtype, fill="empty"), "N": N,
    }  # fmt: skip


layer_norm = Operation(
    "layer_norm",
    TritonKernel(layer_norm_kernel, by_row, outputs=("out",)),
    {"BLOCK": [1024, 512, 2048, 4096], "num_warps": [4, 8]},
    layer_norm_arguments,
    reference=lambda x, weight, bias, **_: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias),
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


@triton.jit
def row_sum_kernel(x, out, N, BLOCK: tl.constexpr):
    """The sum of each row, in float32."""
    row = tl.program_id(0).to(tl.int64) * N
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


row_sum = Operation(
    "row_sum",
    TritonKernel(row_sum_kernel, by_row, outputs=("out",)),
    {"BLOCK": [1024, 256, 4096], "num_warps": [4, 8]},
    lambda rows=8192, N=5000, dtype="float32": {
        "x": TensorSpec((rows, N), dtype), "out": TensorSpec((rows,), "float32", fill="empty"), "N": N,
    },
    reference=lambda x, out, **_: x.to(out.dtype).sum(-1),
    dtypes=("float32", "bfloat16"),
)  # fmt: skip


@triton.jit
def quantise_kernel(x, out, scale, N, BLOCK: tl.constexpr):
    """Each row by its largest size over 448, as float8, and that scale."""
    row = tl.program_id(0).to(tl.int64) * N
    largest = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.abs(tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)))
    step = tl.max(largest, 0) / 448.0
    tl.store(scale + tl.program_id(0), step)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)
        tl.store(out + row + at, (part / step).to(out.dtype.element_ty), mask=at < N)


def quantise_reference(x, out, scale, N):  # noqa: ARG001 - called with the kernel's arguments
    """The codes and the scales."""
    wide = x.to(scale.dtype)
    step = wide.abs().amax(-1) / 448.0
    return (wide / step[:, None]).to(out.dtype), step


quantise = Operation(
    "quantise",
    TritonKernel(quantise_kernel, by_row, outputs=("out", "scale")),
    {"BLOCK": [1024, 512, 4096], "num_warps": [4, 8]},
    lambda rows=4096, N=4096, dtype="bfloat16": {
        "x": TensorSpec((rows, N), dtype), "out": TensorSpec((rows, N), "float8_e4m3fn", fill="empty"),
        "scale": TensorSpec((rows,), "float32", fill="empty"), "N": N,
    },
    reference=quantise_reference,
    dtypes=("bfloat16", "float16"),
)  # fmt: skip


Reference = Callable[..., torch.Tensor]


def closed_gated_mlp(arguments: Mapping[str, Any]) -> Reference:
    """Both products are rounded before they are joined."""
    x, gate, up = arguments["x"], arguments["gate_weight"], arguments["up_weight"]
    return lambda **_: functional.silu(x @ gate.mT) * (x @ up.mT)


def attention_rounded(arguments: Mapping[str, Any]) -> Reference:
    """As `attention_with_casts`, with scores that are rounded too."""
    return _attention(arguments, lambda each: each)


def attention_with_casts(arguments: Mapping[str, Any]) -> Reference:
    """Causal; scores in float32, probabilities rounded to the dtype of the values; heads may share keys."""
    return _attention(arguments, lambda each: each.float())


def _attention(arguments: Mapping[str, Any], before_scores: Callable[[torch.Tensor], torch.Tensor]) -> Reference:
    q, k, v, scale = arguments["q"], arguments["k"], arguments["v"], arguments["scale"]
    group, hidden = q.shape[1] // k.shape[1], torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    hidden = hidden.triu(1 + k.shape[2] - q.shape[2])

    def reference(**_: Any) -> torch.Tensor:
        keys, values = (each.repeat_interleave(group, 1) for each in (k, v))
        scores = (before_scores(q) @ before_scores(keys).mT).float() * scale
        return scores.masked_fill(hidden, -math.inf).softmax(-1).to(v.dtype) @ values

    return reference


def closed_layer_norm(arguments: Mapping[str, Any]) -> Reference:
    """The normal rows are rounded before they are scaled and shifted."""
    x, weight, bias, eps = arguments["x"], arguments["weight"], arguments["bias"], arguments["eps"]

    def reference(**_: Any) -> torch.Tensor:
        wide = x.float()
        apart = wide - wide.mean(-1, keepdim=True)
        normal = (apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
        return normal * weight + bias

    return reference


def closed_softmax(arguments: Mapping[str, Any]) -> Reference:
    """Every step is rounded."""
    x = arguments["x"]

    def reference(**_: Any) -> torch.Tensor:
        weights = torch.exp(x - x.amax(-1, keepdim=True))
        return weights / weights.sum(-1, keepdim=True)

    return reference


def closed_grouped_matmul(arguments: Mapping[str, Any]) -> Reference:
    """A product for each group, written into a tensor that is closed over too."""
    x, weight, ends = arguments["x"], arguments["weight"], arguments["ends"]
    result = torch.zeros_like(arguments["out"])

    def reference(**_: Any) -> torch.Tensor:
        start = 0
        for group, end in enumerate(ends.tolist()):
            result[start:end] = x[start:end] @ weight[group]
            start = end
        return result

    return reference


def closed_product(arguments: Mapping[str, Any]) -> Reference:
    """One product."""
    a, b = arguments["a"], arguments["b"]
    return lambda **_: a @ b


CLOSED: tuple[tuple[str, tuple[int, ...], str, Callable[[Mapping[str, Any]], Reference]], ...] = (
    ("gated_mlp", (512, 2048, 2048), "bfloat16", closed_gated_mlp),
    ("attention", (1, 8, 2, 1024, 1024, 128, 128, 2), "bfloat16", attention_rounded),
    ("attention", (1, 8, 2, 1024, 1024, 128, 128, 2), "float16", attention_with_casts),
    ("layer_norm", (1024, 4096), "bfloat16", closed_layer_norm),
    ("layer_norm", (1024, 4096), "float16", closed_layer_norm),
    ("softmax", (2048, 4096), "bfloat16", closed_softmax),
    ("softmax", (2048, 4096), "float16", closed_softmax),
    ("grouped_matmul", (1024, 8, 1024, 2048, 2), "float16", closed_grouped_matmul),
)
"""Name of a shipped kernel, shape, dtype, and what makes the reference."""
