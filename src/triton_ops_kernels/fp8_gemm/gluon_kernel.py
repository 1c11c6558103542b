"""A product of 8-bit floats in Gluon for Hopper: two groups of warps multiply and promote by turns, one warp copies.

A tile of C has an upper half for one group of four warps, and a lower half for the other. No group waits for the other:
while one adds up a sum, the matrix instructions of the other run. A group has a sum for each half of its columns, so
that both and one that is being made fit into the registers of a thread.

The scales of a tile are read before its sums are made, and each thread turns over those that it has read: of one row,
and of two columns. They come to the threads that need them through shared memory.

Few rows have a form of their own, `steps`: a tile is of 64 rows, and the two groups take its steps by turns. Each has a
sum of every second step, which it promotes while the other multiplies; in the end they are added up.

With APART the lower half's group begins each tile when the upper's matrix instructions run. Two groups that begin
together could share these units evenly, end together, and then add up together while the units are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.backend import matrix_descriptor
from triton_ops.base import require
from triton_ops_kernels.tiles import programs_for

triton = require("triton", "the fp8_gemm kernel in Gluon")
gluon = require("triton.experimental.gluon", "the fp8_gemm kernel in Gluon")
gl = require("triton.experimental.gluon.language", "the fp8_gemm kernel in Gluon")
_hopper = require("triton.experimental.gluon.language.nvidia.hopper", "the fp8_gemm kernel in Gluon")
fence_async_shared, mbarrier, tma = _hopper.fence_async_shared, _hopper.mbarrier, _hopper.tma
capability_from = require("triton.language.target_info", "the fp8_gemm kernel in Gluon").cuda_capability_geq
warpgroup_mma, warpgroup_mma_wait = _hopper.warpgroup_mma, _hopper.warpgroup_mma_wait

# Triton 3.7 and 3.9 have other names than 3.6 for the barrier and for the bulk copies.
together = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit
def corner(tile, M, N, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr):
    """Row and column of a tile's first element; consecutive tiles walk down GROUP tile rows."""
    tile_rows, tile_columns = gl.cdiv(M, BM), gl.cdiv(N, BN)
    first = tile // (GROUP * tile_columns) * GROUP
    rows = gl.minimum(tile_rows - first, GROUP)
    place = tile % (GROUP * tile_columns)
    return (first + place % rows) * BM, place // rows * BN


@gluon.jit
def _copies(
    a, b, left, right, full, free, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """Have the steps of all tiles copied, one after the other, each as soon as its buffers are free."""
    count = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        m0, n0 = corner(tile, M, N, BM, BN, GROUP)
        for k0 in range(0, K, BK):
            slot = count % BUFFERS
            # The phase before that of a new barrier counts as complete: first waits for buffers pass at once.
            mbarrier.wait(free.index(slot), ((count // BUFFERS) & 1) ^ 1)
            barrier = full.index(slot)
            mbarrier.expect(barrier, a.block_type.nbytes + b.block_type.nbytes)
            copy_in(a, [m0, k0], barrier, left.index(slot))
            copy_in(b, [n0, k0], barrier, right.index(slot))
            count += 1


@gluon.jit
def _scales(scale, first, extent, stride, SIDE: gl.constexpr, layout: gl.constexpr):
    """The scales of SIDE rows, or columns; 1 beyond the last."""
    place = first + gl.arange(0, SIDE, layout)
    return gl.load(scale + place * stride, mask=place < extent, other=1.0)


@gluon.jit
def _put(c, total, out, rows, columns, bias, m0, n0, N, SIDE: gl.constexpr, layout: gl.constexpr):
    """Multiply sums by what their rows and columns are to be multiplied by, add the bias, and have them copied to C."""
    rows = gl.convert_layout(rows, gl.SliceLayout(1, layout))
    columns = gl.convert_layout(columns, gl.SliceLayout(0, layout))
    total = total * gl.expand_dims(rows, 1) * gl.expand_dims(columns, 0)
    if bias is not None:
        place = n0 + gl.arange(0, SIDE, gl.SliceLayout(0, layout))
        total += gl.expand_dims(gl.load(bias + place, mask=place < N, other=0.0).to(gl.float32), 0)
    tma.store_wait(pendings=0)  # the one before has been read
    together()
    out.store(total.to(c.dtype))
    fence_async_shared()
    together()
    copy_out(c, [m0, n0], out)


@gluon.jit
def _multiplies(
    c, left, right, full, free, begun, seen, out, a_scale, b_scale, bias, M, N, K, stride_asm, stride_bsn,
    PART: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
    BUFFERS: gl.constexpr, APART: gl.constexpr,
):  # fmt: skip
    """One group's half of the rows of all tiles."""
    ROWS: gl.constexpr = BM // 2
    SIDE: gl.constexpr = BN // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, SIDE, 32])
    each: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])  # one row or column for each thread
    count, tiles = 0, 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        m0, n0 = corner(tile, M, N, BM, BN, GROUP)
        low = gl.zeros((ROWS, SIDE), gl.float32, layout)
        high = gl.zeros((ROWS, SIDE), gl.float32, layout)
        none = gl.zeros((ROWS, SIDE), gl.float32, layout)
        rows = _scales(a_scale, m0 + PART * ROWS, M, stride_asm, ROWS, each)
        lows = _scales(b_scale, n0, N, stride_bsn, SIDE, each)
        highs = _scales(b_scale, n0 + SIDE, N, stride_bsn, SIDE, each)
        if APART:
            if PART == 0:  # no group is two tiles ahead: the other has seen that the tile before was begun
                mbarrier.wait(seen, (tiles & 1) ^ 1)
            else:
                mbarrier.wait(begun, tiles & 1)
                mbarrier.arrive(seen, count=1)
        for k0 in range(0, K, BK):
            slot = count % BUFFERS
            mbarrier.wait(full.index(slot), (count // BUFFERS) & 1)
            x = left.index(slot).slice(PART * ROWS, ROWS)
            y = right.index(slot)
            found = warpgroup_mma(x, y.slice(0, SIDE).permute((1, 0)), none, use_acc=False, is_async=True)
            if APART and PART == 0:
                mbarrier.arrive(begun, count=1, pred=k0 == 0)
            found = warpgroup_mma_wait(num_outstanding=0, deps=(found,))
            more = warpgroup_mma(x, y.slice(SIDE, SIDE).permute((1, 0)), none, use_acc=False, is_async=True)
            low += found
            more = warpgroup_mma_wait(num_outstanding=0, deps=(more,))
            mbarrier.arrive(free.index(slot), count=1)
            high += more
            count += 1
        rows = 1.0 / rows
        _put(c, low, out, rows, 1.0 / lows, bias, m0 + PART * ROWS, n0, N, SIDE, layout)
        _put(c, high, out, rows, 1.0 / highs, bias, m0 + PART * ROWS, n0 + SIDE, N, SIDE, layout)
        tiles += 1  # noqa: SIM113 - Gluon has no enumerate
    tma.store_wait(pendings=0)


@gluon.jit
def gluon_fp8_kernel(
    a, b, c, a_scale, b_scale, bias, M, N, K, stride_asm, stride_bsn,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, a_tiles, b_tiles, c_tiles,
    GROUP_SIZE_M: gl.constexpr = 8, BUFFERS: gl.constexpr = 4, APART: gl.constexpr = False,
):  # fmt: skip
    """C = (A / a_scale) @ (B / b_scale) + bias, with promoted sums, for strides that TMA copies.

    There is a scale for each row of A and each column of B, where a stride of 0 shares one. A, B and C are reached by
    their descriptors alone. `bias` is [N], or None.
    """
    # Blackwell has `tcgen05` in place of `wgmma`.
    hopper: gl.constexpr = capability_from(9, 0) and not capability_from(10, 0)
    gl.static_assert(hopper, "the form in Gluon is for compute capability 9.0")
    left = gl.allocate_shared_memory(a_tiles.dtype, [BUFFERS, BLOCK_M, BLOCK_K], a_tiles.layout)
    right = gl.allocate_shared_memory(b_tiles.dtype, [BUFFERS, BLOCK_N, BLOCK_K], b_tiles.layout)
    out = gl.allocate_shared_memory(c_tiles.dtype, [2, BLOCK_M // 2, BLOCK_N // 2], c_tiles.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=2)
    begun = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    seen = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(begun, count=1)
    mbarrier.init(seen, count=1)
    upper: gl.constexpr = 0
    lower: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_multiplies, (
                c_tiles, left, right, full, free, begun, seen, out.index(0), a_scale, b_scale, bias,
                M, N, K, stride_asm, stride_bsn,
                upper, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS, APART,
            )),
            (_multiplies, (
                c_tiles, left, right, full, free, begun, seen, out.index(1), a_scale, b_scale, bias,
                M, N, K, stride_asm, stride_bsn,
                lower, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS, APART,
            )),
            (_copies, (
                a_tiles, b_tiles, left, right, full, free, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
        ],
        [4, 1],  # warps of the second and the third role; the first one has four
        [240, 24],  # registers of their threads; what is left is for the first role
    )  # fmt: skip


@gluon.jit
def _every_second(
    left, right, full, free, K, PART: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BUFFERS: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """The sum of every second step of a tile, from PART on."""
    total = gl.zeros((BM, BN), gl.float32, layout)
    none = gl.zeros((BM, BN), gl.float32, layout)
    for step in range(PART, gl.cdiv(K, BK), 2):
        slot = step % BUFFERS
        mbarrier.wait(full.index(slot), (step // BUFFERS) & 1)
        y = right.index(slot).permute((1, 0))
        found = warpgroup_mma(left.index(slot), y, none, use_acc=False, is_async=True)
        found = warpgroup_mma_wait(num_outstanding=0, deps=(found,))
        mbarrier.arrive(free.index(slot), count=1)
        total += found
    return total


@gluon.jit
def _even_steps(
    c, left, right, full, free, done, odd, a_scale, b_scale, bias, M, N, K, stride_asm, stride_bsn,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """One group's steps, and the result from the sums of both."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 32])
    m0, n0 = corner(gl.program_id(0), M, N, BM, BN, GROUP)
    rows = _scales(a_scale, m0, M, stride_asm, BM, gl.SliceLayout(1, layout))
    columns = _scales(b_scale, n0, N, stride_bsn, BN, gl.SliceLayout(0, layout))
    total = _every_second(left, right, full, free, K, 0, BM, BN, BK, BUFFERS, layout)
    mbarrier.wait(done, 0)
    total = (total + odd.load(layout)) * gl.expand_dims(1.0 / rows, 1) * gl.expand_dims(1.0 / columns, 0)
    row, column = m0 + gl.arange(0, BM, gl.SliceLayout(1, layout)), n0 + gl.arange(0, BN, gl.SliceLayout(0, layout))
    if bias is not None:
        total += gl.expand_dims(gl.load(bias + column, mask=column < N, other=0.0).to(gl.float32), 0)
    place = gl.expand_dims(row.to(gl.int64), 1) * N + gl.expand_dims(column, 0)
    inside = gl.expand_dims(row < M, 1) & gl.expand_dims(column < N, 0)
    gl.store(c + place, total.to(c.dtype.element_ty), mask=inside)


@gluon.jit
def _odd_steps(
    left, right, full, free, done, odd, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """The other group's steps, whose sum it leaves in shared memory."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 32])
    odd.store(_every_second(left, right, full, free, K, 1, BM, BN, BK, BUFFERS, layout))
    together()
    mbarrier.arrive(done, count=1)


@gluon.jit
def steps_fp8_kernel(
    a, b, c, a_scale, b_scale, bias, M, N, K, stride_asm, stride_bsn,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, a_tiles, b_tiles,
    GROUP_SIZE_M: gl.constexpr = 8, BUFFERS: gl.constexpr = 8,
):  # fmt: skip
    """As `gluon_fp8_kernel`, of one tile of 64 rows for each program, whose steps the two groups take by turns."""
    hopper: gl.constexpr = capability_from(9, 0) and not capability_from(10, 0)
    gl.static_assert(hopper, "the form of steps is for compute capability 9.0")
    left = gl.allocate_shared_memory(a_tiles.dtype, [BUFFERS, BLOCK_M, BLOCK_K], a_tiles.layout)
    right = gl.allocate_shared_memory(b_tiles.dtype, [BUFFERS, BLOCK_N, BLOCK_K], b_tiles.layout)
    odd = gl.allocate_shared_memory(gl.float32, [BLOCK_M, BLOCK_N], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=1)
    mbarrier.init(done, count=1)
    gl.warp_specialize(
        [
            (_even_steps, (
                c, left, right, full, free, done, odd, a_scale, b_scale, bias, M, N, K, stride_asm, stride_bsn,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
            (_odd_steps, (left, right, full, free, done, odd, K, BLOCK_M, BLOCK_N, BLOCK_K, BUFFERS)),
            (_copies, (
                a_tiles, b_tiles, left, right, full, free, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
        ],
        [4, 1],
        [168, 24],
    )  # fmt: skip


def gluon_grid(meta: Mapping[str, Any]) -> tuple[int]:
    """One program for each multiprocessor, or for each tile where these are fewer."""
    tiles = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return programs_for(tiles, {**meta, "PROGRAMS": 1}, "a")


def steps_grid(meta: Mapping[str, Any]) -> tuple[int]:
    """One program for each tile."""
    return (triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"]),)


def steps_descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The descriptors of A and B by the kernel's parameters."""
    rows, columns, step = meta["BLOCK_M"], meta["BLOCK_N"], meta["BLOCK_K"]
    return {
        "a_tiles": matrix_descriptor(meta["a"], (rows, step), gluon=True),
        "b_tiles": matrix_descriptor(meta["b"], (step, columns), turned=True, gluon=True),
    }


def gluon_descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Those, and that of C, of which a group of warps writes a quarter of a tile at once."""
    part = meta["BLOCK_M"] // 2, meta["BLOCK_N"] // 2
    return {**steps_descriptors(meta), "c_tiles": matrix_descriptor(meta["c"], part, gluon=True)}


FORMS = {
    "gluon": (gluon_fp8_kernel, gluon_grid, gluon_descriptors),
    "steps": (steps_fp8_kernel, steps_grid, steps_descriptors),
}
"""The forms, each with its grid and what makes its descriptors."""
