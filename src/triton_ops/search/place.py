"""The place of trials, which is a problem on a device, and the distance between two places.

The same rule serves a live tune and a replay. A live tune knows the shapes of all tensors, a recording perhaps only the
extents of the problem (M, N and K of a matmul). One extent of a problem is usually an axis of several tensors, so the
distance counts each distinct pair (extent here, extent there) once, however many axes show that pair. Both descriptions
give the same distance if every extent is an axis of some tensor, and every axis is an extent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from triton_ops.device import DeviceSpec

_OTHER_ARGUMENT = 1.0  # for a tensor that only one place has, and for a word or flag with another value
_OTHER_DTYPE = 1.0
_OTHER_DEVICE = 1.0
_OTHER_VENDOR = 3.0  # added to that of another device, because speeds on one vendor's devices tell little of another's
_WHOLE = ""  # the tensor name for the extents and the dtype of a problem whose tensors are unknown


@dataclass(frozen=True, kw_only=True)
class ProblemPlace:
    """The problem and the device of some trials; an unknown attribute is empty.

    Extents are by tensor; if the tensors are unknown, the problem's under an empty name, or each under its own.
    `choices` are arguments that are words or flags.
    """

    extents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, str | bool] = field(default_factory=dict)
    device: str = ""

    @classmethod
    def of_arguments(cls, arguments: Mapping[str, Any], device: str) -> ProblemPlace:
        """The place of a problem by its arguments as a key describes them, tensors by their shape and dtype.

        Beside tensors numbers are left out, because they repeat extents and strides of the tensors or do not change
        which config is fast. Where no shape is known, as of a kernel whose key names its extents, whole numbers are
        the extents; what stands under `NAME:class` is none.
        """
        tensors = {name: value for name, value in arguments.items() if isinstance(value, Mapping) and "shape" in value}
        numbers = {name: (value,) for name, value in arguments.items() if type(value) is int and ":" not in name}
        return cls(
            extents={name: tuple(map(int, value["shape"])) for name, value in tensors.items()} or numbers,
            dtypes={name: str(value.get("dtype", "")) for name, value in tensors.items()},
            choices={name: value for name, value in arguments.items() if isinstance(value, (str, bool))},
            device=device,
        )

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], dtype: str, device: str) -> ProblemPlace:
        """The place of a problem whose extents are known and whose tensors are not."""
        return cls(extents={_WHOLE: shape}, dtypes={_WHOLE: dtype}, device=device)

    def distance(self, other: ProblemPlace) -> float:
        """The distance: 0 for the same place; 1 for each doubled extent, other dtype, other choice or other device.

        An axis that only one place has counts as an axis of extent 1 in the other. A device of another vendor counts 4,
        if the devices' names tell the vendors.
        """
        apart = math.fsum(_doublings(here, there) for here, there in set(self._pairs(other)))
        apart += _OTHER_ARGUMENT * len(self.extents.keys() ^ other.extents.keys())
        apart += _OTHER_ARGUMENT * _differing(self.choices, other.choices)
        apart += _OTHER_DTYPE * (_differing(self.dtypes, other.dtypes) > 0)
        apart += _OTHER_DEVICE * (self.device != other.device)
        vendors = {DeviceSpec.vendor_of_name(device) for device in (self.device, other.device)} - {None}
        return apart + _OTHER_VENDOR * (len(vendors) > 1)

    def _pairs(self, other: ProblemPlace) -> Iterator[tuple[int, int]]:
        """The extents of corresponding axes: the last axis of a tensor here belongs to its last axis there."""
        for name in self.extents.keys() & other.extents.keys():
            yield from zip_longest(reversed(self.extents[name]), reversed(other.extents[name]), fillvalue=1)


def _doublings(here: int, there: int) -> float:
    """The doublings from the smaller extent to the larger one; an empty axis counts as of extent 1."""
    return math.log2(max(here, there, 1)) - math.log2(max(min(here, there), 1))  # the ratio may be over all floats


def _differing(here: Mapping[str, str | bool], there: Mapping[str, str | bool]) -> int:
    return sum(here[name] != there[name] for name in here.keys() & there.keys())
