"""A small problem with odd extents, on which an interpreted kernel ends within seconds."""

from __future__ import annotations

from triton_ops.backend import Operation
from triton_ops.exceptions import TritonKernelError
from triton_ops.problem import Problem

_SMALL = 16  # extents up to this are counts of heads, batches or ways, and stay nearly so
_FEW = 3
_COUNTS = (3, 4, 2, 1)  # 4 for what must be a multiple of another count
_ODD = (131, 83, 197, 67, 113, 37, 29)  # primes that differ, so that swapped axes show, and that no tile divides
_ROUND = (128, 64, 256, 16)  # where an operation takes no odd extent


def odd_problem(operation: Operation) -> Problem:
    """The operation's problem with as many small odd extents as it takes, of 32 or 16 bits if it takes such.

    The interpreter of Triton computes with bfloat16 as if it held whole numbers, so that it is the last choice.

    Raises:
        TritonKernelError: The operation has no problem to begin with.
    """
    wanted = [one for one in ("float32", "float16") if one in operation.dtypes]
    dtype = next(iter((*wanted, *operation.dtypes)), None)
    shape = _first_shape(operation, dtype)
    for _ in range(2):  # what one axis may be depends on others, such as the heads of queries on those of keys
        for axis, extent in enumerate(shape):
            tried = ((*shape[:axis], one, *shape[axis + 1 :]) for one in _instead(axis, extent))
            shape = next((one for one in tried if _takes(operation, one, dtype)), shape)
    return operation.problem(shape, dtype)


def _first_shape(operation: Operation, dtype: str | None) -> tuple[int, ...]:
    """The default shape, or else that of the first named problem."""
    named = [shape for shape, _ in operation.problems.values()]
    try:
        return operation.full_shape(None)
    except TritonKernelError:
        if not named:
            raise
    return next((one for one in named if _takes(operation, one, dtype)), named[0])


def _instead(axis: int, extent: int) -> tuple[int, ...]:
    """What to try for an axis in place of its extent, the best first; nothing where the extent is among the best."""
    if extent <= _FEW or extent in _ODD:
        return ()
    if extent <= _SMALL:
        return tuple(one for one in _COUNTS if one < extent)
    first = axis % len(_ODD)
    return tuple(one for one in (*_ODD[first:], *_ODD[:first], *_ROUND) if one < extent)


def _takes(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> bool:
    """Whether there is such a problem, and a config for it."""
    try:
        problem = operation.problem(shape, dtype)
        return operation.space_for(problem).default_config is not None
    except (TritonKernelError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError):
        return False  # an operation may refuse a shape by any of these errors
