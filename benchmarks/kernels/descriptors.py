"""Matrix products through tensor descriptors: made in the kernel, made on the host, and with specialised warps."""

from __future__ import annotations

import triton
import triton.language as tl

from benchmarks.kernels.matmul import reference, sized_product, work
from triton_ops import ConfigSpace, Constraint, Operation, TritonKernel

_MULTIPROCESSORS = 132  # of an H100 and an H200


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


device_matmul = Operation(
    "device_descriptor_matmul",
    TritonKernel(device_kernel, _persistent, outputs=("c",)),
    ConfigSpace(
        {
            "BM": [64, 128],
            "BN": [128, 256],
            "BK": [64],
            "GROUP": [8],
            "PROGRAMS": [_MULTIPROCESSORS, 2 * _MULTIPROCESSORS],
            "num_warps": [4, 8],
            "num_stages": [3, 4],
        },
        default={
            "BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "PROGRAMS": _MULTIPROCESSORS, "num_warps": 8, "num_stages": 3,
        },
    ),
    sized_product,
    reference=reference,
    work=work,
    dtypes=("bfloat16", "float16"),
    device="cuda",
)  # fmt: skip

host_matmul = Operation(
    "host_descriptor_matmul",
    TritonKernel(
        host_kernel,
        _each,
        outputs=("c",),
        descriptors={"a": ("BM", "BK"), "b": ("BN", "BK"), "c": ("BM", "BN")},
    ),
    ConfigSpace(
        {
            "BM": [64, 128],
            "BN": [64, 128, 256],
            "BK": [64],
            "GROUP": [8],
            "num_warps": [4, 8],
            "num_stages": [3, 4, 5],
        },
        default={"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3},
    ),
    sized_product,
    reference=reference,
    work=work,
    dtypes=("bfloat16", "float16"),
    device="cuda",
)

specialized_matmul = Operation(
    "warp_specialized_matmul",
    TritonKernel(specialized_kernel, _persistent, outputs=("c",)),
    ConfigSpace(
        {
            "BM": [128],
            "BN": [128, 256],
            "BK": [64],
            "GROUP": [8],
            "PROGRAMS": [_MULTIPROCESSORS],
            "SPECIALIZED": [False, True],
            "num_warps": [4, 8],
            "num_stages": [2, 3, 4],
        },
        constraints=[
            Constraint(
                "four_warps",
                lambda SPECIALIZED, num_warps: num_warps == 4 or not SPECIALIZED,
                "on Hopper loops are specialised with 4 warps only, not {num_warps}",
            )
        ],
        default={
            "BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "PROGRAMS": _MULTIPROCESSORS, "SPECIALIZED": False,
            "num_warps": 8, "num_stages": 3,
        },
    ),
    sized_product,
    reference=reference,
    work=work,
    dtypes=("bfloat16", "float16"),
    device="cuda",
)  # fmt: skip
