"""The reference of the fused RMSNorm and RoPE in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops._optional import require


def rmsnorm_rope_reference(
    x: Any, weight: Any, cos: Any, sin: Any, out: Any, *, eps: float, HEAD_DIM: int, **_extents: int
) -> Any:
    """Compute `rope(x / sqrt(mean(x²) + eps) * weight)` in float32, rounded once to the dtype of `out`.

    The kernel's arguments are taken by name, and only the first HEAD_DIM / 2 columns of the angles are read, as in the
    kernel.

    Cost: several float32 tensors of the size of `x`.
    """
    torch = require("torch", "the reference of rmsnorm_rope")
    half = HEAD_DIM // 2
    wide = x.float()
    normal = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.float()
    first, second = normal.unflatten(-1, (-1, 2, half)).unbind(-2)  # each [batch, seq, heads, half]
    c, s = (table.reshape(-1, 1, HEAD_DIM)[..., :half].float() for table in (cos, sin))
    turned = torch.cat([first * c - second * s, second * c + first * s], dim=-1)
    return turned.reshape(x.shape).to(out.dtype)
