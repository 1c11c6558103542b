"""The references of the fused RMSNorm and RoPE with its gradient in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require


def rmsnorm_rope_reference(
    x: Any, weight: Any, cos: Any, sin: Any, out: Any, *, eps: float, HEAD_DIM: int, **_extents: int
) -> Any:
    """Compute `rope(x / sqrt(mean(x²) + eps) * weight)` in float32 or wider, rounded once.

    The kernel's arguments are taken by name, and only the first HEAD_DIM / 2 columns of the angles are read, as in the
    kernel.

    Cost: several float32 tensors of the size of `x`.
    """
    n, _ = _normal(x, eps)
    return _turned(n * weight.to(n.dtype), cos, sin, HEAD_DIM).to(out.dtype)


def rmsnorm_rope_backward_reference(
    x: Any,
    weight: Any,
    cos: Any,
    sin: Any,
    grad: Any,
    dx: Any,
    dweight: Any,
    *,
    eps: float,
    HEAD_DIM: int,
    **_extents: int,
) -> tuple[Any, Any]:
    """The gradients of x and weight, in float32 or wider, rounded once.

    A rotation is turned back by the negative angle.
    """
    n, scale = _normal(x, eps)
    g = _turned(grad.to(n.dtype), cos, -sin.to(n.dtype), HEAD_DIM)
    h = g * weight.to(n.dtype)
    found = (h - n * (h * n).mean(-1, keepdim=True)) * scale
    return found.to(dx.dtype), (g * n).sum((0, 1)).to(dweight.dtype)


def _normal(x: Any, eps: float) -> tuple[Any, Any]:
    """The rows divided by their root mean square, and one over that."""
    torch = require("torch", "the reference of rmsnorm_rope")
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return wide * scale, scale


def _turned(values: Any, cos: Any, sin: Any, head_dim: int) -> Any:
    """The pairs of each head of [batch, seq, hidden], turned by the angles of their position."""
    torch, half = require("torch", "the reference of rmsnorm_rope"), head_dim // 2
    first, second = values.unflatten(-1, (-1, 2, half)).unbind(-2)  # each [batch, seq, heads, half]
    c, s = (table.reshape(-1, 1, head_dim)[..., :half].to(values.dtype) for table in (cos, sin))
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1).reshape(values.shape)
