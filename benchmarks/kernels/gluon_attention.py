"""Attention in Gluon for Hopper: one warp copies, two groups of warps attend, each for its half of a tile's rows.

A tile is BLOCK_M rows of one head. Its keys are walked from the last block, which the mask cuts, to the first. A group
has the scores of a block made, and the product of the weights before with their values; unless OVERLAP is `no`, it
turns the scores into weights while the second product runs. Assemblers move the wait for it forward (`free`) unless it
stands in a block of its own (`held`). With TURNS the groups take turns at the matrix units, so that one group's
exponentials run beside the other's products: by named barriers (`named`), or by barriers in shared memory (`shared`).
With LAZY a thread adds up its own weights, and the threads of a row add theirs once, at the end. With PACKED weights go
from step to step as pairs in 32 bits. Programs walk over tiles, those with most keys first.

Keys and queries need no multiple of a tile: descriptors have four axes, so that rows beyond a head are zeros, and are
not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triton_ops.backend import FormsKernel, TritonKernel
from triton_ops.backend.descriptors import descriptor
from triton_ops.kernels.attention import operation
from triton_ops.kernels.fp8_gemm.gluon_kernel import copy_in, copy_out, together
from triton_ops.kernels.tiles import programs_for

LOWEST = gl.constexpr(-3.4028234e38)


@gluon.jit
def place_of(tile, row_tiles, heads, many, GROUP: gl.constexpr, CAUSAL: gl.constexpr):
    """Batch, head and row of a tile; GROUP heads are walked through before the next row of tiles."""
    first = tile // (GROUP * row_tiles) * GROUP
    width = gl.minimum(many - first, GROUP)
    inside = tile % (GROUP * row_tiles)
    at = first + inside % width
    row = inside // width
    if CAUSAL:
        row = row_tiles - 1 - row
    return at // heads, at % heads, row


@gluon.jit
def blocks_of(row, queries, keys, BM: gl.constexpr, BN: gl.constexpr, CAUSAL: gl.constexpr):
    """How many blocks of keys a tile sees, and how many of them all of its rows see whole."""
    limit = keys
    whole = keys
    if CAUSAL:
        limit = gl.maximum(gl.minimum(keys, row * BM + BM + (keys - queries)), 1)
        whole = gl.maximum(gl.minimum(keys, row * BM + 1 + (keys - queries)), 0)
    return gl.cdiv(limit, BN), whole // BN


@gluon.jit
def _copies(
    q, k, v, q_held, k_held, v_held, q_full, q_free, k_full, k_free, v_full, v_free, batch, heads, sharing, queries,
    keys, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Have the queries and keys of all tiles copied, each as soon as its buffer is free."""
    ROWS: gl.constexpr = BM // 2
    count, tiles = 0, 0
    row_tiles = gl.cdiv(queries, BM)
    for tile in range(gl.program_id(0), row_tiles * batch * heads, gl.num_programs(0)):
        b, h, row = place_of(tile, row_tiles, heads, batch * heads, GROUP, CAUSAL)
        blocks, _ = blocks_of(row, queries, keys, BM, BN, CAUSAL)
        for part in gl.static_range(2):
            mbarrier.wait(q_free.index(part), (tiles & 1) ^ 1)
            mbarrier.expect(q_full.index(part), q.block_type.nbytes)
            copy_in(q, [b, h, row * BM + part * ROWS, 0], q_full.index(part), q_held.index(part))
        for step in range(blocks):
            slot = count % BUFFERS
            free = ((count // BUFFERS) & 1) ^ 1
            start = (blocks - 1 - step) * BN
            mbarrier.wait(k_free.index(slot), free)
            mbarrier.expect(k_full.index(slot), k.block_type.nbytes)
            copy_in(k, [b, h // sharing, start, 0], k_full.index(slot), k_held.index(slot))
            mbarrier.wait(v_free.index(slot), free)
            mbarrier.expect(v_full.index(slot), v.block_type.nbytes)
            copy_in(v, [b, h // sharing, start, 0], v_full.index(slot), v_held.index(slot))
            count += 1
        tiles += 1  # noqa: SIM113 - Gluon has no enumerate


@gluon.jit
def _named(PART: gl.constexpr, ARRIVE: gl.constexpr):
    """Wait at this group's barrier, or arrive at the other's: both count 256 threads."""
    if ARRIVE:
        if PART == 0:
            gl.inline_asm_elementwise("bar.arrive 11, 256; mov.b32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1)
        else:
            gl.inline_asm_elementwise("bar.arrive 10, 256; mov.b32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1)
    else:
        if PART == 0:
            gl.inline_asm_elementwise("bar.sync 10, 256; mov.b32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1)
        else:
            gl.inline_asm_elementwise("bar.sync 11, 256; mov.b32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1)


@gluon.jit
def _take_turn(turns, turn, PART: gl.constexpr, TURNS: gl.constexpr):
    if TURNS == "named":
        _named(PART, False)
    if TURNS == "shared":
        mbarrier.wait(turns.index(PART), (turn & 1) ^ (1 - PART))


@gluon.jit
def _pass_turn(turns, PART: gl.constexpr, TURNS: gl.constexpr):
    if TURNS == "named":
        _named(PART, True)
    if TURNS == "shared":
        mbarrier.arrive(turns.index(1 - PART), count=1)


@gluon.jit
def _sums(p, LAZY: gl.constexpr):
    """The sums of rows: one for each thread and row if LAZY, which are added up at the end."""
    if LAZY:
        COLUMNS: gl.constexpr = p.type.shape[1]
        sums = gl.sum(gl.reshape(p, (p.type.shape[0], COLUMNS // 8, 8)), 1)
    else:
        sums = gl.sum(p, 1)
    return sums


@gluon.jit
def _softened(
    scores, highest, seen_to, start, factor, BN: gl.constexpr, MASKED: gl.constexpr, layout: gl.constexpr
):  # fmt: skip
    """Weights, the largest score so far, and what earlier sums are to be multiplied by."""
    if MASKED:
        column = gl.arange(0, BN, gl.SliceLayout(0, layout))
        seen = gl.expand_dims(column, 0) < gl.expand_dims(seen_to - start, 1)
        scores = gl.where(seen, scores, float("-inf"))
    higher = gl.maximum(highest, gl.max(scores, 1) * factor)
    p = gl.exp2(scores * factor - gl.expand_dims(higher, 1))
    return p, higher, gl.exp2(highest - higher)


@gluon.jit
def _packed(p, dtype: gl.constexpr, layout: gl.constexpr, PACKED: gl.constexpr):
    """Weights as the next step takes them: two of them in a number of 32 bits, or an operand of a product."""
    if PACKED:
        low, high = gl.split(gl.reshape(p, (p.type.shape[0], p.type.shape[1] // 2, 2)))
        if dtype == gl.bfloat16:
            packed = gl.inline_asm_elementwise(
                "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], gl.int32, is_pure=True, pack=1
            )
        else:
            packed = gl.inline_asm_elementwise(
                "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], gl.int32, is_pure=True, pack=1
            )
    else:
        packed = gl.convert_layout(p.to(dtype), layout)
    return packed


@gluon.jit
def _operand(p, dtype: gl.constexpr, layout: gl.constexpr, PACKED: gl.constexpr):
    """Weights as an operand."""
    operand = p
    if PACKED:
        low = p.to(gl.int16).to(dtype, bitcast=True)
        high = (p >> 16).to(gl.int16).to(dtype, bitcast=True)
        operand = gl.convert_layout(gl.reshape(gl.join(low, high), (p.type.shape[0], 2 * p.type.shape[1])), layout)
    return operand


@gluon.jit
def _step(
    total, weight, highest, p, q, k_held, v_held, k_full, k_free, v_full, v_free, turns, count, turn, seen_to, start,
    factor, none, PART: gl.constexpr, BN: gl.constexpr, BUFFERS: gl.constexpr, MASKED: gl.constexpr,
    TURNS: gl.constexpr, LAZY: gl.constexpr, OVERLAP: gl.constexpr, PACKED: gl.constexpr,
    layout: gl.constexpr, o_layout: gl.constexpr, p_layout: gl.constexpr,
):  # fmt: skip
    """The product of the weights before with their values, beside the weights of the block at `start`."""
    slot = count % BUFFERS
    before = (count - 1) % BUFFERS
    mbarrier.wait(k_full.index(slot), (count // BUFFERS) & 1)
    _take_turn(turns, turn, PART, TURNS)
    scores = warpgroup_mma(q, k_held.index(slot).permute((1, 0)), none, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(before), ((count - 1) // BUFFERS) & 1)
    operand = _operand(p, v_held.dtype, p_layout, PACKED)
    total = warpgroup_mma(operand, v_held.index(before), total, is_async=True)
    _pass_turn(turns, PART, TURNS)
    if OVERLAP == "no":
        scores, total = warpgroup_mma_wait(num_outstanding=0, deps=(scores, total))
        mbarrier.arrive(v_free.index(before), count=1)
    else:
        scores = warpgroup_mma_wait(num_outstanding=1, deps=(scores,))
    mbarrier.arrive(k_free.index(slot), count=1)
    p_next, higher, rescale = _softened(scores, highest, seen_to, start, factor, BN, MASKED, layout)
    sums = _sums(p_next, LAZY)
    if OVERLAP == "held":  # assemblers move the wait for a product before all that has no part in it, in its block
        mbarrier.wait(v_full.index(before), ((count - 1) // BUFFERS) & 1)
    if OVERLAP != "no":
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
        mbarrier.arrive(v_free.index(before), count=1)
    if LAZY:
        weight = weight * gl.expand_dims(gl.convert_layout(rescale, gl.SliceLayout(1, weight.type.layout)), 1) + sums
    else:
        weight = weight * rescale + sums
    total = total * gl.expand_dims(gl.convert_layout(rescale, gl.SliceLayout(1, o_layout)), 1)
    return total, weight, higher, _packed(p_next, v_held.dtype, p_layout, PACKED)


@gluon.jit
def _attends(
    out, q_held, k_held, v_held, o_held, q_full, q_free, k_full, k_free, v_full, v_free, turns, lse, batch, heads,
    queries, keys, factor, PART: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr,
    BUFFERS: gl.constexpr, CAUSAL: gl.constexpr, TURNS: gl.constexpr, LAZY: gl.constexpr, OVERLAP: gl.constexpr,
    PACKED: gl.constexpr,
):  # fmt: skip
    """One group's half of the rows of all tiles."""
    ROWS: gl.constexpr = BM // 2
    VALUES: gl.constexpr = v_held.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, VALUES, 16]
    )
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    if TURNS == "named" and PART == 1:
        _named(PART, True)
    count, tiles = 0, 0
    row_tiles = gl.cdiv(queries, BM)
    q = q_held.index(PART)
    none = gl.zeros((ROWS, BN), gl.float32, layout)
    for tile in range(gl.program_id(0), row_tiles * batch * heads, gl.num_programs(0)):
        b, h, row = place_of(tile, row_tiles, heads, batch * heads, GROUP, CAUSAL)
        blocks, whole = blocks_of(row, queries, keys, BM, BN, CAUSAL)
        m0 = row * BM + PART * ROWS
        rows = m0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        seen_to = rows * 0 + keys
        if CAUSAL:
            seen_to = gl.minimum(rows + (keys - queries + 1), keys)
        mbarrier.wait(q_full.index(PART), tiles & 1)
        slot = count % BUFFERS
        mbarrier.wait(k_full.index(slot), (count // BUFFERS) & 1)
        scores = warpgroup_mma(q, k_held.index(slot).permute((1, 0)), none, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(num_outstanding=0, deps=(scores,))
        mbarrier.arrive(k_free.index(slot), count=1)
        highest = gl.full((ROWS,), LOWEST, gl.float32, gl.SliceLayout(1, layout))
        p_wide, highest, _ = _softened(scores, highest, seen_to, (blocks - 1) * BN, factor, BN, True, layout)
        weight = _sums(p_wide, LAZY)
        p = _packed(p_wide, v_held.dtype, p_layout, PACKED)
        total = gl.zeros((ROWS, VALUES), gl.float32, o_layout)
        count += 1
        masked = gl.minimum(whole, blocks - 1)
        for step in range(1, blocks - masked):
            total, weight, highest, p = _step(
                total, weight, highest, p, q, k_held, v_held, k_full, k_free, v_full, v_free, turns, count,
                count - tiles - 1, seen_to, (blocks - 1 - step) * BN, factor, none, PART, BN, BUFFERS, True, TURNS,
                LAZY, OVERLAP, PACKED, layout, o_layout, p_layout,
            )  # fmt: skip
            count += 1
        for step in range(blocks - masked, blocks):
            total, weight, highest, p = _step(
                total, weight, highest, p, q, k_held, v_held, k_full, k_free, v_full, v_free, turns, count,
                count - tiles - 1, seen_to, (blocks - 1 - step) * BN, factor, none, PART, BN, BUFFERS, False, TURNS,
                LAZY, OVERLAP, PACKED, layout, o_layout, p_layout,
            )  # fmt: skip
            count += 1
        mbarrier.arrive(q_free.index(PART), count=1)
        last = (count - 1) % BUFFERS
        mbarrier.wait(v_full.index(last), ((count - 1) // BUFFERS) & 1)
        operand = _operand(p, v_held.dtype, p_layout, PACKED)
        total = warpgroup_mma(operand, v_held.index(last), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
        mbarrier.arrive(v_free.index(last), count=1)
        if LAZY:
            weight = gl.convert_layout(gl.sum(weight, 1), gl.SliceLayout(1, layout))
        nothing = weight == 0.0
        weight = gl.where(nothing, 1.0, weight)
        if lse is not None:
            logarithm = gl.where(nothing, float("-inf"), (highest + gl.log2(weight)) * 0.6931471805599453)
            gl.store(lse + (b * heads + h).to(gl.int64) * queries + rows, logarithm, mask=rows < queries)
        share = gl.where(nothing, 0.0, 1.0 / weight)
        total = total * gl.expand_dims(gl.convert_layout(share, gl.SliceLayout(1, o_layout)), 1)
        tma.store_wait(pendings=0)  # the one before has been read
        together()
        o_held.store(total.to(out.dtype))
        fence_async_shared()
        together()
        copy_out(out, [b, h, m0, 0], o_held._reinterpret(out.dtype, out.block_type.shape, out.layout))
        tiles += 1  # noqa: SIM113 - Gluon has no enumerate
    tma.store_wait(pendings=0)


@gluon.jit
def gluon_attention_kernel(
    q, k, v, out, lse, scale, CAUSAL: gl.constexpr, PRECISION: gl.constexpr,  # noqa: ARG001 - by their descriptors
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_HEADS: gl.constexpr, BUFFERS: gl.constexpr,
    TURNS: gl.constexpr, LAZY: gl.constexpr, OVERLAP: gl.constexpr, PACKED: gl.constexpr,
    q_tiles, k_tiles, v_tiles, out_tiles,
):  # fmt: skip
    """softmax(scale * q @ k.T) @ v, for strides that TMA copies."""
    ROWS: gl.constexpr = BLOCK_M // 2
    SIZE: gl.constexpr = q_tiles.block_type.shape[3]
    VALUES: gl.constexpr = v_tiles.block_type.shape[3]
    batch, heads, queries = q_tiles.shape[0], q_tiles.shape[1], q_tiles.shape[2]
    keys = k_tiles.shape[2]
    sharing = heads // k_tiles.shape[1]
    factor = scale * 1.4426950408889634
    dtype: gl.constexpr = q_tiles.dtype
    q_lay: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, SIZE], dtype)
    k_lay: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, SIZE], dtype)
    v_lay: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, VALUES], dtype)
    o_lay: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, VALUES], dtype)
    q_held = gl.allocate_shared_memory(dtype, [2, ROWS, SIZE], q_lay)
    k_held = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, SIZE], k_lay)
    v_held = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, VALUES], v_lay)
    o_held = gl.allocate_shared_memory(dtype, [2, ROWS, VALUES], o_lay)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for part in gl.static_range(2):
        mbarrier.init(q_full.index(part), count=1)
        mbarrier.init(q_free.index(part), count=1)
        mbarrier.init(turns.index(part), count=1)
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(k_full.index(slot), count=1)
        mbarrier.init(k_free.index(slot), count=2)
        mbarrier.init(v_full.index(slot), count=1)
        mbarrier.init(v_free.index(slot), count=2)
    upper: gl.constexpr = 0
    lower: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_attends, (
                out_tiles, q_held, k_held, v_held, o_held.index(0), q_full, q_free, k_full, k_free, v_full, v_free,
                turns, lse, batch, heads, queries, keys, factor,
                upper, BLOCK_M, BLOCK_N, GROUP_HEADS, BUFFERS, CAUSAL, TURNS, LAZY, OVERLAP, PACKED,
            )),
            (_attends, (
                out_tiles, q_held, k_held, v_held, o_held.index(1), q_full, q_free, k_full, k_free, v_full, v_free,
                turns, lse, batch, heads, queries, keys, factor,
                lower, BLOCK_M, BLOCK_N, GROUP_HEADS, BUFFERS, CAUSAL, TURNS, LAZY, OVERLAP, PACKED,
            )),
            (_copies, (
                q_tiles, k_tiles, v_tiles, q_held, k_held, v_held, q_full, q_free, k_full, k_free, v_full, v_free,
                batch, heads, sharing, queries, keys, BLOCK_M, BLOCK_N, GROUP_HEADS, BUFFERS, CAUSAL,
            )),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def _grid(meta: Mapping[str, Any]) -> tuple[int]:
    batch, heads, queries = meta["q"].shape[:3]
    return programs_for(triton.cdiv(queries, meta["BLOCK_M"]) * batch * heads, {**meta, "PROGRAMS": 1}, "q")


def _descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    rows, step = meta["BLOCK_M"] // 2, meta["BLOCK_N"]
    blocks = {"q": rows, "k": step, "v": step, "out": rows}
    return {
        f"{name}_tiles": descriptor(meta[name], (1, 1, block, meta[name].shape[3]), meta, gluon=True)
        for name, block in blocks.items()
    }


gluon_attention = TritonKernel(gluon_attention_kernel, _grid, outputs=("out",), made=_descriptors)
attention_forms = replace(
    operation,
    name="attention_forms",
    kernel=FormsKernel({"shipped": operation.kernel, "gluon": gluon_attention}),
    space={
        "FORM": ["shipped", "gluon"], "BLOCK_M": [128], "BLOCK_N": [64, 128], "GROUP_HEADS": [1, 8, 1024],
        "BUFFERS": [2, 3], "TURNS": ["", "named", "shared"], "LAZY": [False, True], "OVERLAP": ["no", "free", "held"],
        "PACKED": [False, True], "num_warps": [4],
    },
)  # fmt: skip
