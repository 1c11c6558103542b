"""Values that no right result holds, to be found where a launch left them."""

from __future__ import annotations

import math
from typing import Any

from triton_ops._optional import require


def poison(tensor: Any, pattern: int = 0) -> None:
    """Fill with NaN, or with the largest value of an integer type; with pattern 1, with other values as unlikely."""
    torch = require("torch", "checking results")
    if tensor.dtype is torch.bool:
        tensor.fill_(bool(pattern))
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(torch.finfo(tensor.dtype).max if pattern else math.nan)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max - 90 * pattern)
