"""Kernels as their authors write them, of other kinds than those whose recordings the model has seen."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rope_kernel(x, cos, sin, out, tokens, heads, HALF: tl.constexpr, BT: tl.constexpr, BH: tl.constexpr):
    """Rotary embedding of x[tokens, heads, 2 * HALF], a tile of tokens and heads per program."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    d = tl.arange(0, HALF)
    angle = t[:, None, None] * HALF + d[None, None, :]
    c = tl.load(cos + angle, mask=t[:, None, None] < tokens, other=0.0)
    s = tl.load(sin + angle, mask=t[:, None, None] < tokens, other=0.0)
    at = (t[:, None, None] * heads + h[None, :, None]) * (2 * HALF) + d[None, None, :]
    inside = (t < tokens)[:, None, None] & (h < heads)[None, :, None]
    left = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + at + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (left * c - right * s).to(out.dtype.element_ty), mask=inside)
    tl.store(out + at + HALF, (right * c + left * s).to(out.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_kernel(x, out, columns, BLOCK: tl.constexpr):
    """The result is silu(x[:, :columns]) * x[:, columns:]."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * columns + lanes, mask=lanes < columns).to(tl.float32)
    up = tl.load(x + row * 2 * columns + columns + lanes, mask=lanes < columns).to(tl.float32)
    tl.store(out + row * columns + lanes, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=lanes < columns)


@triton.jit
def rmsnorm_backward_kernel(dy, x, weight, scale, dx, columns, BLOCK: tl.constexpr):
    """The gradient dx of an RMS norm, whose 1 / rms is `scale`; each row is read twice in chunks."""
    row = tl.program_id(0)
    base = row.to(tl.int64) * columns
    r = tl.load(scale + row)
    dot = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        g = tl.load(dy + base + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        v = tl.load(x + base + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        dot += g * tl.load(weight + lanes, mask=lanes < columns, other=0.0).to(tl.float32) * v
    mean = tl.sum(dot) / columns
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        g = tl.load(dy + base + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        v = tl.load(x + base + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        w = tl.load(weight + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        tl.store(dx + base + lanes, (r * (g * w - r * r * mean * v)).to(dx.dtype.element_ty), mask=lanes < columns)


@triton.jit
def group_norm_kernel(x, weight, bias, out, groups, size, pixels, eps, BLOCK: tl.constexpr):
    """A group of `size` adjacent elements per program, `pixels` to a channel, read twice in chunks."""
    group = tl.program_id(0)
    base = group.to(tl.int64) * size
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, size, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        values = tl.load(x + base + lanes, mask=lanes < size, other=0.0).to(tl.float32)
        total += values
        squares += values * values
    mean = tl.sum(total) / size
    scale = tl.rsqrt(tl.sum(squares) / size - mean * mean + eps)
    for at in range(0, size, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        channel = group % groups * (size // pixels) + lanes // pixels
        w = tl.load(weight + channel, mask=lanes < size, other=0.0).to(tl.float32)
        b = tl.load(bias + channel, mask=lanes < size, other=0.0).to(tl.float32)
        values = tl.load(x + base + lanes, mask=lanes < size, other=0.0).to(tl.float32)
        done = (values - mean) * scale * w + b
        tl.store(out + base + lanes, done.to(out.dtype.element_ty), mask=lanes < size)


@triton.jit
def batched_matmul_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """C[i] = A[i] @ B[i], row-major, without groups of tiles."""
    batch = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        left = tl.load(a + batch * M * K + m[:, None] * K + (at + k)[None, :], mask=m[:, None] < M, other=0.0)
        right = tl.load(b + batch * K * N + (at + k)[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        total = tl.dot(left, right, total)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(c + batch * M * N + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def int8_matmul_kernel(
    a, b, row_scale, column_scale, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """C = (A @ B^T) * row_scale * column_scale of int8 A[M, K] and B[N, K]."""
    pid = tl.program_id(0)
    columns = tl.cdiv(N, BN)
    m = pid // columns * BM + tl.arange(0, BM)
    n = pid % columns * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.int32)
    for at in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (at + k)[None, :], mask=m[:, None] < M, other=0)
        right = tl.load(b + n[None, :] * K + (at + k)[:, None])
        total = tl.dot(left, right, total, out_dtype=tl.int32)
    scale = tl.load(row_scale + m, mask=m < M)[:, None] * tl.load(column_scale + n)[None, :]
    done = (total.to(tl.float32) * scale).to(c.dtype.element_ty)
    tl.store(c + m[:, None] * N + n[None, :], done, mask=m[:, None] < M)


@triton.jit
def w4a16_kernel(
    a, packed, scales, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """C = A @ W, whose eight 4-bit numbers stand in an int32 along K, with a scale for 128 of them."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (at + k)[None, :], mask=m[:, None] < M, other=0.0)
        words = tl.load(packed + (at + k)[:, None] // 8 * N + n[None, :])
        numbers = ((words >> (k % 8 * 4)[:, None]) & 15) - 8
        scale = tl.load(scales + at // 128 * N + n)
        right = numbers.to(tl.float32) * scale[None, :]
        total = tl.dot(left, right.to(left.dtype), total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=m[:, None] < M)


@triton.jit
def moe_kernel(
    a, b, expert_of, c, tokens, N, K, EACH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """C[t] = A[t] @ B[expert of t], tokens in order of their experts, EACH of them with one expert at least."""
    columns = tl.cdiv(N, BN)
    row, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    expert = tl.load(expert_of + row * BM // EACH).to(tl.int64)
    m = row * BM + tl.arange(0, BM)
    n = column * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (at + k)[None, :], mask=m[:, None] < tokens, other=0.0)
        right = tl.load(b + expert * K * N + (at + k)[:, None] * N + n[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=m[:, None] < tokens)


@triton.jit
def causal_conv_kernel(x, weight, bias, out, length, channels, BL: tl.constexpr, BD: tl.constexpr):
    """silu(bias + the causal convolution of width 4) over x[batch, length, channels]."""
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    t = tl.program_id(0) * BL + tl.arange(0, BL)
    base = tl.program_id(2).to(tl.int64) * length * channels
    total = tl.zeros((BL, BD), tl.float32) + tl.load(bias + d).to(tl.float32)[None, :]
    for tap in tl.static_range(4):
        then = t + (tap - 3)
        inside = (then >= 0) & (then < length)
        values = tl.load(x + base + then[:, None] * channels + d[None, :], mask=inside[:, None], other=0.0)
        total += values.to(tl.float32) * tl.load(weight + d * 4 + tap).to(tl.float32)[None, :]
    done = total * tl.sigmoid(total)
    at = base + t[:, None] * channels + d[None, :]
    tl.store(out + at, done.to(out.dtype.element_ty), mask=t[:, None] < length)


@triton.jit
def _after(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def scan_kernel(decay, x, out, length, channels, BT: tl.constexpr, BD: tl.constexpr):
    """h[t] = decay[t] * h[t - 1] + x[t] over time, in chunks of BT by an associative scan."""
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    base = tl.program_id(1).to(tl.int64) * length * channels
    state = tl.zeros((BD,), tl.float32)
    steps = tl.arange(0, BT)
    for start in range(0, length, BT):
        at = base + (start + steps)[:, None] * channels + d[None, :]
        a = tl.load(decay + at).to(tl.float32)
        b = tl.load(x + at).to(tl.float32)
        product, inner = tl.associative_scan((a, b), 0, _after)
        h = inner + product * state[None, :]
        state = tl.sum(tl.where((steps == BT - 1)[:, None], h, 0.0), 0)
        tl.store(out + at, h.to(out.dtype.element_ty))


@triton.jit
def transpose_kernel(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """out[N, M] = x[M, N], a tile per program."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tile = tl.load(x + m[:, None] * N + n[None, :], mask=inside)
    tl.store(out + n[:, None] * M + m[None, :], tl.trans(tile), mask=tl.trans(inside))


@triton.jit
def embedding_kernel(table, ids, out, tokens, width, BT: tl.constexpr, BLOCK: tl.constexpr):
    """out[t] = table[ids[t]], BT tokens and BLOCK columns per program."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (t < tokens)[:, None] & (lanes < width)[None, :]
    rows = tl.load(ids + t, mask=t < tokens, other=0).to(tl.int64)
    values = tl.load(table + rows[:, None] * width + lanes[None, :], mask=inside)
    tl.store(out + t.to(tl.int64)[:, None] * width + lanes[None, :], values, mask=inside)


@triton.jit
def decode_kernel(
    q, k, v, part, weights, S, scale, G: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """One split of attention of G query heads over the S keys of their key head; parts are merged elsewhere."""
    head, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    g, d = tl.arange(0, G), tl.arange(0, D)
    queries = tl.load(q + head * G * D + g[:, None] * D + d[None, :])
    highest = tl.full((G,), float("-inf"), tl.float32)
    weight = tl.zeros((G,), tl.float32)
    total = tl.zeros((G, D), tl.float32)
    for start in range(split * (S // SPLITS), (split + 1) * (S // SPLITS), BN):
        n = start + tl.arange(0, BN)
        keys = tl.load(k + head * S * D + n[None, :] * D + d[:, None])
        scores = tl.dot(queries, keys) * (scale * 1.4426950408889634)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        rescale = tl.exp2(highest - higher)
        weight = weight * rescale + tl.sum(p, 1)
        values = tl.load(v + head * S * D + n[:, None] * D + d[None, :])
        total = tl.dot(p.to(values.dtype), values, total * rescale[:, None])
        highest = higher
    at = (head * SPLITS + split) * G + g
    tl.store(part + at[:, None] * D + d[None, :], total / weight[:, None])
    tl.store(weights + at, highest + tl.log2(weight))


@triton.jit
def gemv_kernel(a, x, y, M, K, BM: tl.constexpr, BK: tl.constexpr):
    """The product y = A @ x, BM rows per program."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM, BK), tl.float32)
    for at in range(0, K, BK):
        k = at + tl.arange(0, BK)
        inside = (m < M)[:, None] & (k < K)[None, :]
        values = tl.load(a + m.to(tl.int64)[:, None] * K + k[None, :], mask=inside, other=0.0).to(tl.float32)
        total += values * tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
    tl.store(y + m, tl.sum(total, 1).to(y.dtype.element_ty), mask=m < M)


@triton.jit
def _attend(total, weight, highest, queries, at_k, at_v, n, seen, D: tl.constexpr):
    """One block of keys and values; `seen` masks the scores."""
    d = tl.arange(0, D)
    scores = tl.dot(queries, tl.load(at_k + n[None, :] * D + d[:, None]))
    scores = tl.where(seen, scores, -1.0e6)
    higher = tl.maximum(highest, tl.max(scores, 1))
    p = tl.exp2(scores - higher[:, None])
    rescale = tl.exp2(highest - higher)
    values = tl.load(at_v + n[:, None] * D + d[None, :])
    total = tl.dot(p.to(values.dtype), values, total * rescale[:, None])
    return total, weight * rescale + tl.sum(p, 1), higher


@triton.jit
def block_sparse_kernel(
    q, k, v, blocks, out, S, scale, COUNT: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Attention of each 64 queries over the COUNT blocks of 64 keys that `blocks` names for them."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    base = tl.program_id(1).to(tl.int64) * S * D
    d = tl.arange(0, D)
    queries = tl.load(q + base + m[:, None] * D + d[None, :])
    queries = (queries * (scale * 1.4426950408889634)).to(queries.dtype)
    highest = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for at in range(0, COUNT * 64, BN):
        block = tl.load(blocks + tl.program_id(0) * BM // 64 * COUNT + at // 64)
        n = block * 64 + at % 64 + tl.arange(0, BN)
        total, weight, highest = _attend(total, weight, highest, queries, k + base, v + base, n, n[None, :] < S, D)
    tl.store(out + base + m[:, None] * D + d[None, :], (total / weight[:, None]).to(out.dtype.element_ty))


@triton.jit
def window_kernel(
    q, k, v, out, S, scale, WINDOW: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Causal attention over the last WINDOW keys."""
    m0 = tl.program_id(0) * BM
    m = m0 + tl.arange(0, BM)
    base = tl.program_id(1).to(tl.int64) * S * D
    d = tl.arange(0, D)
    queries = tl.load(q + base + m[:, None] * D + d[None, :])
    queries = (queries * (scale * 1.4426950408889634)).to(queries.dtype)
    highest = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(tl.maximum(m0 - WINDOW, 0) // BN * BN, m0 + BM, BN):
        n = start + tl.arange(0, BN)
        seen = (n[None, :] <= m[:, None]) & (n[None, :] > m[:, None] - WINDOW)
        total, weight, highest = _attend(total, weight, highest, queries, k + base, v + base, n, seen, D)
    tl.store(out + base + m[:, None] * D + d[None, :], (total / weight[:, None]).to(out.dtype.element_ty))


@triton.jit
def add_rmsnorm_kernel(x, residual, weight, out, total, columns, eps, N: tl.constexpr, ROWS: tl.constexpr):
    """The sum of x and residual, and its RMS norm: ROWS whole rows of at most N columns, one after the other."""
    lanes = tl.arange(0, N)
    inside = lanes < columns
    w = tl.load(weight + lanes, mask=inside, other=0.0).to(tl.float32)
    for each in range(ROWS):
        at = (tl.program_id(0) * ROWS + each).to(tl.int64) * columns + lanes
        added = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        added += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + at, added.to(total.dtype.element_ty), mask=inside)
        scale = tl.rsqrt(tl.sum(added * added) / columns + eps)
        tl.store(out + at, (added * scale * w).to(out.dtype.element_ty), mask=inside)


@triton.jit
def histogram_kernel(x, counts, size, BINS: tl.constexpr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """counts[BINS] += how often each number is in x; PROGRAMS programs walk over it."""
    total = tl.zeros((BINS,), tl.int32)
    for at in range(tl.program_id(0) * BLOCK, size, PROGRAMS * BLOCK):
        total += tl.histogram(tl.load(x + at + tl.arange(0, BLOCK)), BINS)
    tl.atomic_add(counts + tl.arange(0, BINS), total, sem="relaxed")


@triton.jit
def dropout_kernel(x, out, size, p, seed, BLOCK: tl.constexpr):
    """The result is x / (1 - p) where a random number is above p, else 0."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + lanes, mask=lanes < size)
    stays = tl.rand(seed, lanes) > p
    tl.store(out + lanes, tl.where(stays, values / (1 - p), 0.0).to(out.dtype.element_ty), mask=lanes < size)


@triton.jit
def stencil_kernel(x, out, H, W, BM: tl.constexpr, BN: tl.constexpr):
    """A quarter of the sum of the four neighbours of each cell; outside are zeros."""
    y = tl.program_id(0) * BM + tl.arange(0, BM)
    z = tl.program_id(1) * BN + tl.arange(0, BN)
    here = (y < H)[:, None] & (z < W)[None, :]
    at = x + y[:, None] * W + z[None, :]
    total = tl.load(at - W, mask=here & (y > 0)[:, None], other=0.0)
    total += tl.load(at + W, mask=here & (y < H - 1)[:, None], other=0.0)
    total += tl.load(at - 1, mask=here & (z > 0)[None, :], other=0.0)
    total += tl.load(at + 1, mask=here & (z < W - 1)[None, :], other=0.0)
    tl.store(out + y[:, None] * W + z[None, :], 0.25 * total, mask=here)


@triton.jit
def argmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    """The place of the largest value of each row, the first of equals, in chunks of BLOCK."""
    row = tl.program_id(0)
    base = row.to(tl.int64) * columns
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    place = tl.zeros((BLOCK,), tl.int32)
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        values = tl.load(x + base + lanes, mask=lanes < columns, other=float("-inf")).to(tl.float32)
        place = tl.where(values > best, lanes, place)
        best = tl.maximum(best, values)
    top = tl.max(best)
    tl.store(out + row, tl.min(tl.where(best == top, place, columns)))


@triton.jit
def channel_statistics_kernel(x, mean, variance, rows, channels, BR: tl.constexpr, BC: tl.constexpr):
    """Mean and variance of each column by Welford's merging of chunks of BR rows."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    average = tl.zeros((BC,), tl.float32)
    spread = tl.zeros((BC,), tl.float32)
    for at in range(0, rows, BR):
        r = at + tl.arange(0, BR)
        values = tl.load(x + r[:, None] * channels + c[None, :]).to(tl.float32)
        part = tl.sum(values, 0) / BR
        centred = values - part[None, :]
        delta = part - average
        spread += tl.sum(centred * centred, 0) + delta * delta * (at * BR / (at + BR))
        average += delta * (BR / (at + BR))
    tl.store(mean + c, average)
    tl.store(variance + c, spread / rows)


@triton.jit
def tall_skinny_kernel(x, a, out, M, K, R: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """out[M, R] = x[M, K] @ a[K, R] with a small R, as the first product of a LoRA."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    k, r = tl.arange(0, BK), tl.arange(0, R)
    total = tl.zeros((BM, R), tl.float32)
    for at in range(0, K, BK):
        left = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=m[:, None] < M, other=0.0)
        right = tl.load(a + (at + k)[:, None] * R + r[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + m[:, None] * R + r[None, :], total.to(out.dtype.element_ty), mask=m[:, None] < M)


@triton.jit
def chunk_state_kernel(
    b, x, decay, states, CHUNK: tl.constexpr, N: tl.constexpr, P: tl.constexpr,
    BN: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """states[chunk] = (b * decay)^T @ x over the CHUNK steps of a chunk, as of Mamba's states."""
    chunk = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    total = tl.zeros((BN, BP), tl.float32)
    for at in range(0, CHUNK, BK):
        k = at + tl.arange(0, BK)
        left = tl.load(b + chunk * CHUNK * N + k[None, :] * N + n[:, None])
        scale = tl.exp(-tl.load(decay + chunk * CHUNK + k))
        right = tl.load(x + chunk * CHUNK * P + k[:, None] * P + p[None, :])
        total = tl.dot((left * scale[None, :]).to(right.dtype), right, total)
    tl.store(states + chunk * N * P + n[:, None] * P + p[None, :], total.to(states.dtype.element_ty))


@triton.jit
def router_kernel(logits, weights, experts, rows, E: tl.constexpr, ROWS: tl.constexpr):
    """The softmax of each row of E logits, and its two largest, with their places."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    e = tl.arange(0, E)
    values = tl.load(logits + row[:, None] * E + e[None, :], mask=row[:, None] < rows, other=0.0).to(tl.float32)
    shares = tl.exp(values - tl.max(values, 1)[:, None])
    total = tl.sum(shares, 1)
    for pick in tl.static_range(2):
        place = tl.argmax(shares, 1)
        tl.store(weights + row * 2 + pick, tl.max(shares, 1) / total, mask=row < rows)
        tl.store(experts + row * 2 + pick, place, mask=row < rows)
        shares = tl.where(e[None, :] == place[:, None], -1.0, shares)


@triton.jit
def convolution_kernel(
    x, weight, out, images, H, W, C: tl.constexpr, F, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """out[images, H, W, F]: a convolution of 3 by 3, channels last, as a product of H * W * images rows."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    row, column = m // W % H, m % W
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, 9 * C, BK):
        tap = step // C
        dy, dx = tap // 3 - 1, tap % 3 - 1
        c = step % C + tl.arange(0, BK)
        seen = (row + dy >= 0) & (row + dy < H) & (column + dx >= 0) & (column + dx < W) & (m < images * H * W)
        left = tl.load(x + (m + dy * W + dx)[:, None] * C + c[None, :], mask=seen[:, None], other=0.0)
        right = tl.load(weight + (tap * C + c)[:, None] * F + n[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + m[:, None] * F + n[None, :], total.to(out.dtype.element_ty), mask=(m < images * H * W)[:, None])
