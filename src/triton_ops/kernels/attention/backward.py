"""The gradient of attention: the operation `attention_backward`, which autograd launches.

One kernel has the sums of grad * out of all rows; one walks for a tile of queries along the keys and makes dq; one
walks for a tile of keys along the rows of all queries that share them, and makes dk and dv. No sum has two writers, so
there are no locks and no atomics. Rows are pairs of a position and a head, as in the forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from triton_ops.backend import LauncherKernel, Operation
from triton_ops.base import require
from triton_ops.dispatch import config_for
from triton_ops.kernels import call
from triton_ops.kernels.attention import problems
from triton_ops.kernels.attention.kernel import LOG2_E, rows_of, tile_at
from triton_ops.kernels.attention.reference import attention_backward_reference
from triton_ops.kernels.jit import widened
from triton_ops.kernels.tiles import padded
from triton_ops.values import dtype_name

triton = require("triton", "the attention_backward kernel")
tl = require("triton.language", "the attention_backward kernel")


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


_ROWS = 32  # rows of a program that multiplies the result with its gradient


def launch(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    grad: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    scale: float,
    CAUSAL: bool,
    PRECISION: str,
    Q_ROWS: int,
    Q_KEYS: int,
    K_KEYS: int,
    K_ROWS: int,
    num_warps: int,
    num_stages: int,
) -> None:
    """Write dq, dk and dv, contiguous, in three launches.

    `lse` is contiguous; other inputs have neighbours along their last axis. A program makes Q_ROWS rows of dq in steps
    of Q_KEYS keys, or K_KEYS keys of dk and dv in steps of K_ROWS rows; num_stages are the steps in flight, and one.
    """
    torch = require("torch", "the gradient of attention")
    (batch, heads, queries, head_dim), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    group, rows = heads // kv_heads, batch * heads * queries
    inner = q.new_empty((batch, heads, queries), dtype=torch.promote_types(q.dtype, torch.float32))
    sizes = {"VALUE_DIM": value_dim, "BLOCK_V": padded(value_dim, 16)}
    inner_kernel[(-(-rows // _ROWS),)](
        out, grad, inner, rows, heads, queries, *out.stride()[:3], *grad.stride()[:3], **sizes, ROWS=_ROWS
    )
    strides = [step for each in (q, k, v, grad) for step in each.stride()[:3]]
    known = {
        "CAUSAL": CAUSAL, "PRECISION": PRECISION, "GROUP": group, "HEAD_DIM": head_dim,
        "BLOCK_D": padded(head_dim, 16), **sizes, "num_warps": num_warps, "num_stages": num_stages,
    }  # fmt: skip
    shape = kv_heads, queries, keys
    dq_kernel[(-(-queries * group // Q_ROWS) * batch * kv_heads,)](
        q, k, v, grad, lse, inner, dq, *shape, *strides, scale, scale * LOG2_E,
        RAGGED=keys % Q_KEYS != 0, BLOCK_M=Q_ROWS, BLOCK_N=Q_KEYS, **known,
    )  # fmt: skip
    dkv_kernel[(-(-keys // K_KEYS) * batch * kv_heads,)](
        q, k, v, grad, lse, inner, dk, dv, *shape, *strides, scale, scale * LOG2_E,
        RAGGED=queries * group % K_ROWS != 0, BLOCK_M=K_ROWS, BLOCK_N=K_KEYS, **known,
    )  # fmt: skip


operation = Operation(
    name="attention_backward",
    kernel=LauncherKernel(launch, outputs=("dq", "dk", "dv")),
    space=problems.gradient_space,
    arguments=problems.gradient_arguments,
    reference=attention_backward_reference,
    work=problems.gradient_work,
    dtypes=problems.DTYPES,
    problems=problems.GRADIENT_PROBLEMS,
    device="cuda",
)


def gradient(
    tensors: Sequence[Any], grad: Any, needs: Sequence[bool], causal: bool, scale: float | None
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v, None for one that is not needed.

    `tensors` are q, k, v, the result and the logarithms of its sums.
    """
    q, k, v, out, lse = tensors
    gradients = dict(zip(("dq", "dk", "dv"), (each.new_zeros(each.shape) for each in (q, k, v)), strict=True))
    if call.launches(out) and k.shape[2]:
        values = {
            "q": q, "k": k, "v": v, "out": out, "lse": lse,
            "grad": grad if grad.stride(3) == 1 else grad.contiguous(), **gradients,
            "scale": scale or 1 / math.sqrt(q.shape[3]), "CAUSAL": causal, "PRECISION": call.precision_of(q),
        }  # fmt: skip
        size = max(q.shape[3], v.shape[3])
        summed = problems.are_summed(values)
        config = config_for(
            operation,
            values,
            lambda: problems.gradient_default(size, dtype_name(q.dtype), summed),
            check=problems.GRADIENT_OWN.checked,
        )
        call.launch_all(launch, config, values, q.device)
    return tuple(each if need else None for each, need in zip(gradients.values(), needs, strict=True))  # type: ignore[return-value]
