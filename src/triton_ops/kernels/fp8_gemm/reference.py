"""The reference of the product of 8-bit floats in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require
from triton_ops.kernels.fp8_format import FP8Format


def fp8_gemm_reference(a: Any, b: Any, c: Any, a_scale: Any, b_scale: Any, bias: Any = None, **_given: Any) -> Any:
    """Compute `(a / a_scale) @ (b / b_scale) + bias` in float32 or wider, rounded once to the dtype of `c`.

    Cost: wide copies of both inputs, and a wide product.
    """
    torch = require("torch", "the reference of fp8_gemm")
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    found = _restored(a, a_scale, wide) @ _restored(b, b_scale, wide)
    return (found if bias is None else found + bias.to(wide)).to(c.dtype)


def _restored(codes: Any, scale: Any, wide: Any) -> Any:
    """The real values; scales of one along an axis are shared, others serve an element or 128 of them."""
    each = scale.to(wide)
    for axis, extent in enumerate(codes.shape):
        if each.shape[axis] not in (1, extent):
            each = each.repeat_interleave(FP8Format.block, axis).narrow(axis, 0, extent)
    return codes.to(wide) / each
