"""The contract of the fused RMSNorm and RoPE: what its arguments must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from triton_ops.exceptions import ShapeMismatchError
from triton_ops.kernels import call
from triton_ops.kernels.call import validate_eps
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.kernels.rmsnorm_rope.problems import DEFAULT_EPS, DTYPES

if TYPE_CHECKING:
    import torch


def validate_rmsnorm_rope_inputs(
    x: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    eps: float = DEFAULT_EPS,
    num_heads: int | None = None,
) -> tuple[int, int, int, int, int]:
    """Check all arguments of `fused_rmsnorm_rope`: placement, dtypes, layout, shapes, then `eps`.

    Returns:
        batch, seq, hidden, head size and number of heads.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As
            `fused_rmsnorm_rope`.
    """
    tensors = {"x": x, "weight": weight, "cos": cos, "sin": sin}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes(tensors, DTYPES)
    call.check_contiguous(tensors)
    call.check_rank("x", x.shape, "[batch, seq, hidden]")
    batch, seq_len, hidden = x.shape
    call.check_shape("weight", weight.shape, (hidden,), "x has this hidden size")
    head_dim = _check_angles(cos, sin, seq_len)
    _check_heads(hidden, head_dim, num_heads)
    validate_eps(eps)
    call.check_constant({"cos": cos, "sin": sin}, "fused_rmsnorm_rope")
    return batch, seq_len, hidden, head_dim, hidden // head_dim


def _check_angles(cos: torch.Tensor, sin: torch.Tensor, seq_len: int) -> int:
    """Check `cos` and `sin`, and return their head size."""
    if cos.ndim not in (2, 4):
        axes = "[seq, D] or [1, seq, 1, D]"
        raise ShapeMismatchError(f"cos has shape {tuple(cos.shape)}; it must be {axes}", axes, tuple(cos.shape), "cos")
    head_dim = cos.shape[-1]
    expected = (seq_len, head_dim) if cos.ndim == 2 else (1, seq_len, 1, head_dim)
    call.check_shape("cos", cos.shape, expected, f"x has {seq_len} positions")
    call.check_shape("sin", sin.shape, expected, "it must be as cos")
    if head_dim % 2 or head_dim < 2:
        raise ShapeMismatchError(
            f"cos has {head_dim} columns; RoPE turns pairs, so the head size must be even",
            "an even head size",
            head_dim,
            "cos",
        )
    return head_dim


def _check_heads(hidden: int, head_dim: int, num_heads: int | None) -> None:
    heads = hidden // head_dim if num_heads is None else num_heads
    if heads * head_dim != hidden:
        heads_text = f"heads of {head_dim}" if num_heads is None else f"{num_heads} heads of {head_dim}"
        raise ShapeMismatchError(
            f"x has hidden size {hidden}, which is not made of {heads_text}",
            f"a multiple of {head_dim}" if num_heads is None else num_heads * head_dim,
            hidden,
            "x",
            hint="give num_heads so that num_heads * D is the hidden size, or tables of another D",
        )


def check_halves_equal(tables: Mapping[str, torch.Tensor], head_dim: int) -> None:
    """Check that the half of each table that is not read repeats the other one; this waits for the device.

    Raises:
        ShapeMismatchError: The halves of a table differ.
    """
    for name, table in tables.items():
        half = head_dim // 2
        if not table[..., :half].equal(table[..., half:]):
            raise ShapeMismatchError(
                f"the two halves of {name} differ, and only the first one would be used",
                f"{name}[..., :{half}] equal to {name}[..., {half}:]",
                "halves that differ",
                name,
                hint="build the table as torch.cat([angles, angles], -1)",
            )
