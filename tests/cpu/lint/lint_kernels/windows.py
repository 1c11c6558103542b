"""Windows, caches and chunks: masks that leave out what another load, a switch or the order of programs gives."""

import torch
import triton
import triton.language as tl


@triton.jit
def window_good(x, weight, y, T, D, W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, BW: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    w = tl.arange(0, BW) + W - BW
    taps = tl.load(weight + d[:, None] * W + w[None, :], mask=(d < D)[:, None] & (w >= 0)[None, :], other=0.0)
    total = tl.zeros((BT, BD), dtype=tl.float32)
    for i in tl.static_range(0, W):
        at = t + i - W + 1
        inside = (at >= 0)[:, None] & (at < T)[:, None] & (d < D)[None, :]
        tap = tl.sum(taps * (w == i)[None, :], 1)
        total += tl.load(x + at[:, None] * D + d[None, :], mask=inside, other=0.0) * tap[None, :]
    tl.store(y + t[:, None] * D + d[None, :], total, mask=(t < T)[:, None] & (d < D)[None, :])


@triton.jit
def shifted_cache_good(x, cache, weight, y, D: tl.constexpr, W: tl.constexpr, BD: tl.constexpr, BW: tl.constexpr):
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    w = tl.arange(0, BW)
    new = tl.load(x + tl.program_id(1) * D + d, mask=d < D, other=0.0)
    kept = tl.load(cache + d[:, None] * W + (w + 1)[None, :], mask=(d < D)[:, None] & (w + 1 < W)[None, :], other=0.0)
    kept = tl.where((w == W - 1)[None, :], new[:, None], kept)
    taps = tl.load(weight + d[:, None] * W + w[None, :], mask=(d < D)[:, None] & (w < W)[None, :], other=0.0)
    tl.store(y + tl.program_id(1) * D + d, tl.sum(kept * taps, 1), mask=d < D)


def run_shifted_cache(x, cache, weight, y):
    D, W = weight.shape[0], weight.shape[1]
    shifted_cache_good[(triton.cdiv(D, 64), x.shape[0])](x, cache, weight, y, D, W, BD=64, BW=triton.next_power_of_2(W))


@triton.jit
def switched_store_good(x, y, total, N, V, B: tl.constexpr, SPLIT: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * B + tl.arange(0, B)
    result = tl.sum(tl.load(x + row * V + at, mask=at < V, other=0.0).to(tl.float32))
    tl.store(y + part * N + row, result)
    if not SPLIT:  # there is one part
        tl.store(total + row, result)


@triton.jit
def unswitched_store_bad(x, y, total, N, V, B: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * B + tl.arange(0, B)
    result = tl.sum(tl.load(x + row * V + at, mask=at < V, other=0.0).to(tl.float32))
    tl.store(y + part * N + row, result)
    tl.store(total + row, result)  # finds: overlapping-writes


@triton.jit
def blocks_before_good(x, y, T, D: tl.constexpr, B: tl.constexpr):
    own = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    total = tl.load(x + own[:, None] * D + d[None, :], mask=(own < T)[:, None], other=0.0).to(tl.float32)
    for first in range(0, tl.program_id(0) * B, B):
        before = first + tl.arange(0, B)
        total += tl.load(x + before[:, None] * D + d[None, :])
    tl.store(y + own[:, None] * D + d[None, :], total, mask=(own < T)[:, None])


@triton.jit
def blocks_up_to_its_own_bad(x, y, T, D: tl.constexpr, B: tl.constexpr):
    own = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    total = tl.load(x + own[:, None] * D + d[None, :], mask=(own < T)[:, None], other=0.0).to(tl.float32)
    total += tl.load(y + own[:, None] * D + d[None, :])  # finds: missing-mask
    tl.store(y + own[:, None] * D + d[None, :], total, mask=(own < T)[:, None])


@triton.jit
def rows_without_any_key_good(q, k, y, C, T, D: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr):
    row, column, d = tl.program_id(0) * BC + tl.arange(0, BC), tl.arange(0, BT), tl.arange(0, D)
    own = tl.load(q + row[:, None] * D + d[None, :], mask=(row < C)[:, None], other=0.0)
    most = tl.full((BC,), -1e6, dtype=tl.float32)
    total = tl.zeros((BC,), dtype=tl.float32)
    for first in range(0, T, BT):
        at = first + column
        key = tl.load(k + at[None, :] * D + d[:, None], mask=(at < T)[None, :], other=0.0)
        score = tl.dot(own, key)
        score = tl.where(T - C - first + row[:, None] - column[None, :] < 1, -1e6, score)
        now = tl.maximum(most, tl.max(score, axis=1))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(score - now[:, None]), axis=1)
        most = now
    tl.store(y + row, total, mask=row < C)


@triton.jit
def powers_good(a, y, T, B: tl.constexpr):
    t, i = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    lower = tl.load(a + t[:, None] * B + i[None, :], mask=(t < T)[:, None] & (i < B)[None, :], other=0.0)
    lower = tl.where(i[:, None] > i[None, :], lower, 0.0)
    one = (i[:, None] == i[None, :]).to(lower.dtype)
    second = tl.dot(lower, lower).to(lower.dtype)
    fourth = tl.dot(second, second).to(lower.dtype)
    eighth = tl.dot(fourth, fourth).to(lower.dtype)
    result = tl.dot(one + lower, one + second).to(lower.dtype)
    result = tl.dot(tl.dot(result, one + fourth).to(lower.dtype), one + eighth)
    tl.store(y + t[:, None] * B + i[None, :], result, mask=(t < T)[:, None])


@triton.jit
def mean_of_a_block_good(x, y, V: tl.constexpr, BV: tl.constexpr):
    v, within = tl.program_id(0) * BV + tl.arange(0, BV), tl.arange(0, BV)
    value = tl.load(x + tl.program_id(1) * V + v, mask=v < V, other=0.0).to(tl.float32)
    mean = tl.sum(value) / V
    apart = tl.where(within < V, value - mean, 0.0)
    tl.store(y + tl.program_id(1) * V + v, apart / tl.sqrt(tl.sum(apart * apart) / V + 1e-5), mask=v < V)


def run_mean(x):
    V = x.shape[-1]
    BV = max(triton.next_power_of_2(V), 16)
    y = torch.empty_like(x)
    mean_of_a_block_good[(triton.cdiv(V, BV), x.shape[0])](x, y, V, BV)
    return y


@triton.jit
def blocks_of_a_count(x, scratch, n, blocks, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    if tl.program_id(0) < blocks:
        tl.store(scratch + at, tl.zeros((B,), tl.float32))
    tl.store(x + at, tl.zeros((B,), tl.float32), mask=at < n)


@triton.jit
def rows_to_an_end_of_their_own(q, most, y, N, ROUND, D: tl.constexpr, B: tl.constexpr):
    d, m = tl.arange(0, D), tl.arange(0, B)
    total = tl.zeros((D,), dtype=tl.float32)
    for first in range(0, ROUND, B):
        row = first + m
        own = tl.load(q + row[:, None] * D + d[None, :], mask=(row < N)[:, None], other=0.0)
        total += tl.sum(own * tl.load(most + row)[:, None], axis=0)
    tl.store(y + d, total)


@triton.jit
def blocks_of_a_number_of_heads(q, y, heads, longest, D: tl.constexpr, B: tl.constexpr):
    several = tl.cdiv(heads, B)
    head, batch = tl.program_id(0) % several * B + tl.arange(0, B), tl.program_id(0) // several
    at = batch * heads * D + head[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(y + at, tl.load(q + at))


@triton.jit
def places_that_are_counted(count, log, n, most, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    first = tl.atomic_add(count, val=tl.sum((at < n).to(tl.int32)))
    place = (first + tl.cumsum((at < n).to(tl.int32)) - 1) % most
    tl.store(log + place, at, mask=at < n)


@triton.jit
def window_of_a_callers_width_good(x, y, n, WIDTH: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B - (WIDTH - 1) + tl.arange(0, B)
    tl.atomic_max(y, tl.sum(tl.load(x + at, mask=(at >= 0) & (at < n), other=0.0)).to(tl.int32))
