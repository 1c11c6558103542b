"""The contract of the gated MLP: what its arguments must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_ops.exceptions import ConfigValueError, ShapeMismatchError
from triton_ops.kernels import call
from triton_ops.kernels.gated_mlp.problems import ACTIVATIONS, DTYPES
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.kernels.tiles import check_loads, describable
from triton_ops.values import ALIGNMENT_BYTES, TensorSpec, contiguous_stride, dtype_name

if TYPE_CHECKING:
    import torch


def validate_gated_mlp_inputs(
    x: torch.Tensor, gate_weight: torch.Tensor, up_weight: torch.Tensor, activation: str = "silu"
) -> tuple[int, int, int, int]:
    """Check all arguments of `fused_gated_mlp`: placement, dtypes, layout, activation, then shapes.

    Returns:
        batch, seq, hidden and intermediate size.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As `fused_gated_mlp`.
    """
    tensors = {"x": x, "gate_weight": gate_weight, "up_weight": up_weight}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes({"x": x}, DTYPES)
    call.check_dtypes({"gate_weight": gate_weight, "up_weight": up_weight}, (dtype_name(x.dtype),))
    _check_rows(x)
    call.check_activation(activation, ACTIVATIONS)
    call.check_rank("x", x.shape, "[batch, seq, hidden]")
    call.check_rank("gate_weight", gate_weight.shape, "[intermediate, hidden]")
    intermediate, hidden = gate_weight.shape[0], x.shape[2]
    call.check_shape("gate_weight", gate_weight.shape, (intermediate, hidden), "x has this hidden size")
    call.check_shape("up_weight", up_weight.shape, (intermediate, hidden), "it must be as gate_weight")
    return x.shape[0], x.shape[1], hidden, intermediate


def _check_rows(x: torch.Tensor) -> None:
    """Check that the tokens of all sequences are evenly apart, so that they are the rows of one matrix."""
    if x.ndim == 3 and min(x.shape[:2]) > 1 and x.stride(0) != x.shape[1] * x.stride(1):
        raise ShapeMismatchError(
            f"x has the strides {tuple(x.stride())}: its tokens are not evenly apart",
            contiguous_stride(x.shape),
            tuple(x.stride()),
            "x",
            hint="pass x.contiguous()",
        )


def check_own_config(config: Mapping[str, Any], tensors: Sequence[Any]) -> None:
    """Check what a config of the caller's own asks of descriptors.

    Args:
        config: The config, whose values the kernel takes.
        tensors: x, both weights and the result.

    Raises:
        ConfigValueError: Descriptors cannot be made of the tensors, or of such narrow tiles, or JOINED or HALVES are
            without descriptors.
    """
    loads = config.get("LOADS", "pointers")
    for name in ("JOINED", "HALVES"):
        if config.get(name, False) and loads != "host":
            raise ConfigValueError(f"{name} is for tiles that come by descriptors", hint="add LOADS='host'")
    check_loads(config, lambda: describable(*map(TensorSpec.of, tensors)))
    if loads == "host":
        _check_widths(config, tensors[0].element_size())


def _check_widths(config: Mapping[str, Any], item_bytes: int) -> None:
    """Check that rows of tiles are as long as descriptors need them."""
    least = ALIGNMENT_BYTES // item_bytes
    for name, parts in (("BLOCK_K", 1), ("BLOCK_N", 2 if config.get("HALVES", False) else 1)):
        if config[name] < least * parts:
            raise ConfigValueError(
                f"{name} is {config[name]}, and rows of a tile that is described have {ALIGNMENT_BYTES} bytes or more",
                hint=f"take {least * parts} or more",
            )
