"""The memory of a launch's arguments: which bytes are theirs, and which program has read and written each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_ops._optional import require

_NOBODY, _SEVERAL = -1, -2


@dataclass(eq=False)
class Region:
    """The storage behind one or more arguments of a launch.

    Attributes:
        name: The arguments' names.
        start: The address of its first byte.
        own: bool [bytes]: which bytes are elements of an argument.
        origin: The address of the caller's storage, of which this may be a copy.
        written: bool [bytes]: which bytes were stored to.
        writer: int32 [bytes]: the program that stored last, or -1; of the first byte of each element.
        reader: int32 [bytes]: the program that loaded, -1 for none, -2 for several.
    """

    name: str
    start: int
    own: Any
    origin: int
    written: Any = field(init=False)
    writer: Any = field(init=False)
    reader: Any = field(init=False)

    def __post_init__(self) -> None:
        numpy = require("numpy", "watching a launch")
        self.written = numpy.zeros(len(self.own), dtype=bool)
        self.writer = numpy.full(len(self.own), _NOBODY, dtype=numpy.int32)
        self.reader = numpy.full(len(self.own), _NOBODY, dtype=numpy.int32)

    def read_by(self, at: Any, program: int) -> int:
        """Note loads of one program; how many of them are of what another program has stored."""
        others = (self.writer[at] != _NOBODY) & (self.writer[at] != program)
        before = self.reader[at]
        self.reader[at] = require("numpy", "watching a launch").where(
            (before == _NOBODY) | (before == program), program, _SEVERAL
        )
        return int(others.sum())

    def written_by(self, at: Any, changed: Any, width: int, program: int) -> tuple[int, int]:
        """Note stores of one program; how many change what another has stored, and how many what another has loaded."""
        overwritten = changed & (self.writer[at] != _NOBODY) & (self.writer[at] != program)
        read = changed & (self.reader[at] != _NOBODY) & (self.reader[at] != program)
        self.writer[at] = program
        for byte in range(width):
            self.written[at + byte] = True
        return int(overwritten.sum()), int((read & ~overwritten).sum())

    def where(self, offset: int, width: int) -> str:
        """A place of `width` bytes that is no argument's, in words."""
        ours = self.own.nonzero()[0]
        if not len(ours):
            return "though it has none"
        if offset < ours[0]:
            return f"{-(-(int(ours[0]) - offset) // width)} before its first"
        return f"{(offset - int(ours[-1]) - 1) // width + 1} past its last" if offset > ours[-1] else "in a gap of it"


def regions_of(named: Mapping[str, Any], moved: Mapping[str, Any]) -> list[Region]:
    """The regions of a launch, in the order of their addresses.

    Args:
        named: The caller's tensors, by the words for them.
        moved: The tensors over which the launch computes, by the same words.
    """
    found: dict[int, Region] = {}
    for name, tensor in named.items():
        storage = tensor.untyped_storage()
        origin = storage.data_ptr()
        start = moved[name].data_ptr() - (tensor.data_ptr() - origin)
        own = _own_bytes(tensor, storage.nbytes())
        if start in found:
            found[start].own |= own
            found[start].name += f" and {name}"
        else:
            found[start] = Region(name, start, own, origin)
    return sorted(found.values(), key=lambda one: one.start)


def _own_bytes(tensor: Any, size: int) -> Any:
    """Which bytes of its storage are a tensor's: bool [size]."""
    torch = require("torch", "watching a launch")
    width = tensor.element_size()
    room = torch.zeros((size // width + 1, width), dtype=torch.bool)
    steps = tuple(step * width for step in tensor.stride())
    room.as_strided((*tensor.shape, width), (*steps, 1), tensor.storage_offset() * width).fill_(True)
    return room.reshape(-1)[:size].numpy().copy()


class Memory:
    """All regions of a launch."""

    def __init__(self, regions: list[Region]) -> None:
        numpy = require("numpy", "watching a launch")
        self.regions = regions
        self._starts = numpy.array([one.start for one in regions], dtype=numpy.int64)

    def nearest(self, addresses: Any) -> Any:
        """int64: for each address the number of the region that it is in, or is nearest to."""
        numpy = require("numpy", "watching a launch")
        ends = numpy.array([one.start + len(one.own) for one in self.regions], dtype=numpy.int64)
        before = numpy.clip(numpy.searchsorted(self._starts, addresses, side="right") - 1, 0, None)
        after = numpy.clip(before + 1, None, len(self.regions) - 1)
        closer = self._starts[after] - addresses < addresses - ends[before]
        return numpy.where((addresses >= ends[before]) & closer, after, before)

    def within(self, addresses: Any, which: Any, width: int) -> Any:
        """bool: whether all bytes of each access are an argument's."""
        numpy = require("numpy", "watching a launch")
        inside = numpy.zeros(addresses.shape, dtype=bool)
        for number in numpy.unique(which):
            region, chosen = self.regions[number], which == number
            at = addresses[chosen] - region.start
            fits = (at >= 0) & (at + width <= len(region.own))
            safe = numpy.where(fits, at, 0)
            last = numpy.where(fits, at + width - 1, 0)
            inside[chosen] = fits & region.own[safe] & region.own[last] if len(region.own) else False
        return inside
