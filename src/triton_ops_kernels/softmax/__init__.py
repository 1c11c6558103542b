"""Softmax over the last axis, with its gradient: the public function with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_ops.backend import TritonKernel
from triton_ops.dispatch import Gradient, compilable
from triton_ops.exceptions import ShapeMismatchError
from triton_ops_kernels import call
from triton_ops_kernels.composed import StagedKernel
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.softmax import kernel, problems

if TYPE_CHECKING:
    import torch


_GRADIENT = call.shipped(
    "softmax_backward",
    StagedKernel(
        TritonKernel(kernel.softmax_backward_kernel, kernel.gradient_grid, outputs=("dx",)),
        TritonKernel(kernel.softmax_backward_rest_kernel, kernel.gradient_grid, outputs=("dx",)),
        when=kernel.is_split,
        scratch="parts",
        elements=kernel.part_sums,
    ),
    problems,
    part="gradient",
)
gradient_operation = _GRADIENT.operation


def gradient(tensors: Sequence[Any], grad: Any, _needs: Sequence[bool]) -> tuple[Any]:
    """The gradient of the softmax's input, from its result and the gradient of that."""
    (out,) = tensors
    columns = out.shape[-1]
    dx = out.new_empty(out.shape)
    if _GRADIENT.launches(dx):
        flat = out.view(-1, columns)
        values = {
            "out": flat, "grad": grad.contiguous().view(-1, columns), "dx": dx.view(-1, columns),
            "rows": flat.shape[0], "COLUMNS": columns,
        }  # fmt: skip
        _GRADIENT.run(values, out.device)
    return (dx,)


_KERNEL = call.shipped("softmax", TritonKernel(kernel.softmax_kernel, kernel.grid, outputs=("out",)), problems)
operation = _KERNEL.operation


@compilable(
    '(Tensor x, str config="", bool tune=False) -> Tensor',
    gradient=Gradient(inputs=("x",), function=gradient, results=(0,)),
)
def softmax(x: torch.Tensor, *, config: Mapping[str, object] | None = None, tune: bool = False) -> torch.Tensor:
    """The softmax over the last axis of `x`: exp(x - max) / sum(exp(x - max)) in every row.

    It is computed in float32 and rounded once, with the same bits at every call. A row of which all is minus infinity
    is NaN, as is one with NaN or plus infinity in it. The gradient is computed by a kernel too, from the result.

    Args:
        x: [..., columns], bfloat16 | float16 | float32, contiguous, CUDA.
        config: A value for each of BLOCK_SIZE, ROWS and num_warps; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        Shape and dtype of `x`, contiguous, new storage.

    Raises:
        KernelTypeError: `x` is not a tensor.
        DeviceError: `x` is not on a CUDA device.
        UnsupportedDtypeError: `x` has another dtype.
        ShapeMismatchError: `x` has no axis, or is not contiguous.
        UnknownTunableError: `config` lacks a tunable, or names another.

    Cost: reads x and writes the result once where a row fits into BLOCK_SIZE, else reads it twice, the second time from
    L2; no host sync. The first call of a config, dtype and row length compiles: about 0.2 s.
    Source: chunked rows by Milakov, Gimelshein, arXiv:1805.02867.
    """
    call.check_placement({"x": x}, on_cpu=INTERPRETED)
    call.check_dtypes({"x": x}, problems.DTYPES)
    call.check_contiguous({"x": x})
    if x.ndim == 0:
        raise ShapeMismatchError("x has no axis to take the softmax over", "[..., columns]", (), "x")
    return _forward(x, config, tune)


def _forward(x: torch.Tensor, config: Mapping[str, object] | None, tune: bool) -> torch.Tensor:
    out, columns = x.new_empty(x.shape), x.shape[-1]
    if _KERNEL.launches(out):
        values = problems.launch_values(x.detach().view(-1, columns), out.view(-1, columns))
        _KERNEL.run(values, x.device, config, tune)
    return out
