"""A smaller problem with odd extents, on which code that was compiled for the tuned problem can be checked.

Triton specialises code on whether an integer is 1 or a multiple of 16. An extent that is a multiple of 16 is therefore
replaced by an odd multiple of 16, which no tile of 32 or more divides, and any other extent by an odd number. Both are
small, so that a check costs little. An extent is kept where the operation refuses the new one.
"""

from __future__ import annotations

from triton_ops.backend import Operation
from triton_ops.exceptions import TritonKernelError

_STEP = 16  # Triton specialises integers on being a multiple of this
_MOST = 65  # steps: 1,040 is more than four of the widest common tiles, 256
_ODD = 1031  # a prime


def ragged_shape(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> tuple[int, ...] | None:
    """`shape` with as many odd extents as the operation takes, one after another; None if it takes none."""
    found = shape
    for axis, extent in enumerate(shape):
        wanted = (*found[:axis], _odd(extent), *found[axis + 1 :])
        if wanted != found and _takes(operation, wanted, dtype):
            found = wanted
    return None if found == shape else found


def _odd(extent: int) -> int:
    if extent <= _STEP:
        return extent
    if extent % _STEP:
        return min(extent, _ODD)
    steps = min(extent // _STEP, _MOST)
    return _STEP * (steps - 1 + steps % 2)


def _takes(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> bool:
    try:
        operation.problem(shape, dtype)
    except (TritonKernelError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError):
        return False  # an operation may refuse a shape by any of these errors
    return True
