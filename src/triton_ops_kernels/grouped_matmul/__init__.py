"""Grouped product of runs of rows with a weight each: the public function with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton_ops.backend import TritonKernel
from triton_ops.dispatch import compilable
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels import call
from triton_ops_kernels.grouped_matmul import problems
from triton_ops_kernels.grouped_matmul.kernel import grid, grouped_matmul_kernel
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.tiles import check_loads

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
    call.check_dtypes({"x": x}, problems.DTYPES)
    call.check_dtypes({"weight": weight}, (x.dtype,))
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


def _as_it_fits(config: Config, values: Mapping[str, Any], own: bool) -> Config:
    if own:
        x, weight = values["x"], values["weight"]
        check_loads(config, lambda: problems.takes_descriptors(TensorSpec.of(x), TensorSpec.of(weight)))
    return config


_KERNEL = call.shipped(
    "grouped_matmul", TritonKernel(grouped_matmul_kernel, grid, outputs=("out",)), problems, _as_it_fits
)
operation = _KERNEL.operation


@compilable('(Tensor x, Tensor weight, Tensor ends, Tensor? gather=None, str config="", bool tune=False) -> Tensor')
def grouped_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor,
    gather: torch.Tensor | None = None,
    *,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Multiply runs of rows of `x` with a weight each: tokens, sorted by their expert, with the experts' weights.

    Row m belongs to the first group g with m < ends[g], and becomes x[m] @ weight[g]. The ends stay on the device, and
    nothing waits for them; groups may be empty. Sums are in float32 and rounded once, with the same bits at every call;
    products of float32 are computed in TF32 only where `torch.get_float32_matmul_precision()` allows it. NaN and
    infinity of a row stay within it, those of a weight within its group. The function has no gradient.

    Args:
        x: [rows, K], bfloat16 | float16 | float32, CUDA; any strides.
        weight: [groups, K, N], dtype and device of `x`; any strides: weights [groups, N, K], as of linear layers, are
            passed as `weight.transpose(1, 2)`, which is as fast.
        ends: [groups], int32 | int64, contiguous: where each group's rows end, as `counts.cumsum(0)`. They must not
            fall, and the last one must be the number of rows: rows beyond it are not written. Ends that fall leave the
            rows between them undefined; no end, whatever it is, has a row outside of the tensors read or written.
        gather: [M], int32 | int64, contiguous: row m of the product is made of row gather[m] of `x`, so that no token
            needs to be copied; None takes the rows in their order. Each must be a row of `x`, which is not checked,
            since the host would have to wait: another one reads memory that is not of `x`.
        config: A value for each of BLOCK_M, BLOCK_N, BLOCK_K, num_warps and num_stages, and if you like GROUP_SIZE_M,
            DESCRIPTORS and PROGRAMS; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        [M, N], dtype of `x`, row-major, new storage; M is the length of `gather`, or the number of rows.

    Raises:
        KernelTypeError: An argument is not a tensor, one requires a gradient, or has torch's bit for negation.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: `x` has another dtype, that of `weight` is not that of `x`, or an index is no integer.
        ShapeMismatchError: A shape does not fit, strides reach 2^23 elements, or `x` has no row that could be gathered.
        UnknownTunableError: `config` lacks a tunable, or names another.
        ConfigValueError: `config` holds what the kernel does not take, or descriptors that these tensors cannot have.

    Cost: 2MNK operations; reads x and the weights of the groups that have rows, and writes the product once where L2
    holds the tiles in flight; no host sync. The first call of a config, dtype and layout compiles: up to some seconds.
    Source: Gale, Narayanan, Young, Zaharia, "MegaBlocks", arXiv:2211.15841.
    """
    M, N, *_ = validate_grouped_matmul_inputs(x, weight, ends, gather)
    call.check_constant({"x": x, "weight": weight}, "grouped_matmul")
    out = x.new_empty((M, N))
    if _KERNEL.launches(out):
        values = problems.launch_values(x, weight, out, ends, gather)
        _KERNEL.run(values, x.device, config, tune)
    return out
