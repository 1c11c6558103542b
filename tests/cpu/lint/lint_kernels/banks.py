"""Threads that ask one bank of shared memory for different words, and kernels that do the same without.

From Triton 3.8 on, reductions lay what they exchange out without conflicts.
"""

import triton
import triton.language as tl


@triton.jit
def column_sums_bad(x, y, M, N: tl.constexpr, R: tl.constexpr = 32, B: tl.constexpr = 128):
    r, c = tl.arange(0, R), tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), dtype=tl.float32)
    for first in range(0, M, R):
        rows = first + r
        tile = tl.load(x + rows[:, None] * N + c[None, :], mask=(rows < M)[:, None] & (c < N)[None, :], other=0.0)
        total += tl.sum(tile.to(tl.float32), axis=0)  # finds before 3.8: bank-conflict
    tl.store(y + c, total, mask=c < N)


def run_column_sums_bad(x, y):
    column_sums_bad[(triton.cdiv(y.shape[0], 128),)](x, y, x.shape[0], 4096, num_warps=8)


@triton.jit
def column_sums_good(x, y, M, N: tl.constexpr, R: tl.constexpr = 32, B: tl.constexpr = 128):
    r, c = tl.arange(0, R), tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((R, B), dtype=tl.float32)
    for first in range(0, M, R):
        rows = first + r
        total += tl.load(x + rows[:, None] * N + c[None, :], mask=(rows < M)[:, None] & (c < N)[None, :], other=0.0)
    tl.store(y + c, tl.sum(total, axis=0), mask=c < N)


def run_column_sums_good(x, y):
    column_sums_good[(triton.cdiv(y.shape[0], 128),)](x, y, x.shape[0], 4096, num_warps=8)


@triton.jit
def column_range_bad(x, y, M, N: tl.constexpr, R: tl.constexpr = 16, B: tl.constexpr = 256):
    c = tl.program_id(0) * B + tl.arange(0, B)
    low = tl.full((B,), float("inf"), dtype=tl.float32)
    for first in range(0, M, R):
        rows = first + tl.arange(0, R)
        inside = (rows < M)[:, None] & (c < N)[None, :]
        tile = tl.load(x + rows[:, None] * N + c[None, :], mask=inside, other=float("inf")).to(tl.float32)
        low = tl.minimum(low, tl.min(tile, axis=0))  # finds before 3.8: bank-conflict
    tl.store(y + c, low, mask=c < N)


def run_column_range(x, y):
    column_range_bad[(triton.cdiv(y.shape[0], 256),)](x, y, x.shape[0], 4096, num_warps=4)


@triton.jit
def row_sums_good(x, y, M, N: tl.constexpr, R: tl.constexpr = 32, B: tl.constexpr = 128):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), dtype=tl.float32)
    for first in range(0, N, B):
        c = first + tl.arange(0, B)
        tile = tl.load(x + r[:, None] * N + c[None, :], mask=(r < M)[:, None] & (c < N)[None, :], other=0.0)
        total += tl.sum(tile.to(tl.float32), axis=1)
    tl.store(y + r, total, mask=r < M)


def run_row_sums(x, y):
    row_sums_good[(triton.cdiv(x.shape[0], 32),)](x, y, x.shape[0], 4096, num_warps=8)


@triton.jit
def gram_bad(x, y, M, N: tl.constexpr, B: tl.constexpr = 64, K: tl.constexpr = 64):
    i, j = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for first in range(0, M, K):
        k = first + tl.arange(0, K)
        left = tl.load(x + k[:, None] * N + i[None, :], mask=(k < M)[:, None] & (i < N)[None, :], other=0.0)
        right = tl.load(x + k[:, None] * N + j[None, :], mask=(k < M)[:, None] & (j < N)[None, :], other=0.0)
        left, right = tl.trans(left.to(tl.float32)), right.to(tl.float32)  # finds: bank-conflict
        total = tl.dot(left, right, total, input_precision="tf32")
    tl.store(y + i[:, None] * N + j[None, :], total, mask=(i < N)[:, None] & (j < N)[None, :])


def run_gram_bad(x, y):
    gram_bad[(triton.cdiv(4096, 64), triton.cdiv(4096, 64))](x, y, x.shape[0], 4096, num_warps=4)


@triton.jit
def gram_good(x, y, M, N: tl.constexpr, B: tl.constexpr = 64, K: tl.constexpr = 64):
    i, j = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for first in range(0, M, K):
        k = first + tl.arange(0, K)
        left = tl.load(x + k[:, None] * N + i[None, :], mask=(k < M)[:, None] & (i < N)[None, :], other=0.0)
        right = tl.load(x + k[:, None] * N + j[None, :], mask=(k < M)[:, None] & (j < N)[None, :], other=0.0)
        total = tl.dot(tl.trans(left), right, total)
    tl.store(y + i[:, None] * N + j[None, :], total, mask=(i < N)[:, None] & (j < N)[None, :])


def run_gram_good(x, y):
    gram_good[(triton.cdiv(4096, 64), triton.cdiv(4096, 64))](x, y, x.shape[0], 4096, num_warps=4)


@triton.jit
def transpose_good(x, y, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr = 64):
    r, c = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    inside = (r < M)[:, None] & (c < N)[None, :]
    tile = tl.load(x + r[:, None] * N + c[None, :], mask=inside)
    tl.store(y + c[:, None] * M + r[None, :], tl.trans(tile), mask=tl.trans(inside))


def run_transpose(x, y):
    transpose_good[(triton.cdiv(1024, 64), triton.cdiv(4096, 64))](x, y, 1024, 4096, num_warps=8)
