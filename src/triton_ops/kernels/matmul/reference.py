"""The reference of the matmul in plain PyTorch."""

from __future__ import annotations

from typing import Any

from triton_ops.base import require


def matmul_reference(a: Any, b: Any, c: Any, bias: Any = None, ACTIVATION: str = "none", **_extents: Any) -> Any:
    """Compute `act(a @ b + bias)` in float32 or wider, rounded once to the dtype of `c`; arguments are taken by name.

    Cost: wide copies of both inputs, and a wide product.
    """
    torch = require("torch", "the reference of matmul")
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    found = a.to(wide) @ b.to(wide)
    found = found if bias is None else found + bias.to(wide)
    if ACTIVATION != "none":
        found = getattr(torch.nn.functional, ACTIVATION)(found)
    return found.to(c.dtype)
