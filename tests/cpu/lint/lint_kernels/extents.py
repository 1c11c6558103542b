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


@triton.jit
def owner_of_a_place_good(ends, owners, n, B: tl.constexpr):
    place, at = tl.program_id(0), tl.arange(0, B)
    end = tl.load(ends + at, mask=at < n, other=1 << 62)
    tl.store(owners + place, tl.sum((end <= place).to(tl.int32)))


@triton.jit
def owner_of_a_place_bad(ends, owners, n, B: tl.constexpr):
    place, at = tl.program_id(0), tl.arange(0, B)
    end = tl.load(ends + at, mask=at < n, other=0)
    tl.store(owners + place, tl.sum((end <= place).to(tl.int32)))  # finds: wrong-identity


@triton.jit
def all_are_in_range(places, whole, n, limit, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = tl.load(places + at, mask=at < n, other=0) < limit
    tl.store(whole + tl.program_id(0), tl.sum((inside | (at >= n)).to(tl.int32), axis=0) == B)


@triton.jit
def number_of_all_bad(places, total, n, limit, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = tl.load(places + at, mask=at < n, other=0) < limit
    tl.store(total + tl.program_id(0), tl.sum((inside | (at >= n)).to(tl.int32), axis=0))  # finds: wrong-identity


@triton.jit
def score_of_valid_rows(x, y, n, valid, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.where(at < valid, tl.load(x + at, mask=at < n, other=0.0), -1.0e30)
    most = tl.max(value, axis=0)
    tl.store(y + tl.program_id(0), most + tl.log(tl.sum(tl.exp(value - most), axis=0)))


@triton.jit
def starts_behind_counts_good(counts, n, B: tl.constexpr):
    at = tl.arange(0, B)
    count = tl.load(counts + at, mask=at < n, other=0)
    tl.store(counts + B + at, tl.cumsum(count, axis=0) - count)


@triton.jit
def heads_beside_rows_good(x, y, n, ROWS: tl.constexpr, W: tl.constexpr, H: tl.constexpr):
    row, at, head = tl.arange(0, ROWS), tl.arange(0, W), tl.arange(0, H)
    places = row[:, None, None] * (H * W) + head[None, :, None] * W + at[None, None, :]
    value = tl.load(x + places, mask=(row < n)[:, None, None], other=0.0)
    tl.store(y + row[:, None] * W + at[None, :], tl.sum(value, axis=1), mask=(row < n)[:, None])


@triton.jit
def rows_of_a_weight_good(x, y, MIX: tl.constexpr, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * B + at, tl.load(x + row * MIX + at))


@triton.jit
def ends_after_zero_good(lengths, ends, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(ends, 0.0)
    tl.store(ends + 1 + at, tl.cumsum(tl.load(lengths + at, mask=at < n, other=0.0), axis=0), mask=at < n)


@triton.jit
def steps_of_a_width(x, y, width, B: tl.constexpr):
    total = tl.zeros((B,), dtype=tl.float32)
    for step in range(tl.cdiv(width, B)):
        total += tl.load(x + tl.program_id(0) * width + step * B + tl.arange(0, B))
    tl.store(y + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def scores_of_a_draft(q, k, y, first, D: tl.constexpr, L: tl.constexpr):
    row, at = tl.load(first + tl.program_id(0)) + tl.arange(0, L), tl.arange(0, D)
    queries = tl.load(q + row[:, None] * D + at[None, :]).to(tl.float32)
    keys = tl.load(k + row[:, None] * D + at[None, :]).to(tl.float32)
    tl.store(y + row, tl.sum(tl.sum(queries[:, None, :] * keys[None, :, :], axis=2), axis=1))


STEP = 32


def steps_fit(width):
    return width % STEP == 0


def choose_tile(tokens):
    return (64 if tokens > 4096 else 32), STEP


def launch_more(x, lengths, weight, heads):
    tokens, width = x.shape
    n, mix = lengths.shape[0], weight.shape[0]
    assert mix == (2 + heads) * heads
    out, owners = torch.empty_like(x), torch.empty(tokens, dtype=torch.int32)
    ends = torch.empty(n + 1, dtype=torch.float32)
    _, step = choose_tile(tokens)
    bins = triton.next_power_of_2(n)
    bins = max(bins, 16)
    starts_behind_counts_good[(1,)](owners, n, B=bins)
    heads_beside_rows_good[(1,)](x, out, tokens, ROWS=16, W=32, H=heads)
    rows_of_a_weight_good[(tokens,)](x, out, MIX=mix, B=heads)
    ends_after_zero_good[(1,)](lengths, ends, n, B=triton.next_power_of_2(n))
    steps_of_a_width[(tokens,)](x, out, width, B=step)


def launch_draft(draft, q, k, first):
    out = torch.empty_like(q)
    scores_of_a_draft[(first.shape[0],)](q, k, out, first, D=64, L=draft.padded_length)


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


@triton.jit
def whole_blocks_and_the_rest(x, y, n, B: tl.constexpr):
    at, row, blocks = tl.arange(0, B), x + tl.program_id(0) * n, tl.cdiv(n, B) - 1
    total = tl.zeros((B,), dtype=tl.float32)
    for block in range(blocks):
        total += tl.load(row + block * B + at)
    total += tl.load(row + blocks * B + at, mask=blocks * B + at < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def least_of_decays(gate, state, y, n, B: tl.constexpr, K: tl.constexpr):
    k, kept = tl.arange(0, K), tl.load(state + tl.arange(0, K))
    for first in range(0, n, B):
        t = first + tl.arange(0, B)
        gates = tl.load(gate + t[:, None] * K + k[None, :], mask=(t < n)[:, None], other=0.0).to(tl.float32)
        kept *= tl.exp(tl.min(gates, axis=0))
    tl.store(y + k, kept)


@triton.jit
def heads_beside_a_batch(x, y, batch, head, groups, width, B: tl.constexpr):
    group, c = tl.program_id(0).to(tl.int64) % groups, tl.arange(0, B)
    at = tl.program_id(1) * batch + group * head + c
    tl.store(y + at, tl.load(x + at, mask=c < width, other=0.0), mask=c < width)


@triton.jit
def borders_of_parts(lengths, borders, n, B: tl.constexpr):
    at = tl.arange(0, B)
    total = tl.sum(tl.load(lengths + at, mask=at < B // 2, other=0.0), axis=0)
    tl.store(borders + at, at * total // n, mask=at <= n)


@triton.jit
def starts_of_all_and_one(counts, starts, n, B: tl.constexpr):
    total = tl.zeros((B,), dtype=tl.float32)
    for first in range(0, n + 1, B):
        at = first + tl.arange(0, B)
        count = tl.load(counts + at, mask=at < n, other=0.0)
        tl.store(starts + at, total + tl.cumsum(count, axis=0) - count)
        total += tl.sum(count, axis=0)


@triton.jit
def scale_of_heads_good(x, scales, y, width, HEADS: tl.constexpr, B: tl.constexpr):
    head, at = tl.program_id(0), tl.arange(0, B)
    scale = tl.load(scales + 2 * HEADS + head)
    tl.store(y + head * B + at, scale * tl.load(x + head * B + at))


@triton.jit
def rows_of_pages_good(pool, pages, y, TOKENS: tl.constexpr, B: tl.constexpr, W: tl.constexpr):
    at, column = tl.arange(0, B), tl.arange(0, W)
    token = tl.load(pages + tl.program_id(0)) * B + at
    row = tl.load(pool + token[:, None] * W + column[None, :], mask=(token < TOKENS)[:, None], other=0.0)
    tl.store(y + (tl.program_id(0) * B + at)[:, None] * W + column[None, :], row)


def launch_weights(x, pool, pages, scales):
    heads, width = x.shape
    out, wide = torch.empty_like(x), triton.next_power_of_2(3 * heads)
    scale_of_heads_good[(heads,)](x, scales, out, width, HEADS=heads, B=wide)
    rows_of_pages_good[(pages.numel(),)](pool, pages, out, TOKENS=pool.shape[0], B=64, W=128)
