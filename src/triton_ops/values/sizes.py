"""Classes of sizes: what no winner of the very problem decides is decided once for all sizes of a class.

A power of two has four parts, and below 64 one. The ends of a part stand alone, since rules change there; inside of it
multiples of 8 and of 16 stand apart, by which memory is aligned. The largest size of a class stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_ops.values.tensors import KNOWN_MULTIPLE, TensorSpec, contiguous_stride

_EXACT = 16  # below it each size is a class of its own
_WHOLE = 64  # below it a power of two has one part


def typical(size: int) -> int:
    """The size that stands for the class of `size`."""
    part = _part(size)
    if size % part == 0:
        return size
    multiple = KNOWN_MULTIPLE if size % KNOWN_MULTIPLE == 0 else 8 if size % 8 == 0 else 1
    return (size // part + 1) * part - multiple


def class_cut(size: int, low: int, high: int) -> bool:
    """Whether a range holds some sizes of the part that `size` is in, and not all."""
    part = _part(size)
    first, last = (size, size) if size % part == 0 else (size // part * part + 1, size // part * part + part - 1)
    return first < low <= last or first <= high < last


def _part(size: int) -> int:
    """How far the ends of the part are from each other that holds a size."""
    return 1 if size < _EXACT else 1 << (size.bit_length() - (1 if size < _WHOLE else 3))


def typical_memory(shape: Sequence[int], stride: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and strides that stand for a tensor's class; strides stay where memory has gaps."""
    sizes = tuple(map(typical, shape))
    order = sorted(range(len(stride)), key=stride.__getitem__, reverse=True)
    if [stride[axis] for axis in order] != list(contiguous_stride([shape[axis] for axis in order])):
        return sizes, tuple(stride)
    steps = dict(zip(order, contiguous_stride([sizes[axis] for axis in order]), strict=True))
    return sizes, tuple(steps[axis] for axis in range(len(stride)))


def typical_argument(argument: Any) -> Any:
    """What stands for an argument of a problem."""
    if isinstance(argument, TensorSpec):
        shape, stride = typical_memory(argument.shape, argument.strides)
        return TensorSpec(shape, argument.dtype, stride, argument.fill, aligned=argument.aligned, total=argument.total)
    return typical(argument) if isinstance(argument, int) and not isinstance(argument, bool) else argument
