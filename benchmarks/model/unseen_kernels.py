"""Kernels of kinds beyond those of `fresh_kernels`, for a test of the model on what it was not changed by."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def linear_gelu_kernel(
    x, w, bias, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """gelu(x[M, K] @ w[N, K]^T + bias), rows of tiles in groups."""
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * columns) * GROUP
    high = tl.minimum(rows - first, GROUP)
    m = (first + pid % (GROUP * columns) % high) * BM + tl.arange(0, BM)
    n = pid % (GROUP * columns) // high * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        inside = at + k < K
        left = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        right = tl.load(w + n[None, :] * K + (at + k)[:, None], mask=(n < N)[None, :] & inside[:, None], other=0.0)
        total = tl.dot(left, right, total)
    total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient_kernel(
    x, dy, dw, tokens, K, N, BK: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr
):  # fmt: skip
    """dw[K, N] = x[tokens, K]^T @ dy[tokens, N]."""
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    t = tl.arange(0, BT)
    total = tl.zeros((BK, BN), tl.float32)
    for at in range(0, tokens, BT):
        within = at + t < tokens
        left = tl.load(x + (at + t)[None, :] * K + k[:, None], mask=within[None, :] & (k < K)[:, None], other=0.0)
        right = tl.load(dy + (at + t)[:, None] * N + n[None, :], mask=within[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(left, right, total)
    inside = (k < K)[:, None] & (n < N)[None, :]
    tl.store(dw + k[:, None] * N + n[None, :], total.to(dw.dtype.element_ty), mask=inside)


@triton.jit
def lora_kernel(
    x, w, a, b, out, M, N, K, R: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """The sum x @ w + (x @ a) @ b with a rank of R, both products of x in one loop."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k, r = tl.arange(0, BK), tl.arange(0, R)
    total = tl.zeros((BM, BN), tl.float32)
    low = tl.zeros((BM, R), tl.float32)
    for at in range(0, K, BK):
        inside = at + k < K
        left = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        right = tl.load(w + (at + k)[:, None] * N + n[None, :], mask=inside[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(left, right, total)
        low = tl.dot(left, tl.load(a + (at + k)[:, None] * R + r[None, :], mask=inside[:, None], other=0.0), low)
    up = tl.load(b + r[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0.0)
    total = tl.dot(low.to(up.dtype), up, total)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def block_scaled_kernel(
    a, b, a_scale, b_scale, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """C = A @ B^T in 8-bit floats, with a scale for each 128 of a row of A and for each 128 by 128 of B."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, 128)
    blocks = tl.cdiv(K, 128)
    total = tl.zeros((BM, BN), tl.float32)
    for block in range(blocks):
        at = block * 128 + k
        left = tl.load(a + m[:, None] * K + at[None, :], mask=(m < M)[:, None] & (at < K)[None, :], other=0.0)
        right = tl.load(b + n[None, :] * K + at[:, None], mask=(n < N)[None, :] & (at < K)[:, None], other=0.0)
        row = tl.load(a_scale + m * blocks + block, mask=m < M, other=0.0)
        column = tl.load(b_scale + n // 128 * blocks + block, mask=n < N, other=0.0)
        total += tl.dot(left, right) * row[:, None] * column[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def attention_dq_kernel(
    q, k, v, dout, lse, delta, dq, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """The gradient of the queries of causal attention, from the logarithms of its sums and `delta`."""
    m0 = tl.program_id(0) * BM
    m = m0 + tl.arange(0, BM)
    base = tl.program_id(1).to(tl.int64) * S * D
    d = tl.arange(0, D)
    at_m = base + m[:, None] * D + d[None, :]
    here = (m < S)[:, None]
    queries = tl.load(q + at_m, mask=here, other=0.0)
    gradients = tl.load(dout + at_m, mask=here, other=0.0)
    sums = tl.load(lse + tl.program_id(1) * S + m, mask=m < S, other=0.0)
    row = tl.load(delta + tl.program_id(1) * S + m, mask=m < S, other=0.0)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, tl.minimum(m0 + BM, S), BN):
        n = start + tl.arange(0, BN)
        at_n = base + n[:, None] * D + d[None, :]
        keys = tl.load(k + at_n, mask=(n < S)[:, None], other=0.0)
        values = tl.load(v + at_n, mask=(n < S)[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        p = tl.where(n[None, :] <= m[:, None], tl.exp(scores - sums[:, None]), 0.0)
        dp = tl.dot(gradients, tl.trans(values))
        total = tl.dot((p * (dp - row[:, None])).to(keys.dtype), keys, total)
    tl.store(dq + at_m, (total * scale).to(dq.dtype.element_ty), mask=here)


@triton.jit
def bias_attention_kernel(
    q, k, v, bias, out, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Attention whose scores get a bias for each query and key, one for all heads."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    base = tl.program_id(1).to(tl.int64) * S * D
    d = tl.arange(0, D)
    queries = tl.load(q + base + m[:, None] * D + d[None, :], mask=(m < S)[:, None], other=0.0)
    highest = tl.full((BM,), -1.0e30, tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, S, BN):
        n = start + tl.arange(0, BN)
        keys = tl.load(k + base + n[:, None] * D + d[None, :], mask=(n < S)[:, None], other=0.0)
        inside = (m < S)[:, None] & (n < S)[None, :]
        added = tl.load(bias + m[:, None] * S + n[None, :], mask=inside, other=-1.0e30).to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys)) * scale + added
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp(scores - higher[:, None])
        rescale = tl.exp(highest - higher)
        weight = weight * rescale + tl.sum(p, 1)
        values = tl.load(v + base + n[:, None] * D + d[None, :], mask=(n < S)[:, None], other=0.0)
        total = tl.dot(p.to(values.dtype), values, total * rescale[:, None])
        highest = higher
    done = (total / weight[:, None]).to(out.dtype.element_ty)
    tl.store(out + base + m[:, None] * D + d[None, :], done, mask=(m < S)[:, None])


@triton.jit
def paged_decode_kernel(
    q, k, v, pages, out, keys, scale, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Attention of one query of each of G heads over keys in pages of PAGE, which `pages` names."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    g, d = tl.arange(0, G), tl.arange(0, D)
    at = (sequence * tl.num_programs(1) + head) * G
    queries = tl.load(q + (at + g)[:, None] * D + d[None, :])
    highest = tl.full((G,), -1.0e30, tl.float32)
    weight = tl.zeros((G,), tl.float32)
    total = tl.zeros((G, D), tl.float32)
    for start in range(0, keys, BN):
        n = start + tl.arange(0, BN)
        page = tl.load(pages + sequence * tl.cdiv(keys, PAGE) + n // PAGE, mask=n < keys, other=0).to(tl.int64)
        place = ((page * PAGE + n % PAGE) * tl.num_programs(1) + head) * D
        them = tl.load(k + place[None, :] + d[:, None], mask=(n < keys)[None, :], other=0.0)
        scores = tl.where((n < keys)[None, :], tl.dot(queries, them) * scale, -1.0e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp(scores - higher[:, None])
        rescale = tl.exp(highest - higher)
        weight = weight * rescale + tl.sum(p, 1)
        values = tl.load(v + place[:, None] + d[None, :], mask=(n < keys)[:, None], other=0.0)
        total = tl.dot(p.to(values.dtype), values, total * rescale[:, None])
        highest = higher
    tl.store(out + (at + g)[:, None] * D + d[None, :], (total / weight[:, None]).to(out.dtype.element_ty))


@triton.jit
def retention_kernel(q, k, v, out, S, D: tl.constexpr, BV: tl.constexpr, BT: tl.constexpr):
    """Causal linear attention in chunks of BT, whose state of D by BV is carried from chunk to chunk."""
    base = tl.program_id(1).to(tl.int64) * S * D
    d, e, t = tl.arange(0, D), tl.program_id(0) * BV + tl.arange(0, BV), tl.arange(0, BT)
    state = tl.zeros((D, BV), tl.float32)
    for start in range(0, S, BT):
        inside = start + t < S
        rows = base + (start + t)[:, None] * D
        queries = tl.load(q + rows + d[None, :], mask=inside[:, None], other=0.0)
        keys = tl.load(k + base + (start + t)[None, :] * D + d[:, None], mask=inside[None, :], other=0.0)
        values = tl.load(v + rows + e[None, :], mask=inside[:, None], other=0.0)
        scores = tl.where(t[:, None] >= t[None, :], tl.dot(queries, keys), 0.0)
        here = tl.dot(scores.to(values.dtype), values)
        here = tl.dot(queries, state.to(queries.dtype), here)
        state = tl.dot(keys, values, state)
        tl.store(out + rows + e[None, :], (here / S).to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def lower_gram_kernel(x, out, N, K, BLOCK: tl.constexpr, BK: tl.constexpr):
    """x[N, K] @ x^T at and below the diagonal, and zeros above it, whose tiles have nothing to multiply."""
    row, column = tl.program_id(0), tl.program_id(1)
    m, n = row * BLOCK + tl.arange(0, BLOCK), column * BLOCK + tl.arange(0, BLOCK)
    k, inside = tl.arange(0, BK), (m < N)[:, None] & (n < N)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    if column > row:
        tl.store(out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=inside)
        return
    for at in range(0, K, BK):
        within = at + k < K
        left = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=(m < N)[:, None] & within[None, :], other=0.0)
        right = tl.load(x + n[None, :] * K + (at + k)[:, None], mask=(n < N)[None, :] & within[:, None], other=0.0)
        total = tl.dot(left, right, total)
    total = tl.where(n[None, :] <= m[:, None], total, 0.0)
    tl.store(out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def nearest_kernel(
    x, centres, out, points, count, D: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """The least of |centre|^2 - 2 x @ centre of each point over all centres, as in k-means."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    d = tl.arange(0, D)
    here = tl.load(x + p[:, None] * D + d[None, :], mask=(p < points)[:, None], other=0.0)
    least = tl.full((BP,), 1.0e30, tl.float32)
    for start in range(0, count, BC):
        c = start + tl.arange(0, BC)
        there = tl.load(centres + c[:, None] * D + d[None, :], mask=(c < count)[:, None], other=0.0)
        size = tl.sum(there.to(tl.float32) * there.to(tl.float32), 1)
        far = size[None, :] - 2.0 * tl.dot(here, tl.trans(there))
        least = tl.minimum(least, tl.min(tl.where((c < count)[None, :], far, 1.0e30), 1))
    tl.store(out + p, least, mask=p < points)


@triton.jit
def pointwise_conv_kernel(
    x, w, out, C, F, P, BF: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """out[image, F, P] = w[F, C] @ x[image, C, P]: a convolution of 1 by 1, channels first."""
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.arange(0, BC)
    image = tl.program_id(2).to(tl.int64)
    total = tl.zeros((BF, BP), tl.float32)
    for at in range(0, C, BC):
        inside = at + c < C
        left = tl.load(w + f[:, None] * C + (at + c)[None, :], mask=(f < F)[:, None] & inside[None, :], other=0.0)
        right = tl.load(
            x + image * C * P + (at + c)[:, None] * P + p[None, :], mask=inside[:, None] & (p < P)[None, :], other=0.0
        )
        total = tl.dot(left, right, total)
    mask = (f < F)[:, None] & (p < P)[None, :]
    tl.store(out + image * F * P + f[:, None] * P + p[None, :], total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def geglu_backward_kernel(gate, up, dy, dgate, dup, size, BLOCK: tl.constexpr):
    """Both gradients of gelu(gate) * up, with the hyperbolic tangent."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < size
    g = tl.load(gate + lanes, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + lanes, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(dy + lanes, mask=inside, other=0.0).to(tl.float32)
    inner = 0.7978845608 * g * (1.0 + 0.044715 * g * g)
    tangent = 2.0 * tl.sigmoid(2.0 * inner) - 1.0
    slope = 0.5 * g * (1.0 - tangent * tangent) * 0.7978845608 * (1.0 + 0.134145 * g * g)
    tl.store(dgate + lanes, (d * u * (0.5 * (1.0 + tangent) + slope)).to(dgate.dtype.element_ty), mask=inside)
    tl.store(dup + lanes, (d * 0.5 * g * (1.0 + tangent)).to(dup.dtype.element_ty), mask=inside)


@triton.jit
def quantize_rows_kernel(x, out, scales, rows, columns, N: tl.constexpr, ROWS: tl.constexpr):
    """Rows of at most N columns as int8, each with a scale by its largest element."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, N)
    inside = (row < rows)[:, None] & (lanes < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + lanes[None, :]
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 1), 1e-6) / 127.0
    tl.store(out + at, (values / scale[:, None]).to(tl.int8), mask=inside)
    tl.store(scales + row, scale, mask=row < rows)


@triton.jit
def log_softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    """The logarithm of the softmax of a row of any length: one walk for its sum, one to write."""
    base = tl.program_id(0).to(tl.int64) * columns
    top = tl.full((BLOCK,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        values = tl.load(x + base + lanes, mask=lanes < columns, other=-1.0e30).to(tl.float32)
        higher = tl.maximum(top, values)
        total = total * tl.exp(top - higher) + tl.exp(values - higher)
        top = higher
    most = tl.max(top)
    shift = most + tl.log(tl.sum(total * tl.exp(top - most)))
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        values = tl.load(x + base + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        tl.store(out + base + lanes, (values - shift).to(out.dtype.element_ty), mask=lanes < columns)


@triton.jit
def max_pool_kernel(x, out, H, W, BH: tl.constexpr, BW: tl.constexpr):
    """The largest of each 3 by 3 cells in steps of two, of an image per last program, with a border of one."""
    y = tl.program_id(1) * BH + tl.arange(0, BH)
    z = tl.program_id(0) * BW + tl.arange(0, BW)
    image = tl.program_id(2).to(tl.int64)
    high, wide = (H + 1) // 2, (W + 1) // 2
    best = tl.full((BH, BW), -1.0e30, tl.float32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            row, column = 2 * y + (dy - 1), 2 * z + (dx - 1)
            within = ((row >= 0) & (row < H))[:, None] & ((column >= 0) & (column < W))[None, :]
            values = tl.load(x + image * H * W + row[:, None] * W + column[None, :], mask=within, other=-1.0e30)
            best = tl.maximum(best, values.to(tl.float32))
    mask = (y < high)[:, None] & (z < wide)[None, :]
    at = image * high * wide + y[:, None] * wide + z[None, :]
    tl.store(out + at, best.to(out.dtype.element_ty), mask=mask)


@triton.jit
def depthwise_conv_kernel(x, weight, out, H, W, C, BW: tl.constexpr, BC: tl.constexpr):
    """A convolution of 3 by 3 of each channel alone, channels last, one row of an image per program."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    w = tl.program_id(1) * BW + tl.arange(0, BW)
    row = tl.program_id(2)
    total = tl.zeros((BW, BC), tl.float32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            y, z = row % H + (dy - 1), w + (dx - 1)
            within = (y >= 0) & (y < H) & (z >= 0) & (z < W)
            at = ((row + (dy - 1)).to(tl.int64) * W + z)[:, None] * C + c[None, :]
            values = tl.load(x + at, mask=within[:, None] & (c < C)[None, :], other=0.0).to(tl.float32)
            total += values * tl.load(weight + (dy * 3 + dx) * C + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    at = (row.to(tl.int64) * W + w)[:, None] * C + c[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(w < W)[:, None] & (c < C)[None, :])


@triton.jit
def scatter_add_kernel(x, ids, out, tokens, width, BT: tl.constexpr, BLOCK: tl.constexpr):
    """out[ids[t]] += x[t] by atomic additions."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (t < tokens)[:, None] & (lanes < width)[None, :]
    rows = tl.load(ids + t, mask=t < tokens, other=0).to(tl.int64)
    values = tl.load(x + t.to(tl.int64)[:, None] * width + lanes[None, :], mask=inside, other=0.0)
    tl.atomic_add(out + rows[:, None] * width + lanes[None, :], values, mask=inside, sem="relaxed")


@triton.jit
def sparse_rows_kernel(values, columns, begins, dense, out, width, BK: tl.constexpr, BN: tl.constexpr):
    """A sparse matrix by rows times a dense one: a row and BN columns per program, BK entries at a time."""
    row = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    first, last = tl.load(begins + row), tl.load(begins + row + 1)
    total = tl.zeros((BK, BN), tl.float32)
    for start in range(first, last, BK):
        at = start + tl.arange(0, BK)
        weight = tl.load(values + at, mask=at < last, other=0.0)
        place = tl.load(columns + at, mask=at < last, other=0)
        inside = (at < last)[:, None] & (n < width)[None, :]
        total += weight[:, None] * tl.load(dense + place[:, None] * width + n[None, :], mask=inside, other=0.0)
    tl.store(out + row * width + n, tl.sum(total, 0), mask=n < width)


@triton.jit
def decay_sums_kernel(x, out, T, H, BT: tl.constexpr, BH: tl.constexpr):
    """The running sums of x[sequence, T, H] along time within chunks of 64 steps, BT // 64 chunks per program."""
    chunk, t, h = tl.arange(0, BT // 64), tl.arange(0, 64), tl.program_id(1) * BH + tl.arange(0, BH)
    step = tl.program_id(0) * BT + chunk[:, None] * 64 + t[None, :]
    at = tl.program_id(2) * T * H + step[:, :, None] * H + h[None, None, :]
    inside = (step < T)[:, :, None] & (h < H)[None, None, :]
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, tl.cumsum(tl.exp(-values), 1), mask=inside)


@triton.jit
def pairwise_iou_kernel(left, right, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """The intersection over the union of each of M boxes with each of N, a box being four numbers."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    a0, a1 = tl.load(left + m * 4, mask=m < M, other=0.0), tl.load(left + m * 4 + 1, mask=m < M, other=0.0)
    a2, a3 = tl.load(left + m * 4 + 2, mask=m < M, other=1.0), tl.load(left + m * 4 + 3, mask=m < M, other=1.0)
    b0, b1 = tl.load(right + n * 4, mask=n < N, other=0.0), tl.load(right + n * 4 + 1, mask=n < N, other=0.0)
    b2, b3 = tl.load(right + n * 4 + 2, mask=n < N, other=1.0), tl.load(right + n * 4 + 3, mask=n < N, other=1.0)
    wide = tl.minimum((a0 + a2)[:, None], (b0 + b2)[None, :]) - tl.maximum(a0[:, None], b0[None, :])
    high = tl.minimum((a1 + a3)[:, None], (b1 + b3)[None, :]) - tl.maximum(a1[:, None], b1[None, :])
    shared = tl.maximum(wide, 0.0) * tl.maximum(high, 0.0)
    union = (a2 * a3)[:, None] + (b2 * b3)[None, :] - shared
    tl.store(out + m[:, None] * N + n[None, :], shared / union, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def permute_heads_kernel(x, out, S, H, D: tl.constexpr, BS: tl.constexpr, BH: tl.constexpr):
    """out[batch, H, S, D] = x[batch, S, H, D]."""
    s = tl.program_id(0) * BS + tl.arange(0, BS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    d = tl.arange(0, D)
    base = tl.program_id(2).to(tl.int64) * S * H * D
    inside = (s < S)[:, None, None] & (h < H)[None, :, None]
    values = tl.load(x + base + (s[:, None, None] * H + h[None, :, None]) * D + d[None, None, :], mask=inside)
    tl.store(out + base + (h[None, :, None] * S + s[:, None, None]) * D + d[None, None, :], values, mask=inside)


@triton.jit
def batch_norm_kernel(x, mean, scale, bias, out, C, P, BC: tl.constexpr, BP: tl.constexpr):
    """relu((x - mean) * scale + bias) of x[image, C, P], each of the three by channel."""
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    at = tl.program_id(2).to(tl.int64) * C * P + c[:, None] * P + p[None, :]
    inside = (c < C)[:, None] & (p < P)[None, :]
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    centre = tl.load(mean + c, mask=c < C, other=0.0)[:, None]
    done = (values - centre) * tl.load(scale + c, mask=c < C, other=0.0)[:, None]
    done += tl.load(bias + c, mask=c < C, other=0.0)[:, None]
    tl.store(out + at, tl.maximum(done, 0.0).to(out.dtype.element_ty), mask=inside)


@triton.jit
def black_scholes_kernel(price, strike, years, call, put, size, rate, volatility, BLOCK: tl.constexpr):
    """The prices of European calls and puts by Black and Scholes."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < size
    s = tl.load(price + lanes, mask=inside, other=1.0)
    k = tl.load(strike + lanes, mask=inside, other=1.0)
    t = tl.load(years + lanes, mask=inside, other=1.0)
    spread = volatility * tl.sqrt(t)
    d1 = (tl.log(s / k) + (rate + 0.5 * volatility * volatility) * t) / spread
    n1 = 0.5 + 0.5 * tl.erf(d1 * 0.7071067811865476)
    n2 = 0.5 + 0.5 * tl.erf((d1 - spread) * 0.7071067811865476)
    later = k * tl.exp(-rate * t)
    tl.store(call + lanes, s * n1 - later * n2, mask=inside)
    tl.store(put + lanes, later * (1.0 - n2) - s * (1.0 - n1), mask=inside)


@triton.jit
def forces_kernel(x, y, z, fx, fy, fz, bodies, soft, BM: tl.constexpr, BN: tl.constexpr):
    """The force of all bodies of equal mass on each, BN of them at a time."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    x0 = tl.load(x + m, mask=m < bodies, other=0.0)
    y0 = tl.load(y + m, mask=m < bodies, other=0.0)
    z0 = tl.load(z + m, mask=m < bodies, other=0.0)
    ax, ay, az = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for start in range(0, bodies, BN):
        n = start + tl.arange(0, BN)
        dx = tl.load(x + n, mask=n < bodies, other=0.0)[None, :] - x0[:, None]
        dy = tl.load(y + n, mask=n < bodies, other=0.0)[None, :] - y0[:, None]
        dz = tl.load(z + n, mask=n < bodies, other=0.0)[None, :] - z0[:, None]
        far = dx * dx + dy * dy + dz * dz + soft
        pull = tl.where((n < bodies)[None, :], 1.0 / (far * tl.sqrt(far)), 0.0)
        ax += tl.sum(dx * pull, 1)
        ay += tl.sum(dy * pull, 1)
        az += tl.sum(dz * pull, 1)
    tl.store(fx + m, ax, mask=m < bodies)
    tl.store(fy + m, ay, mask=m < bodies)
    tl.store(fz + m, az, mask=m < bodies)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def running_max_kernel(x, out, columns, BLOCK: tl.constexpr):
    """The largest element up to each one of a row, in chunks of BLOCK."""
    base = tl.program_id(0).to(tl.int64) * columns
    before = -1.0e30
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        values = tl.load(x + base + lanes, mask=lanes < columns, other=-1.0e30).to(tl.float32)
        most = tl.maximum(tl.associative_scan(values, 0, _larger), before)
        before = tl.maximum(before, tl.max(values))
        tl.store(out + base + lanes, most.to(out.dtype.element_ty), mask=lanes < columns)


@triton.jit
def mixed_columns_kernel(x, places, out, rows, width, count, BM: tl.constexpr, BN: tl.constexpr):
    """out[:, j] = x[:, places[j]]: columns in another order."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < rows)[:, None] & (n < count)[None, :]
    place = tl.load(places + n, mask=n < count, other=0)
    values = tl.load(x + m[:, None] * width + place[None, :], mask=inside)
    tl.store(out + m[:, None] * count + n[None, :], values, mask=inside)
