"""The references of the softmax with its gradient in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require


def softmax_reference(x: Any, out: Any, **_extents: int) -> Any:
    """The softmax over the last axis, in float32 or wider, rounded once to the dtype of `out`."""
    torch = require("torch", "the reference of softmax")
    return torch.softmax(x.to(torch.promote_types(x.dtype, torch.float32)), -1).to(out.dtype)


def softmax_backward_reference(out: Any, grad: Any, dx: Any, **_extents: int) -> Any:
    """The gradient of the softmax from its result, in float32 or wider, rounded once to the dtype of `dx`."""
    torch = require("torch", "the reference of softmax")
    wide = torch.promote_types(out.dtype, torch.float32)
    y, g = out.to(wide), grad.to(wide)
    return (y * (g - (y * g).sum(-1, keepdim=True))).to(dx.dtype)
