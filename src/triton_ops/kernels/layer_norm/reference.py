"""The references of the layer norm with its gradient in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require


def layer_norm_reference(x: Any, weight: Any, bias: Any, out: Any, *, eps: float, **_extents: int) -> Any:
    """Compute `(x - mean) / sqrt(variance + eps) * weight + bias` in float32 or wider, rounded once."""
    n, _ = _normal(x, eps)
    found = n if weight is None else n * weight.to(n.dtype)
    return (found if bias is None else found + bias.to(n.dtype)).to(out.dtype)


def layer_norm_backward_reference(
    x: Any, weight: Any, grad: Any, dx: Any, dweight: Any, dbias: Any, *, eps: float, **_extents: int
) -> tuple[Any, Any, Any]:
    """The gradients of x, weight and bias, in float32 or wider, rounded once."""
    n, scale = _normal(x, eps)
    wide = grad.to(n.dtype)
    g = wide if weight is None else wide * weight.to(n.dtype)
    found = (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True)) * scale
    over = tuple(range(x.ndim - 1))
    return found.to(dx.dtype), (wide * n).sum(over).to(dweight.dtype), wide.sum(over).to(dbias.dtype)


def _normal(x: Any, eps: float) -> tuple[Any, Any]:
    """The rows with mean 0 and variance 1, and one over their standard deviation."""
    torch = require("torch", "the reference of layer_norm")
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    apart = wide - wide.mean(-1, keepdim=True)
    scale = (apart.square().mean(-1, keepdim=True) + eps).rsqrt()
    return apart * scale, scale
