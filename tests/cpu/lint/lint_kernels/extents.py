"""Extents, parts and elements that look as if they did not fit, each beside one that does not."""

import torch
import triton
import triton.language as tl


@triton.jit
def ends_of_parts_good(lengths, ends, n, B: tl.constexpr):
    at = tl.arange(0, B)
    length = tl.load(lengths + at, mask=at < n, other=0)
    tl.store(ends + 1 + at, tl.cumsum(length, axis=0), mask=at < n)


@triton.jit
def taps_of_a_row_good(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((B,), dtype=tl.float32)
    for tap in tl.static_range(3):
        inside = (at < n) & (at + tap - 1 >= 0) & (at + tap - 1 < n)
        total += tl.load(x + at + tap - 1, mask=inside, other=0.0)
    tl.store(y + at, total, mask=at < n)


@triton.jit
def rows_in_parts_good(gradient, n, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    for first in tl.static_range(0, K, BK):
        k = first + tl.arange(0, BK)
        at, inside = t[:, None] * K + k[None, :], (t < n)[:, None] & (k < K)[None, :]
        tl.store(gradient + at, 2.0 * tl.load(gradient + at, mask=inside, other=0.0), mask=inside)


@triton.jit
def place_of_a_search_good(x, places, y, limit):
    row = tl.program_id(0)
    place = tl.load(places + row)
    while place < limit:
        place = tl.load(places + place)
    tl.store(y + place, tl.load(x + row))


@triton.jit
def switched_sum_bad(x, y, total, n, B: tl.constexpr, KEEPS: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, value, mask=at < n)
    if KEEPS:
        tl.store(total, tl.sum(value.to(tl.float32)))  # finds: overlapping-writes


@triton.jit
def tiles_of_a_vocabulary_good(x, y, V, T, W: tl.constexpr, B: tl.constexpr):
    tile = tl.program_id(0) * B + tl.arange(0, B)
    at = tile[:, None] * W + tl.arange(0, W)[None, :]
    value = tl.load(x + at, mask=(tile[:, None] < T) & (at < V), other=-3.0e38).to(tl.float32)
    most = tl.max(tl.max(value, axis=1), axis=0)
    tl.store(y + tl.program_id(0), tl.sum(tl.sum(tl.exp(value - most), axis=0), axis=0))


@triton.jit
def groups_of_a_model_good(x, y, n, GROUPS: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at // GROUPS, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def numbers_beside_rows_bad(x, numbers, y, batch, token, head, number, width, B: tl.constexpr):
    row, chunk, c = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, B)
    at = row * batch + chunk * token + tl.program_id(2) * head + c  # finds: offset-overflow
    tl.store(y + at, tl.load(x + at, mask=c < width, other=0.0), mask=c < width)
    tl.store(numbers + row * number + chunk, 1)


@triton.jit
def state_of_a_caller(x, state, y, n, K: tl.constexpr, B: tl.constexpr):
    k, t = tl.arange(0, K), tl.arange(0, B)
    kept = tl.load(state + k[:, None] * K + k[None, :])
    for first in range(0, n, B):
        row = tl.load(x + (first + t)[:, None] * K + k[None, :], mask=(first + t < n)[:, None], other=0.0)
        kept += tl.dot(tl.trans(row), row).to(kept.dtype)
    tl.store(y + k[:, None] * K + k[None, :], kept)


def launch(x, lengths, keys):
    batch, tokens, heads, width = x.shape
    n = lengths.shape[0]
    out, numbers = torch.empty_like(x), torch.empty((batch, tokens), dtype=torch.int32)
    ends_of_parts_good[(1,)](lengths, numbers, n, B=triton.next_power_of_2(n))
    taps_of_a_row_good[(triton.cdiv(n, 128),)](x, out, n, B=128)
    rows_in_parts_good[(triton.cdiv(n, 64),)](out, n, K=128, BT=64, BK=32)
    switched_sum_bad[(triton.cdiv(n, 128),)](x, out, numbers, n, B=128, KEEPS=keys is not None)
    groups_of_a_model_good[(triton.cdiv(n, 128),)](x, out, n, GROUPS=heads // keys.shape[0], B=128)
    strides = x.stride(0), x.stride(1), x.stride(2)
    numbers_beside_rows_bad[(batch, tokens, heads)](x, numbers, out, *strides, numbers.stride(0), width, B=128)
