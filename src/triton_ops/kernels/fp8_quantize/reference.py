"""References of quantising to 8-bit floats, in both directions, in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require
from triton_ops.kernels.fp8_format import FP8Format


def fp8_quantize_reference(x: Any, out: Any, scale: Any, *, GROUP: int, **_extents: int) -> tuple[Any, Any]:
    """Quantise each group of GROUP neighbours in a row with its own scale: the codes, and the scales.

    Cost: several float32 tensors of the size of `x`.
    """
    torch = require("torch", "the reference of fp8_quantize")
    wide = x.float()
    short = -wide.shape[-1] % GROUP
    grouped = torch.nn.functional.pad(wide, (0, short)).unflatten(-1, (-1, GROUP))
    scales = FP8Format.scale_of(grouped.abs().nan_to_num(nan=0.0, posinf=0.0).amax(-1))
    codes = saturated(grouped, scales[..., None]).flatten(-2)[..., : wide.shape[-1]]
    return codes.to(out.dtype), scales.reshape(scale.shape).to(scale.dtype)


def fp8_dequantize_reference(
    x: Any, scale: Any, out: Any, *, GROUP_ROWS: int, GROUP_COLUMNS: int, DIVIDE: bool, **_extents: int
) -> Any:
    """Divide 8-bit values by their scales, or multiply and saturate, in float32 or wider, rounded once.

    GROUP_COLUMNS is 0 where a scale serves whole rows.
    """
    torch = require("torch", "the reference of fp8_quantize")
    wide = x.to(torch.float64) if x.dtype == torch.float64 else x.float()
    rows, columns = x.shape
    each = scale.to(wide.dtype).repeat_interleave(min(GROUP_ROWS, rows), 0)[:rows]
    each = each.repeat_interleave(min(GROUP_COLUMNS or columns, columns), 1)[:, :columns]
    return (wide / each if DIVIDE else saturated(wide, each)).to(out.dtype)


def saturated(values: Any, scale: Any) -> Any:
    """Values * scale, with ±448 for what is finite and beyond, and NaN for infinity."""
    torch = require("torch", "the reference of fp8_quantize")
    scaled = (values * scale).clamp(FP8Format.min_value, FP8Format.max_value)
    return torch.where(values.isinf(), torch.nan, scaled)
