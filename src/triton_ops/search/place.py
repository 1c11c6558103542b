"""Where trials were made, and how far one such place is from another.

The same rule serves a live tune and a replay. A live tune knows the shapes of all tensors, a recording may know only
the extents of the problem (M, N and K of a matmul). One extent of a problem usually is an axis of several tensors, so
the distance counts each distinct pair (extent here, extent there) once, however many axes show that pair. Where every
extent is an axis of some tensor, and every axis is an extent, both descriptions give the same number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

_OTHER_ARGUMENT = 1.0  # a tensor that only one place has, or a word or flag with another value
_OTHER_DTYPE = 1.0
_OTHER_DEVICE = 1.0
_OTHER_VENDOR = 3.0  # beside that of another device: what is fast on one vendor's says little of another's
_VENDORS = {"nvidia": "nvidia", "geforce": "nvidia", "amd": "amd", "radeon": "amd", "instinct": "amd"}
_WHOLE = ""  # the name under which a place without tensors has the extents and the dtype of its problem


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where trials were made: a problem and a device. Empty where unknown.

    Attributes:
        extents: Tensor name to shape; the problem's extents under an empty name where no tensors are known.
        dtypes: Tensor name to dtype.
        choices: Name to value of arguments that are words or flags.
        device: The device's name.
    """

    extents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, str | bool] = field(default_factory=dict)
    device: str = ""

    @classmethod
    def of_arguments(cls, arguments: Mapping[str, Any], device: str) -> Place:
        """The place of a problem whose arguments are described as in a key: tensors by their shape and dtype.

        Numbers are left out: they are extents and strides of the tensors once more, or do not change what is fast.
        """
        tensors = {name: given for name, given in arguments.items() if isinstance(given, Mapping) and "shape" in given}
        return cls(
            extents={name: tuple(map(int, given["shape"])) for name, given in tensors.items()},
            dtypes={name: str(given.get("dtype", "")) for name, given in tensors.items()},
            choices={name: given for name, given in arguments.items() if isinstance(given, (str, bool))},
            device=device,
        )

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], dtype: str, device: str) -> Place:
        """The place of a problem of which only the extents are known, not the tensors."""
        return cls(extents={_WHOLE: shape}, dtypes={_WHOLE: dtype}, device=device)

    def distance(self, other: Place) -> float:
        """0 for the same place; 1 for twice an extent, another dtype, another choice or another device each.

        An axis that only one place has counts as one of extent 1 in the other. A device of another vendor counts 4,
        as far as names tell.
        """
        apart = math.fsum(_doublings(here, there) for here, there in set(self._pairs(other)))
        apart += _OTHER_ARGUMENT * len(self.extents.keys() ^ other.extents.keys())
        apart += _OTHER_ARGUMENT * _differing(self.choices, other.choices)
        apart += _OTHER_DTYPE * (_differing(self.dtypes, other.dtypes) > 0)
        apart += _OTHER_DEVICE * (self.device != other.device)
        vendors = {vendor for vendor in (_vendor(self.device), _vendor(other.device)) if vendor}
        return apart + _OTHER_VENDOR * (len(vendors) > 1)

    def _pairs(self, other: Place) -> Iterator[tuple[int, int]]:
        """The extents of each two axes that correspond, the last axis of a tensor to the last one there."""
        for name in self.extents.keys() & other.extents.keys():
            yield from zip_longest(reversed(self.extents[name]), reversed(other.extents[name]), fillvalue=1)


def _doublings(here: int, there: int) -> float:
    """How often the smaller extent must be doubled to reach the larger one; an empty axis counts as of extent 1."""
    return math.log2(max(here, there, 1) / max(min(here, there), 1))


def _differing(here: Mapping[str, str | bool], there: Mapping[str, str | bool]) -> int:
    """How many of the names that both have stand for different values."""
    return sum(here[name] != there[name] for name in here.keys() & there.keys())


def _vendor(device: str) -> str:
    """Whose a device is, by a word of its name; empty if none tells."""
    return next((_VENDORS[word] for word in device.lower().split() if word in _VENDORS), "")
