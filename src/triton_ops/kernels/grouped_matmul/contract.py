"""The contract of the grouped product: what its arguments must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triton_ops.exceptions import ShapeMismatchError
from triton_ops.kernels import call
from triton_ops.kernels.grouped_matmul.problems import DTYPES
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.values import dtype_name

if TYPE_CHECKING:
    import torch


_WHOLE = ("int32", "int64")


def validate_grouped_matmul_inputs(
    x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor, gather: torch.Tensor | None = None
) -> tuple[int, int, int, int]:
    """Check all arguments of `grouped_matmul`: placement, dtypes, layout, then shapes. Nothing waits for the device.

    Returns:
        M, N, K and the number of groups.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError: As `grouped_matmul`.
    """
    indices = {"ends": ends} if gather is None else {"ends": ends, "gather": gather}
    call.check_placement({"x": x, "weight": weight, **indices}, on_cpu=INTERPRETED)
    call.check_dtypes({"x": x}, DTYPES)
    call.check_dtypes({"weight": weight}, (dtype_name(x.dtype),))
    call.check_dtypes(indices, _WHOLE)
    call.check_contiguous(indices)
    call.check_rank("x", x.shape, "[rows, K]")
    call.check_rank("weight", weight.shape, "[groups, K, N]")
    groups, _, N = weight.shape
    rows, K = x.shape
    call.check_shape("weight", weight.shape, (groups, K, N), "x has this many columns")
    call.check_shape("ends", ends.shape, (groups,), "there is a weight for each group")
    if gather is not None:
        call.check_rank("gather", gather.shape, "[M]")
        if rows == 0 < gather.shape[0]:
            raise ShapeMismatchError(
                f"x has no row, and gather asks for {gather.shape[0]}", "no row", gather.shape[0], "gather"
            )
        rows = gather.shape[0]
    if groups == 0 and rows:
        raise ShapeMismatchError(f"there are {rows} rows, and no group", "1 or more groups", 0, "weight")
    return rows, N, K, groups
