"""Kernels of many structures whose work is counted by hand in `tests/cpu/cost_model/test_inferred_work.py`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def grouped_matmul(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    per_group = GROUP * tiles_n
    first = pid // per_group * GROUP
    rows_here = min(tiles_m - first, GROUP)
    pid_m = first + (pid % per_group) % rows_here
    pid_n = (pid % per_group) // rows_here
    rows = (pid_m * BM + tl.arange(0, BM)) % M
    cols = (pid_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    at_a = a + rows[:, None] * sam + inner[None, :] * sak
    at_b = b + inner[:, None] * sbk + cols[None, :] * sbn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(at_a, mask=inner[None, :] < K - k * BK, other=0.0)
        right = tl.load(at_b, mask=inner[:, None] < K - k * BK, other=0.0)
        total = tl.dot(left, right, total)
        at_a += BK * sak
        at_b += BK * sbk
    out_rows = pid_m * BM + tl.arange(0, BM)
    out_cols = pid_n * BN + tl.arange(0, BN)
    mask = (out_rows[:, None] < M) & (out_cols[None, :] < N)
    tl.store(c + out_rows[:, None] * scm + out_cols[None, :] * scn, total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def persistent_matmul(a, b, c, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    start = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in tl.range(start, tiles, PROGRAMS, flatten=True):
        rows = (tile // tiles_n) * BM + tl.arange(0, BM)
        cols = (tile % tiles_n) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            inner = k * BK + tl.arange(0, BK)
            left = tl.load(a + rows[:, None] * K + inner[None, :], mask=inner[None, :] < K, other=0.0)
            right = tl.load(b + inner[:, None] * N + cols[None, :], mask=inner[:, None] < K, other=0.0)
            total = tl.dot(left, right, total)
        tl.store(c + rows[:, None] * N + cols[None, :], total.to(tl.bfloat16))


@triton.jit
def split_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    pid = tl.program_id(0)
    part = tl.program_id(1)
    tiles_n = tl.cdiv(N, BN)
    rows = (pid // tiles_n) * BM + tl.arange(0, BM)
    cols = (pid % tiles_n) * BN + tl.arange(0, BN)
    inner = part * BK + tl.arange(0, BK)
    at_a = a + rows[:, None] * K + inner[None, :]
    at_b = b + inner[:, None] * N + cols[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK * SPLIT)):
        total = tl.dot(tl.load(at_a), tl.load(at_b), total)
        at_a += BK * SPLIT
        at_b += BK * SPLIT * N
    tl.atomic_add(c + rows[:, None] * N + cols[None, :], total)


@triton.jit
def described_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    row = (pid // tiles_n) * BM
    col = (pid % tiles_n) * BN
    from_a = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    from_b = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    to_c = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        total = tl.dot(from_a.load([row, k * BK]), from_b.load([col, k * BK]).T, total)
    to_c.store([row, col], total.to(tl.bfloat16))


@triton.jit
def block_pointer_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    row = (pid // tiles_n) * BM
    col = (pid % tiles_n) * BN
    at_a = tl.make_block_ptr(a, (M, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    at_b = tl.make_block_ptr(b, (K, N), (N, 1), (0, col), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        left = tl.load(at_a, boundary_check=(0, 1))
        right = tl.load(at_b, boundary_check=(0, 1))
        total = tl.dot(left, right, total)
        at_a = tl.advance(at_a, (0, BK))
        at_b = tl.advance(at_b, (BK, 0))
    at_c = tl.make_block_ptr(c, (M, N), (N, 1), (row, col), (BM, BN), (1, 0))
    tl.store(at_c, total.to(tl.bfloat16), boundary_check=(0, 1))


@triton.jit
def while_rows(x, y, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    step = tl.num_programs(0)
    lanes = tl.arange(0, BLOCK)
    while row < rows:
        values = tl.load(x + row * columns + lanes, mask=lanes < columns, other=0.0)
        tl.store(y + row * columns + lanes, values * 2.0, mask=lanes < columns)
        row += step


@triton.jit
def varlen_sum(x, starts, y, width, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    group = tl.program_id(0)
    begin = tl.load(starts + group)
    end = tl.load(starts + group + 1)
    lanes = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for at in range(begin, end, BLOCK):
        rows = at + tl.arange(0, BLOCK)
        mask = (rows[:, None] < end) & (lanes[None, :] < width)
        total += tl.sum(tl.load(x + rows[:, None] * width + lanes[None, :], mask=mask, other=0.0), axis=0)
    tl.store(y + group * width + lanes, total, mask=lanes < width)


@triton.jit
def gather_rows(x, index, y, count, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)
    chosen = tl.load(index + rows, mask=rows < count, other=0)
    mask = (rows[:, None] < count) & (lanes[None, :] < width)
    values = tl.load(x + chosen[:, None] * width + lanes[None, :], mask=mask, other=0.0)
    tl.store(y + rows[:, None] * width + lanes[None, :], values, mask=mask)


@triton.jit
def rows_to_groups(x, groups, ends, y, width, WIDTH: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, WIDTH)
    group = tl.load(groups + row)
    place = row
    if group > 0:
        place -= tl.load(ends + group - 1) // 2
    values = tl.load(x + row * width + lanes, mask=lanes < width)
    tl.store(y + place * width + lanes, values, mask=lanes < width)


@triton.jit
def flat_transpose(x, y, rows, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = at // columns
    column = at % columns
    mask = at < rows * columns
    tl.store(y + at, tl.load(x + column * rows + row, mask=mask), mask=mask)


@triton.jit
def causal_attention(
    q, k, v, o, length, scale, HEADS: tl.constexpr, DIM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    start = tl.program_id(0)
    head = tl.program_id(1)
    base = head * length * DIM
    rows = start * BM + tl.arange(0, BM)
    dims = tl.arange(0, DIM)
    queries = tl.load(q + base + rows[:, None] * DIM + dims[None, :])
    highest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, DIM), dtype=tl.float32)
    for at in range(0, (start + 1) * BM, BN):
        at = tl.multiple_of(at, BN)
        cols = at + tl.arange(0, BN)
        keys = tl.load(k + base + cols[None, :] * DIM + dims[:, None])
        scores = tl.dot(queries, keys) * scale
        scores = tl.where(rows[:, None] >= cols[None, :], scores, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        chance = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(highest - new)
        weight = weight * shrink + tl.sum(chance, 1)
        total = total * shrink[:, None]
        values = tl.load(v + base + cols[:, None] * DIM + dims[None, :])
        total = tl.dot(chance.to(tl.bfloat16), values, total)
        highest = new
    total = total / weight[:, None]
    tl.store(o + base + rows[:, None] * DIM + dims[None, :], total.to(tl.bfloat16))


@triton.jit
def chunked_norm(x, y, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + lanes, mask=lanes < columns, other=0.0).to(tl.float32)
        total += values * values
    scale = 1 / tl.sqrt(tl.sum(total, axis=0) / columns + eps)
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + lanes, mask=lanes < columns, other=0.0)
        tl.store(y + row * columns + lanes, (values * scale).to(y.dtype.element_ty), mask=lanes < columns)


@triton.jit
def early_return(x, y, n, limit, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= limit:
        return
    at = pid * BLOCK + tl.arange(0, BLOCK)
    if pid % 2 == 0:
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
    else:
        tl.store(y + at, tl.load(x + at, mask=at < n) + tl.load(x + n + at, mask=at < n), mask=at < n)


@triton.jit
def scaled_rows(x, scale, y, rows, columns, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        first = tl.load(x + row * columns + lanes)
        highest = tl.max(first, axis=0)
        for at in range(0, columns, BLOCK):
            highest = tl.maximum(highest, tl.max(tl.load(x + row * columns + at + lanes), axis=0))
        for at in range(0, columns, BLOCK):
            values = tl.load(x + row * columns + at + lanes) * highest
            values *= tl.load(scale + (at + lanes) // GROUP)
            tl.store(y + row * columns + at + lanes, values)


@triton.jit
def attended(state, queries, k, v, base, low, high, rows, BN: tl.constexpr, DIM: tl.constexpr, MASKED: tl.constexpr):
    total, weight, highest = state
    dims = tl.arange(0, DIM)
    for at in range(low, high, BN):
        cols = at + tl.arange(0, BN)
        scores = tl.dot(queries, tl.load(k + base + cols[None, :] * DIM + dims[:, None]))
        if MASKED:
            scores += tl.where(rows[:, None] >= cols[None, :], 0, -1.0e6)
        new = tl.maximum(highest, tl.max(scores, 1))
        chance = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(highest - new)
        total = tl.dot(
            chance.to(tl.bfloat16), tl.load(v + base + cols[:, None] * DIM + dims[None, :]), total * shrink[:, None]
        )
        weight = weight * shrink + tl.sum(chance, 1)
        highest = new
    return total, weight, highest


@triton.jit
def two_loop_attention(q, k, v, o, length, DIM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    start = tl.program_id(0)
    base = tl.program_id(1) * length * DIM
    rows = start * BM + tl.arange(0, BM)
    at = base + rows[:, None] * DIM + tl.arange(0, DIM)[None, :]
    queries = tl.load(q + at)
    total = tl.zeros((BM, DIM), dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    highest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    if CAUSAL:
        state = attended((total, weight, highest), queries, k, v, base, 0, start * BM, rows, BN, DIM, False)
        state = attended(state, queries, k, v, base, start * BM, (start + 1) * BM, rows, BN, DIM, True)
    else:
        state = attended((total, weight, highest), queries, k, v, base, 0, length, rows, BN, DIM, False)
    total, weight, highest = state
    tl.store(o + at, (total / weight[:, None]).to(tl.bfloat16))


@triton.jit
def dequantised_matmul(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + inner[None, :])
        right = tl.load(b + inner[:, None] * N + cols[None, :])
        total = tl.dot(left, right.to(tl.float32).to(tl.bfloat16), total)
    tl.store(c + rows[:, None] * N + cols[None, :], total.to(tl.bfloat16))


@triton.jit
def scaled_before(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inner = tl.arange(0, 64)
    left = (tl.load(a + rows[:, None] * K + inner[None, :]) * 0.5).to(tl.bfloat16)
    for at in range(0, N, BN):
        cols = at + tl.arange(0, BN)
        right = tl.load(b + inner[:, None] * N + cols[None, :])
        tl.store(c + rows[:, None] * N + cols[None, :], tl.dot(left, right).to(tl.bfloat16))


@triton.jit
def backward_rows(dy, x, weight, dx, sums, rows, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    factor = tl.load(weight + at)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        gradient = tl.load(dy + row * WIDTH + at).to(tl.float32)
        value = tl.load(x + row * WIDTH + at).to(tl.float32)
        weighted = gradient * factor
        along = tl.sum(weighted * value, axis=0)
        tl.store(dx + row * WIDTH + at, (weighted - value * along).to(tl.bfloat16))
        total += gradient
    tl.store(sums + at, total)


@triton.jit
def highest(x, out, WIDTH: tl.constexpr):
    """The highest of each of WIDTH columns of 64 rows, and the sum of all before it."""
    values = tl.load(x + tl.arange(0, 64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :])
    top, place = tl.max(values, 0, return_indices=True)
    tl.store(out + tl.arange(0, WIDTH), top + place)
    tl.store(out, tl.sum(tl.sum(values, 1), 0))


@triton.jit
def while_product(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product whose loop ends by a condition, which the compiler does not pipeline."""
    rows, cols, inner = tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    k = 0
    while k < K:
        left = tl.load(a + rows[:, None] * K + k + inner[None, :])
        right = tl.load(b + cols[None, :] * K + k + inner[:, None])
        total = tl.dot(left, right, total)
        k += BK
    tl.store(c + rows[:, None] * K + cols[None, :], total.to(tl.bfloat16))


@triton.jit
def quantised_attention(q, k, v, o, length, DIM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Attention whose scores are products of int8, and whose results are products of float16."""
    rows, dims = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, DIM)
    base = tl.program_id(1) * length * DIM
    queries = tl.load(q + base + rows[:, None] * DIM + dims[None, :])
    total = tl.zeros((BM, DIM), dtype=tl.float32)
    for at in range(0, length, BN):
        cols = at + tl.arange(0, BN)
        scores = tl.dot(queries, tl.load(k + base + cols[None, :] * DIM + dims[:, None]))
        chance = tl.exp2(scores.to(tl.float32) * 0.01).to(tl.float16)
        total = tl.dot(chance, tl.load(v + base + cols[:, None] * DIM + dims[None, :]), total)
    tl.store(o + base + rows[:, None] * DIM + dims[None, :], total.to(tl.float16))


@triton.jit
def swiglu(x, out, columns, BLOCK: tl.constexpr):
    """The result is silu(x[:, :columns]) * x[:, columns:]."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * columns + lanes, mask=lanes < columns).to(tl.float32)
    up = tl.load(x + row * 2 * columns + columns + lanes, mask=lanes < columns).to(tl.float32)
    tl.store(out + row * columns + lanes, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=lanes < columns)


@triton.jit
def causal_conv(x, weight, bias, out, length, channels, BL: tl.constexpr, BD: tl.constexpr):
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
def scan(decay, x, out, length, channels, BT: tl.constexpr, BD: tl.constexpr):
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
def transpose(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """out[N, M] = x[M, N], a tile per program."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tile = tl.load(x + m[:, None] * N + n[None, :], mask=inside)
    tl.store(out + n[:, None] * M + m[None, :], tl.trans(tile), mask=tl.trans(inside))


@triton.jit
def dropout(x, out, size, p, seed, BLOCK: tl.constexpr):
    """The result is x / (1 - p) where a random number is above p, else 0."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + lanes, mask=lanes < size)
    stays = tl.rand(seed, lanes) > p
    tl.store(out + lanes, tl.where(stays, values / (1 - p), 0.0).to(out.dtype.element_ty), mask=lanes < size)


@triton.jit
def stencil(x, out, H, W, BM: tl.constexpr, BN: tl.constexpr):
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
def argmax(x, out, columns, BLOCK: tl.constexpr):
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
def bias_attention(
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
def mixed_columns(x, places, out, rows, width, count, BM: tl.constexpr, BN: tl.constexpr):
    """out[:, j] = x[:, places[j]]: columns in another order."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < rows)[:, None] & (n < count)[None, :]
    place = tl.load(places + n, mask=n < count, other=0)
    values = tl.load(x + m[:, None] * width + place[None, :], mask=inside)
    tl.store(out + m[:, None] * count + n[None, :], values, mask=inside)


@triton.jit
def column_sum(x, out, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr):
    """out[columns] += the sums of ROWS * STEPS rows of BLOCK columns, by atomic additions."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for step in range(STEPS):
        row = (tl.program_id(1) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(out + column, tl.sum(total, 0), mask=column < columns, sem="relaxed")
