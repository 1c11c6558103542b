"""Kernels whose masks are given to helpers, whose products have padded operands, and whose padding cancels."""

import triton
import triton.language as tl


@triton.jit
def taken(p, i, mask, other=0.0):
    return tl.load(p + i, mask=mask, other=other)


@triton.jit
def put(p, i, v, mask):
    tl.store(p + i, v, mask=mask)


@triton.jit
def all_of(p, i):
    return tl.load(p + i)  # finds: missing-mask


@triton.jit
def largest(p, i, mask):
    return tl.max(tl.load(p + i, mask=mask, other=0.0), axis=0)  # finds: wrong-identity


@triton.jit
def within(v, i, n):
    return tl.where(i < n, v, 0.0)


@triton.jit
def doubled_good(x, o, n_blocks, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    put(o, i, taken(x, i, mask=i < n_blocks) * 2, mask=i < n_blocks)


@triton.jit
def doubled_bad(x, o, n_blocks, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    put(o, i, all_of(x, i) * 2, mask=i < n_blocks)


@triton.jit
def largest_of_parts_bad(parts, o, n_blocks, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + tl.program_id(0), largest(parts + tl.program_id(0) * n_blocks, i, mask=i < n_blocks))


@triton.jit
def weighted_parts_good(parts, logs, o, n_blocks, D: tl.constexpr, B: tl.constexpr):
    row, i, d = tl.program_id(0).to(tl.int64), tl.arange(0, B), tl.arange(0, D)
    log = taken(logs + row * n_blocks, i, mask=i < n_blocks, other=-float("inf"))
    w = tl.exp(log - tl.max(log, 0))
    v = taken(parts + row * n_blocks * D, i[:, None] * D + d[None, :], mask=(i < n_blocks)[:, None])
    tl.store(o + row * D + d, tl.sum((w / tl.sum(w, 0))[:, None] * v, 0))


@triton.jit
def weighted_parts_bad(parts, logs, o, n_blocks, D: tl.constexpr, B: tl.constexpr):
    row, i, d = tl.program_id(0).to(tl.int64), tl.arange(0, B), tl.arange(0, D)
    log = taken(logs + row * n_blocks, i, mask=i < n_blocks)
    w = tl.exp(log)
    v = taken(parts + row * n_blocks * D, i[:, None] * D + d[None, :], mask=(i < n_blocks)[:, None])
    w = w / tl.sum(w, 0)  # finds: wrong-identity
    tl.store(o + row * D + d, tl.sum(w[:, None] * v, 0))


@triton.jit
def sum_within_good(x, o, n_blocks, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.exp(taken(x + tl.program_id(0) * n_blocks, i, mask=i < n_blocks))
    tl.store(o + tl.program_id(0), tl.sum(within(v, i, n_blocks), 0))


@triton.jit
def sum_within_more_bad(x, o, n_blocks, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.exp(taken(x + tl.program_id(0) * n_blocks, i, mask=i < n_blocks))
    tl.store(o + tl.program_id(0), tl.sum(within(v, i, n_blocks + 1), 0))  # finds: wrong-identity


@triton.jit
def powers_of_one_good(a, b, o, M, K, BM: tl.constexpr, BK: tl.constexpr, N: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.exp(tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0))
        y = tl.load(b + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x.to(y.dtype), y, acc)
    tl.store(o + m[:, None] * N + n[None, :], acc, mask=m[:, None] < M)


@triton.jit
def powers_of_both_bad(a, b, o, M, K, BM: tl.constexpr, BK: tl.constexpr, N: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.exp(tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0))
        y = tl.exp(tl.load(b + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0))
        acc = tl.dot(x, y, acc)  # finds: wrong-identity
    tl.store(o + m[:, None] * N + n[None, :], acc, mask=m[:, None] < M)


@triton.jit
def product_of_a_norm_good(x, w, o, M, K, BM: tl.constexpr, BK: tl.constexpr, N: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N), tl.arange(0, BK)
    v = taken(x, m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K))
    y = taken(w, k[:, None] * N + n[None, :], mask=(k < K)[:, None])
    d = v - (tl.sum(v.to(tl.float32), 1) / K)[:, None]  # of padded lanes too, whose rows of y are 0
    tl.store(o + m[:, None] * N + n[None, :], tl.dot(d.to(y.dtype), y), mask=m[:, None] < M)


@triton.jit
def powers_less_their_padding(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + c, mask=c < n, other=0.0).to(tl.float32)
    tl.store(o + tl.program_id(0), tl.sum(tl.exp(v), 0) - (B - n))


@triton.jit
def powers_less_another_count_bad(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + c, mask=c < n, other=0.0).to(tl.float32)
    tl.store(o + tl.program_id(0), tl.sum(tl.exp(v), 0) - n)  # finds: wrong-identity


@triton.jit
def variance_less_its_padding(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + c, mask=c < n, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = v - mean
    tl.store(o + tl.program_id(0), (tl.sum(d * d, 0) - (B - n) * mean * mean) / n)


@triton.jit
def zeros_less_their_padding(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + c, mask=c < n, other=0.0)
    tl.store(o + tl.program_id(0), tl.sum((v == 0).to(tl.int32), 0) - (B - n))


@triton.jit
def zeros_bad(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + c, mask=c < n, other=0.0)
    tl.store(o + tl.program_id(0), tl.sum((v == 0).to(tl.int32), 0))  # finds: wrong-identity


@triton.jit
def powers_less_a_number(x, o, N: tl.constexpr, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * N + c, mask=c < N, other=0.0).to(tl.float32)
    tl.store(o + tl.program_id(0), tl.sum(tl.exp(v), 0) - (B - N))


def launch_powers_less_a_number(x, o):
    powers_less_a_number[(x.shape[0],)](x, o, N=1000, B=1024)


@triton.jit
def powers_of_blocks_less_their_padding(x, o, n, B: tl.constexpr):
    total = 0.0
    for k in range(tl.cdiv(n, B)):
        c = k * B + tl.arange(0, B)
        v = tl.load(x + tl.program_id(0) * n + c, mask=c < n, other=0.0).to(tl.float32)
        total += tl.sum(tl.exp(v), 0)
    tl.store(o + tl.program_id(0), total - (tl.cdiv(n, B) * B - n))


@triton.jit
def powers_of_blocks_bad(x, o, n, B: tl.constexpr):
    total = 0.0
    for k in range(tl.cdiv(n, B)):
        c = k * B + tl.arange(0, B)
        v = tl.load(x + tl.program_id(0) * n + c, mask=c < n, other=0.0).to(tl.float32)
        total += tl.sum(tl.exp(v), 0)  # finds: wrong-identity
    tl.store(o + tl.program_id(0), total)


@triton.jit
def sum_of_exponentials_from_a_place_bad(x, y, n, k, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(tl.where(at >= k, tl.exp(value), 0.0), axis=0))  # finds: wrong-identity


@triton.jit
def sum_of_exponentials_but_the_first(x, y, n, k, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(tl.where(at < k, 0.0, tl.exp(value)), axis=0))


@triton.jit
def sum_of_exponentials_from_a_place_to_the_end_good(x, y, n, k, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(tl.where((at >= k) & (at < n), tl.exp(value), 0.0), axis=0))
