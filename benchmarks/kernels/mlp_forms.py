"""The gated MLP with a tunable for its form: the shipped kernel, one of packed weights, and Gluon.

`packed` takes weights that were put together before: BLOCK_N rows of the gate, then the same rows of the other, so that
one matrix instruction makes both products; they are packed here when arguments are bound, which is not timed, as a
model would when it is loaded. The shipped kernel with JOINED weights has the same loop, and takes them where they lie:
beside it `packed` shows whether that costs anything. `gluon` is the form with groups of warps that copy and multiply.
All need rows that descriptors can show, and float16 or bfloat16. With FLAT the loop over tiles and the one over steps
are one loop, so that the loads of a tile begin while the one before is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import triton
import triton.language as tl

from benchmarks.kernels.gluon_mlp import gluon_mlp
from triton_ops.backend import Arguments, StandIn, TritonKernel, matrix_descriptor
from triton_ops.values import TensorSpec
from triton_ops_kernels import FormsKernel
from triton_ops_kernels.gated_mlp import operation
from triton_ops_kernels.jit import activated, put, tile_of
from triton_ops_kernels.tiles import programs_for


@triton.jit
def mlp_packed_kernel(
    x, gate_weight, up_weight, out, M, N, K, ACTIVATION: tl.constexpr,  # noqa: ARG001 - by their descriptors
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    PROGRAMS: tl.constexpr, FLAT: tl.constexpr, HALVES: tl.constexpr, x_tiles=None, w_tiles=None, out_tiles=None,
):  # fmt: skip
    """out[M, N] = act(x[M, K] @ gate_weight[N, K].T) * (x @ up_weight[N, K].T), rounded once.

    w_tiles shows the packed weights, [2 N, K].
    """
    tile_rows, tile_columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0)
    step = tl.num_programs(0) if PROGRAMS > 0 else 1
    last = tile_rows * tile_columns if PROGRAMS > 0 else first + 1
    for tile in tl.range(first, last, step, flatten=FLAT):
        tile_row, tile_column = tile_of(tile, tile_rows, tile_columns, GROUP_SIZE_M)
        m0, n0 = tile_row * BLOCK_M, tile_column * BLOCK_N
        both = tl.zeros((BLOCK_M, 2 * BLOCK_N), dtype=tl.float32)
        for k0 in range(0, K, BLOCK_K):
            both = tl.dot(x_tiles.load([m0, k0]), w_tiles.load([2 * n0, k0]).T, both)
        g, u = tl.split(tl.permute(tl.reshape(both, (BLOCK_M, 2, BLOCK_N)), (0, 2, 1)))
        found = (activated(g, ACTIVATION) * u).to(out.dtype.element_ty)
        put(out_tiles, found, m0, n0, False, HALVES, BLOCK_M, BLOCK_N)


def packed(gate_weight: Any, up_weight: Any, rows: int) -> Any:
    """Both weights in one matrix, [2 N, K]: some rows of the first, then the same rows of the second, and so on.

    Args:
        gate_weight: [N, K]; N is a multiple of `rows`.
        up_weight: As `gate_weight`.
        rows: BLOCK_N of the configs that take it.
    """
    N, K = gate_weight.shape
    both = gate_weight.new_empty((N // rows, 2, rows, K))
    both[:, 0], both[:, 1] = (weight.reshape(N // rows, rows, K) for weight in (gate_weight, up_weight))
    return both.view(2 * N, K)


def _grid(meta: Mapping[str, Any]) -> tuple[int]:
    tiles = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return programs_for(tiles, meta, "x")


def _result(meta: Mapping[str, Any]) -> Any:
    columns = meta["BLOCK_N"] // 2 if meta["HALVES"] else meta["BLOCK_N"]
    return matrix_descriptor(meta["out"], (meta["BLOCK_M"], columns))


def _together(meta: Mapping[str, Any]) -> Any:
    """The packed weights, or what stands for them where there is no memory."""
    gate_weight, up_weight = meta["gate_weight"], meta["up_weight"]
    if not Arguments.is_tensor(gate_weight):
        N, K = gate_weight.shape
        return StandIn.of(TensorSpec((2 * N, K), gate_weight.dtype))
    return packed(gate_weight, up_weight, meta["BLOCK_N"])


def _packed_described(meta: Mapping[str, Any]) -> dict[str, Any]:
    rows, columns, step = meta["BLOCK_M"], 2 * meta["BLOCK_N"], meta["BLOCK_K"]
    return {
        "x_tiles": matrix_descriptor(meta["x"], (rows, step)),
        "w_tiles": matrix_descriptor(_together(meta), (columns, step)),
        "out_tiles": _result(meta),
    }


packed_mlp = TritonKernel(mlp_packed_kernel, _grid, outputs=("out",), made=_packed_described)
_SHAPE = {
    "BLOCK_M": [128], "BLOCK_N": [128, 64], "BLOCK_K": [64], "GROUP_SIZE_M": [8, 16], "num_warps": [8, 4],
    "num_stages": [3, 4, 5],
}  # fmt: skip
mlp_forms = replace(
    operation,
    name="mlp_forms",
    kernel=FormsKernel({"shipped": operation.kernel, "packed": packed_mlp, "gluon": gluon_mlp}),
    space={
        **_SHAPE, "FORM": ["shipped", "packed", "gluon"], "LOADS": ["host"], "PROGRAMS": [0, 1],
        "FLAT": [False, True], "HALVES": [False, True], "BUFFERS": [4, 5], "JOINED": [True, False],
    },
)  # fmt: skip
