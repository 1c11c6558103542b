"""Classes of arguments: what Triton specialises code on, as values, and as the texts that stand for them in keys.

The key of a decorated kernel has them under `NAME:class`. Fact used, from Triton 3.6 to 3.9: of an integer count
whether it is 1, a multiple of 16, and needs 64 bits; of a pointer whether it is a multiple of 16; None, a bool and a
float count by their type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton_ops.values.tensors import KNOWN_MULTIPLE, is_aligned

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
