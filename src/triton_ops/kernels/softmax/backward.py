"""The gradient of the softmax: the operation `softmax_backward`, which autograd launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_ops.backend import Operation, StagedKernel, TritonKernel
from triton_ops.dispatch import config_for
from triton_ops.kernels import call
from triton_ops.kernels.softmax.kernel import (
    gradient_grid,
    is_split,
    part_sums,
    softmax_backward_kernel,
    softmax_backward_rest_kernel,
)
from triton_ops.kernels.softmax.problems import (
    DTYPES,
    GRADIENT_OWN,
    PROBLEMS,
    gradient_arguments,
    gradient_default,
    gradient_space,
    gradient_work,
)
from triton_ops.kernels.softmax.reference import softmax_backward_reference

_KERNEL = StagedKernel(
    TritonKernel(softmax_backward_kernel, gradient_grid, outputs=("dx",)),
    TritonKernel(softmax_backward_rest_kernel, gradient_grid, outputs=("dx",)),
    when=is_split,
    scratch="parts",
    elements=part_sums,
)
operation = Operation(
    name="softmax_backward",
    kernel=_KERNEL,
    space=gradient_space,
    arguments=gradient_arguments,
    reference=softmax_backward_reference,
    work=gradient_work,
    dtypes=DTYPES,
    problems=PROBLEMS,
    device="cuda",
)


def gradient(tensors: Sequence[Any], grad: Any, _needs: Sequence[bool]) -> tuple[Any]:
    """The gradient of the softmax's input, from its result and the gradient of that."""
    (out,) = tensors
    columns = out.shape[-1]
    dx = out.new_empty(out.shape)
    if not call.launches(dx):
        return (dx,)
    flat = out.view(-1, columns)
    values = {
        "out": flat, "grad": grad.contiguous().view(-1, columns), "dx": dx.view(-1, columns),
        "rows": len(flat), "COLUMNS": columns,
    }  # fmt: skip
    config = config_for(operation, values, lambda: gradient_default(len(flat), columns), check=GRADIENT_OWN.checked)
    call.launch(_KERNEL, config, values, out.device)
    return (dx,)
