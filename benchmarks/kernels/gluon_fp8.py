"""The product of 8-bit floats in Gluon, whose groups of warps take turns at the matrix units by named barriers.

The shipped form leaves it to the scheduler whose matrix instructions run first; two groups whose instructions share the
units end together, and then add up together. Here a group begins when the other's instructions have been issued.
"""

from __future__ import annotations

from dataclasses import replace

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from benchmarks.kernels.gluon_attention import _named
from triton_ops.backend import FormsKernel, TritonKernel
from triton_ops.kernels import load
from triton_ops.kernels.fp8_gemm.gluon_kernel import _copies, _put, _scales, corner, gluon_descriptors, gluon_grid
from triton_ops.kernels.fp8_gemm.problems import gluon_form


@gluon.jit
def _multiplies(
    c, left, right, full, free, out, a_scale, b_scale, bias, M, N, K, stride_asm, stride_bsn,
    PART: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
    BUFFERS: gl.constexpr,
):  # fmt: skip
    """One group's half of the rows of all tiles."""
    ROWS: gl.constexpr = BM // 2
    SIDE: gl.constexpr = BN // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, SIDE, 32])
    each: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    if PART == 1:
        _named(PART, True)
    count = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        m0, n0 = corner(tile, M, N, BM, BN, GROUP)
        low = gl.zeros((ROWS, SIDE), gl.float32, layout)
        high = gl.zeros((ROWS, SIDE), gl.float32, layout)
        none = gl.zeros((ROWS, SIDE), gl.float32, layout)
        rows = _scales(a_scale, m0 + PART * ROWS, M, stride_asm, ROWS, each)
        lows = _scales(b_scale, n0, N, stride_bsn, SIDE, each)
        highs = _scales(b_scale, n0 + SIDE, N, stride_bsn, SIDE, each)
        for _ in range(0, K, BK):
            slot = count % BUFFERS
            mbarrier.wait(full.index(slot), (count // BUFFERS) & 1)
            x = left.index(slot).slice(PART * ROWS, ROWS)
            y = right.index(slot)
            _named(PART, False)
            found = warpgroup_mma(x, y.slice(0, SIDE).permute((1, 0)), none, use_acc=False, is_async=True)
            _named(PART, True)
            found = warpgroup_mma_wait(num_outstanding=0, deps=(found,))
            _named(PART, False)
            more = warpgroup_mma(x, y.slice(SIDE, SIDE).permute((1, 0)), none, use_acc=False, is_async=True)
            _named(PART, True)
            low += found
            more = warpgroup_mma_wait(num_outstanding=0, deps=(more,))
            mbarrier.arrive(free.index(slot), count=1)
            high += more
            count += 1
        rows = 1.0 / rows
        _put(c, low, out, rows, 1.0 / lows, bias, m0 + PART * ROWS, n0, N, SIDE, layout)
        _put(c, high, out, rows, 1.0 / highs, bias, m0 + PART * ROWS, n0 + SIDE, N, SIDE, layout)
    tma.store_wait(pendings=0)


@gluon.jit
def turns_fp8_kernel(
    a, b, c, a_scale, b_scale, bias, M, N, K, stride_asm, stride_bsn,  # noqa: ARG001 - by their descriptors
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, a_tiles, b_tiles, c_tiles,
    GROUP_SIZE_M: gl.constexpr = 8, BUFFERS: gl.constexpr = 4,
):  # fmt: skip
    """C = (A / a_scale) @ (B / b_scale) + bias, with promoted sums."""
    left = gl.allocate_shared_memory(a_tiles.dtype, [BUFFERS, BLOCK_M, BLOCK_K], a_tiles.layout)
    right = gl.allocate_shared_memory(b_tiles.dtype, [BUFFERS, BLOCK_N, BLOCK_K], b_tiles.layout)
    out = gl.allocate_shared_memory(c_tiles.dtype, [2, BLOCK_M // 2, BLOCK_N // 2], c_tiles.layout)
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
                c_tiles, left, right, full, free, out.index(0), a_scale, b_scale, bias, M, N, K, stride_asm,
                stride_bsn, upper, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
            (_multiplies, (
                c_tiles, left, right, full, free, out.index(1), a_scale, b_scale, bias, M, N, K, stride_asm,
                stride_bsn, lower, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
            (_copies, (
                a_tiles, b_tiles, left, right, full, free, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_SIZE_M, BUFFERS,
            )),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


turns_fp8 = TritonKernel(turns_fp8_kernel, gluon_grid, outputs=("c",), made=gluon_descriptors)
fp8_forms = replace(
    load("fp8_gemm"),
    name="fp8_forms",
    kernel=FormsKernel({"shipped": gluon_form()["gluon"], "turns": turns_fp8}),
    space={
        "FORM": ["shipped", "turns"], "BLOCK_M": [128], "BLOCK_N": [256], "BLOCK_K": [128], "GROUP_SIZE_M": [8, 16],
        "BUFFERS": [4], "APART": [False, True], "num_warps": [4],
    },
)  # fmt: skip
