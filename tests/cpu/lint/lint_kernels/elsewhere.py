"""Sizes, blocks and rows of which another place of the file says more than the kernel."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def columns_of_a_divided_width_good(x, y, M, N, W: tl.constexpr, H: tl.constexpr):
    row, column = tl.arange(0, H), tl.program_id(0) * W + tl.arange(0, W)
    value = tl.load(x + row[:, None] * N + column[None, :], mask=(row < M)[:, None] & (column < N)[None, :], other=0.0)
    tl.store(y + row[:, None] * N + column[None, :], value, mask=(row < M)[:, None])


@triton.jit
def columns_of_another_width_bad(x, y, M, N, W: tl.constexpr, H: tl.constexpr):
    row, column = tl.arange(0, H), tl.program_id(0) * W + tl.arange(0, W)
    value = tl.load(x + row[:, None] * N + column[None, :], mask=(row < M)[:, None] & (column < N)[None, :], other=0.0)
    tl.store(y + row[:, None] * N + column[None, :], value, mask=(row < M)[:, None])  # finds: missing-mask


def launch_columns(x):
    M, N = x.shape
    W = 16
    assert N % W == 0
    y = torch.empty_like(x)
    columns_of_a_divided_width_good[(N // W,)](x, y, M, N, W, 64)


def launch_other_columns(x):
    M, N = x.shape
    y = torch.empty_like(x)
    columns_of_another_width_bad[(triton.cdiv(N, 16),)](x, y, M, N, 16, 64)


@triton.jit
def keeps_its_maxima_good(x, y, maxima, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at)
    tl.store(maxima + tl.program_id(0), tl.max(value, axis=0))
    tl.store(y + at, value)


@triton.jit
def has_its_parameters(x, y, maxima, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at))


@triton.jit
def written_out_block_good(x, ends, y, n, P: tl.constexpr):
    last = tl.sum(tl.load(ends + tl.arange(0, P), mask=tl.arange(0, P) <= n, other=0), axis=0)
    at = tl.program_id(0) * 768 + 192 * tl.arange(0, 4)[:, None] + 128 + tl.arange(0, 64)[None, :]
    tl.store(y + at, tl.load(x + at) * last)


@triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 128})], key=["WIDE", "BUCKET"])
@triton.jit
def size_in_the_key(x, y, BUCKET, WIDE: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < WIDE, other=0.0), mask=at < WIDE)


@triton.jit
def rank_of_an_adapter_good(x, y, stride, RANK: tl.constexpr, BR: tl.constexpr):
    r = tl.arange(0, BR)
    value = tl.load(x + tl.program_id(0) * stride + r, mask=r < RANK, other=0.0)
    tl.store(y + tl.program_id(0) * stride + r, value, mask=r < RANK)


@triton.jit
def rows_of_a_table(table, rows, y, K: tl.constexpr, B: tl.constexpr, W: tl.constexpr):
    c = tl.arange(0, W)
    for turn in range(B):
        row = tl.load(rows + tl.program_id(0) + K // B * turn)
        tl.store(y + (tl.program_id(0) + K // B * turn) * W + c, tl.load(table + row * W + c))


def bucket_of(rows):
    return 1 << rows.bit_length()


def block_of_a_rank(rank):
    return triton.next_power_of_2(max(rank, 16))


def launch_sizes(x, adapter, table, rows, experts):
    rank = adapter.size(0) // experts
    y = torch.empty_like(x)
    wide = adapter.size(0)
    size_in_the_key[lambda meta: (triton.cdiv(wide, meta["B"]),)](x, y, bucket_of(x.shape[0]), WIDE=wide)
    rank_of_an_adapter_good[(x.shape[0],)](x, y, x.stride(0), RANK=rank, BR=block_of_a_rank(rank))
    rows_of_a_table[(table.shape[0] // 8,)](table, rows, y, K=table.shape[0], B=8, W=128)


@triton.jit
def reshaped_before_good(x, y, M, K, stride_b, stride_m, stride_k, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BK + tl.arange(0, BK)
    at = tl.program_id(2) * stride_b + m[:, None] * stride_m + k[None, :] * stride_k
    inside = (m < M)[:, None] & (k < K)[None, :]
    tl.store(y + at, tl.load(x + at, mask=inside, other=0.0), mask=inside)


def launch_reshaped(x):
    batch, heads, M, K = x.shape
    x = x.view(-1, M, K)
    y = torch.empty_like(x)
    grid = (triton.cdiv(M, 32), triton.cdiv(K, 32), batch * heads)
    reshaped_before_good[grid](x, y, M, K, x.stride(0), x.stride(1), x.stride(2), BM=32, BK=32)


@triton.jit
def running_maximum_from_zero_good(x, y, n, B: tl.constexpr):
    most = tl.full((), 0.0, dtype=tl.float32)
    for first in range(0, n, B):
        at = first + tl.arange(0, B)
        most = tl.maximum(most, tl.max(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32), axis=0))
    tl.store(y, most)


@triton.jit
def running_maximum_used_at_once_bad(x, y, z, n, B: tl.constexpr):
    most = tl.full((), 0.0, dtype=tl.float32)
    for first in range(0, n, B):
        at = first + tl.arange(0, B)
        here = tl.max(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32), axis=0)  # finds: wrong-identity
        most = tl.maximum(most, here)
        tl.store(z + first, here)
    tl.store(y, most)


@triton.jit
def rows_as_far_apart_as_the_block_good(x, bias, y, M, n, stride, BM: tl.constexpr, BN: tl.constexpr):
    tl.assume(stride == 32)
    tl.assume(BN == 32)
    row, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    at, inside = row[:, None] * stride + c[None, :], (row < M)[:, None]
    added = tl.load(bias + c, mask=c < n, other=0.0)
    tl.store(y + at, tl.load(x + at, mask=inside, other=0.0) + added[None, :], mask=inside)


@triton.jit
def rows_that_a_caller_rounds(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0))


def launch_rounded(x, y):
    n = x.shape[0]
    rows_that_a_caller_rounds[(triton.cdiv(n, 64),)](x, y, n, 64)


def round_and_launch(x):
    rows = math.ceil(x.shape[0] / 64) * 64
    launch_rounded(x, torch.empty(rows, dtype=x.dtype))


@triton.jit
def parts_of_tokens(counts, starts, y, PARTS: tl.constexpr, B: tl.constexpr):
    part, at = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    inside = (part < PARTS) & (at < tl.load(counts + part))
    first = tl.load(starts + part).to(tl.int64)
    tl.store(y + first + at, part, mask=inside)


def launch_parts(counts, starts, y, most):
    parts_of_tokens[(counts.numel(), triton.cdiv(most, 64))](counts, starts, y, counts.numel(), 64)


@triton.jit
def width_that_one_block_holds_good(x, y, stride, RANK: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * stride + c, tl.load(x + row * stride + c, mask=c < RANK, other=0.0), mask=c < RANK)


def launch_adapter(x, y, adapter, experts, block):
    width_that_one_block_holds_good[(x.shape[0],)](x, y, x.stride(0), adapter.size(0) // experts, block)


_TILES = [triton.Config({"BM": 32, "BN": 64}), triton.Config({"BM": 64, "BN": 32})]


@triton.autotune(configs=_TILES, key=["n", "length"])
@triton.jit
def rows_of_all_heads_good(x, y, heads, length, n, BM: tl.constexpr, BN: tl.constexpr):
    row, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (row < heads * length)[:, None] & (c < n)[None, :]
    tl.store(y + row[:, None] * n + c[None, :], tl.load(x + row[:, None] * n + c[None, :], mask=inside), mask=inside)


@triton.jit
def largest_of_each_group(x, y, n, G: tl.constexpr, B: tl.constexpr):
    group = tl.program_id(0) * B + tl.arange(0, B)
    at = group[:, None] * G + tl.arange(0, G)[None, :]
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + group, tl.max(value, axis=1), mask=group * G < n)


@triton.jit
def likeliest_after_noise(p, noise, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    chance = tl.load(p + at, mask=at < n, other=0.0).to(tl.float32)
    _, place = tl.max(chance * tl.load(noise + at, mask=at < n, other=0.0).to(tl.float32), axis=0, return_indices=True)
    tl.store(y + tl.program_id(0), place)


@triton.jit
def largest_after_a_bias(x, bias, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    score = tl.sigmoid(tl.load(x + at, mask=at < n, other=-float("inf")).to(tl.float32))
    tl.store(y + tl.program_id(0), tl.max(score + tl.load(bias + at, mask=at < n, other=0.0), axis=0))


@triton.jit
def divided_by_a_temperature_good(x, temperature, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + at, mask=at < n, other=-float("inf")).to(tl.float32)
    scaled = tl.div_rn(value, tl.load(temperature + tl.program_id(0)).to(tl.float32))
    tl.store(y + tl.program_id(0), tl.max(scaled, axis=0))


@triton.jit
def scores_of_all_and_one_good(x, scores, y, n, stride, B: tl.constexpr):
    at, total = tl.arange(0, B), 0.0
    weight = tl.load(scores + tl.program_id(0) * stride + at, mask=at <= n, other=0.0)
    for j in range(n + 1):
        total += tl.sum(tl.where(at == j, weight, 0.0), axis=0) * tl.load(x + j * stride)
    tl.store(y + tl.program_id(0), total)


@triton.jit
def last_block_by_a_test(x, y, n, BLOCKS, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    if tl.program_id(0) == BLOCKS - 1:
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
    else:
        tl.store(y + at, tl.load(x + at))


@triton.jit
def rows_of_a_weight(x, weight, y, R, D: tl.constexpr):
    column = tl.arange(0, D)
    row = tl.load(x + tl.program_id(0) * D + column)
    tl.store(y + tl.program_id(0) * D + column, row * tl.load(weight + column))


@triton.jit
def loop_to_a_loaded_end(x, ends, y, B: tl.constexpr):
    total = tl.zeros((B,), dtype=tl.float32)
    for first in range(0, tl.load(ends), B):
        total += tl.load(x + first + tl.arange(0, B)).to(tl.float32)
    tl.store(y, tl.sum(total, axis=0))


@triton.jit
def nearest_of_valid_rows_good(x, y, n, D, B: tl.constexpr):
    at, total = tl.arange(0, B), tl.zeros((B,), dtype=tl.float32)
    for column in range(D):
        total += (1 - tl.load(x + at * D + column, mask=at < n, other=0.0)).to(tl.float32)
    tl.store(y, tl.min(tl.where(at < n, total, float("inf")), axis=0))


@triton.jit
def width_beside_rows(x, weight, y, M, N: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    inside = (c < N) & (row < M)
    scale = tl.load(weight + c, mask=inside, other=0.0)
    tl.store(y + c * M + row, scale * tl.load(x + c * M + row, mask=inside, other=0.0), mask=inside)


def launch_weight(x, weight, y):
    M, N = x.shape[0], weight.shape[0]
    width_beside_rows[(M, triton.cdiv(N, 64))](x, weight, y, M, N, 64)


@triton.jit
def exponentials_of_padded_rows_good(x, y, M, N, PAD_M: tl.constexpr, PAD_N: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    if PAD_M or PAD_N:
        value = tl.load(x + row[:, None] * B + c[None, :], mask=(row < M)[:, None] & (c < N)[None, :], other=0.0)
    else:
        value = tl.load(x + row[:, None] * B + c[None, :])
    value = tl.exp(value.to(tl.float32))
    if PAD_N:
        value = tl.where((c < N)[None, :], value, 0.0)
    tl.store(y + row, tl.sum(value, axis=1), mask=row < M)


@triton.jit
def exponentials_by_another_switch_bad(x, y, M, N, PAD_M: tl.constexpr, PAD_N: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    if PAD_M:
        value = tl.load(x + row[:, None] * B + c[None, :], mask=(row < M)[:, None] & (c < N)[None, :], other=0.0)
    else:
        value = tl.load(x + row[:, None] * B + c[None, :])
    value = tl.exp(value.to(tl.float32))
    if PAD_N:
        value = tl.where((c < N)[None, :], value, 0.0)
    tl.store(y + row, tl.sum(value, axis=1), mask=row < M)  # finds: wrong-identity


@triton.jit
def angles_of_all_places(x, angle, y, n, before, D: tl.constexpr, B: tl.constexpr):
    at, c = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    value = tl.load(x + at[:, None] * D + c[None, :], mask=(at < n)[:, None], other=0.0)
    value *= tl.load(angle + at[:, None] * D + c[None, :])
    value *= tl.load(angle + (at + before)[:, None] * D + c[None, :])
    tl.store(y + at[:, None] * D + c[None, :], value, mask=(at < n)[:, None])


@triton.jit
def one_number_for_each_row_good(x, most, y, n, stride, B: tl.constexpr, D: tl.constexpr):
    block, at, c = tl.program_id(1), tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    rows = block.to(tl.int64) * stride + at[:, None] * D + c[None, :]
    value = tl.load(x + rows, mask=(at < n)[:, None], other=0.0)
    value -= tl.load(most + (block * n).to(tl.int64) + at, mask=at < n, other=0.0)[:, None]
    tl.store(y + rows, value, mask=(at < n)[:, None])


@triton.jit
def sums_of_each_head_good(x, y, n, stride_h, HEADS: tl.constexpr, TAPS: tl.constexpr, B: tl.constexpr):
    batch, head = tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    at, total = tl.program_id(0) * B + tl.arange(0, B), tl.zeros((B,), dtype=tl.float32)
    for tap in range(TAPS):
        total += tl.load(x + (batch + head) * stride_h + tap * n + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + (batch + head) * stride_h + at, total, mask=at < n)


@triton.jit
def transposed_after_its_shape_good(x, y, M, stride_b, stride_m, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    at = tl.program_id(1) * stride_b + m * stride_m
    tl.store(y + at, tl.load(x + at, mask=m < M, other=0.0), mask=m < M)


@triton.jit
def one_axis_of_programs_good(x, y, n, D: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y + row, tl.load(x + row * n + tl.program_id(1)) + tl.program_id(1))


def launch_evidence(x, w, y, taps):
    n = x.shape[-1]
    sums_of_each_head_good[(triton.cdiv(n, 64), x.size(0))](x, y, n, x.stride(0), x.size(0), taps.shape[0], 64)
    one_axis_of_programs_good[(n,)](x, y, n, D=64)
    batch, M, _ = w.shape
    w = w.transpose(1, 2).contiguous()
    transposed_after_its_shape_good[(triton.cdiv(M, 64), batch)](w, y, M, w.stride(0), w.stride(2), B=64)


SETTING = tl.constexpr(4)


@triton.jit
def value_that_is_written_again_good(x, y):
    tl.store(y, tl.load(x) * SETTING)


SETTING = tl.constexpr(4)


@triton.jit
def put_squares(x, y, at):
    tl.store(y + at, tl.load(x + at) * tl.load(x + at))


def made_inside(wide):
    @triton.jit
    def squares(x, y, n, B: tl.constexpr):
        put_squares(x, y, tl.program_id(0) * B + tl.arange(0, B))

    return squares
