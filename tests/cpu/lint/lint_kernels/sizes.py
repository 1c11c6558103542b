"""Sizes that a launch writes out, computes from others, or gives twice, of which no pitfall follows."""

import torch
import triton
import triton.language as tl


@triton.jit
def windows_good(x, w, y, n, K: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), dtype=tl.float32)
    for k in tl.static_range(K):
        total += tl.load(x + at + k, mask=at < n, other=0.0) * tl.load(w + k)
    tl.store(y + at, total, mask=at < n)


def launch_windows(x, w):
    n = x.numel() - w.numel() + 1
    y = torch.empty((n,), device=x.device)
    windows_good[(triton.cdiv(n, 128),)](x, w, y, n, K=w.numel(), B=128)


@triton.jit
def backwards_bad(x, y, T: tl.constexpr):
    at = tl.program_id(0) * T + T - 1 - tl.arange(0, T)
    tl.store(y + at, tl.cumsum(tl.load(x + at).to(tl.float32), axis=0))  # finds: narrow-access


@triton.jit
def squares_good(x, y, M, K, x0, x1, y0, y1, BM: tl.constexpr, BK: tl.constexpr):
    m, k = (tl.program_id(0) * BM + tl.arange(0, BM)) % M, tl.arange(0, BK)
    total = tl.zeros((BM,), dtype=tl.float32)
    for first in range(0, K, BK):
        at = first + k
        tile = tl.load(x + m[:, None] * x0 + at[None, :] * x1, mask=(at < K)[None, :], other=0.0)
        total += tl.sum(tile.to(tl.float32), axis=1)
    tl.store(y + m * y0 + y1, total)


def launch_squares(x, y):
    M = x.shape[0]
    squares_good[(triton.cdiv(M, 64),)](x, y, M, M, x.stride(0), x.stride(1), y.stride(0), y.stride(1), 64, 32)


@triton.jit
def rows_of_a_number_good(x, y, M, K, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BK)
    total = tl.zeros((BM,), dtype=tl.float32)
    for first in range(0, K, BK):
        total += tl.sum(tl.load(x + m[:, None] * K + (first + k)[None, :]).to(tl.float32), axis=1)
    tl.store(y + m, total, mask=m < M)


def run_rows(x, y):
    M, K = 256, 512
    rows_of_a_number_good[(M // 64,)](x, y, M, K, BM=64, BK=128)


@triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 128})], key=["K"])
@triton.jit
def half_of_a_row_good(x, y, K, half, B: tl.constexpr):
    c = tl.arange(0, B)
    total = tl.zeros((B,), dtype=tl.float32)
    for first in range(0, half, B):
        total += tl.load(x + tl.program_id(0) * K + first + c, mask=first + c < half, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(total))


def launch_half(x, y):
    rows, K = x.shape
    half = max(1, K // 2)
    half_of_a_row_good[(rows,)](x, y, K, half)
