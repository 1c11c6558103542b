"""Kernels that reduce rows: what padded lanes hold, and in which type sums are kept."""

import triton
import triton.language as tl


@triton.jit
def softmax_good(out, inp, pitch, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(inp + row * pitch + c, mask=c < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * pitch + c, e / tl.sum(e, axis=0), mask=c < n)


@triton.jit
def softmax_zero_bad(out, inp, pitch, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(inp + row * pitch + c, mask=c < n, other=0.0)
    top = tl.max(x, axis=0)  # finds: wrong-identity
    e = tl.exp(x - top)
    tl.store(out + row * pitch + c, e / tl.sum(e, axis=0), mask=c < n)  # finds: wrong-identity


@triton.jit
def softmax_without_other_bad(out, inp, pitch, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(inp + row * pitch + c, mask=c < n)
    top = tl.max(x, axis=0)  # finds: wrong-identity
    e = tl.exp(x - top)
    total = tl.sum(e, axis=0)  # finds: wrong-identity
    tl.store(out + row * pitch + c, e / total, mask=c < n)


@triton.jit
def softmax_where_good(out, inp, pitch, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    inside = c < n
    x = tl.load(inp + row * pitch + c, mask=inside, other=0.0)
    x = tl.where(inside, x, float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out + row * pitch + c, e / tl.sum(e, 0), mask=inside)


@triton.jit
def smallest_bad(x, out, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=0.0)
    low = tl.min(v, axis=0)  # finds: wrong-identity
    tl.store(out + r, low)


@triton.jit
def smallest_good(x, out, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=float("inf"))
    tl.store(out + r, tl.min(v, axis=0))


@triton.jit
def largest_magnitude_good(x, out, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=0.0)
    tl.store(out + r, tl.max(tl.abs(v), axis=0))


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def product_bad(x, out, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=0.0).to(tl.float32)
    whole = tl.reduce(v, 0, _times)  # finds: wrong-identity
    tl.store(out + r, whole)


@triton.jit
def product_good(x, out, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=1.0).to(tl.float32)
    tl.store(out + r, tl.reduce(v, 0, _times))


@triton.jit
def _larger(value_a, place_a, value_b, place_b):
    first = value_a >= value_b
    return tl.where(first, value_a, value_b), tl.where(first, place_a, place_b)


@triton.jit
def place_of_largest_bad(x, out, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=0.0).to(tl.float32)
    _, where = tl.reduce((v, k), 0, _larger)  # finds: wrong-identity
    tl.store(out + r, where)


@triton.jit
def place_of_largest_good(x, out, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=-1e30).to(tl.float32)
    _, where = tl.reduce((v, k), 0, _larger)
    tl.store(out + r, where)


@triton.jit
def _welford(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def welford_good(x, mean, var, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    inside = k < n
    v = tl.load(x + r * pitch + k, mask=inside, other=0.0).to(tl.float32)
    mu, m2, weight = tl.reduce((v, tl.zeros_like(v), inside.to(tl.float32)), 0, _welford)
    tl.store(mean + r, mu)
    tl.store(var + r, m2 / weight)


@triton.jit
def welford_bad(x, mean, var, pitch, n, W: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, W)
    v = tl.load(x + r * pitch + k, mask=k < n, other=0.0).to(tl.float32)
    ones = tl.full((W,), 1.0, tl.float32)
    mu, m2, weight = tl.reduce((v, tl.zeros_like(v), ones), 0, _welford)  # finds: wrong-identity
    tl.store(mean + r, mu)
    tl.store(var + r, m2 / weight)


@triton.jit
def layer_norm_good(x, y, w, b, pitch, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n
    v = tl.load(x + row * pitch + cols, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / n
    centred = tl.where(inside, v - mean, 0.0)
    var = tl.sum(centred * centred, axis=0) / n
    scale = tl.load(w + cols, mask=inside).to(tl.float32)
    shift = tl.load(b + cols, mask=inside).to(tl.float32)
    tl.store(y + row * pitch + cols, centred * tl.rsqrt(var + eps) * scale + shift, mask=inside)


@triton.jit
def layer_norm_bad(x, y, pitch, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n
    v = tl.load(x + row * pitch + cols, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / n
    centred = v - mean
    var = tl.sum(centred * centred, axis=0) / n  # finds: wrong-identity
    tl.store(y + row * pitch + cols, centred * tl.rsqrt(var + eps), mask=inside)


@triton.jit
def two_pass_good(x, out, pitch, n, BLOCK: tl.constexpr):
    row = x + tl.program_id(0) * pitch
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        c = first + tl.arange(0, BLOCK)
        total += tl.load(row + c, mask=c < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    spread = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(row + c, mask=c < n, other=0.0).to(tl.float32)
        v = tl.where(c < n, v - mean, 0.0)
        spread += v * v
    tl.store(out + tl.program_id(0), tl.sum(spread, axis=0) / n)


@triton.jit
def two_pass_bad(x, out, pitch, n, BLOCK: tl.constexpr):
    row = x + tl.program_id(0) * pitch
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        c = first + tl.arange(0, BLOCK)
        total += tl.load(row + c, mask=c < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    spread = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(row + c, mask=c < n, other=0.0).to(tl.float32) - mean
        spread += v * v
    whole = tl.sum(spread, axis=0)  # finds: wrong-identity
    tl.store(out + tl.program_id(0), whole / n)


@triton.jit
def online_good(x, out, pitch, n, BLOCK: tl.constexpr):
    start = x + tl.program_id(0) * pitch
    m = -float("inf")
    d = 0.0
    for first in range(0, n, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(start + c, mask=c < n, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m, tl.max(v))
        d = d * tl.exp(m - higher) + tl.sum(tl.exp(v - higher))
        m = higher
    tl.store(out + tl.program_id(0), m + tl.log(d))


@triton.jit
def cross_entropy_good(logits, target, out, pitch, n, smooth, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(target + row)
    base = logits + row * pitch
    picked = tl.load(base + label).to(tl.float32)
    m = float("-inf")
    d = 0.0
    extra = 0.0
    for first in range(0, n, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(base + c, mask=c < n, other=float("-inf")).to(tl.float32)
        top = tl.max(v)
        extra += tl.sum(tl.where(c < n, -smooth * v, 0.0))
        higher = tl.maximum(m, top)
        d = d * tl.exp(m - higher) + tl.sum(tl.exp(v - higher))
        m = higher
    tl.store(out + row, m + tl.log(d) - picked + extra)


@triton.jit
def half_sum_bad(x, out, pitch, n, BLOCK: tl.constexpr):
    row = x + tl.program_id(0) * pitch
    total = tl.zeros([BLOCK], dtype=tl.bfloat16)
    for first in range(0, n, BLOCK):  # finds: low-precision-sum
        c = first + tl.arange(0, BLOCK)
        total += tl.load(row + c, mask=c < n, other=0.0).to(tl.bfloat16)
    tl.store(out + tl.program_id(0), tl.sum(total.to(tl.float32), axis=0))


@triton.jit
def rounded_each_turn_bad(x, out, pitch, n, BLOCK: tl.constexpr):
    row = x + tl.program_id(0) * pitch
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):  # finds: low-precision-sum
        c = first + tl.arange(0, BLOCK)
        more = tl.load(row + c, mask=c < n, other=0.0).to(tl.float32)
        total = (total + more).to(tl.float16).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def narrow_reduce_bad(x, out, pitch, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * pitch + c, mask=c < n, other=0.0).to(tl.float16)
    total = tl.sum(v, axis=0)  # finds: low-precision-sum
    tl.store(out + row, total)


@triton.jit
def column_mean_good(x, out, rows, cols, pitch, TALL: tl.constexpr, WIDE: tl.constexpr):
    c = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for first in range(0, rows, TALL):
        r = first + tl.arange(0, TALL)
        total += tl.load(x + r[:, None] * pitch + c[None, :], mask=(r < rows)[:, None] & (c < cols)[None, :], other=0.0)
    tl.store(out + c, tl.sum(total, axis=0) / rows, mask=c < cols)


@triton.jit
def largest_quotient_good(p, q, y, n, B: tl.constexpr):
    """Probabilities over what is above 0: a padded 0 is never larger than one of them."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, B)
    probability = tl.load(p + row * n + at, mask=at < n, other=0.0)
    noise = tl.load(q + row * n + at, mask=at < n, other=float("-inf"))
    tl.store(y + row, tl.argmax(probability / noise, axis=0))


@triton.jit
def sums_before_each_block_good(x, bias, y, T, B: tl.constexpr, W: tl.constexpr):
    c = tl.arange(0, W)
    shift, total = tl.load(bias + c), tl.zeros((W,), dtype=tl.float32)
    for i in range(tl.cdiv(T, B)):
        t = i * B + tl.arange(0, B)
        value = tl.load(x + t[:, None] * W + c[None, :], mask=(t < T)[:, None], other=0.0).to(tl.float32)
        tl.store(y + t[:, None] * W + c[None, :], value + total[None, :], mask=(t < T)[:, None])
        total += tl.sum(value + shift[None, :], axis=0)


@triton.jit
def sums_of_all_blocks_bad(x, bias, y, T, B: tl.constexpr, W: tl.constexpr):
    c = tl.arange(0, W)
    shift, total = tl.load(bias + c), tl.zeros((W,), dtype=tl.float32)
    for i in range(tl.cdiv(T, B)):
        t = i * B + tl.arange(0, B)
        value = tl.load(x + t[:, None] * W + c[None, :], mask=(t < T)[:, None], other=0.0).to(tl.float32)
        total += tl.sum(value + shift[None, :], axis=0)  # finds: wrong-identity
    tl.store(y + c, total)


@triton.jit
def sums_of_whole_blocks_good(x, y, n, W: tl.constexpr):
    i = tl.program_id(0)
    at = i * W + tl.arange(0, W)
    v = tl.exp(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32))
    tl.store(y + i, tl.sum(v, axis=0), mask=i < n // W)


@triton.jit
def sums_of_begun_blocks_bad(x, y, n, W: tl.constexpr):
    i = tl.program_id(0)
    at = i * W + tl.arange(0, W)
    v = tl.exp(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32))
    total = tl.sum(v, axis=0)  # finds: wrong-identity
    tl.store(y + i, total, mask=i < (n + W - 1) // W)


@triton.jit
def largest_of_whole_blocks_good(x, y, n, W: tl.constexpr):
    i = tl.program_id(0)
    at = i * W + tl.arange(0, W)
    top = tl.max(tl.load(x + at, mask=at < n, other=0.0), axis=0)
    if (i + 1) * W > n:
        return
    tl.store(y + i, top)


@triton.jit
def largest_of_begun_blocks_bad(x, y, n, W: tl.constexpr):
    i = tl.program_id(0)
    at = i * W + tl.arange(0, W)
    top = tl.max(tl.load(x + at, mask=at < n, other=0.0), axis=0)  # finds: wrong-identity
    if i * W >= n:
        return
    tl.store(y + i, top)


@triton.jit
def least_of_whole_windows_good(x, y, n, W: tl.constexpr, R: tl.constexpr, STEP: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    at = r[:, None] * STEP + tl.arange(0, W)[None, :]
    low = tl.min(tl.load(x + at, mask=at < n, other=0.0), axis=1)
    tl.store(y + r, tl.where(r * STEP + W <= n, low, 0.0), mask=r * STEP < n)


@triton.jit
def least_of_begun_windows_bad(x, y, n, W: tl.constexpr, R: tl.constexpr, STEP: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    at = r[:, None] * STEP + tl.arange(0, W)[None, :]
    low = tl.min(tl.load(x + at, mask=at < n, other=0.0), axis=1)  # finds: wrong-identity
    tl.store(y + r, tl.where(r * STEP + W <= n + 1, low, 0.0), mask=r * STEP < n)


@triton.jit
def least_in_dropped_lanes_good(x, y, M, N, R: tl.constexpr, W: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, W)
    inside = (r < M)[:, None] & (c < N)[None, :]
    v = tl.load(x + r[:, None] * N + c[None, :], mask=inside, other=0.0)
    filled = tl.where((c < N)[None, :], v, tl.min(v, axis=1)[:, None])
    tl.store(y + r[:, None] * N + c[None, :], filled, mask=inside)


@triton.jit
def least_in_first_lanes_bad(x, y, M, N, R: tl.constexpr, W: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, W)
    inside = (r < M)[:, None] & (c < N)[None, :]
    v = tl.load(x + r[:, None] * N + c[None, :], mask=inside, other=0.0)
    low = tl.min(v, axis=1)  # finds: wrong-identity
    filled = tl.where((c > 0)[None, :], v, low[:, None])
    tl.store(y + r[:, None] * N + c[None, :], filled, mask=inside)


@triton.jit
def sum_after_sums_of_whole_blocks_bad(x, y, z, n, W: tl.constexpr):
    total = 0.0
    for i in range(tl.cdiv(n, W)):
        at = i * W + tl.arange(0, W)
        v = tl.exp(tl.load(x + at, mask=at < n, other=0.0).to(tl.float32))
        part = tl.sum(v, axis=0)  # finds: wrong-identity
        tl.store(y + i, part, mask=i < n // W)
        total += part
    tl.store(z, total)
