"""Where trials were made, and how far one such place is from another."""

from __future__ import annotations

import math
from dataclasses import dataclass

_OTHER_DTYPE = 1.0
_OTHER_DEVICE = 1.0
_OTHER_VENDOR = 3.0  # beside that of another device: what is fast on one vendor's says little of another's
_VENDORS = {"nvidia": "nvidia", "geforce": "nvidia", "amd": "amd", "radeon": "amd", "instinct": "amd"}


@dataclass(frozen=True)
class Place:
    """Where trials were made: extents of the problem, dtype, device. Empty where unknown."""

    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""

    def distance(self, other: Place) -> float:
        """0 for the same place; 1 for twice the extent in one dimension, another dtype or another device each.

        A device of another vendor counts as 4, as far as names tell.
        """
        apart = sum(abs(math.log2(a / b)) for a, b in zip(self.shape, other.shape, strict=False) if a > 0 and b > 0)
        apart += abs(len(self.shape) - len(other.shape))
        apart += _OTHER_DTYPE * (self.dtype != other.dtype) + _OTHER_DEVICE * (self.device != other.device)
        vendors = {vendor for vendor in (_vendor(self.device), _vendor(other.device)) if vendor}
        return apart + _OTHER_VENDOR * (len(vendors) > 1)


def _vendor(device: str) -> str:
    """Whose a device is, by a word of its name; empty if none tells."""
    return next((_VENDORS[word] for word in device.lower().split() if word in _VENDORS), "")
