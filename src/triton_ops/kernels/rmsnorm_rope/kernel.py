"""The Triton kernel: one program normalises and rotates one token's row.

The row is read twice in chunks, once for its mean square and once to rotate; the second time it comes out of L1 or
L2, so device memory sees it once. It is not kept in registers between: that spills for long rows and few warps.
"""

from triton_ops._optional import require

triton = require("triton", "the rmsnorm_rope kernel")
tl = require("triton.language", "the rmsnorm_rope kernel")


def grid(meta):
    """One program per token."""
    return (meta["x"].numel() // meta["HIDDEN"],)


@triton.jit
def rmsnorm_rope_kernel(
    x,
    weight,
    cos,
    sin,
    out,
    seq_len,
    eps,
    HIDDEN: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    num_stages: tl.constexpr,
):
    """out[row] = rope(x[row] / sqrt(mean(x[row]²) + eps) * weight, position of row), in float32, rounded once.

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
    if SAME_ANGLES:
        c = tl.load(cos_row + lane % HALF)
        s = tl.load(sin_row + lane % HALF)

    squares = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in tl.range(0, PAIRS, BLOCK_SIZE, num_stages=num_stages):
        pair = start + lane
        first = pair // HALF * HEAD_DIM + pair % HALF
        inside = pair < PAIRS
        u = tl.load(x_row + first, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(x_row + first + HALF, mask=inside, other=0.0).to(tl.float32)
        squares += u * u + v * v
    scale = tl.rsqrt(tl.sum(squares) / HIDDEN + eps)

    for start in tl.range(0, PAIRS, BLOCK_SIZE, num_stages=num_stages):
        pair = start + lane
        first = pair // HALF * HEAD_DIM + pair % HALF
        inside = pair < PAIRS
        u = tl.load(x_row + first, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(x_row + first + HALF, mask=inside, other=0.0).to(tl.float32)
        u *= scale * tl.load(weight + first, mask=inside, other=0.0).to(tl.float32)
        v *= scale * tl.load(weight + first + HALF, mask=inside, other=0.0).to(tl.float32)
        if not SAME_ANGLES:
            c = tl.load(cos_row + pair % HALF)
            s = tl.load(sin_row + pair % HALF)
        turned_u = u * c.to(tl.float32) - v * s.to(tl.float32)
        turned_v = v * c.to(tl.float32) + u * s.to(tl.float32)
        tl.store(out_row + first, turned_u.to(out.dtype.element_ty), mask=inside)
        tl.store(out_row + first + HALF, turned_v.to(out.dtype.element_ty), mask=inside)
