"""`FP8Format`: the numbers of E4M3, the 8-bit floats of `torch.float8_e4m3fn`, with the scales that fill its range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from triton_ops.base import require
from triton_ops.exceptions import DeviceError, KernelTypeError, ShapeMismatchError, UnsupportedDtypeError

if TYPE_CHECKING:
    import torch

_LEAST_CAPABILITY = (8, 9)
_LARGEST_SCALE = 3.4028234663852886e38  # of float32: the scale of values below 1.3e-36


class FP8Format:
    """E4M3 without infinities: 4 bits of exponent, 3 of fraction; a quantised value is the real one times its scale.

    Attributes:
        name: The dtype's name in torch.
        exponent_bits: Bits of the exponent.
        mantissa_bits: Bits of the fraction.
        bias: Of the exponent.
        max_value: The largest finite value.
        min_value: The least finite value.
        min_normal: The smallest positive value with all bits of fraction.
        min_subnormal: The smallest positive value, and the step between values below `min_normal`.
        block: How many columns share a scale, where scales are by block.
    """

    name: ClassVar[str] = "float8_e4m3fn"
    exponent_bits: ClassVar[int] = 4
    mantissa_bits: ClassVar[int] = 3
    bias: ClassVar[int] = 7
    max_value: ClassVar[float] = 448.0
    min_value: ClassVar[float] = -448.0
    min_normal: ClassVar[float] = 2.0**-6
    min_subnormal: ClassVar[float] = 2.0**-9
    block: ClassVar[int] = 128

    @staticmethod
    def compute_scale(tensor: torch.Tensor) -> torch.Tensor:
        """The scale that brings the largest finite magnitude of a tensor to 448: a float32 scalar on its device.

        The scale is 1 for a tensor that is empty or holds only zeros, NaN and infinities. The device is not waited for.

        Raises:
            KernelTypeError: It is no tensor of floats.
        """
        magnitudes = _finite_magnitudes(tensor)
        return FP8Format.scale_of(magnitudes.amax() if tensor.numel() else magnitudes.sum())

    @staticmethod
    def compute_scale_per_channel(tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """A scale for every index along `dim`: float32, with extents of 1 along all other axes.

        Raises:
            KernelTypeError: It is no tensor of floats.
            ShapeMismatchError: The tensor has no such axis, or no element.
        """
        _check_floats(tensor)
        if not (type(dim) is int and -tensor.ndim <= dim < tensor.ndim) or tensor.numel() == 0:
            raise ShapeMismatchError(
                f"a tensor of shape {tuple(tensor.shape)} has no values along axis {dim!r}",
                f"an axis from {-tensor.ndim} to {tensor.ndim - 1}",
                dim,
            )
        others = [axis for axis in range(tensor.ndim) if axis != dim % tensor.ndim]
        magnitudes = _finite_magnitudes(tensor)
        return FP8Format.scale_of(magnitudes.amax(others, keepdim=True) if others else magnitudes)

    @staticmethod
    def scale_of(largest: torch.Tensor) -> torch.Tensor:
        """From largest magnitudes, in float32, to scales: 448 by the magnitude, and 1 for 0."""
        # A number divided by a tensor would be the number times the reciprocal, which is rounded twice.
        scale = (largest.new_full(largest.shape, FP8Format.max_value) / largest).clamp(max=_LARGEST_SCALE)
        return scale.where(largest > 0, 1.0)

    @staticmethod
    def is_in_range(tensor: torch.Tensor, scale: torch.Tensor) -> bool:
        """Tell whether every value times the scale is within ±448, as NaN and infinity are not. Waits for the device.

        Raises:
            KernelTypeError: It is no tensor of floats.
        """
        _check_floats(tensor)
        return bool((tensor.float() * scale).abs().le(FP8Format.max_value).all())

    @staticmethod
    def restored(codes: torch.Tensor, scale: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
        """The real values; scales of one along an axis are shared, others serve an element or 128 of them."""
        each = scale.to(wide)
        for axis, extent in enumerate(codes.shape):
            if each.shape[axis] not in (1, extent):
                each = each.repeat_interleave(FP8Format.block, axis).narrow(axis, 0, extent)
        return codes.to(wide) / each


def _finite_magnitudes(tensor: torch.Tensor) -> torch.Tensor:
    """Magnitudes in float32, with 0 for NaN and infinity."""
    _check_floats(tensor)
    return tensor.detach().float().abs().nan_to_num(nan=0.0, posinf=0.0)


def _check_floats(tensor: object) -> None:
    if not (hasattr(tensor, "dtype") and getattr(tensor.dtype, "is_floating_point", False)):
        raise KernelTypeError(f"a {type(tensor).__name__} is no tensor of floats", hint="convert it: tensor.float()")


def check_output_dtype(dtype: object, dtypes: tuple[str, ...]) -> None:
    """Check the dtype that is asked for: one of `dtypes`, as torch's and not as text."""
    if isinstance(dtype, str) or str(dtype).removeprefix("torch.") not in dtypes:
        raise UnsupportedDtypeError(
            f"output_dtype is {dtype!r}; it must be {' or '.join(dtypes)}",
            dtype,
            list(dtypes),
            "output_dtype",
            hint=f"pass torch.{dtypes[0]}",
        )


def check_float8_device(tensor: torch.Tensor) -> None:
    """Check that the device of a tensor has 8-bit floats, from capability 8.9 on; the interpreter always does."""
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
