"""The gradient of the layer norm: the operation `layer_norm_backward`, which autograd launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton_ops.kernels.layer_norm.problems as problems
from triton_ops.backend import LauncherKernel
from triton_ops.base import require
from triton_ops.kernels import call
from triton_ops.kernels.jit import add_up
from triton_ops.kernels.layer_norm.kernel import (
    layer_norm_backward_columns_kernel,
    layer_norm_backward_kernel,
    layer_norm_backward_statistics_kernel,
)

_TILE_ROWS, _TILE_COLUMNS, _TILE_WARPS = 4, 512, 4  # by columns: 16 elements of each input for a thread, 1 KiB of a row


def launch(
    x: Any,
    weight: Any,
    grad: Any,
    dx: Any,
    dweight: Any,
    dbias: Any,
    eps: float,
    COLUMNS: int,
    ROWS: int,
    BLOCK_SIZE: int,
    PROGRAMS: int,
    STAGES: int,
    SUM_COLUMNS: int,
    num_warps: int,
) -> None:
    """Write dx, dweight and dbias: programs that walk over the rows, and a sum of their partial sums.

    If BLOCK_SIZE columns hold no whole row, a launch reads the rows' statistics, and another one writes dx and sums by
    columns. PROGRAMS are for each multiprocessor; loads of STAGES rows are on their way while a program works, and 1
    loads a row when it is its turn.
    """
    torch = require("torch", "the gradient of layer_norm")
    rows, wide = x.shape[0], torch.promote_types(x.dtype, torch.float32)
    most = PROGRAMS * call.multiprocessors(x.device)
    if BLOCK_SIZE >= COLUMNS:
        programs = min(-(-rows // ROWS), most)
        partial = x.new_empty((2, programs, COLUMNS), dtype=wide)
        layer_norm_backward_kernel[(programs,)](
            x, weight, grad, dx, partial, rows, eps,
            COLUMNS=COLUMNS, ROWS=ROWS, BLOCK_SIZE=BLOCK_SIZE, STAGES=STAGES, num_warps=num_warps,
        )  # fmt: skip
    else:
        statistics = x.new_empty((4, rows), dtype=wide)
        layer_norm_backward_statistics_kernel[(-(-rows // ROWS),)](
            x, weight, grad, statistics, rows, eps,
            COLUMNS=COLUMNS, ROWS=ROWS, BLOCK_SIZE=BLOCK_SIZE, STAGES=STAGES, num_warps=num_warps,
        )  # fmt: skip
        across = -(-COLUMNS // _TILE_COLUMNS)
        parts = max(1, min(-(-rows // _TILE_ROWS), most // across))
        partial = x.new_empty((2, parts, COLUMNS), dtype=wide)
        layer_norm_backward_columns_kernel[(across, parts)](
            x, weight, grad, dx, statistics, partial, rows,
            COLUMNS=COLUMNS, TILE_ROWS=_TILE_ROWS, TILE_COLUMNS=_TILE_COLUMNS, STAGES=STAGES, num_warps=_TILE_WARPS,
        )  # fmt: skip
    add_up(partial, (dweight, dbias), SUM_COLUMNS)


_GRADIENT = call.ShippedKernel.of(
    "layer_norm_backward", LauncherKernel(launch, outputs=("dx", "dweight", "dbias")), problems, part="gradient"
)
operation = _GRADIENT.operation


def gradient(tensors: Sequence[Any], grad: Any, needs: Sequence[bool], eps: float) -> tuple[Any, Any, Any]:
    """The gradients of x, weight and bias, None for one that is not needed.

    `tensors` are x, and weight if there is one.
    """
    x, weight = tensors[0], tensors[1] if len(tensors) > 1 else None
    columns, like = x.shape[-1], x if weight is None else weight
    dx, dweight, dbias = x.new_empty(x.shape), like.new_zeros(columns), like.new_zeros(columns)
    if call.launches(dx):
        values = {
            "x": x.view(-1, columns), "weight": weight, "grad": grad.contiguous().view(-1, columns),
            "dx": dx.view(-1, columns), "dweight": dweight, "dbias": dbias, "eps": problems.DEFAULT_EPS,
            "COLUMNS": columns,
        }  # fmt: skip
        _GRADIENT.run(values, x.device, eps=eps)
    return tuple(each if need else None for each, need in zip((dx, dweight, dbias), needs, strict=True))  # type: ignore[return-value]
