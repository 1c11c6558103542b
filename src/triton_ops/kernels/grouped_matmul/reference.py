"""The reference of the grouped product in plain PyTorch: a loop of products."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require


def grouped_matmul_reference(x: Any, weight: Any, out: Any, ends: Any, gather: Any, **_extents: Any) -> Any:
    """Multiply each group's rows with its weight in float32 or wider, rounded once; rows of no group are zeros.

    Cost: a product for each group, copies of its rows and of its weight, and a host sync.
    """
    torch = require("torch", "the reference of grouped_matmul")
    wide = torch.promote_types(x.dtype, torch.float32)
    found, start = torch.zeros_like(out), 0
    for group, end in enumerate(ends.clamp(max=len(out)).tolist()):
        if end > start:
            rows = x[start:end] if gather is None else x[gather[start:end].long()]
            found[start:end] = (rows.to(wide) @ weight[group].to(wide)).to(out.dtype)
        start = max(start, end)
    return found
