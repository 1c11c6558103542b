"""A smaller problem with odd extents, on which code that was compiled for the tuned problem can be checked.

Triton specialises code on whether an integer is 1 or a multiple of 16. An extent that is a multiple of 16 is therefore
replaced by an odd multiple of 16, which no tile of 32 or more divides, and any other extent by an odd number. Both are
small, so that a check costs little. An extent is kept where the operation refuses the new one, or where an integer that
follows from it, such as the number of scales in a row, would be specialised otherwise, or a flag would be another one.
"""

from __future__ import annotations

from triton_ops.backend import Operation
from triton_ops.exceptions import TritonKernelError

_STEP = 16  # Triton specialises integers on being a multiple of this
_MOST = (65, 127)  # steps: 1,040 is more than four of the widest common tiles, 256; 2,032 makes 16 groups of 128
_ODD = 1031  # a prime


def ragged_shape(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> tuple[int, ...] | None:
    """`shape` with as many odd extents as the operation takes, one after another; None if it takes none."""
    kinds = _kinds(operation, shape, dtype)
    if kinds is None:
        return None
    found = shape
    for axis, extent in enumerate(shape):
        tried = ((*found[:axis], odd, *found[axis + 1 :]) for odd in _odd(extent) if odd != extent)
        found = next((wanted for wanted in tried if _kinds(operation, wanted, dtype) == kinds), found)
    return None if found == shape else found


def _odd(extent: int) -> tuple[int, ...]:
    """What may stand for an extent, the smallest first."""
    if extent <= _STEP:
        return (extent,)
    if extent % _STEP:
        return (min(extent, _ODD),)
    return tuple(_STEP * (steps - 1 + steps % 2) for most in _MOST if (steps := min(extent // _STEP, most)))


def _kinds(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> tuple[object, ...] | None:
    """How Triton specialises the values of a problem; None if the operation refuses the shape."""
    try:
        problem = operation.problem(shape, dtype)
    except (TritonKernelError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError):
        return None  # an operation may refuse a shape by any of these errors
    return tuple(_kind(value) for _, value in problem.arguments)


def _kind(value: object) -> object:
    """What code is compiled for of a value: of an integer its alignment; a flag or a name is a constant of its own."""
    if isinstance(value, (bool, str)):
        return value
    return (value == 1, value % _STEP == 0) if isinstance(value, int) else None
