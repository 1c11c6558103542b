"""The grouped product in Gluon for Hopper: one warp copies, two groups of warps multiply, each half of a tile's rows.

Half a tile that lies behind the last row of its group of rows is not multiplied. A group of warps is up to BUFFERS
steps ahead of the other: while one writes its half, the other multiplies. With SKEW the lower half begins so many steps
later, so that both do not write at once. Weights are [groups, N, K] in memory.
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

from triton_ops.backend import FormsKernel, TritonKernel, matrix_descriptor
from triton_ops.backend.descriptors import _laid_out, _made
from triton_ops.kernels.fp8_gemm.gluon_kernel import copy_in, copy_out, together
from triton_ops.kernels.grouped_matmul import operation
from triton_ops.kernels.tiles import programs_for


@gluon.jit
def _added(a, b):
    return a + b


@gluon.jit
def _runs(ends, M, columns, GROUPS: gl.constexpr, BLOCK_G: gl.constexpr, BM: gl.constexpr):
    """Where each group begins and ends, and how many tiles it has, and with all before it."""
    each: gl.constexpr = gl.BlockedLayout([BLOCK_G // 32 if BLOCK_G > 32 else 1], [32], [gl.num_warps()], [0])
    g = gl.arange(0, BLOCK_G, each)
    end = gl.minimum(gl.maximum(gl.load(ends + g, mask=g < GROUPS, other=0), 0), M).to(gl.int32)
    start = gl.load(ends + g - 1, mask=(g > 0) & (g < GROUPS), other=0)
    start = gl.minimum(gl.maximum(start, 0), M).to(gl.int32)
    tiles = gl.cdiv(gl.maximum(end - start, 0), BM) * columns
    return g, start, end, tiles, gl.associative_scan(tiles, 0, _added)


@gluon.jit
def _place(tile, g, start, end, tiles, tiles_to, columns, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr):
    """A tile's group, first row and column, and where the rows of the group end."""
    group = gl.sum((tiles_to <= tile).to(gl.int32), 0)
    own = g == group
    row_0 = gl.sum(gl.where(own, start, 0), 0)
    row_end = gl.sum(gl.where(own, end, 0), 0)
    at = tile - gl.sum(gl.where(own, tiles_to - tiles, 0), 0)
    rows = gl.cdiv(row_end - row_0, BM)
    first = at // (GROUP * columns) * GROUP
    width = gl.minimum(rows - first, GROUP)
    inside = at % (GROUP * columns)
    return group, row_0 + (first + inside % width) * BM, inside // width * BN, row_end


@gluon.jit
def _copies(
    x, weight, ends, left, right, full, free, M, N, K, GROUPS: gl.constexpr, BLOCK_G: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """Have the steps of all tiles copied, one after the other, each as soon as its buffers are free."""
    count = 0
    columns = gl.cdiv(N, BN)
    g, start, end, tiles, tiles_to = _runs(ends, M, columns, GROUPS, BLOCK_G, BM)
    for tile in range(gl.program_id(0), gl.sum(tiles, 0), gl.num_programs(0)):
        group, m0, n0, _ = _place(tile, g, start, end, tiles, tiles_to, columns, BM, BN, GROUP)
        for k0 in range(0, K, BK):
            slot = count % BUFFERS
            mbarrier.wait(free.index(slot), ((count // BUFFERS) & 1) ^ 1)
            barrier = full.index(slot)
            mbarrier.expect(barrier, x.block_type.nbytes + weight.block_type.nbytes)
            copy_in(x, [m0, k0], barrier, left.index(slot))
            copy_in(weight, [group, n0, k0], barrier, right.index(slot))
            count += 1


@gluon.jit
def _put(c, out, part, held, m0, n0, row_end, N, ROWS: gl.constexpr, SIDE: gl.constexpr):
    """Write the rows of the group of some columns: by a bulk copy where all rows are its own."""
    tma.store_wait(pendings=0)  # the one before has been read
    together()
    held.store(part.to(c.dtype))
    if m0 + ROWS <= row_end:
        fence_async_shared()
        together()
        copy_out(c, [m0, n0], held)
    else:
        together()
        each: gl.constexpr = gl.BlockedLayout([1, 8], [32 * 8 // SIDE, SIDE // 8], [4, 1], [1, 0])
        rows = m0 + gl.arange(0, ROWS, gl.SliceLayout(1, each))
        n = n0 + gl.arange(0, SIDE, gl.SliceLayout(0, each))
        inside = gl.expand_dims(rows < row_end, 1) & gl.expand_dims(n < N, 0)
        gl.store(out + gl.expand_dims(rows.to(gl.int64), 1) * N + gl.expand_dims(n, 0), held.load(each), mask=inside)


@gluon.jit
def _multiplies(
    c, out, ends, left, right, full, free, begun, held, M, N, K, GROUPS: gl.constexpr, BLOCK_G: gl.constexpr,
    PART: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
    BUFFERS: gl.constexpr, SKEW: gl.constexpr,
):  # fmt: skip
    """One group's half of the rows of all tiles."""
    ROWS: gl.constexpr = BM // 2
    SIDE: gl.constexpr = BN // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    count = 0
    columns = gl.cdiv(N, BN)
    g, start, end, tiles, tiles_to = _runs(ends, M, columns, GROUPS, BLOCK_G, BM)
    for tile in range(gl.program_id(0), gl.sum(tiles, 0), gl.num_programs(0)):
        _, m0, n0, row_end = _place(tile, g, start, end, tiles, tiles_to, columns, BM, BN, GROUP)
        m0 += PART * ROWS
        if SKEW > 0 and PART == 1:
            mbarrier.wait(begun, 0)
        if m0 < row_end:
            total = gl.zeros((ROWS, BN), gl.float32, layout)
            for k0 in range(0, K, BK):
                slot = count % BUFFERS
                mbarrier.wait(full.index(slot), (count // BUFFERS) & 1)
                rows = left.index(slot).slice(PART * ROWS, ROWS)
                total = warpgroup_mma(rows, right.index(slot).permute((1, 0)), total, is_async=True)
                total = warpgroup_mma_wait(num_outstanding=1, deps=(total,))
                mbarrier.arrive(free.index((count + BUFFERS - 1) % BUFFERS), count=1, pred=k0 > 0)
                if SKEW > 0 and PART == 0:
                    mbarrier.arrive(begun, count=1, pred=count == SKEW - 1)
                count += 1
            total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
            mbarrier.arrive(free.index((count + BUFFERS - 1) % BUFFERS), count=1)
            low, high = gl.split(gl.permute(gl.reshape(total, (ROWS, 2, SIDE)), (0, 2, 1)))
            _put(c, out, low, held, m0, n0, row_end, N, ROWS, SIDE)
            _put(c, out, high, held, m0, n0 + SIDE, row_end, N, ROWS, SIDE)
        else:
            for _ in range(0, K, BK):
                slot = count % BUFFERS
                mbarrier.wait(full.index(slot), (count // BUFFERS) & 1)
                mbarrier.arrive(free.index(slot), count=1)
                count += 1
    tma.store_wait(pendings=0)


@gluon.jit
def gluon_grouped_kernel(
    x, weight, out, ends, gather, M, N, K,  # noqa: ARG001 - by their descriptors
    GROUPS: gl.constexpr, BLOCK_G: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_SIZE_M: gl.constexpr, BUFFERS: gl.constexpr, SKEW: gl.constexpr, x_tiles, w_tiles, out_tiles,
):  # fmt: skip
    """out[m, N] = x[m, K] @ weight[g, K, N] for the rows m of group g; rounded once."""
    left = gl.allocate_shared_memory(x_tiles.dtype, [BUFFERS, BLOCK_M, BLOCK_K], x_tiles.layout)
    w_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_K], w_tiles.dtype)
    right = gl.allocate_shared_memory(w_tiles.dtype, [BUFFERS, BLOCK_N, BLOCK_K], w_layout)
    held = gl.allocate_shared_memory(out_tiles.dtype, [2, BLOCK_M // 2, BLOCK_N // 2], out_tiles.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=2)
    begun = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(begun, count=1)
    upper: gl.constexpr = 0
    lower: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_multiplies, (
                out_tiles, out, ends, left, right, full, free, begun, held.index(0), M, N, K, GROUPS, BLOCK_G,
                upper, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS, SKEW,
            )),
            (_multiplies, (
                out_tiles, out, ends, left, right, full, free, begun, held.index(1), M, N, K, GROUPS, BLOCK_G,
                lower, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS, SKEW,
            )),
            (_copies, (
                x_tiles, w_tiles, ends, left, right, full, free, M, N, K, GROUPS, BLOCK_G,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
        ],
        [4, 1],
        [232, 40],
    )  # fmt: skip


def _grid(meta: Mapping[str, Any]) -> tuple[int]:
    row_tiles = meta["M"] // meta["BLOCK_M"] + min(meta["GROUPS"], meta["M"])
    return programs_for(row_tiles * triton.cdiv(meta["N"], meta["BLOCK_N"]), {**meta, "PROGRAMS": 1}, "x")


def _descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    rows, columns, step = meta["BLOCK_M"], meta["BLOCK_N"], meta["BLOCK_K"]
    weights = _made(meta["weight"], (1, step, columns), True)
    for name in ("shape", "strides", "block_shape"):
        group, inner, outer = getattr(weights, name)
        setattr(weights, name, [group, outer, inner])
    return {
        "x_tiles": matrix_descriptor(meta["x"], (rows, step), gluon=True),
        "w_tiles": _laid_out(weights),
        "out_tiles": matrix_descriptor(meta["out"], (rows // 2, columns // 2), gluon=True),
    }


gluon_grouped = TritonKernel(gluon_grouped_kernel, _grid, outputs=("out",), made=_descriptors)
grouped_forms = replace(
    operation,
    name="grouped_forms",
    kernel=FormsKernel({"shipped": operation.kernel, "gluon": gluon_grouped}),
    space={
        "FORM": ["shipped", "gluon"], "BLOCK_M": [128], "BLOCK_N": [128, 256], "BLOCK_K": [64], "BUFFERS": [3, 4],
        "GROUP_SIZE_M": [8, 16], "SKEW": [0, 1, 2, 3], "num_warps": [4],
    },
)  # fmt: skip
