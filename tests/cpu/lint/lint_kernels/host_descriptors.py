"""Kernels whose tensor descriptors are made on the host; their blocks are nowhere in the file."""

import triton
import triton.language as tl


@triton.jit
def product_good(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([m, k]), b.load([k, n]), total)
    c.store([m, n], total.to(tl.float16))


@triton.jit
def half_product_bad(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float16)
    for k in range(0, K, BK):  # finds: low-precision-sum
        total += tl.dot(a.load([m, k]), b.load([k, n]), out_dtype=tl.float16)  # finds: low-precision-sum
    c.store([m, n], total)


@triton.jit
def tile_of(source, row, column):
    return source.load([row, column])


@triton.jit
def softmax_of_tiles_bad(x, y, N, M, B: tl.constexpr):
    row = tl.program_id(0) * B
    most = tl.full((B,), -1e30, tl.float32)
    total = tl.zeros((B,), tl.float32)
    for column in range(0, N, B):
        tile = tile_of(x, row, column).to(tl.float32)  # 0 beyond the end
        now = tl.maximum(most, tl.max(tile, 1))  # finds: wrong-identity
        total = total * tl.exp(most - now) + tl.sum(tl.exp(tile - now[:, None]), 1)  # finds: wrong-identity
        most = now
    tl.store(y + row + tl.arange(0, B), total, mask=row + tl.arange(0, B) < M)


@triton.jit
def softmax_up_to_an_argument(x, y, N, M, B: tl.constexpr):
    row, at = tl.program_id(0) * B, tl.arange(0, B)
    most = tl.full((B,), -1e30, tl.float32)
    total = tl.zeros((B,), tl.float32)
    for column in range(0, N, B):
        tile = tl.where((column + at < N)[None, :], x.load([row, column]).to(tl.float32), -1e30)
        now = tl.maximum(most, tl.max(tile, 1))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(tile - now[:, None]), 1)
        most = now
    tl.store(y + row + at, total, mask=row + at < M)


@triton.jit
def mixed_bad(x, y, bias, M, N, B: tl.constexpr):
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    at = column + tl.arange(0, B)
    added = tl.load(bias + at, mask=at < N, other=0.0)
    kept = tl.load(y + at)  # finds: missing-mask
    y_row = x.load([row, column]) + added[None, :] + kept[None, :]
    x.store([row, column], y_row)
