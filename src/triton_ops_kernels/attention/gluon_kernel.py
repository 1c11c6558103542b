"""Attention in Gluon for Hopper: one warp copies, two groups of four warps attend, each to half of a tile's rows.

A tile is BLOCK_M rows of one head. Its blocks of keys are read from the last, which may be masked, to the first. A
group has two products in flight: of the queries with a block of keys, and of the weights of the block before with its
values. The exponentials of one group run beside the products of the other. Programs walk over tiles, the longest first.
Descriptors have four axes, so that rows beyond a head are read as zeros, and are not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.backend import matrix_descriptor
from triton_ops_kernels.fp8_gemm import gluon_kernel as hopper
from triton_ops_kernels.fp8_gemm.gluon_kernel import capability_from, copy_in, copy_out, corner, together
from triton_ops_kernels.tiles import programs_for

gl, gluon, mbarrier, tma, triton = hopper.gl, hopper.gluon, hopper.mbarrier, hopper.tma, hopper.triton
wgmma, wgmma_wait = hopper.warpgroup_mma, hopper.warpgroup_mma_wait

BUFFERS = gl.constexpr(2)  # of keys, and as many of values
_KEYS, _VALUES, _QUERIES = gl.constexpr(0), gl.constexpr(2), gl.constexpr(4)  # the first barrier of each


@gluon.jit
def _extents(tile, heads, queries, keys, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr):
    """The head and first row of a tile, its blocks of keys, at least one, and how many of them need no mask."""
    tiles = gl.cdiv(queries, BM)
    head, row = corner(tile, heads, tiles, 1, 1, GROUP)
    limit, unmasked = keys, keys
    if CAUSAL:
        row = tiles - 1 - row
        limit = gl.maximum(gl.minimum(keys, row * BM + BM + (keys - queries)), 1)
        unmasked = gl.maximum(gl.minimum(keys, row * BM + 1 + (keys - queries)), 0)
    return head, row * BM, gl.cdiv(limit, BN), unmasked // BN


@gluon.jit
def _copy(source, offsets, buffer, full, free, barrier, phase):
    """Have a block copied to a buffer, as soon as that is free."""
    # The phase before that of a new barrier counts as complete: the first wait for a free buffer passes at once.
    mbarrier.wait(free.index(barrier), (phase & 1) ^ 1)
    mbarrier.expect(full.index(barrier), source.block_type.nbytes)
    copy_in(source, offsets, full.index(barrier), buffer)


@gluon.jit
def _copy_tiles(
    q, k, v, q_shared, k_shared, v_shared, full, free, batch, heads, sharing, queries, keys,
    BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Have the queries, keys and values of all tiles copied."""
    count = 0
    for tile in range(gl.program_id(0), gl.cdiv(queries, BM) * batch * heads, gl.num_programs(0)):
        head, m0, blocks, _ = _extents(tile, batch * heads, queries, keys, BM, BN, GROUP, CAUSAL)
        b, h, phase = head // heads, head % heads, tile // gl.num_programs(0)
        for part in gl.static_range(2):
            _copy(q, [b, h, m0 + part * (BM // 2), 0], q_shared.index(part), full, free, _QUERIES + part, phase)
        for step in range(blocks):
            slot, phase, start = count % BUFFERS, count // BUFFERS, (blocks - 1 - step) * BN
            _copy(k, [b, h // sharing, start, 0], k_shared.index(slot), full, free, _KEYS + slot, phase)
            _copy(v, [b, h // sharing, start, 0], v_shared.index(slot), full, free, _VALUES + slot, phase)
            count += 1


@gluon.jit
def _weights(scores, highest, visible, start, factor, MASKED: gl.constexpr, layout: gl.constexpr):
    """The weights of a block, their sums, the largest score so far, and the factor of earlier sums.

    Each thread has sums of its own, in eight columns, which are added up after the last block.
    """
    BN: gl.constexpr = scores.type.shape[1]
    if MASKED:
        column = gl.arange(0, BN, gl.SliceLayout(0, layout))
        scores = gl.where(gl.expand_dims(column, 0) < gl.expand_dims(visible - start, 1), scores, float("-inf"))
    higher = gl.maximum(highest, gl.max(scores, 1) * factor)
    p = gl.exp2(scores * factor - gl.expand_dims(higher, 1))
    return p, gl.sum(gl.reshape(p, (p.type.shape[0], BN // 8, 8)), 1), higher, gl.exp2(highest - higher)


@gluon.jit
def _packed(p, dtype: gl.constexpr):
    """Pairs of weights in 32 bits, which take half as many registers from step to step."""
    pair: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    low, high = gl.split(gl.reshape(p, (p.type.shape[0], p.type.shape[1] // 2, 2)))
    return gl.inline_asm_elementwise("cvt.rn." + pair + ".f32 $0, $2, $1;", "=r,f,f", [low, high], gl.int32, True, 1)


@gluon.jit
def _add_values(total, pairs, values, o_layout: gl.constexpr):
    """Begin to add the product of packed weights with values."""
    low = pairs.to(gl.int16).to(values.dtype, bitcast=True)
    high = (pairs >> 16).to(gl.int16).to(values.dtype, bitcast=True)
    p = gl.reshape(gl.join(low, high), (pairs.type.shape[0], 2 * pairs.type.shape[1]))
    return wgmma(gl.convert_layout(p, gl.DotOperandLayout(0, o_layout, 2)), values, total, is_async=True)


@gluon.jit
def _step(
    total, weight, highest, pairs, q, k_shared, v_shared, full, free, count, visible, start, factor, zeros,
    MASKED: gl.constexpr, layout: gl.constexpr, o_layout: gl.constexpr,
):  # fmt: skip
    """The sums with the values of the block before, and the weights of the one at `start`."""
    slot, before = count % BUFFERS, (count - 1) % BUFFERS
    mbarrier.wait(full.index(_KEYS + slot), (count // BUFFERS) & 1)
    scores = wgmma(q, k_shared.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
    mbarrier.wait(full.index(_VALUES + before), ((count - 1) // BUFFERS) & 1)
    total = _add_values(total, pairs, v_shared.index(before), o_layout)
    scores = wgmma_wait(num_outstanding=1, deps=(scores,))
    mbarrier.arrive(free.index(_KEYS + slot), count=1)
    p, sums, higher, rescale = _weights(scores, highest, visible, start, factor, MASKED, layout)
    total = wgmma_wait(num_outstanding=0, deps=(total,))
    mbarrier.arrive(free.index(_VALUES + before), count=1)
    weight = weight * gl.expand_dims(gl.convert_layout(rescale, gl.SliceLayout(1, weight.type.layout)), 1) + sums
    total = total * gl.expand_dims(gl.convert_layout(rescale, gl.SliceLayout(1, o_layout)), 1)
    return total, weight, higher, _packed(p, v_shared.dtype)


@gluon.jit
def _attend(
    out, q_shared, k_shared, v_shared, o_shared, full, free, lse, batch, heads, queries, keys, factor,
    BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    """Compute one group's half of the rows of all tiles."""
    ROWS: gl.constexpr = BM // 2
    SIZE: gl.constexpr = v_shared.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, SIZE, 16])
    count = 0
    q, result = q_shared.index(PART), o_shared.index(PART)
    zeros = gl.zeros((ROWS, BN), gl.float32, layout)
    for tile in range(gl.program_id(0), gl.cdiv(queries, BM) * batch * heads, gl.num_programs(0)):
        head, m0, blocks, unmasked = _extents(tile, batch * heads, queries, keys, BM, BN, GROUP, CAUSAL)
        m0 += PART * ROWS
        rows = m0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        visible = gl.minimum(rows + (keys - queries + 1), keys) if CAUSAL else rows * 0 + keys
        slot = count % BUFFERS
        mbarrier.wait(full.index(_QUERIES + PART), (tile // gl.num_programs(0)) & 1)
        mbarrier.wait(full.index(_KEYS + slot), (count // BUFFERS) & 1)
        scores = wgmma(q, k_shared.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        scores = wgmma_wait(num_outstanding=0, deps=(scores,))
        mbarrier.arrive(free.index(_KEYS + slot), count=1)
        # The least float32, since minus infinity less minus infinity is NaN.
        highest = gl.full((ROWS,), -3.4028234e38, gl.float32, gl.SliceLayout(1, layout))
        p, weight, highest, _ = _weights(scores, highest, visible, (blocks - 1) * BN, factor, True, layout)
        pairs = _packed(p, v_shared.dtype)
        total = gl.zeros((ROWS, SIZE), gl.float32, o_layout)
        count += 1
        first = 1
        for UNMASKED in gl.static_range(2):  # blocks that need a mask, then the others
            last = blocks if UNMASKED else blocks - gl.minimum(unmasked, blocks - 1)
            for step in range(first, last):
                total, weight, highest, pairs = _step(
                    total, weight, highest, pairs, q, k_shared, v_shared, full, free, count, visible,
                    (blocks - 1 - step) * BN, factor, zeros, not UNMASKED, layout, o_layout,
                )  # fmt: skip
                count += 1
            first = last
        mbarrier.arrive(free.index(_QUERIES + PART), count=1)
        slot = (count - 1) % BUFFERS
        mbarrier.wait(full.index(_VALUES + slot), ((count - 1) // BUFFERS) & 1)
        total = _add_values(total, pairs, v_shared.index(slot), o_layout)
        total = wgmma_wait(num_outstanding=0, deps=(total,))
        mbarrier.arrive(free.index(_VALUES + slot), count=1)
        weight = gl.convert_layout(gl.sum(weight, 1), gl.SliceLayout(1, layout))
        empty = weight == 0.0  # then the values count nothing either, and 0 times infinity would be NaN
        weight = gl.where(empty, 1.0, weight)
        if lse is not None:
            logarithm = gl.where(empty, float("-inf"), (highest + gl.log2(weight)) * 0.6931471805599453)
            gl.store(lse + head.to(gl.int64) * queries + rows, logarithm, mask=rows < queries)
        mean = total / gl.expand_dims(gl.convert_layout(weight, gl.SliceLayout(1, o_layout)), 1)
        empty = gl.expand_dims(gl.convert_layout(empty, gl.SliceLayout(1, o_layout)), 1)
        tma.store_wait(pendings=0)  # the one before has been read
        together()
        result.store(gl.where(empty, 0.0, mean).to(out.dtype))
        hopper.fence_async_shared()
        together()
        block = result.reshape((1, 1, ROWS, SIZE))
        copy_out(out, [head // heads, head % heads, m0, 0], block)
    tma.store_wait(pendings=0)


@gluon.jit
def gluon_attention_kernel(
    q, k, v, out, lse, scale, CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    q_tiles, k_tiles, v_tiles, out_tiles, GROUP_HEADS: gl.constexpr = 1,
):  # fmt: skip
    """Write `out`, and `lse` unless it is None: softmax(scale * q @ k.T) @ v of 16-bit floats, for at least one key.

    All but `lse` are reached by their descriptors alone.
    """
    # Blackwell has `tcgen05` in place of `wgmma`.
    supported: gl.constexpr = capability_from(9, 0) and not capability_from(10, 0)
    gl.static_assert(supported, "the form in Gluon is for compute capability 9.0")
    ROWS: gl.constexpr = BLOCK_M // 2
    SIZE: gl.constexpr = q_tiles.block_type.shape[3]
    VALUES: gl.constexpr = v_tiles.block_type.shape[3]
    dtype: gl.constexpr = q_tiles.dtype
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, 64], dtype)  # of wider heads too
    q_shared = gl.allocate_shared_memory(dtype, [2, ROWS, SIZE], layout)
    k_shared = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, SIZE], layout)
    v_shared = gl.allocate_shared_memory(dtype, [BUFFERS, BLOCK_N, VALUES], layout)
    o_shared = gl.allocate_shared_memory(dtype, [2, ROWS, VALUES], layout)
    full = gl.allocate_shared_memory(gl.int64, [_QUERIES + 2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [_QUERIES + 2, 1], mbarrier.MBarrierLayout())
    for barrier in gl.static_range(_QUERIES + 2):
        mbarrier.init(full.index(barrier), count=1)
        mbarrier.init(free.index(barrier), count=2 if barrier < _QUERIES else 1)
    batch, heads, queries = q_tiles.shape[0], q_tiles.shape[1], q_tiles.shape[2]
    keys = k_tiles.shape[2]
    gl.warp_specialize(
        [
            (_attend, (
                out_tiles, q_shared, k_shared, v_shared, o_shared, full, free, lse, batch, heads, queries, keys,
                scale * 1.4426950408889634, BLOCK_M, BLOCK_N, GROUP_HEADS, CAUSAL, gl.constexpr(0),
            )),
            (_attend, (
                out_tiles, q_shared, k_shared, v_shared, o_shared, full, free, lse, batch, heads, queries, keys,
                scale * 1.4426950408889634, BLOCK_M, BLOCK_N, GROUP_HEADS, CAUSAL, gl.constexpr(1),
            )),
            (_copy_tiles, (
                q_tiles, k_tiles, v_tiles, q_shared, k_shared, v_shared, full, free, batch, heads,
                heads // k_tiles.shape[1], queries, keys, BLOCK_M, BLOCK_N, GROUP_HEADS, CAUSAL,
            )),
        ],
        [4, 1],  # warps of the second and the third role; the first one has four
        [240, 24],  # registers of their threads; what is left is for the first role
    )  # fmt: skip


def gluon_grid(meta: Mapping[str, Any]) -> tuple[int]:
    """One program for each multiprocessor, or for each tile where these are fewer."""
    batch, heads, queries = meta["q"].shape[:3]
    return programs_for(triton.cdiv(queries, meta["BLOCK_M"]) * batch * heads, {"q": meta["q"], "PROGRAMS": 1}, "q")


def gluon_descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The descriptors of q, k, v and the result by the kernel's parameters; a group of warps has half of a tile."""
    blocks = {name: meta["BLOCK_N"] if name in "kv" else meta["BLOCK_M"] // 2 for name in ("q", "k", "v", "out")}
    return {
        f"{name}_tiles": matrix_descriptor(meta[name], (1, 1, block, meta[name].shape[3]), gluon=True)
        for name, block in blocks.items()
    }


FORMS = {"gluon": (gluon_attention_kernel, gluon_grid, gluon_descriptors)}
"""The form, with its grid and what makes its descriptors."""
