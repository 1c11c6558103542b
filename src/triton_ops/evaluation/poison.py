"""Values that no right result holds: where a launch leaves them, it has not written its output."""

from __future__ import annotations

import math
from typing import Any

from triton_ops._optional import require


def poison(tensor: Any, pattern: int = 0) -> None:
    """Fill a tensor with values that no right result holds.

    Args:
        tensor: The tensor to fill.
        pattern: 0 fills with NaN, an integer type's largest value, or False; 1 with the largest finite number, the
            largest integer less 90, or True.
    """
    torch = require("torch", "checking results")
    if tensor.dtype is torch.bool:
        tensor.fill_(bool(pattern))
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(torch.finfo(tensor.dtype).max if pattern else math.nan)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max - 90 * pattern)
