"""The contract of quantising: what its arguments must be, with how scales lie over a tensor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.exceptions import DeviceError, SettingsError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.kernels import call
from triton_ops.kernels.fp8_format import FP8Format
from triton_ops.kernels.fp8_quantize.problems import DTYPES
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.values import dtype_name

if TYPE_CHECKING:
    import torch


GRANULARITIES = ("tensor", "row", "block", "tile")
_LEAST_CAPABILITY = (8, 9)


def validate_fp8_quantize_inputs(tensor: torch.Tensor, scale: torch.Tensor | None = None) -> None:
    """Check the arguments of `quantize_fp8`: placement, dtypes, layout, then the scale, which is not read.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError: As `quantize_fp8`.
    """
    tensors = {"tensor": tensor} if scale is None else {"tensor": tensor, "scale": scale}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    check_float8_device(tensor)
    call.check_dtypes({"tensor": tensor}, DTYPES)
    if scale is not None:
        call.check_dtypes({"scale": scale}, ("float32",))
    call.check_contiguous(tensors)
    if scale is not None:
        scale_groups(tensor, scale)


def check_granularity(granularity: str) -> None:
    """Check that it is one of those that are known.

    Raises:
        SettingsError: It is not.
    """
    if granularity not in GRANULARITIES:
        choices = ", ".join(map(repr, GRANULARITIES))
        raise SettingsError(f"granularity is {granularity!r}; it must be one of {choices}")


def check_output_dtype(dtype: Any, dtypes: tuple[str, ...]) -> None:
    """Check the dtype that is asked for.

    Raises:
        UnsupportedDtypeError: It is not allowed, or no dtype of torch's.
    """
    if isinstance(dtype, str) or dtype_name(dtype) not in dtypes:
        raise UnsupportedDtypeError(
            f"output_dtype is {dtype!r}; it must be {' or '.join(dtypes)}",
            dtype,
            list(dtypes),
            "output_dtype",
            hint=f"pass torch.{dtypes[0]}",
        )


def check_float8_device(tensor: torch.Tensor) -> None:
    """Check that the device of a tensor has 8-bit floats; the interpreter always does.

    Raises:
        DeviceError: Its compute capability is below 8.9.
    """
    if tensor.device.type != "cuda":
        return
    capability = require("torch", "8-bit floats").cuda.get_device_capability(tensor.device)
    if capability < _LEAST_CAPABILITY:
        raise DeviceError(
            f"{tensor.device} has compute capability {capability[0]}.{capability[1]}; 8-bit floats need 8.9 or higher",
            "compute capability 8.9",
            f"compute capability {capability[0]}.{capability[1]}",
            hint="use matmul or torch in bfloat16 there",
        )


def scale_groups(tensor: torch.Tensor, scale: torch.Tensor) -> tuple[int, int, int]:
    """Numbers of rows and of columns that share a scale, and of scales of a row.

    Raises:
        ShapeMismatchError: The scales do not lie over the tensor in one of the ways of `quantize_fp8`.
    """
    columns = tensor.shape[-1] if tensor.ndim else 1
    rows = math.prod(tensor.shape[:-1])
    blocks = -(-columns // FP8Format.block)
    if scale.numel() == 1:
        return max(rows, 1), max(columns, 1), 1
    if scale.ndim == tensor.ndim and scale.shape[:-1] == tensor.shape[:-1] and scale.shape[-1] in (1, blocks):
        return 1, max(columns, 1) if scale.shape[-1] == 1 else FP8Format.block, scale.shape[-1]
    if tensor.ndim == 2 and tuple(scale.shape) == (-(-rows // FP8Format.block), blocks):
        return FP8Format.block, FP8Format.block, blocks
    raise ShapeMismatchError(
        f"scale has shape {tuple(scale.shape)} for a tensor of shape {tuple(tensor.shape)}",
        "1, [..., 1], [..., ceil(columns / 128)], or [ceil(rows / 128), ceil(columns / 128)]",
        tuple(scale.shape),
        "scale",
        hint="pass the scale that quantize_fp8 returned",
    )
