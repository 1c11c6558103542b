"""The gated MLP in Gluon for Hopper: one warp copies, two groups of warps multiply, each its half of a tile's rows.

A tile of the result is BLOCK_M by BLOCK_N. For it BLOCK_N rows of each weight lie one below the other in shared memory,
so that one matrix instruction of twice the columns makes both products (JOINED), and reads a tile of x once. Else two
instructions do. A group is up to BUFFERS steps ahead of the other: while one writes its result, the other multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
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

from triton_ops.backend import TritonKernel, matrix_descriptor
from triton_ops_kernels.fp8_gemm.gluon_kernel import copy_in, copy_out, corner, together
from triton_ops_kernels.tiles import programs_for


@gluon.jit
def _copies(
    x, gate, up, left, right, full, free, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """Have the steps of all tiles copied, one after the other, each as soon as its buffers are free."""
    count = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        m0, n0 = corner(tile, M, N, BM, BN, GROUP)
        for k0 in range(0, K, BK):
            slot = count % BUFFERS
            mbarrier.wait(free.index(slot), ((count // BUFFERS) & 1) ^ 1)
            barrier = full.index(slot)
            mbarrier.expect(barrier, x.block_type.nbytes + gate.block_type.nbytes + up.block_type.nbytes)
            copy_in(x, [m0, k0], barrier, left.index(slot))
            copy_in(gate, [n0, k0], barrier, right.index(slot).slice(0, BN))
            copy_in(up, [n0, k0], barrier, right.index(slot).slice(BN, BN))
            count += 1


@gluon.jit
def _put(c, g, u, out, m0, n0):
    """Multiply both products, and have them copied to C; the copy before has been read meanwhile."""
    found = g / (1.0 + gl.exp(-g)) * u
    tma.store_wait(pendings=0)
    together()
    out.store(found.to(c.dtype))
    fence_async_shared()
    together()
    copy_out(c, [m0, n0], out)


@gluon.jit
def _joined(
    c, left, right, full, free, out, M, N, K, PART: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """One group's half of the rows of all tiles, by one matrix instruction for both weights."""
    ROWS: gl.constexpr = BM // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 2 * BN, 16])
    count = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        m0, n0 = corner(tile, M, N, BM, BN, GROUP)
        total = gl.zeros((ROWS, 2 * BN), gl.float32, layout)
        for k0 in range(0, K, BK):
            slot = count % BUFFERS
            mbarrier.wait(full.index(slot), (count // BUFFERS) & 1)
            rows = left.index(slot).slice(PART * ROWS, ROWS)
            total = warpgroup_mma(rows, right.index(slot).permute((1, 0)), total, is_async=True)
            total = warpgroup_mma_wait(num_outstanding=1, deps=(total,))
            mbarrier.arrive(free.index((count + BUFFERS - 1) % BUFFERS), count=1, pred=k0 > 0)
            count += 1
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
        mbarrier.arrive(free.index((count + BUFFERS - 1) % BUFFERS), count=1)
        g, u = gl.split(gl.permute(gl.reshape(total, (ROWS, 2, BN)), (0, 2, 1)))
        _put(c, g, u, out, m0 + PART * ROWS, n0)
    tma.store_wait(pendings=0)


@gluon.jit
def _apart(
    c, left, right, full, free, out, M, N, K, PART: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """The same by two instructions, one for each weight."""
    ROWS: gl.constexpr = BM // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    count = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        m0, n0 = corner(tile, M, N, BM, BN, GROUP)
        g = gl.zeros((ROWS, BN), gl.float32, layout)
        u = gl.zeros((ROWS, BN), gl.float32, layout)
        for k0 in range(0, K, BK):
            slot = count % BUFFERS
            mbarrier.wait(full.index(slot), (count // BUFFERS) & 1)
            rows = left.index(slot).slice(PART * ROWS, ROWS)
            g = warpgroup_mma(rows, right.index(slot).slice(0, BN).permute((1, 0)), g, is_async=True)
            u = warpgroup_mma(rows, right.index(slot).slice(BN, BN).permute((1, 0)), u, is_async=True)
            g, u = warpgroup_mma_wait(num_outstanding=2, deps=(g, u))
            mbarrier.arrive(free.index((count + BUFFERS - 1) % BUFFERS), count=1, pred=k0 > 0)
            count += 1
        g, u = warpgroup_mma_wait(num_outstanding=0, deps=(g, u))
        mbarrier.arrive(free.index((count + BUFFERS - 1) % BUFFERS), count=1)
        _put(c, g, u, out, m0 + PART * ROWS, n0)
    tma.store_wait(pendings=0)


@gluon.jit
def _multiplies(
    c, left, right, full, free, out, M, N, K, PART: gl.constexpr, JOINED: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    if JOINED:
        _joined(c, left, right, full, free, out, M, N, K, PART, BM, BN, BK, GROUP, BUFFERS)
    else:
        _apart(c, left, right, full, free, out, M, N, K, PART, BM, BN, BK, GROUP, BUFFERS)


@gluon.jit
def gluon_mlp_kernel(
    x, gate_weight, up_weight, out, M, N, K,  # noqa: ARG001 - read and written by their descriptors
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_SIZE_M: gl.constexpr,
    BUFFERS: gl.constexpr, JOINED: gl.constexpr, x_tiles, g_tiles, u_tiles, out_tiles,
):  # fmt: skip
    """Out = silu(x @ gate_weight.T) * (x @ up_weight.T), rounded once."""
    left = gl.allocate_shared_memory(x_tiles.dtype, [BUFFERS, BLOCK_M, BLOCK_K], x_tiles.layout)
    right = gl.allocate_shared_memory(g_tiles.dtype, [BUFFERS, 2 * BLOCK_N, BLOCK_K], g_tiles.layout)
    held = gl.allocate_shared_memory(out_tiles.dtype, [2, BLOCK_M // 2, BLOCK_N], out_tiles.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=2)
    upper: gl.constexpr = 0
    lower: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_multiplies, (
                out_tiles, left, right, full, free, held.index(0), M, N, K,
                upper, JOINED, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
            (_multiplies, (
                out_tiles, left, right, full, free, held.index(1), M, N, K,
                lower, JOINED, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
            (_copies, (
                x_tiles, g_tiles, u_tiles, left, right, full, free, M, N, K,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def _grid(meta: Mapping[str, Any]) -> tuple[int]:
    tiles = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return programs_for(tiles, {**meta, "PROGRAMS": 1}, "x")


def _descriptors(meta: Mapping[str, Any]) -> dict[str, Any]:
    rows, columns, step = meta["BLOCK_M"], meta["BLOCK_N"], meta["BLOCK_K"]
    return {
        "x_tiles": matrix_descriptor(meta["x"], (rows, step), gluon=True),
        "g_tiles": matrix_descriptor(meta["gate_weight"], (columns, step), gluon=True),
        "u_tiles": matrix_descriptor(meta["up_weight"], (columns, step), gluon=True),
        "out_tiles": matrix_descriptor(meta["out"], (rows // 2, columns), gluon=True),
    }


gluon_mlp = TritonKernel(gluon_mlp_kernel, _grid, outputs=("out",), made=_descriptors)
