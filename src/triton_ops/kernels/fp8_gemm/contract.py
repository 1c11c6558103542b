"""The contract of the product of 8-bit floats: what its arguments must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.exceptions import KernelTypeError, ShapeMismatchError
from triton_ops.kernels import call
from triton_ops.kernels.fp8_format import FP8Format
from triton_ops.kernels.fp8_gemm.problems import OUTPUT_DTYPES, scale_shapes
from triton_ops.kernels.fp8_quantize.contract import check_float8_device, check_output_dtype
from triton_ops.kernels.jit import INTERPRETED

if TYPE_CHECKING:
    import torch


_FLOATS = ("bfloat16", "float16", "float32")


def validate_fp8_gemm_inputs(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    output_dtype: Any = None,
) -> tuple[int, int, int]:
    """Check the arguments of `fp8_gemm`: placement, dtypes, shapes, then the scales, which are not read.

    Returns:
        M, N and K.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError: As `fp8_gemm`.
    """
    torch = require("torch", "fp8_gemm")
    scales = {name: scale for name, scale in (("a_scale", a_scale), ("b_scale", b_scale)) if scale is not None}
    call.check_placement({"a": a, "b": b, **scales}, on_cpu=INTERPRETED)
    check_float8_device(a)
    call.check_dtypes({"a": a, "b": b}, (FP8Format.name, *_FLOATS))
    call.check_dtypes(scales, ("float32",))
    check_output_dtype(torch.float16 if output_dtype is None else output_dtype, OUTPUT_DTYPES)
    call.check_rank("a", a.shape, "[M, K]")
    call.check_rank("b", b.shape, "[K, N]")
    (M, K), N = a.shape, b.shape[1]
    call.check_shape("b", b.shape, (K, N), "its rows must match a's columns")
    for name, matrix in (("a", a), ("b", b)):
        if matrix.dtype == torch.float8_e4m3fn and f"{name}_scale" not in scales:
            raise KernelTypeError(
                f"{name} is stored in 8 bits, and {name}_scale is missing",
                hint="pass the scale that quantize_fp8 returned with it",
            )
    return M, N, K


def checked_scales(
    shape: tuple[int, int, int], a_scale: torch.Tensor, b_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Both scales as matrices, and whether they are by block.

    Raises:
        ShapeMismatchError: A scale has another shape, or only one of them is by block.
    """
    forms = scale_shapes(*shape)
    a, b = (scale.reshape(1, 1) if scale.numel() == 1 else scale for scale in (a_scale, b_scale))
    shapes = tuple(a.shape), tuple(b.shape)
    plain = [tuple(each[place] for each in (forms["tensor"], forms["row"])) for place in (0, 1)]
    if shapes[0] in plain[0] and shapes[1] in plain[1]:
        return a, b, False
    if shapes == forms["block"]:
        return a, b, True
    wrong = 0 if shapes[0] not in (*plain[0], forms["block"][0]) else 1
    raise ShapeMismatchError(
        f"the scales have the shapes {shapes[0]} and {shapes[1]}, which do not lie over a product of {shape}",
        f"one number, {forms['row'][0]} and {forms['row'][1]}, or {forms['block'][0]} and {forms['block'][1]}",
        shapes[wrong],
        ("a_scale", "b_scale")[wrong],
        hint="turn the scale as the matrix: scale.t()",
    )
