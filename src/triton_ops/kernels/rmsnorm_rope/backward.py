"""The gradient of the fused RMSNorm and RoPE: the operation `rmsnorm_rope_backward`, which autograd launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton_ops.kernels.rmsnorm_rope.problems as problems
from triton_ops.backend import LauncherKernel
from triton_ops.base import require
from triton_ops.kernels import call
from triton_ops.kernels.jit import add_up
from triton_ops.kernels.rmsnorm_rope.kernel import rmsnorm_rope_backward_kernel


def launch(
    x: Any,
    weight: Any,
    cos: Any,
    sin: Any,
    grad: Any,
    dx: Any,
    dweight: Any,
    seq_len: int,
    eps: float,
    HIDDEN: int,
    HEAD_DIM: int,
    BLOCK_SIZE: int,
    PROGRAMS: int,
    STAGES: int,
    SUM_COLUMNS: int,
    num_warps: int,
) -> None:
    """Write dx and dweight: programs that walk over the rows, and a sum of their partial sums.

    BLOCK_SIZE counts pairs. PROGRAMS are for each multiprocessor; loads of STAGES rows are on their way while a program
    works, and 1 loads a row when it is its turn.
    """
    torch = require("torch", "the gradient of rmsnorm_rope")
    rows = x.numel() // HIDDEN
    programs = min(rows, PROGRAMS * call.multiprocessors(x.device))
    partial = x.new_empty((1, programs, HIDDEN), dtype=torch.promote_types(x.dtype, torch.float32))
    rmsnorm_rope_backward_kernel[(programs,)](
        x, weight, cos, sin, grad, dx, partial, rows, seq_len, eps,
        HIDDEN=HIDDEN, HEAD_DIM=HEAD_DIM, BLOCK_SIZE=BLOCK_SIZE, STAGES=STAGES, num_warps=num_warps,
    )  # fmt: skip
    add_up(partial, (dweight,), SUM_COLUMNS)


_GRADIENT = call.ShippedKernel.of(
    "rmsnorm_rope_backward", LauncherKernel(launch, outputs=("dx", "dweight")), problems, part="gradient"
)
operation = _GRADIENT.operation


def gradient(tensors: Sequence[Any], grad: Any, needs: Sequence[bool], eps: float) -> tuple[Any, Any]:
    """The gradients of x and weight, None for one that is not needed; `tensors` are x, weight, cos and sin."""
    x, weight, cos, sin = tensors
    dx, dweight = x.new_empty(x.shape), weight.new_zeros(weight.shape)
    if call.launches(dx):
        values = problems.launch_values(x, weight, cos, sin, grad=grad.contiguous(), dx=dx, dweight=dweight)
        _GRADIENT.run(values, x.device, eps=eps)
    return dx if needs[0] else None, dweight if needs[1] else None
