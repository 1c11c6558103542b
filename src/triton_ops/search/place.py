"""Where trials were made, and how far one such place is from another."""

from __future__ import annotations

import math
from dataclasses import dataclass

_OTHER_DTYPE = 1.0
_OTHER_DEVICE = 1.0


@dataclass(frozen=True)
class Place:
    """Where trials were made: extents of the problem, dtype, device. Empty where unknown."""

    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""

    def distance(self, other: Place) -> float:
        """0 for the same place; 1 for twice the extent in one dimension, another dtype or another device each."""
        apart = sum(abs(math.log2(a / b)) for a, b in zip(self.shape, other.shape, strict=False) if a > 0 and b > 0)
        apart += abs(len(self.shape) - len(other.shape))
        return apart + _OTHER_DTYPE * (self.dtype != other.dtype) + _OTHER_DEVICE * (self.device != other.device)
