"""The Triton kernels of attention: softmax(scale * q @ k.T) @ v, and the sum of parts where keys are split.

A program takes BLOCK_M rows of one head of keys and walks along the keys with a running maximum and sum, which rescale
what it has when the maximum grows. Where several heads of queries share a head of keys, a row is a pair of a position
and a head, in this order, so that the tile of a short sequence is full and K and V are read once for all of them. The
walk has two loops: keys that all rows see, and keys at the end, some of which are masked.

Exponentials are of base 2, and the factor log2(e) is part of the scale.

The gradient computes the weights anew from the logarithms of their sums. One of its kernels has the sums of grad * out
of all rows; one walks for a tile of queries along the keys and makes dq; one walks for a tile of keys along the rows of
all queries that share them, and makes dk and dv. No sum has two writers, so there are no locks and no atomics.
"""

from __future__ import annotations

from triton_ops.base import require
from triton_ops_kernels.jit import described, tile_of, widened
from triton_ops_kernels.tiles import padded

triton = require("triton", "the attention kernel")
tl = require("triton.language", "the attention kernel")

LOG2_E = 1.4426950408889634
_LN_2 = tl.constexpr(0.6931471805599453)
_ADDED = 16384  # elements of parts that a program reads at once


@triton.jit
def tile_at(
    base, first, count, stride, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, DIM: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Rows `first` to `first + BLOCK_N` of a matrix [count, DIM], as [BLOCK_N, BLOCK_D]; what is beyond it is 0."""
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    places = base + tl.cast(first, tl.int64) * stride + (n[:, None] * stride + d[None, :])
    if MASKED:
        return tl.load(places, mask=(first + n < count)[:, None] & (d < DIM)[None, :], other=0.0)
    if BLOCK_D > DIM:
        return tl.load(places, mask=(d < DIM)[None, :], other=0.0)
    return tl.load(places)


@triton.jit
def walked(
    total, weight, highest, queries, rest, k, v, k_tiles, rest_tiles, v_tiles, first, last, seen_to, keys, stride_kn,
    stride_vn, factor, MASKED: tl.constexpr, CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_V: tl.constexpr,
    DESCRIPTORS: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sums after the keys from `first` to `last`: of values, [BLOCK_M, BLOCK_V], of weights and the largest score.

    `highest` is the largest score times `factor`, never minus infinity, so that no difference is NaN; `factor` is the
    scale times log2(e). `queries` has the first BLOCK_D elements of each row, and `rest` those after them, BLOCK_R
    padded, or None. With DESCRIPTORS tiles are loaded by `k_tiles`, `rest_tiles` and `v_tiles`, and `k` and `v` are not
    used. `seen_to` says how many keys each row sees, and is asked where CAUSAL and MASKED are set: MASKED where some
    rows do not see some of the keys.
    """
    for start in tl.range(first, last, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        if DESCRIPTORS:
            k_tile = k_tiles.load([start, 0])
        else:
            k_tile = tile_at(k, start, keys, stride_kn, BLOCK_N, BLOCK_D, HEAD_DIM, MASKED)
        scores = tl.dot(queries, k_tile.T, input_precision=PRECISION, out_dtype=total.dtype)
        if BLOCK_R > 0:
            if DESCRIPTORS:
                k_rest = rest_tiles.load([start, 0])
            else:
                k_rest = tile_at(k + BLOCK_D, start, keys, stride_kn, BLOCK_N, BLOCK_R, HEAD_DIM - BLOCK_D, MASKED)
            scores = tl.dot(rest, k_rest.T, scores, input_precision=PRECISION, out_dtype=total.dtype)
        if MASKED:
            column = tl.arange(0, BLOCK_N)[None, :]
            seen = column < (seen_to - start)[:, None] if CAUSAL else column < keys - start
            scores = tl.where(seen, scores * factor, float("-inf"))
            higher = tl.maximum(highest, tl.max(scores, 1))
            p = tl.exp2(scores - higher[:, None])
        else:
            higher = tl.maximum(highest, tl.max(scores, 1) * factor)
            p = tl.exp2(scores * factor - higher[:, None])
        rescale = tl.exp2(highest - higher)
        weight = weight * rescale + tl.sum(p, 1)
        total = total * rescale[:, None]
        if DESCRIPTORS:
            v_tile = v_tiles.load([start, 0])
        else:
            v_tile = tile_at(v, start, keys, stride_vn, BLOCK_N, BLOCK_V, VALUE_DIM, MASKED)
        total = tl.dot(p.to(v_tile.dtype), v_tile, total, input_precision=PRECISION, out_dtype=total.dtype)
        highest = higher
    return total, weight, highest


@triton.jit
def rows_of(row, rows, batch, head, stride_b, stride_h, stride_m, GROUP: tl.constexpr):
    """First elements of the rows of a head of keys: row r is position r // GROUP of its r % GROUP-th head."""
    place = tl.minimum(row, rows - 1)
    first = batch.to(tl.int64) * stride_b + head.to(tl.int64) * GROUP * stride_h
    return first + (place % GROUP).to(tl.int64) * stride_h + (place // GROUP).to(tl.int64) * stride_m


@triton.jit
def attention_kernel(
    q, k, v, out, lse, batch_heads, walks, queries, keys, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh,
    stride_kn, stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om, factor,
    CAUSAL: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr, SHARING: tl.constexpr,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_HEADS: tl.constexpr,
    SPLITS: tl.constexpr, DESCRIPTORS: tl.constexpr, WARP_SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """Write `out`, and `lse` unless it is None, of BLOCK_M rows of one head of keys; strides in elements.

    A sequence has `walks` walks along the keys, each for GROUP heads of queries, and SHARING walks are along the same
    keys; `batch_heads` is the batch size times `walks`. With SPLITS the second axis of the grid is a part of the keys:
    `out` is [SPLITS, batch, heads, queries, VALUE_DIM] and `lse` [SPLITS, batch, heads, queries], both float32 and
    row-major, and `lse` is the logarithm of base 2; else `lse` is [batch, heads, queries], natural. A row that sees no
    key gets zeros, and minus infinity.
    """
    rows = queries * GROUP
    tiles = tl.cdiv(rows, BLOCK_M)
    at, tile = tile_of(tl.program_id(0), batch_heads, tiles, GROUP_HEADS)
    if CAUSAL:
        tile = tiles - 1 - tile  # the longest walks first: short ones fill the gaps at the end
    batch, head = at // walks, at % walks
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    q_rows = rows_of(row, rows, batch, head, stride_qb, stride_qh, stride_qm, GROUP)
    if WARP_SPECIALIZE:
        # The compiler shares a tile among groups of warps only if all loads are by descriptors. For the second group
        # Triton 3.6 moves by half a tile whatever uses the very number at which the rows of a load begin: also rows
        # that are moved already, and columns that begin at the same constant. So this number has no other use.
        q_first = (
            batch.to(tl.int64) * stride_qb + head.to(tl.int64) * stride_qh + tile.to(tl.int64) * BLOCK_M * stride_qm
        )
        q_tiles = described(q + q_first, queries - tile * BLOCK_M, HEAD_DIM, stride_qm, BLOCK_M, BLOCK_D)
        q_tile = q_tiles.load([tl.minimum(tile, 0), 0])
    else:
        in_tile = (row < rows)[:, None] & (d < HEAD_DIM)[None, :]
        q_tile = tl.load(q + q_rows[:, None] + d[None, :], mask=in_tile, other=0.0)
    if BLOCK_R > 0:
        r = BLOCK_D + tl.arange(0, BLOCK_R)
        in_rest = (row < rows)[:, None] & (r < HEAD_DIM)[None, :]
        rest = tl.load(q + q_rows[:, None] + r[None, :], mask=in_rest, other=0.0)
    else:
        rest = None

    k_head = k + batch.to(tl.int64) * stride_kb + (head // SHARING).to(tl.int64) * stride_kh
    v_head = v + batch.to(tl.int64) * stride_vb + (head // SHARING).to(tl.int64) * stride_vh
    if DESCRIPTORS:
        k_tiles = described(k_head, keys, HEAD_DIM, stride_kn, BLOCK_N, BLOCK_D)
        v_tiles = described(v_head, keys, VALUE_DIM, stride_vn, BLOCK_N, BLOCK_V)
    else:
        k_tiles = None
        v_tiles = None
    if DESCRIPTORS and BLOCK_R > 0:
        rest_tiles = described(k_head + BLOCK_D, keys, HEAD_DIM - BLOCK_D, stride_kn, BLOCK_N, BLOCK_R)
    else:
        rest_tiles = None

    # The last query sees all keys, each one before it one key less.
    seen_to = row // GROUP + (keys - queries + 1)
    limit = keys
    whole = keys
    if CAUSAL:
        limit = tl.minimum(keys, (tile * BLOCK_M + BLOCK_M - 1) // GROUP + (keys - queries + 1))
        whole = tl.minimum(keys, tile * BLOCK_M // GROUP + (keys - queries + 1))
    begin = 0
    if SPLITS > 1:
        share = tl.cdiv(tl.cdiv(keys, BLOCK_N), SPLITS) * BLOCK_N
        begin = tl.program_id(1) * share
        limit = tl.minimum(limit, begin + share)
    whole = begin + tl.maximum(tl.minimum(whole, limit) - begin, 0) // BLOCK_N * BLOCK_N

    total = widened(tl.zeros((BLOCK_M, BLOCK_V), dtype=q.dtype.element_ty))
    weight = widened(tl.zeros((BLOCK_M,), dtype=q.dtype.element_ty))
    highest = weight - 3.4028234e38
    if WARP_SPECIALIZE and (CAUSAL or RAGGED):  # one loop is all that the compiler divides among warps
        whole = begin
    else:
        total, weight, highest = walked(
            total, weight, highest, q_tile, rest, k_head, v_head, k_tiles, rest_tiles, v_tiles, begin, whole, seen_to,
            keys, stride_kn, stride_vn, factor, False, CAUSAL, HEAD_DIM, VALUE_DIM, BLOCK_N, BLOCK_D, BLOCK_R, BLOCK_V,
            DESCRIPTORS, WARP_SPECIALIZE, PRECISION,
        )  # fmt: skip
    if CAUSAL or RAGGED:
        total, weight, highest = walked(
            total, weight, highest, q_tile, rest, k_head, v_head, k_tiles, rest_tiles, v_tiles, whole, limit, seen_to,
            keys, stride_kn, stride_vn, factor, True, CAUSAL, HEAD_DIM, VALUE_DIM, BLOCK_N, BLOCK_D, BLOCK_R, BLOCK_V,
            DESCRIPTORS, WARP_SPECIALIZE, PRECISION,
        )  # fmt: skip

    nothing = weight == 0.0  # then the values count nothing either, and 0 times infinity would be NaN
    found = tl.where(nothing[:, None], 0.0, total / tl.where(nothing, 1.0, weight)[:, None])
    logarithm = tl.where(nothing, float("-inf"), highest + tl.log2(tl.where(nothing, 1.0, weight)))
    e = tl.arange(0, BLOCK_V)
    o_rows = rows_of(row, rows, batch, head, stride_ob, stride_oh, stride_om, GROUP)
    l_rows = rows_of(row, rows, batch, head, walks * GROUP * queries, queries, 1, GROUP)
    if SPLITS > 1:
        part = tl.program_id(1).to(tl.int64) * batch_heads * rows
        o_rows += part * VALUE_DIM
        tl.store(lse + part + l_rows, logarithm, mask=row < rows)
    elif lse is not None:
        tl.store(lse + l_rows, logarithm * _LN_2, mask=row < rows)
    inside = (row < rows)[:, None] & (e < VALUE_DIM)[None, :]
    tl.store(out + o_rows[:, None] + e[None, :], found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def parts_kernel(
    parts, logarithms, out, lse, rows, heads, queries, stride_ob, stride_oh, stride_om,
    VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr, SPLITS: tl.constexpr, ALL: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Add up parts [SPLITS, rows, VALUE_DIM] with logarithms [SPLITS, rows] of base 2; a row is of batch, head, query.

    A program has one row. ALL is SPLITS, padded. CHUNK parts are read at once, and added up in one order: equal calls
    give equal bits.
    """
    row = tl.program_id(0).to(tl.int64)
    apart = tl.cast(rows, tl.int64)  # a number of 1 is a constant for the compiler, without a method `to`
    part, chunk, e = tl.arange(0, ALL), tl.arange(0, CHUNK), tl.arange(0, BLOCK_V)
    found = tl.load(logarithms + part * apart + row, mask=part < SPLITS, other=float("-inf"))
    highest = tl.maximum(tl.max(found, 0), -3.4028234e38)
    weight = tl.sum(tl.exp2(found - highest), 0)
    total = tl.zeros((CHUNK, BLOCK_V), dtype=parts.dtype.element_ty)
    for first in tl.range(0, SPLITS, CHUNK, loop_unroll_factor=4):  # so that loads do not wait for each other
        place = (first + chunk) * apart + row
        known = first + chunk < SPLITS
        share = tl.exp2(tl.load(logarithms + place, mask=known, other=float("-inf")) - highest)
        values, within = parts + place[:, None] * VALUE_DIM + e, known[:, None] & (e < VALUE_DIM)
        total += share[:, None] * tl.load(values, mask=within, other=0.0)
    nothing = weight == 0.0
    mean = tl.sum(total, 0) / tl.where(nothing, 1.0, weight)
    head, query = tl.program_id(0) // queries, row % queries
    place = (head // heads).to(tl.int64) * stride_ob + (head % heads).to(tl.int64) * stride_oh + query * stride_om
    tl.store(out + place + e, mean.to(out.dtype.element_ty), mask=e < VALUE_DIM)
    if lse is not None:
        found = tl.where(nothing, float("-inf"), (highest + tl.log2(tl.where(nothing, 1.0, weight))) * _LN_2)
        tl.store(lse + row, found)


@triton.jit
def inner_kernel(
    out, grad, inner, rows, heads, queries,
    stride_ob, stride_oh, stride_om, stride_gb, stride_gh, stride_gm,
    VALUE_DIM: tl.constexpr, BLOCK_V: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """inner[row] = sum(out[row] * grad[row]); a row is of batch, head and query."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    e = tl.arange(0, BLOCK_V)
    inside = (row < rows)[:, None] & (e < VALUE_DIM)[None, :]
    batch, head, query = row // (heads * queries), row // queries % heads, row % queries
    o_rows = batch * stride_ob + head * stride_oh + query * stride_om
    g_rows = batch * stride_gb + head * stride_gh + query * stride_gm
    found = widened(tl.load(out + o_rows[:, None] + e[None, :], mask=inside, other=0.0))
    found = found * widened(tl.load(grad + g_rows[:, None] + e[None, :], mask=inside, other=0.0))
    tl.store(inner + row, tl.sum(found, 1), mask=row < rows)


@triton.jit
def logarithms_of(lse, places, inside):
    """Logarithms of base 2; plus infinity, which makes all weights 0, for rows that see nothing or are none."""
    found = tl.load(lse + places, mask=inside, other=float("inf"))
    return tl.where(found == float("-inf"), float("inf"), found * 1.4426950408889634)


@triton.jit
def dq_walked(
    dq, q_tile, g_tile, logarithm, inner, k, v, first, last, seen_to, keys, stride_kn, stride_vn, factor,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sum dq, [BLOCK_M, BLOCK_D], after the keys from `first` to `last`."""
    for start in tl.range(first, last, BLOCK_N):
        k_tile = tile_at(k, start, keys, stride_kn, BLOCK_N, BLOCK_D, HEAD_DIM, MASKED)
        v_tile = tile_at(v, start, keys, stride_vn, BLOCK_N, BLOCK_V, VALUE_DIM, MASKED)
        scores = tl.dot(q_tile, k_tile.T, input_precision=PRECISION, out_dtype=dq.dtype)
        p = tl.exp2(scores * factor - logarithm[:, None])
        dp = tl.dot(g_tile, v_tile.T, input_precision=PRECISION, out_dtype=dq.dtype)
        ds = p * (dp - inner[:, None])
        if MASKED:
            column = start + tl.arange(0, BLOCK_N)
            seen = column[None, :] < seen_to[:, None] if CAUSAL else (column < keys)[None, :]
            ds = tl.where(seen, ds, 0.0)
        dq = tl.dot(ds.to(k_tile.dtype), k_tile, dq, input_precision=PRECISION, out_dtype=dq.dtype)
    return dq


@triton.jit
def dq_kernel(
    q, k, v, grad, lse, inner, dq, kv_heads, queries, keys,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm, scale, factor,
    CAUSAL: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write dq of BLOCK_M rows of one head of keys; `dq` is [batch, heads, queries, HEAD_DIM], row-major."""
    rows = queries * GROUP
    tiles = tl.cdiv(rows, BLOCK_M)
    at, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    if CAUSAL:
        tile = tiles - 1 - tile  # the longest walks first
    batch, head = at // kv_heads, at % kv_heads
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    in_rows = row < rows
    q_rows = rows_of(row, rows, batch, head, stride_qb, stride_qh, stride_qm, GROUP)
    g_rows = rows_of(row, rows, batch, head, stride_gb, stride_gh, stride_gm, GROUP)
    l_rows = rows_of(row, rows, batch, head, kv_heads * GROUP * queries, queries, 1, GROUP)
    q_tile = tl.load(q + q_rows[:, None] + d[None, :], mask=in_rows[:, None] & (d < HEAD_DIM)[None, :], other=0.0)
    g_tile = tl.load(grad + g_rows[:, None] + e[None, :], mask=in_rows[:, None] & (e < VALUE_DIM)[None, :], other=0.0)
    logarithm = logarithms_of(lse, l_rows, in_rows)
    own = tl.load(inner + l_rows, mask=in_rows, other=0.0)
    k_head = k + batch.to(tl.int64) * stride_kb + head.to(tl.int64) * stride_kh
    v_head = v + batch.to(tl.int64) * stride_vb + head.to(tl.int64) * stride_vh

    seen_to = row // GROUP + (keys - queries + 1)
    limit = keys
    whole = keys
    if CAUSAL:
        limit = tl.minimum(keys, (tile * BLOCK_M + BLOCK_M - 1) // GROUP + (keys - queries + 1))
        whole = tl.minimum(keys, tile * BLOCK_M // GROUP + (keys - queries + 1))
    whole = tl.maximum(whole, 0) // BLOCK_N * BLOCK_N
    found = widened(tl.zeros((BLOCK_M, BLOCK_D), dtype=q.dtype.element_ty))
    found = dq_walked(
        found, q_tile, g_tile, logarithm, own, k_head, v_head, 0, whole, seen_to, keys, stride_kn, stride_vn, factor,
        False, CAUSAL, HEAD_DIM, VALUE_DIM, BLOCK_N, BLOCK_D, BLOCK_V, PRECISION,
    )  # fmt: skip
    if CAUSAL or RAGGED:
        found = dq_walked(
            found, q_tile, g_tile, logarithm, own, k_head, v_head, whole, limit, seen_to, keys, stride_kn, stride_vn,
            factor, True, CAUSAL, HEAD_DIM, VALUE_DIM, BLOCK_N, BLOCK_D, BLOCK_V, PRECISION,
        )  # fmt: skip
    blind = logarithm == float("inf")
    if CAUSAL:
        blind = blind | (seen_to <= 0)
    found = tl.where(blind[:, None], 0.0, found)  # whatever the hidden keys and values hold
    places = (l_rows * HEAD_DIM)[:, None] + d[None, :]
    inside = in_rows[:, None] & (d < HEAD_DIM)[None, :]
    tl.store(dq + places, (found * scale).to(dq.dtype.element_ty), mask=inside)


@triton.jit
def dkv_walked(
    dk, dv, k_tile, v_tile, q, grad, lse, inner, first, last, sees_from, rows, batch, head, kv_heads, queries,
    stride_qb, stride_qh, stride_qm, stride_gb, stride_gh, stride_gm, factor,
    MASKED: tl.constexpr, RAGGED: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sums dk and dv, [BLOCK_N, …], after the rows from `first` to `last`.

    Scores are computed as [BLOCK_N, BLOCK_M], so that no product is turned before the next one. RAGGED says that the
    last step has rows that do not exist: their queries are 0, which times an infinite key or value is NaN.
    """
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    for start in tl.range(first, last, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)
        in_rows = row < rows
        q_rows = rows_of(row, rows, batch, head, stride_qb, stride_qh, stride_qm, GROUP)
        g_rows = rows_of(row, rows, batch, head, stride_gb, stride_gh, stride_gm, GROUP)
        l_rows = rows_of(row, rows, batch, head, kv_heads * GROUP * queries, queries, 1, GROUP)
        q_tile = tl.load(q + q_rows[:, None] + d[None, :], mask=in_rows[:, None] & (d < HEAD_DIM)[None, :], other=0.0)
        inside = in_rows[:, None] & (e < VALUE_DIM)[None, :]
        g_tile = tl.load(grad + g_rows[:, None] + e[None, :], mask=inside, other=0.0)
        scores = tl.dot(k_tile, q_tile.T, input_precision=PRECISION, out_dtype=dk.dtype)
        p = tl.exp2(scores * factor - logarithms_of(lse, l_rows, in_rows)[None, :])
        if MASKED:
            p = tl.where((row // GROUP)[None, :] >= sees_from[:, None], p, 0.0)
        if RAGGED:
            p = tl.where(in_rows[None, :], p, 0.0)
        dv = tl.dot(p.to(g_tile.dtype), g_tile, dv, input_precision=PRECISION, out_dtype=dv.dtype)
        dp = tl.dot(v_tile, g_tile.T, input_precision=PRECISION, out_dtype=dk.dtype)
        ds = p * (dp - tl.load(inner + l_rows, mask=in_rows, other=0.0)[None, :])
        if RAGGED:
            ds = tl.where(in_rows[None, :], ds, 0.0)
        dk = tl.dot(ds.to(q_tile.dtype), q_tile, dk, input_precision=PRECISION, out_dtype=dk.dtype)
    return dk, dv


@triton.jit
def dkv_kernel(
    q, k, v, grad, lse, inner, dk, dv, kv_heads, queries, keys,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_gb, stride_gh, stride_gm, scale, factor,
    CAUSAL: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write dk and dv of BLOCK_N keys of one head; both are row-major, [batch, kv heads, keys, …]."""
    rows = queries * GROUP
    tiles = tl.cdiv(keys, BLOCK_N)
    at, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    batch, head = at // kv_heads, at % kv_heads
    n0 = tile * BLOCK_N
    k_head = k + batch.to(tl.int64) * stride_kb + head.to(tl.int64) * stride_kh
    v_head = v + batch.to(tl.int64) * stride_vb + head.to(tl.int64) * stride_vh
    k_tile = tile_at(k_head, n0, keys, stride_kn, BLOCK_N, BLOCK_D, HEAD_DIM, True)
    v_tile = tile_at(v_head, n0, keys, stride_vn, BLOCK_N, BLOCK_V, VALUE_DIM, True)

    key = n0 + tl.arange(0, BLOCK_N)
    sees_from = key - (keys - queries)  # the first position that sees a key
    begin = 0
    whole = 0
    if CAUSAL:
        begin = tl.maximum(n0 - (keys - queries), 0) * GROUP // BLOCK_M * BLOCK_M
        whole = tl.cdiv(tl.maximum(n0 + BLOCK_N - 1 - (keys - queries), 0) * GROUP, BLOCK_M) * BLOCK_M
        whole = tl.maximum(tl.minimum(whole, tl.cdiv(rows, BLOCK_M) * BLOCK_M), begin)
    dk_tile = widened(tl.zeros((BLOCK_N, BLOCK_D), dtype=k.dtype.element_ty))
    dv_tile = widened(tl.zeros((BLOCK_N, BLOCK_V), dtype=k.dtype.element_ty))
    if CAUSAL:
        dk_tile, dv_tile = dkv_walked(
            dk_tile, dv_tile, k_tile, v_tile, q, grad, lse, inner, begin, whole, sees_from, rows, batch, head, kv_heads,
            queries, stride_qb, stride_qh, stride_qm, stride_gb, stride_gh, stride_gm, factor,
            True, RAGGED, GROUP, HEAD_DIM, VALUE_DIM, BLOCK_M, BLOCK_D, BLOCK_V, PRECISION,
        )  # fmt: skip
    dk_tile, dv_tile = dkv_walked(
        dk_tile, dv_tile, k_tile, v_tile, q, grad, lse, inner, whole, rows, sees_from, rows, batch, head, kv_heads,
        queries, stride_qb, stride_qh, stride_qm, stride_gb, stride_gh, stride_gm, factor,
        False, RAGGED, GROUP, HEAD_DIM, VALUE_DIM, BLOCK_M, BLOCK_D, BLOCK_V, PRECISION,
    )  # fmt: skip
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    place = at.to(tl.int64) * keys + key
    k_inside = (key < keys)[:, None] & (d < HEAD_DIM)[None, :]
    v_inside = (key < keys)[:, None] & (e < VALUE_DIM)[None, :]
    k_places, v_places = (place * HEAD_DIM)[:, None] + d[None, :], (place * VALUE_DIM)[:, None] + e[None, :]
    tl.store(dk + k_places, (dk_tile * scale).to(dk.dtype.element_ty), mask=k_inside)
    tl.store(dv + v_places, dv_tile.to(dv.dtype.element_ty), mask=v_inside)


def parts_of(head_dim):
    """Two powers of two that hold a head, the second one 0 where they save nothing, as 128 and 64 for 192."""
    first = 1 << (head_dim.bit_length() - 1)
    rest = padded(head_dim - first, 16)
    whole = padded(head_dim, 16)
    return (first, rest) if first >= 16 and first < head_dim and first + rest < whole else (whole, 0)


def launch(
    q, k, v, out, lse, scale, CAUSAL, PRECISION, BLOCK_M, BLOCK_N, num_warps, num_stages, GROUP_HEADS=1, SPLITS=1,
    DESCRIPTORS=False, WARP_SPECIALIZE=False,
):  # fmt: skip
    """Write `out`, and `lse` unless it is None: one launch, or with SPLITS a second one that adds the parts up.

    Tensors are as in `attention.problems.arguments`. GROUP_HEADS heads of keys are walked through before the next tile
    of queries; num_stages are the steps in flight, and one.
    """
    torch = require("torch", "attention")
    (batch, heads, queries, head_dim), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    sharing = heads // kv_heads if WARP_SPECIALIZE else 1
    group = heads // kv_heads // sharing
    walks = kv_heads * sharing
    into, logs, steps = out, lse, out.stride()
    if SPLITS > 1:
        wide = torch.promote_types(q.dtype, torch.float32)
        into = q.new_empty((SPLITS, batch, heads, queries, value_dim), dtype=wide)
        logs, steps = q.new_empty((SPLITS, batch, heads, queries), dtype=wide), into.stride()[1:]
    first, after = (padded(head_dim, 16), 0) if WARP_SPECIALIZE else parts_of(head_dim)
    grid = (triton.cdiv(queries * group, BLOCK_M) * batch * walks, SPLITS)
    attention_kernel[grid](
        q, k, v, into, logs, batch * walks, walks, queries, keys, *q.stride()[:3], *k.stride()[:3],
        *v.stride()[:3], *steps[:3], scale * LOG2_E,
        CAUSAL=CAUSAL, RAGGED=keys % BLOCK_N != 0, PRECISION=PRECISION, GROUP=group, SHARING=sharing,
        HEAD_DIM=head_dim, VALUE_DIM=value_dim, BLOCK_D=first, BLOCK_R=after, BLOCK_V=padded(value_dim, 16),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, GROUP_HEADS=GROUP_HEADS, SPLITS=SPLITS, DESCRIPTORS=DESCRIPTORS,
        WARP_SPECIALIZE=WARP_SPECIALIZE, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    if SPLITS > 1:
        rows, across, whole = batch * heads * queries, padded(value_dim, 16), padded(SPLITS, 2)
        chunk = min(whole, _ADDED // across)
        parts_kernel[(rows,)](
            into, logs, out, lse, rows, heads, queries, *out.stride()[:3], VALUE_DIM=value_dim, BLOCK_V=across,
            SPLITS=SPLITS, ALL=whole, CHUNK=chunk, num_warps=min(max(chunk * across // 512, 1), 8),
        )  # fmt: skip
