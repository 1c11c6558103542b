"""Layer normalisation over the last axis, with its gradient: the public function with the operation for tuners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_ops.backend import LauncherKernel, TritonKernel
from triton_ops.base import require
from triton_ops.dispatch import Gradient, compilable
from triton_ops.exceptions import ShapeMismatchError
from triton_ops_kernels import call
from triton_ops_kernels.call import validate_eps
from triton_ops_kernels.jit import INTERPRETED, add_up
from triton_ops_kernels.layer_norm import problems
from triton_ops_kernels.layer_norm.kernel import (
    grid,
    layer_norm_backward_columns_kernel,
    layer_norm_backward_kernel,
    layer_norm_backward_statistics_kernel,
    layer_norm_kernel,
)

if TYPE_CHECKING:
    import torch


_TILE_ROWS, _TILE_COLUMNS, _TILE_WARPS = 4, 512, 4  # by columns: 16 elements of each input for a thread, 1 KiB of a row


def launch(
    x: Any, weight: Any, grad: Any, dx: Any, dweight: Any, dbias: Any, eps: float, COLUMNS: int, ROWS: int,
    BLOCK_SIZE: int, PROGRAMS: int, STAGES: int, SUM_COLUMNS: int, num_warps: int,
) -> None:  # fmt: skip
    """Write dx, dweight and dbias: programs that walk over the rows, and a sum of their partial sums.

    If BLOCK_SIZE columns hold no whole row, a launch reads the rows' statistics, and another one writes dx and sums by
    columns. PROGRAMS are for each multiprocessor; loads of STAGES rows are on their way while a program works, and 1
    loads a row when it is its turn.
    """
    torch = require("torch", "the gradient of layer_norm")
    rows, wide = x.shape[0], torch.promote_types(x.dtype, torch.float32)
    most = PROGRAMS * call.multiprocessors(x.device)
    if BLOCK_SIZE >= COLUMNS:
        programs = min(-(-rows // ROWS), most)
        partial = x.new_empty((2, programs, COLUMNS), dtype=wide)
        layer_norm_backward_kernel[(programs,)](
            x, weight, grad, dx, partial, rows, eps,
            COLUMNS=COLUMNS, ROWS=ROWS, BLOCK_SIZE=BLOCK_SIZE, STAGES=STAGES, num_warps=num_warps,
        )  # fmt: skip
    else:
        statistics = x.new_empty((4, rows), dtype=wide)
        layer_norm_backward_statistics_kernel[(-(-rows // ROWS),)](
            x, weight, grad, statistics, rows, eps,
            COLUMNS=COLUMNS, ROWS=ROWS, BLOCK_SIZE=BLOCK_SIZE, STAGES=STAGES, num_warps=num_warps,
        )  # fmt: skip
        across = -(-COLUMNS // _TILE_COLUMNS)
        parts = max(1, min(-(-rows // _TILE_ROWS), most // across))
        partial = x.new_empty((2, parts, COLUMNS), dtype=wide)
        layer_norm_backward_columns_kernel[(across, parts)](
            x, weight, grad, dx, statistics, partial, rows,
            COLUMNS=COLUMNS, TILE_ROWS=_TILE_ROWS, TILE_COLUMNS=_TILE_COLUMNS, STAGES=STAGES, num_warps=_TILE_WARPS,
        )  # fmt: skip
    add_up(partial, (dweight, dbias), SUM_COLUMNS)


_GRADIENT = call.shipped(
    "layer_norm_backward", LauncherKernel(launch, outputs=("dx", "dweight", "dbias")), problems, part="gradient"
)
gradient_operation = _GRADIENT.operation


def gradient(tensors: Sequence[Any], grad: Any, needs: Sequence[bool], eps: float) -> tuple[Any, Any, Any]:
    """The gradients of x, weight and bias, None for one that is not needed.

    `tensors` are x, and weight if there is one.
    """
    x, weight = tensors[0], tensors[1] if len(tensors) > 1 else None
    columns, like = x.shape[-1], x if weight is None else weight
    dx, dweight, dbias = x.new_empty(x.shape), like.new_zeros(columns), like.new_zeros(columns)
    if _GRADIENT.launches(dx):
        values = {
            "x": x.view(-1, columns), "weight": weight, "grad": grad.contiguous().view(-1, columns),
            "dx": dx.view(-1, columns), "dweight": dweight, "dbias": dbias, "eps": problems.DEFAULT_EPS,
            "COLUMNS": columns,
        }  # fmt: skip
        _GRADIENT.run(values, x.device, eps=float(eps))
    return tuple(each if need else None for each, need in zip((dx, dweight, dbias), needs, strict=True))  # type: ignore[return-value]


_KERNEL = call.shipped("layer_norm", TritonKernel(layer_norm_kernel, grid, outputs=("out",)), problems)
operation = _KERNEL.operation


@compilable(
    '(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, str config="", bool tune=False) -> Tensor',
    gradient=Gradient(inputs=("x", "weight", "bias"), function=gradient, values="float eps", kept=("x", "weight")),
)
def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = problems.DEFAULT_EPS,
    *,
    config: Mapping[str, object] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Normalise every row of `x` to mean 0 and variance 1, then scale and shift it by column.

    The result is (x - mean) / sqrt(variance + eps) * weight + bias over the last axis, computed in float32 and rounded
    once, with the same bits at every call. NaN and infinity spoil their own row. The gradients of x, weight and bias
    are computed by a kernel too, by partial sums without locks: equal calls on one device give equal bits.

    Args:
        x: [..., columns], bfloat16 | float16 | float32, contiguous, CUDA.
        weight: [columns], any of these dtypes, contiguous, device of `x`; None is 1.
        bias: [columns], any of these dtypes, contiguous, device of `x`; None is 0.
        eps: A number that is added to the variance; finite, 0 or more, in the unit of x².
        config: A value for each of BLOCK_SIZE, ROWS and num_warps, and if you like EVICT and SPREAD; None takes the
            winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        Shape and dtype of `x`, contiguous, new storage.

    Raises:
        KernelTypeError: An argument is not a tensor.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: A dtype is not in the list above.
        ShapeMismatchError: A tensor is not contiguous or has another shape, or `x` has no axis.
        SettingsError: `eps` is negative or not finite.
        UnknownTunableError: `config` lacks a tunable, or names another.
        ConfigValueError: `config` holds a value that the kernel does not take.

    Cost: reads x and writes the result once where a row fits into BLOCK_SIZE, else reads it twice, the second time from
    L2; no host sync. The first call of a config, dtype and row length compiles: about 0.2 s.
    Source: Ba, Kiros, Hinton, arXiv:1607.06450; merged variances by Chan, Golub, LeVeque, 1979.
    """
    affine = {name: each for name, each in (("weight", weight), ("bias", bias)) if each is not None}
    tensors = {"x": x, **affine}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes(tensors, problems.DTYPES)
    call.check_contiguous(tensors)
    if x.ndim == 0:
        raise ShapeMismatchError("x has no axis to normalise", "[..., columns]", (), "x")
    for name, tensor in affine.items():
        call.check_shape(name, tensor.shape, (x.shape[-1],), "x has rows of this length")
    validate_eps(eps)
    return _forward(x, weight, bias, float(eps), config, tune)


def _forward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    config: Mapping[str, object] | None,
    tune: bool,
) -> torch.Tensor:
    out, columns = x.new_empty(x.shape), x.shape[-1]
    if _KERNEL.launches(out):
        flat = x.detach().view(-1, columns)
        weight, bias = (None if each is None else each.detach() for each in (weight, bias))
        values = {
            "x": flat, "weight": weight, "bias": bias, "out": out.view(-1, columns), "rows": flat.shape[0],
            "eps": problems.DEFAULT_EPS, "COLUMNS": columns,
        }  # fmt: skip
        _KERNEL.run(values, x.device, config, tune, eps=eps)
    return out
