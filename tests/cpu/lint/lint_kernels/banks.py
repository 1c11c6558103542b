"""Tiles of 32 bits whose threads ask one bank of shared memory for different words, and kernels without."""

import triton
import triton.language as tl


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
def weighted_sum_bad(weights, x, y, M, N: tl.constexpr, H: tl.constexpr = 64, B: tl.constexpr = 64):
    h, j = tl.arange(0, H), tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((H, B), dtype=tl.float32)
    for first in range(0, M, B):
        k = first + tl.arange(0, B)
        weight = tl.load(weights + h[:, None] * M + k[None, :], mask=(k < M)[None, :], other=0.0)
        at = k[:, None] * N + j[None, :]
        row = tl.load(x + at, mask=(k < M)[:, None] & (j < N)[None, :], other=0.0)
        total = tl.dot(weight.to(tl.float32), row.to(tl.float32), total)  # finds: bank-conflict
    tl.store(y + h[:, None] * N + j[None, :], total, mask=(j < N)[None, :])


def run_weighted_sum_bad(weights, x, y):
    weighted_sum_bad[(triton.cdiv(4096, 64),)](weights, x, y, x.shape[0], 4096, num_warps=4)


@triton.jit
def column_sums_bad(x, y, M, N: tl.constexpr, B: tl.constexpr = 64):
    j = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), dtype=tl.float32)
    for first in range(0, M, B):
        k = first + tl.arange(0, B)
        rows = tl.load(x + k[:, None] * N + j[None, :], mask=(k < M)[:, None] & (j < N)[None, :], other=0.0)
        total += tl.sum(rows.to(tl.float32) * total[None, :], 0)  # finds: bank-conflict
    tl.store(y + j, total, mask=j < N)


def run_column_sums_bad(x, y):
    column_sums_bad[(triton.cdiv(4096, 64),)](x, y, x.shape[0], 4096, num_warps=4)


@triton.jit
def column_sums_good(x, y, M, N: tl.constexpr, B: tl.constexpr = 64):
    j = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for first in range(0, M, B):
        k = first + tl.arange(0, B)
        rows = tl.load(x + k[:, None] * N + j[None, :], mask=(k < M)[:, None] & (j < N)[None, :], other=0.0)
        total += rows.to(tl.float32)
    tl.store(y + j, tl.sum(total, 0), mask=j < N)


def run_column_sums_good(x, y):
    column_sums_good[(triton.cdiv(4096, 64),)](x, y, x.shape[0], 4096, num_warps=4)


@triton.jit
def small_sums_good(x, y, M, B: tl.constexpr = 16):
    j = tl.arange(0, B)
    total = tl.load(x + j[:, None] * B + j[None, :]).to(tl.float32)
    for first in range(M):
        row = tl.load(x + first * B + j).to(tl.float32)
        total = tl.where((j == first)[:, None], tl.sum(row[:, None] * total, 0)[None, :], total)
    tl.store(y + j[:, None] * B + j[None, :], total)


def run_small_sums_good(x, y):
    small_sums_good[(1,)](x, y, x.shape[0], num_warps=4)
