"""The gradient of the gated MLP: the operation `gated_mlp_backward`, between products that autograd makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_ops.backend import Operation, TritonKernel
from triton_ops.dispatch import config_for
from triton_ops.kernels import call
from triton_ops.kernels.gated_mlp.kernel import gated_mlp_backward_kernel, gradient_grid
from triton_ops.kernels.gated_mlp.problems import (
    DTYPES,
    GRADIENT_OWN,
    GRADIENT_PROBLEMS,
    gradient_arguments,
    gradient_default,
    gradient_space,
    gradient_unit,
    gradient_work,
)
from triton_ops.kernels.gated_mlp.reference import gated_mlp_backward_reference

_KERNEL = TritonKernel(gated_mlp_backward_kernel, gradient_grid, outputs=("dgate", "dup"))
operation = Operation(
    name="gated_mlp_backward",
    kernel=_KERNEL,
    space=gradient_space,
    arguments=gradient_arguments,
    reference=gated_mlp_backward_reference,
    work=gradient_work,
    dtypes=DTYPES,
    problems=GRADIENT_PROBLEMS,
    device="cuda",
)


def gradient(tensors: Sequence[Any], grad: Any, needs: Sequence[bool], activation: str) -> tuple[Any, Any, Any]:
    """The gradients of x and both weights, None for one that is not needed.

    The gradients of the two products come from one kernel; the products with x and the weights are torch's.

    Args:
        tensors: x as [tokens, hidden], both weights, and the two products, [tokens, intermediate].
        grad: The gradient of the result.
        needs: Which of x, gate_weight and up_weight need theirs.
        activation: `silu` or `gelu`.
    """
    x, gate_weight, up_weight, gate, up = tensors
    dgate, dup = gate.new_empty(gate.shape), up.new_empty(up.shape)
    values = {
        "gate": gate, "up": up, "grad": grad.contiguous().view(gate.shape), "dgate": dgate, "dup": dup,
        "elements": gate.numel(), "ACTIVATION": activation,
        "UNIT": gradient_unit(gate.numel(), gate.element_size()),
    }  # fmt: skip
    if call.launches(gate):
        config = config_for(operation, values, gradient_default, check=GRADIENT_OWN.checked)
        call.launch(_KERNEL, config, values, gate.device)
    dx = (dgate @ gate_weight).addmm_(dup, up_weight).view(*grad.shape[:-1], x.shape[-1]) if needs[0] else None
    return dx, dgate.mT @ x if needs[1] else None, dup.mT @ x if needs[2] else None
