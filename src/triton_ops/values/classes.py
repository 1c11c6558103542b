"""Classes of arguments: of sizes, and what Triton specialises code on.

Where a problem has no winner of its own, a decision is made once for all sizes of a class. The sizes between two powers
of two are cut into four parts, from 64 on; below 64 they are one part, and below 16 each size is a class. The first
size of a part is a class by itself, since rules change there. The others are three classes, by which memory is aligned:
multiples of 16, further multiples of 8, and the rest. The size in the middle of a class stands for it: tiles that are
chosen at the end of a part may fill a device there alone.

The key of a decorated kernel has under `NAME:class` what Triton specialises code on, as a text. Fact used, from Triton
3.6 to 3.9: of an integer count whether it is 1, a multiple of 16, and needs 64 bits; of a pointer whether it is a
multiple of 16; None, a bool and a float count by their type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.values.tensors import KNOWN_MULTIPLE, TensorSpec, contiguous_stride, is_aligned

_EXACT = 16  # below it each size is a class of its own
_WHOLE = 64  # below it a power of two has one part


def typical(size: int) -> int:
    """The size that stands for the class of `size`."""
    part = _part(size)
    if size % part == 0:
        return size
    middle = size // part * part + part // 2
    if size % 8 == 0:
        return middle // KNOWN_MULTIPLE * KNOWN_MULTIPLE + (0 if size % KNOWN_MULTIPLE == 0 else 8)
    return middle + 1


def class_cut(size: int, low: int, high: int) -> bool:
    """Whether a range holds some sizes of the part that `size` is in, and not all."""
    part = _part(size)
    first, last = (size, size) if size % part == 0 else (size // part * part + 1, size // part * part + part - 1)
    return first < low <= last or first <= high < last


def _part(size: int) -> int:
    """The length of the part that holds a size: from its first size to that of the next part."""
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


CLASS = ":class"  # ends the name of what has only the class of an argument
ALIGNMENTS = {True: "aligned", False: "not aligned"}  # of a tensor's address
_NARROW = 1 << 31
_WIDE = 1 << 40  # a multiple of 16 that needs 64 bits


@dataclass(frozen=True)
class IntegerClass:
    """What Triton specialises code on of an integer."""

    is_one: bool
    is_multiple: bool
    is_wide: bool

    @classmethod
    def of(cls, value: int) -> IntegerClass:
        """The class of a value."""
        return cls(value == 1, value % KNOWN_MULTIPLE == 0, not -_NARROW <= value < _NARROW)

    def __str__(self) -> str:
        multiple = f"{'a' if self.is_multiple else 'no'} multiple of {KNOWN_MULTIPLE}"
        return "1" if self.is_one else f"{multiple}{' of 64 bits' if self.is_wide else ''}"


_INTEGERS = (1, KNOWN_MULTIPLE, KNOWN_MULTIPLE + 1, _WIDE, _WIDE + 1)
TYPES: dict[str, Any] = {"NoneType": None, "bool": True, "float": 0.5}
"""The types that count as such, with a value of each."""
EXAMPLES = {**TYPES, **{str(IntegerClass.of(value)): value for value in _INTEGERS}}
"""A value of each class of what is no tensor, by the text in keys."""


def class_of(value: Any) -> str:
    """The text in keys for the class of a torch tensor, a number, a bool or None."""
    if hasattr(value, "data_ptr"):
        return ALIGNMENTS[is_aligned(value)]
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return str(IntegerClass.of(value)) if is_whole else type(value).__name__
