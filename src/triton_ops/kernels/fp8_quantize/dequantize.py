"""`dequantize_fp8`: 8-bit floats back to wider ones, by the operation `fp8_dequantize`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton_ops.kernels.fp8_quantize.problems as problems
from triton_ops.backend import TritonKernel
from triton_ops.base import require
from triton_ops.dispatch import compilable
from triton_ops.kernels import call
from triton_ops.kernels.fp8_format import FP8Format, check_float8_device, check_output_dtype, scale_groups
from triton_ops.kernels.fp8_quantize.kernel import fp8_rescale_kernel, rescale_grid
from triton_ops.kernels.jit import INTERPRETED

if TYPE_CHECKING:
    import torch


_KERNEL = call.ShippedKernel.of(
    "fp8_dequantize", TritonKernel(fp8_rescale_kernel, rescale_grid, outputs=("out",)), problems, part="dequantize"
)
operation = _KERNEL.operation


@compilable('(Tensor tensor, Tensor scale, ScalarType? output_dtype=None, str config="", bool tune=False) -> Tensor')
def dequantize_fp8(
    tensor: torch.Tensor,
    scale: torch.Tensor,
    output_dtype: torch.dtype | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Restore 8-bit floats: each value divided by its scale in float32, and rounded once.

    Args:
        tensor: [..., columns], float8_e4m3fn, contiguous, CUDA.
        scale: As `quantize_fp8` returns it: one number; one for each row or each 128 columns of a row, the last axis
            having 1 or ceil(columns / 128) of them; or, for a matrix, one for each 128 by 128 tile. It is float32 and
            contiguous.
        output_dtype: bfloat16, float16 or float32; None is float16.
        config: A value for each of BLOCK_SIZE, ROWS and num_warps; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        Shape of `tensor`, `output_dtype`, contiguous, new storage. NaN stays NaN.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError: An argument does not fit.
        UnknownTunableError: `config` lacks a tunable, or names another.

    Cost: reads the tensor and writes the result once; no host sync.
    """
    torch = require("torch", "dequantize_fp8")
    output_dtype = torch.float16 if output_dtype is None else output_dtype
    tensors = {"tensor": tensor, "scale": scale}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    check_float8_device(tensor)
    call.check_dtypes({"tensor": tensor}, (FP8Format.name,))
    call.check_dtypes({"scale": scale}, ("float32",))
    check_output_dtype(output_dtype, problems.DTYPES)
    call.check_contiguous(tensors)
    return rescale(tensor, scale, output_dtype, divide=True, config=config, tune=tune)


def rescale(
    tensor: torch.Tensor,
    scale: torch.Tensor,
    dtype: torch.dtype,
    *,
    divide: bool,
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """The values of a contiguous tensor divided by their scales, or multiplied and quantised."""
    out = tensor.new_empty(tensor.shape, dtype=dtype)
    group_rows, group, scale_columns = scale_groups(tensor, scale)
    if not call.launches(out):
        return out
    columns = tensor.shape[-1] if tensor.ndim else 1
    flat = tensor.view(-1, columns)
    values = {
        "x": flat, "scale": scale.view(-1, scale_columns), "out": out.view(-1, columns), "rows": len(flat),
        "columns": columns, "scale_columns": scale_columns, "GROUP_ROWS": group_rows,
        "GROUP_COLUMNS": problems.group_columns(scale_columns, group), "DIVIDE": divide,
    }  # fmt: skip
    _KERNEL.run(values, tensor.device, config, tune)
    return out
