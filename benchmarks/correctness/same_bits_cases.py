"""Twelve kernels, each with a space small enough to be run whole, for `benchmarks.correctness.same_bits`.

They write float32 where they can, since rounding to fewer bits hides most differences.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.correctness.verdict_kernels import attention_kernel, matmul_grid, matmul_kernel
from benchmarks.tuning.spaces import rmsnorm_kernel
from benchmarks.tuning.written_kernels import GRIDS, conv_pixels, int4_matmul
from triton_ops import TritonKernel
from triton_ops.space import Config
from triton_ops_kernels.fp8_gemm.kernel import summed
from triton_ops_kernels.grouped_matmul.kernel import grouped_matmul_kernel
from triton_ops_kernels.layer_norm.kernel import layer_norm_backward_kernel, layer_norm_kernel
from triton_ops_kernels.softmax.kernel import softmax_kernel

SHARED_BYTES = 227 * 1024  # of a program of an sm_90
MOST_CONFIGS = 200


@dataclass(frozen=True)
class Case:
    """A kernel, its space, and its arguments by seed and device, of which `outputs` are written."""

    kernel: TritonKernel
    values: Mapping[str, tuple[Any, ...]]
    arguments: Callable[[int, str], dict[str, Any]]
    fits: Callable[[Mapping[str, Any]], bool] = lambda _: True

    @property
    def configs(self) -> list[Config]:
        """The configs that fit, thinned out evenly where they are many."""
        every = [dict(zip(self.values, each, strict=True)) for each in itertools.product(*self.values.values())]
        fitting = [Config(each) for each in every if self.fits(each)]
        return fitting[:: math.ceil(len(fitting) / MOST_CONFIGS)]


@triton.jit
def cross_entropy_kernel(logits, labels, losses, gradient, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """The loss of each row and its gradient, by chunks: the largest logit and the sum of exponentials first."""
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    label = tl.load(labels + row)
    highest = float("-inf")
    total = 0.0
    for first in range(0, COLUMNS, BLOCK):
        column = first + lane
        part = tl.load(logits + row * COLUMNS + column, mask=column < COLUMNS, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(part, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(part - higher), 0)
        highest = higher
    chosen = tl.load(logits + row * COLUMNS + label).to(tl.float32)
    tl.store(losses + row, highest + tl.log(total) - chosen)
    for first in range(0, COLUMNS, BLOCK):
        column = first + lane
        part = tl.load(logits + row * COLUMNS + column, mask=column < COLUMNS, other=0.0).to(tl.float32)
        found = tl.exp(part - highest) / total - tl.where(column == label, 1.0, 0.0)
        tl.store(gradient + row * COLUMNS + column, found.to(gradient.dtype.element_ty), mask=column < COLUMNS)


@triton.jit
def running_sum_kernel(x, out, totals, rows, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of each row up to each column, by chunks, each of which begins with the sum of those before; and all."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    before = tl.zeros((ROWS,), tl.float32)
    lane = tl.arange(0, BLOCK)[None, :]
    for first in range(0, COLUMNS, BLOCK):
        column = first + lane
        inside = (row < rows)[:, None] & (column < COLUMNS)
        part = tl.load(x + row[:, None] * COLUMNS + column, mask=inside, other=0.0)
        summed_up = tl.cumsum(tl.where(lane == 0, part + before[:, None], part), 1)
        tl.store(out + row[:, None] * COLUMNS + column, summed_up, mask=inside)
        before = tl.sum(tl.where(lane == BLOCK - 1, summed_up, 0.0), 1)
    tl.store(totals + row, before, mask=row < rows)


@triton.jit
def fp8_product_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROMOTE: tl.constexpr, FAST: tl.constexpr
):  # fmt: skip
    """C[M, N] = A[M, K] @ B[N, K].T of 8-bit floats, with sums that are promoted, or not."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total = summed(left, right, total, FAST, PROMOTE, BM, BN, BK)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def drawn(seed: int, device: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Normal numbers; with every third seed some outliers, and with every third numbers of all sizes."""
    torch.manual_seed(seed * 1000 + sum(shape))
    found = torch.randn(*shape, device=device)
    if seed % 3 == 1:
        found = torch.where(torch.rand(*shape, device=device) < 0.01, found * 50, found)
    elif seed % 3 == 2:
        found = found * torch.exp2(torch.randint(-6, 4, shape, device=device).float())
    return found.to(dtype)


def _product(seed: int, device: str) -> dict[str, Any]:
    M, N, K = 500, 512, 1096
    c = torch.empty(M, N, device=device)
    return {"a": drawn(seed, device, M, K), "b": drawn(seed, device, K, N), "c": c, "M": M, "N": N, "K": K}


def _int4_product(seed: int, device: str) -> dict[str, Any]:
    M, N, K, group = 60, 512, 1024, 128
    packed = torch.randint(-(1 << 31), (1 << 31) - 1, (K // 8, N), device=device, dtype=torch.int32)
    return {
        "a": drawn(seed, device, M, K, dtype=torch.float16), "packed": packed,
        "scales": drawn(seed, device, K // group, N, dtype=torch.float16) / 100,
        "c": torch.empty(M, N, device=device, dtype=torch.float16), "M": M, "N": N, "K": K, "GROUP_K": group,
    }  # fmt: skip


def _convolution(seed: int, device: str) -> dict[str, Any]:
    images, side, channels, filters = 2, 14, 96, 128
    half = torch.float16
    return {
        "x": drawn(seed, device, images, side, side, channels, dtype=half),
        "w": drawn(seed, device, 9 * channels, filters, dtype=half) / 10,
        "y": torch.empty(images, side, side, filters, device=device, dtype=half),
        "images": images, "height": side, "width": side, "channels": channels, "filters": filters,
    }  # fmt: skip


def _attention(seed: int, device: str) -> dict[str, Any]:
    shape = (1, 4, 512, 64)
    q, k, v = (drawn(seed + 100 * nth, device, *shape) for nth in range(3))
    out = torch.empty(shape, device=device)
    return {"q": q, "k": k, "v": v, "out": out, "S": 512, "scale": 0.125, "D": 64}


def _rows(seed: int, device: str, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(seed, device, rows, columns), torch.empty(rows, columns, device=device)


def _softmax(seed: int, device: str) -> dict[str, Any]:
    x, out = _rows(seed, device, 64, 3000)
    return {"x": x, "out": out, "rows": 64, "COLUMNS": 3000}


def _layer_norm(seed: int, device: str) -> dict[str, Any]:
    x, out = _rows(seed, device, 64, 3000)
    weight, bias = drawn(seed + 10, device, 3000), drawn(seed + 20, device, 3000)
    return {"x": x, "weight": weight, "bias": bias, "out": out, "rows": 64, "eps": 1e-5, "COLUMNS": 3000}


def _rmsnorm(seed: int, device: str) -> dict[str, Any]:
    x, out = _rows(seed, device, 64, 3072)
    return {"x": x, "weight": drawn(seed + 10, device, 3072), "out": out, "rows": 64, "N": 3072}


def _layer_norm_backward(seed: int, device: str) -> dict[str, Any]:
    x, dx = _rows(seed, device, 512, 1000)
    partial = torch.empty(2, 8, 1000, device=device)
    return {
        "x": x, "weight": drawn(seed + 10, device, 1000), "grad": drawn(seed + 20, device, 512, 1000), "dx": dx,
        "partial": partial, "rows": 512, "eps": 1e-5, "COLUMNS": 1000,
    }  # fmt: skip


def _cross_entropy(seed: int, device: str) -> dict[str, Any]:
    logits, gradient = _rows(seed, device, 64, 5000)
    labels = torch.randint(0, 5000, (64,), device=device)
    losses = torch.empty(64, device=device)
    return {"logits": logits, "labels": labels, "losses": losses, "gradient": gradient, "COLUMNS": 5000}


def _running_sum(seed: int, device: str) -> dict[str, Any]:
    x = drawn(seed, device, 64, 3000, dtype=torch.float32)
    return {"x": x, "out": torch.empty_like(x), "totals": torch.empty_like(x[:, 0]), "rows": 64, "COLUMNS": 3000}


def _fp8_product(seed: int, device: str) -> dict[str, Any]:
    M, N, K = 256, 256, 1024
    a, b = (drawn(seed + nth, device, 256, K, dtype=torch.float8_e4m3fn) for nth in (0, 100))
    return {"a": a, "b": b, "c": torch.empty(M, N, device=device), "M": M, "N": N, "K": K}


def _grouped_product(seed: int, device: str) -> dict[str, Any]:
    M, N, K, groups = 512, 256, 640, 4
    return {
        "x": drawn(seed, device, M, K), "weight": drawn(seed, device, groups, N, K),
        "out": torch.empty(M, N, device=device),
        "ends": torch.tensor([100, 228, 300, M], dtype=torch.int32).to(device), "gather": None, "M": M, "N": N, "K": K,
        "stride_xm": K, "stride_xk": 1, "stride_wg": N * K, "stride_wk": 1, "stride_wn": K, "GROUPS": groups,
        "BLOCK_G": groups, "EVEN": True, "ALONG_K": True, "PRECISION": "tf32", "GROUP_SIZE_M": 8,
    }  # fmt: skip


def _sides(*names: str, item: int = 2) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a product's operands fit in shared memory, and its sums in registers."""

    def fits(at: Mapping[str, Any]) -> bool:
        rows, columns, depth = (at[name] for name in names)
        sums = rows * columns // (32 * at["num_warps"])
        return bool((rows + columns) * depth * item * at["num_stages"] <= SHARED_BYTES and 4 <= sums <= 128)

    return fits


_BLOCKED = {"BLOCK_SIZE": (128, 256, 512, 1024, 2048, 4096), "ROWS": (1, 2, 4), "num_warps": (1, 2, 4, 8, 16)}
_TILES = {"BM": (16, 64, 128), "BN": (32, 64, 128, 256), "BK": (32, 64, 128), "num_warps": (4, 8), "num_stages": (2, 4)}
_EACH = lambda at: at["ROWS"] * at.get("BLOCK_SIZE", at.get("BLOCK")) <= 256 * 32 * at["num_warps"]  # noqa: E731


def _by_row(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(64, meta.get("ROWS", 1)),)


CASES: dict[str, Case] = {
    "product": Case(
        TritonKernel(matmul_kernel, matmul_grid, outputs=("c",)), _TILES, _product, _sides("BM", "BN", "BK")
    ),
    "int4_product": Case(
        TritonKernel(
            int4_matmul, lambda at: (triton.cdiv(60, at["BLOCK_M"]), triton.cdiv(512, at["BLOCK_N"])), outputs=("c",)
        ),
        {"BLOCK_M": (16, 32, 64), "BLOCK_N": (64, 128, 256), "BLOCK_K": (32, 64, 128), "num_warps": (4, 8),
         "num_stages": (2, 3, 4)},
        _int4_product, _sides("BLOCK_M", "BLOCK_N", "BLOCK_K"),
    ),
    "convolution": Case(
        TritonKernel(conv_pixels, lambda at: GRIDS["conv_pixels"](at, 2, 14, 14, 128), outputs=("y",)),
        _TILES, _convolution, _sides("BM", "BN", "BK"),
    ),
    "attention": Case(
        TritonKernel(
            attention_kernel, lambda at: (triton.cdiv(512, at["BM"]), 4), outputs=("out",)),
        {"BM": (16, 32, 64, 128), "BN": (16, 32, 64, 128), "num_warps": (4, 8), "num_stages": (1, 2, 3)}, _attention,
    ),
    "softmax": Case(TritonKernel(softmax_kernel, _by_row, outputs=("out",)), _BLOCKED, _softmax, _EACH),
    "layer_norm": Case(
        TritonKernel(layer_norm_kernel, _by_row, outputs=("out",)), {**_BLOCKED, "SPREAD": (False, True)},
        _layer_norm, _EACH,
    ),
    "rmsnorm": Case(
        TritonKernel(rmsnorm_kernel, _by_row, outputs=("out",)),
        {"BLOCK": (256, 512, 1024, 2048), "ROWS": (1, 2, 4), "num_warps": (1, 2, 4, 8), "num_stages": (1, 3)},
        _rmsnorm, _EACH,
    ),
    "layer_norm_backward": Case(
        TritonKernel(layer_norm_backward_kernel, lambda _: (8,), outputs=("dx", "partial")),
        {"BLOCK_SIZE": (1024,), "ROWS": (1, 2, 4, 8, 16), "STAGES": (1, 2, 3), "num_warps": (1, 2, 4, 8, 16)},
        _layer_norm_backward, lambda at: at["ROWS"] * at["BLOCK_SIZE"] <= 64 * 32 * at["num_warps"],
    ),
    "cross_entropy": Case(
        TritonKernel(cross_entropy_kernel, lambda _: (64,), outputs=("losses", "gradient")),
        {"BLOCK": (128, 256, 512, 1024, 2048, 4096, 8192), "num_warps": (1, 2, 4, 8, 16), "num_stages": (1, 2, 3)},
        _cross_entropy, lambda at: at["BLOCK"] <= 256 * 32 * at["num_warps"],
    ),
    "running_sum": Case(
        TritonKernel(running_sum_kernel, _by_row, outputs=("out", "totals")),
        {"BLOCK": (64, 128, 256, 512, 1024), "ROWS": (1, 2, 4), "num_warps": (1, 2, 4, 8), "num_stages": (1, 3)},
        _running_sum, _EACH,
    ),
    "fp8_product": Case(
        TritonKernel(fp8_product_kernel, matmul_grid, outputs=("c",)),
        {"BM": (64, 128), "BN": (32, 64, 128, 256), "BK": (64, 128, 256), "PROMOTE": (0, 128), "FAST": (True, False),
         "num_warps": (4, 8), "num_stages": (3,)},
        _fp8_product, _sides("BM", "BN", "BK", item=1),
    ),
    "grouped_product": Case(
        TritonKernel(
            grouped_matmul_kernel,
            lambda at: ((512 // at["BLOCK_M"] + 4) * triton.cdiv(256, at["BLOCK_N"]),) if not at["PROGRAMS"] else (16,),
            outputs=("out",),
        ),
        {"BLOCK_M": (16, 64, 128), "BLOCK_N": (64, 128), "BLOCK_K": (32, 64, 128), "DESCRIPTORS": (False, True),
         "PROGRAMS": (0, 1), "num_warps": (4, 8), "num_stages": (2, 4)},
        _grouped_product, _sides("BLOCK_M", "BLOCK_N", "BLOCK_K"),
    ),
}  # fmt: skip
"""The kernels by name. Rows and extents are no multiples of most tiles, so that masks count."""
