"""Kernels that look as if they had a pitfall until their launches are read, beside some that have it."""

import math

import torch
import triton
import triton.language as tl
from torch.library import wrap_triton


@triton.jit
def annotated_wide(x_ptr, o_ptr, stride_b: tl.int64, n, B: tl.constexpr):
    at = tl.arange(0, B)
    place = tl.program_id(0) * stride_b + at
    tl.store(o_ptr + place, tl.load(x_ptr + place, mask=at < n), mask=at < n)


@triton.jit
def heads_of_a_wide_token(q_ptr, o_ptr, token_ptr, stride_t, stride_h, n, B: tl.constexpr):
    token = tl.load(token_ptr + tl.program_id(0)).to(tl.int64)
    at = tl.arange(0, B)
    place = token * stride_t + tl.program_id(1) * stride_h + at
    tl.store(o_ptr + place, tl.load(q_ptr + place, mask=at < n), mask=at < n)


@triton.jit
def narrow_batch_of_wide_rows_bad(x_ptr, o_ptr, stride_b, stride_t, n, B: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    at = tl.arange(0, B)
    place = tl.program_id(0) * stride_b + row * stride_t + at  # finds: offset-overflow
    tl.store(o_ptr + place, tl.load(x_ptr + place, mask=at < n), mask=at < n)


@triton.jit
def folded_rows(x_ptr, o_ptr, N: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    place = (tl.program_id(0) * N).to(tl.int64) + at
    tl.store(o_ptr + place, tl.load(x_ptr + place, mask=at < N), mask=at < N)


@triton.jit
def rows_into_a_padded_buffer(x_ptr, sums_ptr, n, B: tl.constexpr, D: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.arange(0, D)
    x = tl.load(x_ptr + (at % n)[:, None] * D + c[None, :]).to(tl.float32)
    tl.store(sums_ptr + at, tl.sum(x, 1))


@triton.jit
def rows_into_a_plain_buffer_bad(x_ptr, sums_ptr, n, B: tl.constexpr, D: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.arange(0, D)
    x = tl.load(x_ptr + (at % n)[:, None] * D + c[None, :]).to(tl.float32)
    tl.store(sums_ptr + at, tl.sum(x, 1))  # finds: missing-mask


@triton.jit
def whole_block_in_the_else(x_ptr, y_ptr, n, B: tl.constexpr):
    first = tl.program_id(0) * B
    at = first + tl.arange(0, B)
    v = tl.load(x_ptr + at, mask=at < n, other=0.0)
    if first + B - n > 0:
        tl.store(y_ptr + at, v, mask=at < n)
    else:
        tl.store(y_ptr + at, v)


@triton.jit
def begun_block_in_the_else_bad(x_ptr, y_ptr, n, B: tl.constexpr):
    first = tl.program_id(0) * B
    at = first + tl.arange(0, B)
    v = tl.load(x_ptr + at, mask=at < n, other=0.0)
    if first - n > 0:
        tl.store(y_ptr + at, v, mask=at < n)
    else:
        tl.store(y_ptr + at, v)  # finds: missing-mask


@triton.jit
def ended_by_data(x_ptr, y_ptr, ids_ptr, count_ptr, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid * B >= tl.load(count_ptr):
        return
    at = pid * B + tl.arange(0, B)
    row = tl.load(ids_ptr + at)
    tl.store(y_ptr + row, tl.load(x_ptr + row, mask=row >= 0), mask=row >= 0)


@triton.jit
def one_for_each_program(p_ptr, g_ptr, E: tl.constexpr):
    at = tl.program_id(0) * E + tl.arange(0, E)
    tl.store(p_ptr + at, tl.load(p_ptr + at) - tl.load(g_ptr + at))


UPDATES = {"plain": one_for_each_program}


@triton.jit
def chunks_by_a_quotient(x_ptr, o_ptr, chunk, batch, seqlen, sb, ss, B: tl.constexpr):
    pid = tl.program_id(0)
    c = pid // batch
    b = pid - c * batch
    first = b * sb + c * chunk * ss
    limit = min(chunk, seqlen - c * chunk)
    at = tl.arange(0, B)
    for i in range(0, limit, B):
        x = tl.load(x_ptr + first + (i + at) * ss, mask=at < limit - i, other=0.0)
        tl.store(o_ptr + first + (i + at) * ss, x, mask=at < limit - i)


@triton.jit
def heads_by_a_remainder(q_ptr, o_ptr, T, H, K: tl.constexpr, B: tl.constexpr):
    b, h = tl.program_id(1) // H, tl.program_id(1) % H
    t = tl.program_id(0) * B + tl.arange(0, B)
    at = (b * T + t[:, None]) * H * K + h * K + tl.arange(0, K)[None, :]
    m = (t < T)[:, None]
    tl.store(o_ptr + at, tl.load(q_ptr + at, mask=m, other=0.0), mask=m)


@triton.jit
def rows_of_a_number(x_ptr, o_ptr, N: tl.constexpr, B: tl.constexpr):
    c = tl.arange(0, B)
    at = tl.program_id(0) * N + c
    tl.store(o_ptr + at, tl.load(x_ptr + at, mask=c < N) * 2, mask=c < N)


@triton.jit
def last_state(x_ptr, o_ptr, n, stride, B: tl.constexpr):
    at = tl.arange(0, B)
    x = tl.load(x_ptr + tl.program_id(1) * stride + tl.program_id(0) * n + at, mask=at < n)
    tl.store(o_ptr + tl.program_id(0) * n + at, x, mask=at < n)


@triton.jit
def row_scales(x_ptr, o_ptr, n, B: tl.constexpr):
    at = tl.program_id(1) * B + tl.arange(0, B)
    x = tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    tl.store(o_ptr + tl.program_id(0), tl.max(tl.abs(x), 0))


@triton.jit
def first_of_each_part(x_ptr, o_ptr, starts_ptr):
    begin, end = tl.load(starts_ptr + tl.program_id(0)), tl.load(starts_ptr + tl.program_id(0) + 1)
    total = 0.0
    for at in range(begin, end):
        total += tl.load(x_ptr + at)
    tl.atomic_add(o_ptr + begin, total)


@triton.jit
def counts_of_parts(starts_ptr, counts_ptr, parts, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    begin = tl.load(starts_ptr + at, mask=at < parts, other=0)
    end = tl.load(starts_ptr + at + 1, mask=at < parts, other=0)
    tl.store(counts_ptr + at, (end - begin + 15) // 16, mask=at < parts)


@triton.jit
def sum_in_a_type_of_the_caller(a_ptr, b_ptr, c_ptr, N, ACC: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    acc = tl.zeros((B, B), dtype=ACC)
    for k in range(N):
        a = tl.load(a_ptr + k * B * B + at)
        acc += tl.dot(a, tl.load(b_ptr + k * B * B + at), out_dtype=ACC)
    tl.store(c_ptr + at, acc)


@triton.jit
def down_a_column(x_ptr, o_ptr, n, stride, B: tl.constexpr):
    at = tl.arange(0, B)
    x = tl.load(x_ptr + at * stride + tl.program_id(0), mask=at < n, other=0.0).to(tl.float32)
    tl.store(o_ptr + tl.program_id(0), tl.sum(x, 0))


@triton.jit
def nearest_of_a_table(x_ptr, o_ptr, table_ptr, n, SIZE: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    best = tl.full((B,), 1e30, tl.float32)
    for k in range(SIZE):
        best = tl.minimum(best, tl.abs(x - tl.load(table_ptr + k)))
    tl.store(o_ptr + at, best, mask=at < n)


@triton.jit
def groups_of_a_weight(x_ptr, groups_ptr, scales_ptr, o_ptr, n, GROUPS: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    loaded = tl.load(groups_ptr + at, mask=at < n, other=0)
    group = tl.where(loaded < 0, loaded + GROUPS, loaded)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(o_ptr + at, x * tl.load(scales_ptr + 2 * group, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def layers_of_a_list(x_ptr, o_ptr, n, LAYERS: tl.constexpr, B: tl.constexpr):
    layer, part = tl.program_id(0) % LAYERS, tl.program_id(0) // LAYERS
    at = part * B + tl.arange(0, B)
    x = tl.load(x_ptr + layer.to(tl.int64) * n + at, mask=at < n)
    tl.store(o_ptr + layer.to(tl.int64) * n + at, x, mask=at < n)


@triton.jit
def rows_as_a_constant_bad(x_ptr, o_ptr, ROWS: tl.constexpr, B: tl.constexpr):  # finds: over-specialised
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o_ptr + at, tl.load(x_ptr + at, mask=at < ROWS), mask=at < ROWS)


@triton.jit
def chunks_of_a_sequence(x_ptr, gates_ptr, o_ptr, CHUNKS: tl.constexpr, S: tl.constexpr, L: tl.constexpr):
    for chunk in range(CHUNKS):
        at = chunk * L + tl.arange(0, L)
        gate = tl.load(gates_ptr + at)  # callers make S of whole chunks, in another file
        tl.store(o_ptr + at, gate * tl.load(x_ptr + at, mask=at < S, other=0.0), mask=at < S)


@triton.jit
def parts_of_a_buffer(x_ptr, parts_ptr, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    part = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(parts_ptr + part * B + tl.arange(0, B), x)


@triton.jit
def last_of_some_numbers(x_ptr, o_ptr, n, MOST: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    numbers = tl.load(x_ptr + at, mask=at < n, other=MOST)
    tl.store(o_ptr + tl.program_id(0), tl.minimum(tl.max(numbers, 0), MOST - 1) // 2)


@triton.jit
def wrapped_launch_bad(x_ptr, o_ptr, scale_ptr, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    scale = tl.load(scale_ptr + at)  # finds: missing-mask
    tl.store(o_ptr + at, tl.load(x_ptr + at, mask=at < N, other=0.0) * scale, mask=at < N)


def launch(x, tokens, starts, table, kind):
    batch, n = x.shape
    out = torch.empty_like(x)
    heads_of_a_wide_token[(tokens.numel(), x.shape[1])](x, out, tokens, x.stride(0), x.stride(1), n, B=128)
    narrow_batch_of_wide_rows_bad[(batch, n)](x, out, x.stride(0), x.stride(1), n, B=128)
    folded_rows[(batch,)](x, out, N=1000, B=1024)
    padded = torch.empty(math.ceil(n / 128) * 128)
    grid = lambda meta: (triton.cdiv(n, meta["B"]),)  # noqa: E731
    rows_into_a_padded_buffer[grid](x, padded, n, B=128, D=64)
    grid = lambda meta: (triton.cdiv(batch, meta["B"]),)  # noqa: E731
    rows_into_a_plain_buffer_bad[grid](x, out, batch, B=128, D=64)
    whole_block_in_the_else[(triton.cdiv(n, 128),)](x, out, n, B=128)
    begun_block_in_the_else_bad[(triton.cdiv(n, 128),)](x, out, n, B=128)
    ended_by_data[(triton.cdiv(tokens.numel(), 64),)](x, out, tokens, starts, B=64)
    options = {"E": 1, "num_warps": 1}
    UPDATES[kind][(n,)](x, out, **options)
    chunks_by_a_quotient[(batch * triton.cdiv(n, 64),)](x, out, 64, batch, n, x.stride(0), x.stride(1), B=32)
    heads_by_a_remainder[(triton.cdiv(n, 64), batch)](x, out, n, 8, K=128, B=64)
    rows_of_a_number[(batch,)](x, out, N=1000, B=1024)
    assert batch == 1
    last_state[(n, batch)](x, out, n, x.stride(0), B=64)
    block = triton.next_power_of_2(n)
    row_scales[(batch, triton.cdiv(n, block))](x, out, n, B=block)
    first_of_each_part[(tokens.numel(),)](x, out, starts)
    parts = starts.shape[0] - 1
    counts_of_parts[(triton.cdiv(parts, 128),)](starts, tokens, parts, B=128)
    sum_in_a_type_of_the_caller[(1,)](x, x, out, n, ACC=kind, B=32)
    down_a_column[(n,)](x, out, batch, x.stride(0), B=128)
    groups_of_a_weight[(triton.cdiv(n, 64),)](x, tokens, table, out, n, GROUPS=table.shape[0], B=64)
    layers_of_a_list[(4,)](x, out, n, LAYERS=len(kind), B=64)
    rows_as_a_constant_bad[(triton.cdiv(batch, 64),)](x, out, ROWS=x.shape[0], B=64)
    parts_of_a_buffer[(triton.cdiv(n, 64), 4)](x, padded, n, B=64)
    wrap_triton(wrapped_launch_bad)[(triton.cdiv(x.size(1), 64),)](x, out, table, N=x.size(1), B=64)
    nearest_of_a_table[(triton.cdiv(n, 256),)](x, out, table, n, SIZE=table.numel(), B=256)


@triton.jit
def heads_of_wide_sums_good(x_ptr, ends_ptr, o_ptr, stride_t, stride_xh, stride_b, stride_h, stride_d, B: tl.constexpr):
    batch, head, at = tl.program_id(0), tl.program_id(1), tl.arange(0, B)
    begin = tl.load(ends_ptr + batch).to(tl.int64)
    one = tl.load(x_ptr + (begin * stride_t + head * stride_xh) + at)
    state = o_ptr + batch * stride_b + head * stride_h + at[:, None] * stride_d + at[None, :]
    tl.store(state, one[:, None] * one[None, :])
