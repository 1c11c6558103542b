"""A matrix product in Gluon for Hopper: bulk copies into a ring of buffers, and matrix instructions of whole groups."""

from __future__ import annotations

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

from benchmarks.kernels.matmul import reference, sized_product, work
from triton_ops import ConfigSpace, Constraint, Operation, TritonKernel
from triton_ops_kernels.fp8_gemm.gluon_kernel import copy_in, copy_out


@gluon.jit
def _load(a, b, left, right, barriers, row, column, step, BK: gl.constexpr, BUFFERS: gl.constexpr):
    """Have one step of both operands copied into its buffers, if `step` is there."""
    slot = step % BUFFERS
    barrier = barriers.index(slot)
    mbarrier.expect(barrier, a.block_type.nbytes + b.block_type.nbytes)
    copy_in(a, [row, step * BK], barrier, left.index(slot))
    copy_in(b, [column, step * BK], barrier, right.index(slot))


@gluon.jit
def gluon_kernel(
    a, b, c, M, N, K,  # noqa: ARG001 - the grid function takes M and N
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BUFFERS: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """One program for each tile of c."""
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    left = gl.allocate_shared_memory(a.dtype, [BUFFERS, BM, BK], a.layout)
    right = gl.allocate_shared_memory(b.dtype, [BUFFERS, BN, BK], b.layout)
    barriers = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(barriers.index(slot), count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BN, 16]
    )
    total = gl.zeros((BM, BN), gl.float32, layout)
    steps = gl.cdiv(K, BK)
    for early in gl.static_range(BUFFERS - 1):
        if early < steps:
            _load(a, b, left, right, barriers, row, column, early, BK, BUFFERS)
    for step in range(steps):
        ahead = step + BUFFERS - 1
        if ahead < steps:  # its buffers held the step before this one, whose product is done
            _load(a, b, left, right, barriers, row, column, ahead, BK, BUFFERS)
        held = step % BUFFERS
        mbarrier.wait(barriers.index(held), (step // BUFFERS) & 1)
        total = warpgroup_mma(left.index(held), right.index(held).permute((1, 0)), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
    for slot in gl.static_range(BUFFERS):
        mbarrier.invalidate(barriers.index(slot))
    out = gl.allocate_shared_memory(c.dtype, [BM, BN], c.layout)
    out.store(total.to(c.dtype))
    fence_async_shared()
    copy_out(c, [row, column], out)
    tma.store_wait(pendings=0)


def _grid(meta):
    return triton.cdiv(meta["M"], meta["BM"]), triton.cdiv(meta["N"], meta["BN"])


gluon_matmul = Operation(
    "gluon_matmul",
    TritonKernel(
        gluon_kernel,
        _grid,
        outputs=("c",),
        descriptors={"a": ("BM", "BK"), "b": ("BN", "BK"), "c": ("BM", "BN")},
    ),
    ConfigSpace(
        {"BM": [64, 128], "BN": [64, 128, 256], "BK": [64], "BUFFERS": [2, 3, 4, 5], "num_warps": [4, 8]},
        constraints=[
            Constraint(
                "rows", lambda BM, num_warps: 16 * num_warps <= BM, "{num_warps} warps take 16 rows each, over {BM}"
            )
        ],
        default={"BM": 128, "BN": 128, "BK": 64, "BUFFERS": 3, "num_warps": 4},
    ),
    sized_product,
    reference=reference,
    work=work,
    dtypes=("bfloat16", "float16"),
    device="cuda",
)
