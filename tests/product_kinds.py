"""Matrix products by several kinds of Triton kernel: c[M, N] = a[M, K] b[N, K]ᵀ, accumulated in float32.

One divides K among programs, and sums their parts in a second launch. Others copy by descriptors that the kernel or the
host makes, also with specialised warps, and one is written in Gluon.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triton_ops import ConfigSpace, Constraint, LauncherKernel, Operation, Problem, TensorSpec, TritonKernel, Work
from triton_ops_kernels.fp8_gemm.gluon_kernel import copy_in, copy_out


def product(M: int = 4096, N: int = 4096, K: int = 4096, dtype: str = "bfloat16") -> dict[str, Any]:
    """The arguments: both operands have rows along K."""
    return {
        "a": TensorSpec((M, K), dtype),
        "b": TensorSpec((N, K), dtype),
        "c": TensorSpec((M, N), dtype, fill="empty"),
    }


def sized_product(M: int = 4096, N: int = 4096, K: int = 4096, dtype: str = "bfloat16") -> dict[str, Any]:
    """The same, with the extents as arguments of the kernel."""
    return {**product(M, N, K, dtype), "M": M, "N": N, "K": K}


def reference(a: Any, b: Any, c: Any, **_: Any) -> Any:
    """What `c` must hold."""
    return a @ b.T


def work(problem: Problem) -> Work:
    """Two operations for each product, each matrix moved once."""
    (m, k), n = problem["a"].shape, problem["b"].shape[0]
    moved = sum(problem[name].nbytes for name in ("a", "b", "c"))
    return Work(flops=2.0 * m * n * k, bytes=moved)


_SUMMED = 1024  # elements per program of the second launch


@triton.jit
def part_kernel(a, b, parts, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """One part of one tile: every SPLIT-th step of the inner dimension."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(part * BK, K, SPLIT * BK):
        at = start + inner
        left = tl.load(a + row[:, None] * K + at[None, :], mask=(row < M)[:, None] & (at < K)[None, :], other=0.0)
        right = tl.load(
            b + column[None, :] * K + at[:, None], mask=(column < N)[None, :] & (at < K)[:, None], other=0.0
        )
        total = tl.dot(left, right, total)
    inside = (row < M)[:, None] & (column < N)[None, :]
    tl.store(parts + part.to(tl.int64) * M * N + row[:, None] * N + column[None, :], total, mask=inside)


@triton.jit
def sum_kernel(parts, c, size, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """C = the sum of all parts."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < size)


def launch(a, b, c, *, BM, BN, BK, SPLIT, num_warps, num_stages):
    """C = a bᵀ; the scratch tensor has one plane for each part."""
    (m, k), n = a.shape, b.shape[0]
    parts = torch.empty((SPLIT, m, n), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(m, BM), triton.cdiv(n, BN), SPLIT)
    part_kernel[grid](a, b, parts, m, n, k, BM, BN, BK, SPLIT, num_warps=num_warps, num_stages=num_stages)
    sum_kernel[(triton.cdiv(m * n, _SUMMED),)](parts, c, m * n, SPLIT, _SUMMED)


def _operation(
    name: str, kernel: Any, arguments: Any, tunables: dict[str, list[Any]], default: dict[str, Any], *rules: Constraint
) -> Operation:
    """A product, whose space is small enough to be tried whole: at most 40 configs."""
    space = ConfigSpace(tunables, constraints=rules, default=default)
    more = {"reference": reference, "work": work, "dtypes": ("bfloat16", "float16"), "device": "cuda"}
    return Operation(name, kernel, space, arguments, **more)


split_k_matmul = _operation(
    "split_k_matmul",
    LauncherKernel(launch, outputs=("c",)),
    lambda M=64, N=4096, K=16384, dtype="bfloat16": product(M, N, K, dtype),
    {"BM": [64], "BN": [64, 128], "BK": [64, 128], "SPLIT": [1, 2, 4, 8, 16], "num_warps": [4], "num_stages": [3, 4]},
    {"BM": 64, "BN": 128, "BK": 64, "SPLIT": 4, "num_warps": 4, "num_stages": 3},
)


_MULTIPROCESSORS = 132  # of an H100 and an H200
_DESCRIBED = {"a": ("BM", "BK"), "b": ("BN", "BK"), "c": ("BM", "BN")}


@triton.jit
def _tile(tile, across, along, GROUP: tl.constexpr):
    """Row and column of a tile: columns of GROUP rows one after another, so that tiles near in time share operands."""
    in_group = GROUP * across
    first = (tile // in_group) * GROUP
    rows = tl.minimum(along - first, GROUP)
    return first + (tile % in_group) % rows, (tile % in_group) // rows


@triton.jit
def device_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr
):
    """PROGRAMS programs walk over all tiles; each makes its descriptors itself."""
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    along, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), along * across, PROGRAMS, flatten=True):
        row, column = _tile(tile, across, along, GROUP)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            total = tl.dot(left.load([row * BM, step * BK]), right.load([column * BN, step * BK]).T, total)
        out.store([row * BM, column * BN], total.to(c.dtype.element_ty))


@triton.jit
def host_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """One program for each tile; the descriptors are arguments."""
    row, column = _tile(tl.program_id(0), tl.cdiv(N, BN), tl.cdiv(M, BM), GROUP)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        total = tl.dot(a.load([row * BM, step * BK]), b.load([column * BN, step * BK]).T, total)
    c.store([row * BM, column * BN], total.to(c.dtype))


@triton.jit
def specialized_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr, SPECIALIZED: tl.constexpr,
):  # fmt: skip
    """As `device_kernel`; with SPECIALIZED some warps load while the others multiply."""
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    along, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), along * across, PROGRAMS, flatten=False, warp_specialize=SPECIALIZED):
        row, column = _tile(tile, across, along, GROUP)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            total = tl.dot(left.load([row * BM, step * BK]), right.load([column * BN, step * BK]).T, total)
        out.store([row * BM, column * BN], total.to(c.dtype.element_ty))


def _tiles(meta):
    return triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"])


def _persistent(meta):
    return (min(meta["PROGRAMS"], _tiles(meta)),)


def _each(meta):
    return (_tiles(meta),)


device_matmul = _operation(
    "device_descriptor_matmul",
    TritonKernel(device_kernel, _persistent, outputs=("c",)),
    sized_product,
    {
        "BM": [64, 128], "BN": [128, 256], "BK": [64], "GROUP": [8],
        "PROGRAMS": [_MULTIPROCESSORS, 2 * _MULTIPROCESSORS], "num_warps": [4, 8], "num_stages": [3, 4],
    },
    {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "PROGRAMS": _MULTIPROCESSORS, "num_warps": 8, "num_stages": 3},
)  # fmt: skip

host_matmul = _operation(
    "host_descriptor_matmul",
    TritonKernel(host_kernel, _each, outputs=("c",), descriptors=_DESCRIBED),
    sized_product,
    {
        "BM": [64, 128], "BN": [64, 128, 256], "BK": [64], "GROUP": [8], "num_warps": [4, 8], "num_stages": [3, 4, 5],
    },
    {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3},
)  # fmt: skip

specialized_matmul = _operation(
    "warp_specialized_matmul",
    TritonKernel(specialized_kernel, _persistent, outputs=("c",)),
    sized_product,
    {
        "BM": [128], "BN": [128, 256], "BK": [64], "GROUP": [8], "PROGRAMS": [_MULTIPROCESSORS],
        "SPECIALIZED": [False, True], "num_warps": [4, 8], "num_stages": [2, 3, 4],
    },
    {
        "BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "PROGRAMS": _MULTIPROCESSORS, "SPECIALIZED": False,
        "num_warps": 8, "num_stages": 3,
    },
    Constraint(
        "four_warps",
        lambda SPECIALIZED, num_warps: num_warps == 4 or not SPECIALIZED,
        "on Hopper loops are specialised with 4 warps only, not {num_warps}",
    ),
)  # fmt: skip


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
    a, b, c, M, N, K,
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


gluon_matmul = _operation(
    "gluon_matmul",
    TritonKernel(gluon_kernel, _grid, outputs=("c",), descriptors=_DESCRIBED),
    sized_product,
    {"BM": [64, 128], "BN": [64, 128, 256], "BK": [64], "BUFFERS": [2, 3, 4, 5], "num_warps": [4, 8]},
    {"BM": 128, "BN": 128, "BK": 64, "BUFFERS": 3, "num_warps": 4},
    Constraint("rows", lambda BM, num_warps: 16 * num_warps <= BM, "{num_warps} warps take 16 rows each, over {BM}"),
)

KINDS: dict[str, Operation] = {
    operation.name: operation
    for operation in (device_matmul, host_matmul, specialized_matmul, gluon_matmul, split_k_matmul)
}
