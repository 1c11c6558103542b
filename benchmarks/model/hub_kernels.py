"""Two kernels of a public hub in Triton, and which Triton config does what a config of the hub's CUDA kernel does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from triton_ops import TensorSpec, TritonKernel
from triton_ops.space import Config
from triton_ops.values import is_power_of_two

_SIDE = 4096  # of the matrices, and of the image that the convolution writes
_FILTER = 15
_INPUT = _SIDE + _FILTER - 1
_WARP = 32


@triton.jit
def multiply(a, b, c, SIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A @ Bᵀ of square float32 matrices that lie column by column, without matrix units."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, SIDE, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + k[None, :] * SIDE + m[:, None])
        right = tl.load(b + k[:, None] * SIDE + n[None, :])
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + n[None, :] * SIDE + m[:, None], total)


@triton.jit
def convolve(
    output, image, weights, SIDE: tl.constexpr, INPUT: tl.constexpr, FILTER: tl.constexpr,
    BY: tl.constexpr, BX: tl.constexpr,
):  # fmt: skip
    """The sum over a square filter around each pixel, float32."""
    x = tl.program_id(0) * BX + tl.arange(0, BX)
    y = tl.program_id(1) * BY + tl.arange(0, BY)
    total = tl.zeros((BY, BX), tl.float32)
    for i in range(FILTER):
        for j in range(FILTER):
            pixels = tl.load(image + (y + i)[:, None] * INPUT + (x + j)[None, :])
            total += pixels * tl.load(weights + i * FILTER + j)
    tl.store(output + y[:, None] * SIDE + x[None, :], total)


@dataclass(frozen=True)
class HubKernel:
    """A kernel of the hub.

    Attributes:
        hub_name: Its name in the hub, which a cache has.
        kernel: The Triton kernel.
        arguments: Its arguments.
        config: The Triton config that does what a config of the hub does; None where none can.
        dropped: The hub's tunables that no Triton config has, and why.
    """

    hub_name: str
    kernel: TritonKernel
    arguments: tuple[Any, ...]
    config: Callable[[Mapping[str, Any]], Config | None]
    dropped: Mapping[str, str]


def _matrix(side: int) -> TensorSpec:
    return TensorSpec((side, side), "float32")


def _block(threads: int, **sides: int) -> Config | None:
    """A config whose sides and threads are powers of two; loads go ahead of nothing, as in the hub's kernels."""
    if threads < _WARP or not all(map(is_power_of_two, (threads, *sides.values()))):
        return None
    return Config({**sides, "num_warps": threads // _WARP, "num_stages": 1})


_SHARED = "Triton decides itself what goes through shared memory"
KERNELS = {
    "gemm": HubKernel(
        "Xgemm",
        TritonKernel(multiply, lambda config: (_SIDE // config["BM"], _SIDE // config["BN"])),
        (_matrix(_SIDE), _matrix(_SIDE), _matrix(_SIDE), _SIDE),
        lambda hub: _block(hub["MDIMC"] * hub["NDIMC"], BM=hub["MWG"], BN=hub["NWG"], BK=hub["KWG"]),
        {
            "SA, SB": _SHARED,
            "VWM, VWN": "the layout decides the width of loads",
            "MDIMA, NDIMB": "all threads load as the layout has them",
            "STRM, STRN, KWI": "the compiler orders and unrolls",
        },
    ),
    "convolution": HubKernel(
        "convolution_kernel",
        TritonKernel(convolve, lambda config: (_SIDE // config["BX"], _SIDE // config["BY"])),
        (_matrix(_SIDE), _matrix(_INPUT), TensorSpec((_FILTER * _FILTER,), "float32"), _SIDE, _INPUT, _FILTER),
        lambda hub: _block(
            hub["block_size_x"] * hub["block_size_y"], BY=hub["block_size_y"] * hub["tile_size_y"],
            BX=hub["block_size_x"] * hub["tile_size_x"],
        ),
        {
            "use_shmem, use_padding": _SHARED,
            "read_only": "the compiler decides which loads are of read-only memory",
            "use_cmem": "weights are loaded, not constants",
        },
    ),
}  # fmt: skip
