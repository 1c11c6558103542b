"""A smaller problem of odd extents, which the code that is compiled for the tuned one may serve as well.

Triton compiles for whether an integer is 1 or a multiple of 16. An extent is therefore replaced by an odd multiple of
16 if it is one, which no tile of 32 or more divides, and by an odd number if it is not; both are small, so a check
costs little. An operation that refuses the shape keeps the extent.
"""

from __future__ import annotations

from triton_ops.backend import Operation
from triton_ops.exceptions import TritonKernelError

_STEP = 16  # what Triton specialises integers on
_MOST = 65  # steps: 1,040 is over four of the widest common tiles of 256
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
        return False  # its own way of saying no
    return True
