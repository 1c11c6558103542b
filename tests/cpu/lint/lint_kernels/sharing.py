"""What programs add to, store to and keep: atomic sums, overlaps, offsets, keys and globals."""

import torch
import triton
import triton.language as tl

SCALE: tl.constexpr = tl.constexpr(2.0)
LIMIT: tl.constexpr = tl.constexpr(8)


def set_scale(value):
    global SCALE
    SCALE = tl.constexpr(value)


@triton.jit
def reads_a_global_bad(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, v * SCALE, mask=at < n)  # finds: changed-global


@triton.jit
def reads_a_constant_good(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, v * LIMIT, mask=at < n)


@triton.jit
def sum_all_bad(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32), axis=0)
    tl.atomic_add(out, part)  # finds: cross-program-atomic


@triton.jit
def sum_parts_good(x, parts, n, B: tl.constexpr):
    block = tl.program_id(0)
    at = block * B + tl.arange(0, B)
    tl.store(parts + block, tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32), axis=0))


@triton.jit
def sum_overwrites_bad(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32), axis=0)
    tl.store(out, part)  # finds: overlapping-writes


@triton.jit
def one_program_stores_good(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, v + 1.0, mask=at < n)
    if tl.program_id(0) == 0:
        tl.store(out, tl.num_programs(0))


@triton.jit
def count_good(x, bins, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    bucket = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(bins + bucket, tl.full((B,), 1, tl.int32).to(tl.int64), mask=at < n)


@triton.jit
def embedding_gradient_bad(grad, ids, weight, n, width, B: tl.constexpr, W: tl.constexpr):
    t = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.program_id(1) * W + tl.arange(0, W)
    row = tl.load(ids + t, mask=t < n, other=0)
    ok = (t < n)[:, None] & (c < width)[None, :]
    g = tl.load(grad + t[:, None] * width + c[None, :], mask=ok, other=0.0)
    tl.atomic_add(weight + row[:, None] * width + c[None, :], g, mask=ok)  # finds: cross-program-atomic


@triton.jit
def weight_gradient_bad(x, dy, dw, rows, cols, pitch, W: tl.constexpr):
    c = tl.arange(0, W)
    total = tl.zeros((W,), dtype=tl.float32)
    for r in range(tl.program_id(0), rows, tl.num_programs(0)):
        xr = tl.load(x + r * pitch + c, mask=c < cols, other=0.0)
        gr = tl.load(dy + r * pitch + c, mask=c < cols, other=0.0)
        total += xr * gr
    tl.store(dw + c, total, mask=c < cols)  # finds: overlapping-writes


@triton.jit
def weight_gradient_good(x, dy, dw, rows, cols, pitch, W: tl.constexpr):
    c = tl.arange(0, W)
    total = tl.zeros((W,), dtype=tl.float32)
    for r in range(tl.program_id(0), rows, tl.num_programs(0)):
        xr = tl.load(x + r * pitch + c, mask=c < cols, other=0.0)
        gr = tl.load(dy + r * pitch + c, mask=c < cols, other=0.0)
        total += xr * gr
    tl.store(dw + tl.program_id(0) * cols + c, total, mask=c < cols)


@triton.jit
def late_widening_bad(x, y, pitch, n, B: tl.constexpr):
    row = (tl.program_id(0) * pitch).to(tl.int64)  # finds: offset-overflow
    c = tl.arange(0, B)
    v = tl.load(x + row + c, mask=c < n, other=0.0)
    tl.store(y + row + c, v, mask=c < n)


@triton.jit
def narrow_rows_beside_wide_sums_bad(x, sums, y, head, pitch, length, heads, B: tl.constexpr, W: tl.constexpr):
    one, row, c = tl.program_id(1), tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, W)
    at = one // heads * head + row[:, None] * pitch + c[None, :]  # finds: offset-overflow
    of_rows = (one * length).to(tl.int64) + row  # one number for each row, which fits where the rows do not
    v = tl.load(x + at, mask=(row < length)[:, None], other=0.0)
    s = tl.load(sums + of_rows, mask=row < length, other=0.0)
    tl.store(y + at, v * s[:, None], mask=(row < length)[:, None])


@triton.jit
def early_widening_good(x, y, pitch, n, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * pitch
    c = tl.arange(0, B)
    tl.store(y + row + c, tl.load(x + row + c, mask=c < n, other=0.0), mask=c < n)


@triton.jit
def not_constant_bad(x, y, n, WIDTH):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)  # finds: missing-constexpr
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def _lanes(count: tl.constexpr):
    return tl.arange(0, count)


@triton.jit
def not_constant_through_a_helper_bad(x, y, n, WIDTH):
    at = tl.program_id(0) * WIDTH + _lanes(WIDTH)  # finds: missing-constexpr
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def not_constant_turns_bad(x, y, n, TURNS, B: tl.constexpr):  # finds: missing-constexpr
    for turn in tl.static_range(TURNS):
        at = (tl.program_id(0) * TURNS + turn) * B + tl.arange(0, B)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def recompiled_bad(
    x,
    y,
    count: tl.constexpr,  # finds: over-specialised
    B: tl.constexpr,
):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < count), mask=at < count)


def launch_recompiled(x):
    y = torch.empty_like(x)
    total = x.numel()
    recompiled_bad[(triton.cdiv(total, 512),)](x, y, total, B=512)
    return y


_CONFIGS = [triton.Config({"BM": m, "BN": 32, "BK": k}, num_warps=4) for m in (32, 64) for k in (16, 32)]


@triton.autotune(configs=_CONFIGS, key=["M", "N"])
@triton.jit
def narrow_key_bad(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):  # finds: narrow-key
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.autotune(configs=_CONFIGS, key=["M", "N", "K"])
@triton.jit
def whole_key_good(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.autotune(configs=[triton.Config({"B": 128}), triton.Config({"B": 1024})], key=["n"])
@triton.jit
def tuned_copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({"B": 128}), triton.Config({"B": 1024})], key=[])
@triton.jit
def tuned_for_one_size(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def launch_tuned_copy(x, y):
    n = x.numel()
    tuned_copy[(triton.cdiv(n, 128),)](x, y, n)  # finds: static-grid
    tuned_copy[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, n)


@triton.autotune(configs=_CONFIGS, key=["M", "N", "K_BUCKET"])
@triton.jit
def bucketed_key_good(a, b, c, M, N, K, K_BUCKET, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _ = K_BUCKET
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


def run_bucketed(a, b, c, M, N, K):
    bucket = 0 if K < 1024 else 1
    grid = lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))  # noqa: E731
    bucketed_key_good[grid](a, b, c, M, N, K, bucket)


@triton.jit
def label_of_a_shard_bad(logits, labels, loss, first, pitch):
    row = tl.program_id(0)
    label = tl.load(labels + row)
    label -= first
    logits = logits + row * pitch.to(tl.int64)
    tl.atomic_add(loss, tl.load(logits + label))  # finds: cross-program-atomic


@triton.jit
def shares_of_steps_bad(x, y, steps, turns, B: tl.constexpr):
    """Each program takes as many steps of all rows' sums, so that a row's may lie in several programs."""
    begin = tl.program_id(0) * steps
    last = begin + steps
    while begin < last:
        row = begin // turns
        end = tl.minimum((row + 1) * turns, last)
        total = tl.zeros((B,), tl.float32)
        for at in range(begin, end):
            total += tl.load(x + at * B + tl.arange(0, B))
        tl.atomic_add(y + row * B + tl.arange(0, B), total, sem="relaxed")  # finds: cross-program-atomic
        begin = end


@triton.jit
def one_offset_or_one_for_each_bad(x, total, OFFSET, n, IS_TENSOR: tl.constexpr, B: tl.constexpr):
    at, c = tl.arange(0, B), tl.arange(0, B)
    if not IS_TENSOR:
        at += OFFSET
    else:
        at += tl.load(OFFSET + tl.program_id(0))
    tl.atomic_add(total + c, tl.load(x + at, mask=at < n, other=0.0))  # finds: cross-program-atomic


def _of_one_block(configs, named_args, **_others):
    return [one for one in configs if one.kwargs["B"] >= named_args["n"]]


@triton.autotune([triton.Config({"B": 512}), triton.Config({"B": 1024})], ["n"], {"early_config_prune": _of_one_block})
@triton.jit
def sum_of_one_block_good(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y, tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))


@triton.jit
def halves_of_a_row_good(x, HALF: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * 2 * HALF + tl.program_id(1) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at) * tl.load(x + at + HALF))


def multiply_halves(x):
    half = x.shape[1] // 2
    assert half % 256 == 0
    halves_of_a_row_good[(x.shape[0], half // 256)](x, half, 256)


_SIZES = [triton.Config({"B": 128}), triton.Config({"B": 1024})]


@triton.autotune(configs=_SIZES, key=["n", "rows"])
@triton.jit
def copy_with_an_idle_key_bad(x, y, n, rows, B: tl.constexpr):  # finds: idle-key
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=_SIZES, key=["n", "BUCKET"])
@triton.jit
def copy_with_a_bucket_good(x, y, n, BUCKET, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=_SIZES, key=["n", "rows"])
@triton.jit
def copy_by_rows(x, y, n, rows, B: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=tl.arange(0, B) < n), mask=tl.arange(0, B) < n)


@triton.autotune(configs=_SIZES, key=["n", "batch"])
@triton.jit
def copy_of_a_batch(x, y, n, batch, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def launch_copies(x, y, batch):
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["B"]),)  # noqa: E731
    copy_with_an_idle_key_bad[grid](x, y, n, x.shape[0])
    copy_with_a_bucket_good[grid](x, y, n, triton.next_power_of_2(x.shape[0]))
    copy_by_rows[(x.shape[0],)](x, y, x.shape[1], x.shape[0])
    copy_of_a_batch[grid](x, y, n, batch)
