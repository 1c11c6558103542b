"""Quantising to E4M3, the 8-bit floats of Hopper: the public functions with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from triton_ops.backend import TritonKernel
from triton_ops.base import require
from triton_ops.dispatch import compilable
from triton_ops.exceptions import NumericalOverflowError, SettingsError, ShapeMismatchError
from triton_ops.values import is_fake
from triton_ops_kernels import call
from triton_ops_kernels.fp8_format import FP8Format, check_float8_device, check_output_dtype, scale_groups
from triton_ops_kernels.fp8_quantize import kernel, problems
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.tiles import padded

if TYPE_CHECKING:
    import torch


GRANULARITIES = ("tensor", "row", "block", "tile")
_LARGEST_BLOCK, _PROGRAMS = 4096, 4  # elements of a program's step, and programs for each multiprocessor
_KERNEL = call.shipped(
    "fp8_quantize", TritonKernel(kernel.fp8_quantize_kernel, kernel.grid, outputs=("out", "scale")), problems
)
operation = _KERNEL.operation


@compilable(
    '(Tensor tensor, Tensor? scale=None, str granularity="tensor", str config="", bool tune=False) -> (Tensor, Tensor)'
)
def quantize_fp8(
    tensor: torch.Tensor,
    scale: torch.Tensor | None = None,
    *,
    granularity: str = "tensor",
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to E4M3: each value times its scale, rounded to the nearest 8-bit float, ties to even.

    A scale is 448 divided by the largest finite magnitude that it serves, and 1 where there is none. NaN and infinity
    become NaN, which is all that E4M3 has for them; finite values beyond ±448 after a given scale become ±448. The
    stored values are real `torch.float8_e4m3fn`: `tensor.view(torch.uint8)` shows their codes.

    Args:
        tensor: [..., columns], bfloat16 | float16 | float32, contiguous, CUDA of compute capability 8.9 or higher.
        scale: The scales to use, float32, of one of the shapes below; None computes them by `granularity`.
        granularity: `tensor`: one scale. `row`: one for each row. `block`: one for each 128 columns of a row. `tile`:
            one for each 128 by 128 tile of a matrix.
        config: For `row` and `block`: a value for each of BLOCK_SIZE, ROWS and num_warps; None takes the winner of a
            record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        The tensor in float8_e4m3fn, and its scales in float32: a scalar, [..., 1], [..., ceil(columns / 128)] or
        [ceil(rows / 128), ceil(columns / 128)].

    Raises:
        KernelTypeError: An argument is not a tensor.
        DeviceError: A tensor is not on a CUDA device, or the device has no 8-bit floats.
        UnsupportedDtypeError: A dtype is not in the list above.
        ShapeMismatchError: A tensor is not contiguous, the scales do not lie over it, or `tile` is asked of no matrix.
        SettingsError: The granularity is not known.
        UnknownTunableError: `config` lacks a tunable, or names another.

    Cost: reads the tensor once for `row` and `block` and twice otherwise, and writes the result once; no host sync.
    Source: E4M3 of Micikevicius et al., arXiv:2209.05433; blocks of 128 of DeepSeek-V3, arXiv:2412.19437.
    """
    torch = require("torch", "quantize_fp8")
    validate_fp8_quantize_inputs(tensor, scale)
    if granularity not in GRANULARITIES:
        choices = ", ".join(map(repr, GRANULARITIES))
        raise SettingsError(f"granularity is {granularity!r}; it must be one of {choices}")
    plain = tensor.detach()
    if scale is None and granularity in ("row", "block"):
        return _in_groups(plain, granularity, config, tune)
    if scale is None:
        scale = _scale(plain) if granularity == "tensor" else FP8Format.scale_of(_largest_of_tiles(plain))
    return rescale(plain, scale, torch.float8_e4m3fn, divide=False), scale


@compilable("(Tensor tensor, Tensor? scale=None, int max_attempts=3) -> (Tensor, Tensor)")
def quantize_fp8_with_overflow_handling(
    tensor: torch.Tensor, scale: torch.Tensor | None = None, max_attempts: int = 3
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise with a scale that is halved until all values fit, instead of cutting them off at ±448.

    Args:
        tensor: As for `quantize_fp8`.
        scale: The first scale, a float32 scalar; None computes it.
        max_attempts: How many scales are tried, 1 or more.

    Returns:
        As `quantize_fp8`, with the scale that fitted.

    Raises:
        NumericalOverflowError: No scale fitted; NaN and infinity fit none.
        ShapeMismatchError: `scale` is not one number.
        SettingsError: `max_attempts` is below 1.
        KernelTypeError, DeviceError, UnsupportedDtypeError: As `quantize_fp8`.

    Cost: as `quantize_fp8`, and one host sync.
    """
    torch = require("torch", "quantize_fp8")
    validate_fp8_quantize_inputs(tensor, scale)
    SettingsError.checked("max_attempts", max_attempts, 1, whole=True)
    if scale is not None and scale.numel() != 1:
        raise ShapeMismatchError("scale must be one number here", (), tuple(scale.shape), "scale")
    if is_fake(tensor):  # the results of every scale have the same shapes
        return quantize_fp8(tensor)
    largest = float(tensor.detach().abs().amax()) if tensor.numel() else 0.0
    first = float(FP8Format.compute_scale(tensor) if scale is None else scale)
    for attempt in range(max_attempts):
        smaller = first / 2**attempt
        if largest * smaller <= FP8Format.max_value * (1 + 2**-20):  # a scale may be rounded up
            return quantize_fp8(tensor, torch.full((), smaller, dtype=torch.float32, device=tensor.device))
    raise NumericalOverflowError(
        f"values up to {largest:g} leave the range of ±448 with every scale from {first:g} to {smaller:g}",
        largest,
        smaller,
        max_attempts,
        hint="give a smaller scale, or None to compute one; NaN and infinity fit no scale",
    )


def _in_groups(
    tensor: torch.Tensor, granularity: str, config: Mapping[str, object] | None, tune: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise rows, or blocks of 128 columns, each with its own scale, in one pass."""
    torch = require("torch", "quantize_fp8")
    columns = tensor.shape[-1] if tensor.ndim else 1
    group = max(columns, 1) if granularity == "row" else FP8Format.block
    per_row = 1 if granularity == "row" else -(-columns // group)
    out = tensor.new_empty(tensor.shape, dtype=torch.float8_e4m3fn)
    new = tensor.new_empty if _KERNEL.launches(out) else tensor.new_ones
    scale = new((*tensor.shape[:-1], per_row), dtype=torch.float32)
    if _KERNEL.launches(out):
        values = {
            "x": tensor.view(-1, columns), "out": out.view(-1, columns), "scale": scale.view(-1, per_row),
            "groups": scale.numel(), "COLUMNS": columns, "GROUP": group,
        }  # fmt: skip
        _KERNEL.run(values, tensor.device, config, tune)
    return out, scale


def _scale(tensor: torch.Tensor) -> torch.Tensor:
    """The scale of a whole tensor, in two launches: each program's largest finite magnitude, then what serves all."""
    torch = require("torch", "quantize_fp8")
    if not _KERNEL.launches(tensor):
        return tensor.new_ones((), dtype=torch.float32)
    steps = -(-tensor.numel() // _LARGEST_BLOCK)
    programs = min(steps, _PROGRAMS * call.multiprocessors(tensor.device))
    partial, scale = (tensor.new_empty(shape, dtype=torch.float32) for shape in ((programs,), ()))
    with _KERNEL.on(tensor.device):
        kernel.largest_kernel[(programs,)](tensor, partial, tensor.numel(), BLOCK_SIZE=_LARGEST_BLOCK, num_warps=8)
        kernel.scale_kernel[(1,)](partial, scale, programs, BLOCK_SIZE=padded(programs, 16))
    return scale


def _largest_of_tiles(tensor: torch.Tensor) -> torch.Tensor:
    """The largest finite magnitude of each 128 by 128 tile: first of each row's blocks, by torch."""
    torch = require("torch", "quantize_fp8")
    call.check_rank("tensor", tensor.shape, "[rows, columns]")
    size = FP8Format.block
    rows, columns = (-extent % size for extent in tensor.shape)
    magnitudes = tensor.abs().nan_to_num(nan=0.0, posinf=0.0)
    wide = torch.nn.functional.pad(magnitudes, (0, columns, 0, rows))
    return wide.unflatten(1, (-1, size)).unflatten(0, (-1, size)).amax((1, 3)).float()  # type: ignore[no-any-return]


def validate_fp8_quantize_inputs(tensor: torch.Tensor, scale: torch.Tensor | None = None) -> None:
    """Check the arguments of `quantize_fp8`: placement, dtypes, layout, then the scale, which is not read.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError: As `quantize_fp8`.
    """
    tensors = {"tensor": tensor} if scale is None else {"tensor": tensor, "scale": scale}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    check_float8_device(tensor)
    call.check_dtypes({"tensor": tensor}, problems.DTYPES)
    if scale is not None:
        call.check_dtypes({"scale": scale}, ("float32",))
    call.check_contiguous(tensors)
    if scale is not None:
        scale_groups(tensor, scale)


_RESCALE = TritonKernel(kernel.fp8_rescale_kernel, kernel.rescale_grid, outputs=("out",))
_RESCALING = call.shipped("fp8_dequantize", _RESCALE, problems, part="dequantize")
dequantize_operation = _RESCALING.operation


@compilable('(Tensor tensor, Tensor scale, ScalarType? output_dtype=None, str config="", bool tune=False) -> Tensor')
def dequantize_fp8(
    tensor: torch.Tensor,
    scale: torch.Tensor,
    output_dtype: torch.dtype | None = None,
    *,
    config: Mapping[str, object] | None = None,
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
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """The values of a contiguous tensor divided by their scales, or multiplied and quantised."""
    out = tensor.new_empty(tensor.shape, dtype=dtype)
    group_rows, group, scale_columns = scale_groups(tensor, scale)
    if _RESCALING.launches(out):
        columns = tensor.shape[-1] if tensor.ndim else 1
        flat = tensor.view(-1, columns)
        values = {
            "x": flat, "scale": scale.view(-1, scale_columns), "out": out.view(-1, columns), "rows": flat.shape[0],
            "columns": columns, "scale_columns": scale_columns, "GROUP_ROWS": group_rows,
            "GROUP_COLUMNS": problems.group_columns(scale_columns, group), "DIVIDE": divide,
        }  # fmt: skip
        _RESCALING.run(values, tensor.device, config, tune)
    return out
