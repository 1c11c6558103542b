"""The Triton kernels: one program normalises and rotates one token's row; and the gradient.

A row that a block holds whole is read once and stays in registers, and its weights are on their way with it. A longer
one is read twice in chunks, once for its mean square and once to rotate; the second time it comes out of L1 or L2, so
device memory sees it once.

The gradient's programs each walk over many rows, and add up the weight's gradient of their rows: in registers where
a block holds a whole row, else in a row of memory of their own. Another launch sums these rows. No program waits for
another and nothing is added atomically, so that equal launches of one config give equal bits on one device.
"""

from __future__ import annotations

from triton_ops.base import require
from triton_ops_kernels.jit import widened

triton = require("triton", "the rmsnorm_rope kernel")
tl = require("triton.language", "the rmsnorm_rope kernel")


def grid(meta):
    """One program per token."""
    return (meta["x"].numel() // meta["HIDDEN"],)


@triton.jit
def rmsnorm_rope_kernel(
    x, weight, cos, sin, out, seq_len, eps,
    HIDDEN: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr,
):  # fmt: skip
    """out[row] = rope(x[row] / sqrt(mean(x[row]²) + eps) * weight, position of row), in float32, rounded once.

    float64 is computed in float64.

    BLOCK_SIZE counts pairs (i, i + HEAD_DIM / 2) of one head: a chunk is two runs of elements per head, so both halves
    of a pair are in the same thread. num_stages is Triton's launch option, and how far the chunks' loads run ahead.
    """
    HALF: tl.constexpr = HEAD_DIM // 2
    PAIRS: tl.constexpr = HIDDEN // 2
    # Every chunk starts at the same place inside a head: one load of the angles then serves them all.
    SAME_ANGLES: tl.constexpr = BLOCK_SIZE % HALF == 0

    row = tl.program_id(0)
    position = (row % seq_len).to(tl.int64)
    x_row = x + row.to(tl.int64) * HIDDEN
    out_row = out + row.to(tl.int64) * HIDDEN
    cos_row = cos + position * HEAD_DIM
    sin_row = sin + position * HEAD_DIM
    lane = tl.arange(0, BLOCK_SIZE)
    if BLOCK_SIZE >= PAIRS:
        first = lane // HALF * HEAD_DIM + lane % HALF
        inside = lane < PAIRS
        w_u = widened(tl.load(weight + first, mask=inside, other=0.0, eviction_policy="evict_last"))
        w_v = widened(tl.load(weight + first + HALF, mask=inside, other=0.0, eviction_policy="evict_last"))
        u = widened(tl.load(x_row + first, mask=inside, other=0.0))
        v = widened(tl.load(x_row + first + HALF, mask=inside, other=0.0))
        c = widened(tl.load(cos_row + lane % HALF))
        s = widened(tl.load(sin_row + lane % HALF))
        scale = tl.rsqrt(tl.sum(u * u + v * v) / HIDDEN + eps)
        u *= scale * w_u
        v *= scale * w_v
        tl.store(out_row + first, (u * c - v * s).to(out.dtype.element_ty), mask=inside)
        tl.store(out_row + first + HALF, (v * c + u * s).to(out.dtype.element_ty), mask=inside)
    else:
        if SAME_ANGLES:
            c = tl.load(cos_row + lane % HALF)
            s = tl.load(sin_row + lane % HALF)

        squares = widened(tl.zeros((BLOCK_SIZE,), dtype=x.dtype.element_ty))
        for start in tl.range(0, PAIRS, BLOCK_SIZE, num_stages=num_stages):
            pair = start + lane
            first = pair // HALF * HEAD_DIM + pair % HALF
            inside = pair < PAIRS
            u = widened(tl.load(x_row + first, mask=inside, other=0.0))
            v = widened(tl.load(x_row + first + HALF, mask=inside, other=0.0))
            squares += u * u + v * v
        scale = tl.rsqrt(tl.sum(squares) / HIDDEN + eps)

        for start in tl.range(0, PAIRS, BLOCK_SIZE, num_stages=num_stages):
            pair = start + lane
            first = pair // HALF * HEAD_DIM + pair % HALF
            inside = pair < PAIRS
            u = widened(tl.load(x_row + first, mask=inside, other=0.0))
            v = widened(tl.load(x_row + first + HALF, mask=inside, other=0.0))
            u *= scale * widened(tl.load(weight + first, mask=inside, other=0.0))
            v *= scale * widened(tl.load(weight + first + HALF, mask=inside, other=0.0))
            if not SAME_ANGLES:
                c = tl.load(cos_row + pair % HALF)
                s = tl.load(sin_row + pair % HALF)
            turned_u = u * widened(c) - v * widened(s)
            turned_v = v * widened(c) + u * widened(s)
            tl.store(out_row + first, turned_u.to(out.dtype.element_ty), mask=inside)
            tl.store(out_row + first + HALF, turned_v.to(out.dtype.element_ty), mask=inside)


@triton.jit
def turned_back(grad, place, angles, c, s, HALF: tl.constexpr, inside):
    """The gradient of the normalised and weighted pairs: that of the result, turned back by the angles."""
    u = widened(tl.load(grad + place, mask=inside, other=0.0))
    v = widened(tl.load(grad + place + HALF, mask=inside, other=0.0))
    # Lanes outside of the row hold 0: an infinite angle would make them NaN, and with them the row's sums.
    cosine = widened(tl.load(c + angles, mask=inside, other=0.0))
    sine = widened(tl.load(s + angles, mask=inside, other=0.0))
    return u * cosine + v * sine, v * cosine - u * sine


@triton.jit
def rmsnorm_rope_backward_kernel(
    x, weight, cos, sin, grad, dx, partial, rows, seq_len, eps,
    HIDDEN: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dx, and in partial[program] what the program's rows add to dweight.

    With n = x * scale, g the gradient of the result turned back, and h = g * weight:
    dx = (h - n * mean(h * n)) * scale, and dweight is the sum of g * n over the rows. `partial` is [programs, HIDDEN],
    float32 or float64, and need not hold zeros. BLOCK_SIZE counts pairs, as in the forward pass.
    """
    HALF: tl.constexpr = HEAD_DIM // 2
    PAIRS: tl.constexpr = HIDDEN // 2
    program, programs = tl.program_id(0), tl.num_programs(0)
    lane = tl.arange(0, BLOCK_SIZE)
    own = partial + program.to(tl.int64) * HIDDEN

    if BLOCK_SIZE >= PAIRS:
        inside = lane < PAIRS
        place = lane // HALF * HEAD_DIM + lane % HALF
        w_u = widened(tl.load(weight + place, mask=inside, other=0.0))
        w_v = widened(tl.load(weight + place + HALF, mask=inside, other=0.0))
        dw_u = tl.zeros((BLOCK_SIZE,), dtype=partial.dtype.element_ty)
        dw_v = tl.zeros((BLOCK_SIZE,), dtype=partial.dtype.element_ty)
        for row in tl.range(program, rows, programs, num_stages=STAGES):
            start = tl.cast(row, tl.int64) * HIDDEN
            angles = tl.cast(row % seq_len, tl.int64) * HEAD_DIM + lane % HALF
            u = widened(tl.load(x + start + place, mask=inside, other=0.0))
            v = widened(tl.load(x + start + place + HALF, mask=inside, other=0.0))
            g_u, g_v = turned_back(grad + start, place, angles, cos, sin, HALF, inside)
            scale = tl.rsqrt(tl.sum(u * u + v * v) / HIDDEN + eps)
            u *= scale
            v *= scale
            dw_u += g_u * u
            dw_v += g_v * v
            g_u *= w_u
            g_v *= w_v
            inner = tl.sum(g_u * u + g_v * v) / HIDDEN
            tl.store(dx + start + place, ((g_u - u * inner) * scale).to(dx.dtype.element_ty), mask=inside)
            tl.store(dx + start + place + HALF, ((g_v - v * inner) * scale).to(dx.dtype.element_ty), mask=inside)
        tl.store(own + place, dw_u, mask=inside)
        tl.store(own + place + HALF, dw_v, mask=inside)
    else:
        for first in tl.range(0, PAIRS, BLOCK_SIZE):
            pair = first + lane
            place = pair // HALF * HEAD_DIM + pair % HALF
            nothing = tl.zeros((BLOCK_SIZE,), dtype=partial.dtype.element_ty)
            tl.store(own + place, nothing, mask=pair < PAIRS)
            tl.store(own + place + HALF, nothing, mask=pair < PAIRS)
        tl.debug_barrier()  # the sums are read again by threads that need not be those that wrote them
        for row in range(program, rows, programs):
            start = tl.cast(row, tl.int64) * HIDDEN
            angles = tl.cast(row % seq_len, tl.int64) * HEAD_DIM
            squares = tl.zeros((BLOCK_SIZE,), dtype=partial.dtype.element_ty)
            products = tl.zeros((BLOCK_SIZE,), dtype=partial.dtype.element_ty)
            for first in tl.range(0, PAIRS, BLOCK_SIZE):
                pair = first + lane
                inside = pair < PAIRS
                place = pair // HALF * HEAD_DIM + pair % HALF
                u = widened(tl.load(x + start + place, mask=inside, other=0.0))
                v = widened(tl.load(x + start + place + HALF, mask=inside, other=0.0))
                g_u, g_v = turned_back(grad + start, place, angles + pair % HALF, cos, sin, HALF, inside)
                g_u *= widened(tl.load(weight + place, mask=inside, other=0.0))
                g_v *= widened(tl.load(weight + place + HALF, mask=inside, other=0.0))
                squares += u * u + v * v
                products += g_u * u + g_v * v
            scale = tl.rsqrt(tl.sum(squares) / HIDDEN + eps)
            inner = tl.sum(products) * scale / HIDDEN
            for first in tl.range(0, PAIRS, BLOCK_SIZE):
                pair = first + lane
                inside = pair < PAIRS
                place = pair // HALF * HEAD_DIM + pair % HALF
                u = widened(tl.load(x + start + place, mask=inside, other=0.0)) * scale
                v = widened(tl.load(x + start + place + HALF, mask=inside, other=0.0)) * scale
                g_u, g_v = turned_back(grad + start, place, angles + pair % HALF, cos, sin, HALF, inside)
                tl.store(own + place, tl.load(own + place, mask=inside) + g_u * u, mask=inside)
                tl.store(own + place + HALF, tl.load(own + place + HALF, mask=inside) + g_v * v, mask=inside)
                g_u *= widened(tl.load(weight + place, mask=inside, other=0.0))
                g_v *= widened(tl.load(weight + place + HALF, mask=inside, other=0.0))
                tl.store(dx + start + place, ((g_u - u * inner) * scale).to(dx.dtype.element_ty), mask=inside)
                tl.store(dx + start + place + HALF, ((g_v - v * inner) * scale).to(dx.dtype.element_ty), mask=inside)
            # The next row adds to sums that other threads may have written.
            tl.debug_barrier()
