"""Values that no right result holds: where a launch leaves them, it has not written its output."""

from __future__ import annotations

import math
from typing import Any

from triton_ops.backend import is_array
from triton_ops.base import require


def poison(values: Any, pattern: int = 0) -> None:
    """Fill a tensor or a NumPy array with values that no right result holds; arrays of other things stay as they are.

    Args:
        values: The tensor or array to fill.
        pattern: 0 fills with NaN, an integer type's largest value, or False; 1 with the largest finite number, the
            largest integer less 90, or True.
    """
    if is_array(values):
        _poison_array(values, pattern)
        return
    torch = require("torch", "checking results")
    if values.dtype is torch.bool:
        values.fill_(bool(pattern))
    elif values.dtype.is_floating_point or values.dtype.is_complex:
        values.fill_(torch.finfo(values.dtype).max if pattern else math.nan)
    else:
        values.fill_(torch.iinfo(values.dtype).max - 90 * pattern)


def _poison_array(array: Any, pattern: int) -> None:
    numpy = require("numpy", "checking results")
    if not array.flags.writeable:
        return
    if array.dtype.kind == "b":
        array.fill(bool(pattern))
    elif array.dtype.kind in "fc":
        array.fill(numpy.finfo(array.dtype).max if pattern else math.nan)
    elif array.dtype.kind in "iu":
        array.fill(numpy.iinfo(array.dtype).max - 90 * pattern)
