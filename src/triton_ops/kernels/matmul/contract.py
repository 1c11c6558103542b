"""The contract of the matmul: what its arguments must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton_ops.kernels import call
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.kernels.matmul.problems import ACTIVATIONS, BIAS_DTYPES, OUTPUT_DTYPES
from triton_ops.kernels.matmul.space import takes_descriptors
from triton_ops.kernels.tiles import check_loads
from triton_ops.space import Config
from triton_ops.values import TensorSpec, dtype_name

if TYPE_CHECKING:
    import torch


def validate_matmul_inputs(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> tuple[int, int, int]:
    """Check the arguments of `matmul`: placement, dtypes, layout, activation, then shapes.

    Returns:
        M, N and K.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As `matmul`.
    """
    arguments = {"a": a, "b": b, "out": out, "bias": bias}
    tensors = {name: value for name, value in arguments.items() if name in "ab" or value is not None}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes({"a": a}, tuple(OUTPUT_DTYPES))
    call.check_dtypes({"b": b}, (dtype_name(a.dtype),))
    if out is not None:
        call.check_dtypes({"out": out}, (OUTPUT_DTYPES[dtype_name(a.dtype)],))
    if bias is not None:
        call.check_dtypes({"bias": bias}, BIAS_DTYPES)
        call.check_contiguous({"bias": bias})
    call.check_activation(activation, ACTIVATIONS)
    call.check_rank("a", a.shape, "[M, K]")
    call.check_rank("b", b.shape, "[K, N]")
    (M, K), N = a.shape, b.shape[1]
    call.check_shape("b", b.shape, (K, N), "its rows must match a's columns")
    if out is not None:
        call.check_shape("out", out.shape, (M, N), "it must be [M, N]")
        call.check_apart(out, {name: tensor for name, tensor in tensors.items() if name != "out"})
    if bias is not None:
        call.check_shape("bias", bias.shape, (N,), "b has this number of columns")
    call.check_constant({name: tensor for name, tensor in tensors.items() if name != "out"}, "matmul")
    return M, N, K


def check_loads_of(config: Config, tensors: Mapping[str, Any], K: int) -> None:
    """Check that a config asks for tensor descriptors only where they can be made of `a`, `b` and `c`.

    Raises:
        ConfigValueError: It does not.
    """
    check_loads(
        config,
        lambda: takes_descriptors({name: TensorSpec.of(tensor) for name, tensor in tensors.items()}, K),
        "neighbours along an axis, all else at multiples of 16 bytes, and 8-bit floats those along K",
    )
