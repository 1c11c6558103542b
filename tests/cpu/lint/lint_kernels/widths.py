"""Loads and stores that move few bytes at a time, and those that look so and are not."""

import triton
import triton.language as tl


@triton.jit
def interleaved_bad(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    even = tl.load(x + 2 * at, mask=at < n, other=0.0)  # finds: narrow-access
    odd = tl.load(x + 2 * at + 1, mask=at < n, other=0.0)  # finds: narrow-access
    tl.store(y + at, even * odd, mask=at < n)


@triton.jit
def split_good(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * 2 * B + tl.arange(0, 2 * B)
    even, odd = tl.split(tl.reshape(tl.load(x + at, mask=at < 2 * n, other=0.0), (B, 2)))
    out = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + out, even * odd, mask=out < n)


@triton.jit
def after_a_header_bad(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + 1 + at, mask=at < n, other=0.0)  # finds: narrow-access, wrong-mask
    tl.store(y + at, value * 2, mask=at < n)


@triton.jit
def all_but_the_last_bad(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n - 1, other=0.0)  # finds: narrow-access
    tl.store(y + at, value * 2, mask=at < n)


@triton.jit
def column_of_a_table_bad(x, y, n, W: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at * 24 + W, mask=at < n, other=0.0), mask=at < n)  # finds: narrow-access


@triton.jit
def neighbours_good(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    before = tl.load(x + at - 1, mask=(at > 0) & (at < n), other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, value - before, mask=at < n)


@triton.jit
def plain_strides_good(x, y, M, N, sm, sn, B: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], tl.load(x + m[:, None] * sm + n[None, :] * sn, mask=inside), mask=inside)


@triton.jit
def transposed_good(x, y, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(y + n[None, :] * M + m[:, None], tl.load(x + m[:, None] * N + n[None, :], mask=inside), mask=inside)


@triton.jit
def many_stages_bad(  # finds: lost-occupancy
    q, k, v, y, T, B: tl.constexpr = 64, BT: tl.constexpr = 64, D: tl.constexpr = 128
):
    row, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    own = tl.load(q + row[:, None] * D + d[None, :], mask=(row < T)[:, None], other=0.0)
    total = tl.zeros((B, D), dtype=tl.float32)
    for first in range(0, T, BT):
        at = first + tl.arange(0, BT)
        keys = tl.load(k + at[None, :] * D + d[:, None], mask=(at < T)[None, :], other=0.0)
        values = tl.load(v + at[:, None] * D + d[None, :], mask=(at < T)[:, None], other=0.0)
        total += tl.dot(tl.dot(own, keys).to(values.dtype), values)
    tl.store(y + row[:, None] * D + d[None, :], total, mask=(row < T)[:, None])


def run_many_stages(q, k, v, y):
    many_stages_bad[(triton.cdiv(q.shape[0], 64),)](q, k, v, y, q.shape[0], num_warps=4, num_stages=4)


@triton.jit
def few_stages_good(q, k, v, y, T, B: tl.constexpr = 64, BT: tl.constexpr = 64, D: tl.constexpr = 128):
    row, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    own = tl.load(q + row[:, None] * D + d[None, :], mask=(row < T)[:, None], other=0.0)
    total = tl.zeros((B, D), dtype=tl.float32)
    for first in range(0, T, BT):
        at = first + tl.arange(0, BT)
        keys = tl.load(k + at[None, :] * D + d[:, None], mask=(at < T)[None, :], other=0.0)
        values = tl.load(v + at[:, None] * D + d[None, :], mask=(at < T)[:, None], other=0.0)
        total += tl.dot(tl.dot(own, keys).to(values.dtype), values)
    tl.store(y + row[:, None] * D + d[None, :], total, mask=(row < T)[:, None])


def run_few_stages(q, k, v, y):
    few_stages_good[(triton.cdiv(q.shape[0], 64),)](q, k, v, y, q.shape[0], num_warps=4, num_stages=3)


@triton.jit
def sums_of_windows_good(x, y, N: tl.constexpr, W: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < N - W + 1
    total = tl.zeros((B,), dtype=tl.float32)
    for k in range(W):
        total += tl.load(x + at + k, mask=inside, other=0.0)
    tl.store(y + tl.program_id(0), tl.max(tl.where(inside, total, -float("inf"))))


def launch_windows(x, y, n, width):
    sums_of_windows_good[(triton.cdiv(n - width + 1, 1024),)](x, y, n, width, 1024)
