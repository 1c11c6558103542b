"""Zones of a known pattern before and after each output: a write that misses its tensor leaves a mark there.

A device allocator hands out memory in large pieces, so a write past the end of a tensor raises nothing: it lands in
whatever lies there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from triton_ops._optional import require
from triton_ops.backend.base import Arguments
from triton_ops.backend.protect import place_of

_PATTERN = 0xA5
_LEAST_BYTES = 1 << 16  # a page, and more than one row of most tiles
_MOST_BYTES = 1 << 22
_SHARE = 64  # of the output's bytes: a tile that sticks out reaches as far as its rows are long
_STEP_BYTES = 512  # keeps every alignment that an allocator gives


@dataclass(frozen=True)
class Canaries:
    """The zones around some outputs.

    Attributes:
        zones: Name of the output, and the bytes before or after it.
    """

    zones: tuple[tuple[str, Any], ...] = ()

    def missed(self) -> str | None:
        """Which output was missed by how many bytes, and the pattern put back; None if all zones are whole."""
        found = [(name, int((zone != _PATTERN).sum()), zone) for name, zone in self.zones]
        broken = [(name, count, zone) for name, count, zone in found if count]
        for _, _, zone in broken:
            zone.fill_(_PATTERN)
        return f"writes {broken[0][1]} bytes outside {broken[0][0]}" if broken else None


def with_canaries(arguments: Arguments, outputs: Iterable[str]) -> tuple[Arguments, Canaries]:
    """The same arguments with the named outputs over new storages that have a zone at each end.

    Strides, offsets, alignment and content stay. An output that shares its storage with another argument keeps it.

    Cost: a copy of the outputs; zones of 1/64 of each, at least 64 KiB and at most 4 MiB.
    """
    names = [name for name in outputs if next(_tensors(arguments, name), None) is not None]
    places = [place_of(tensor) for tensor in arguments.tensors()]
    fresh: dict[tuple[str, int], tuple[Any, int]] = {}
    zones: list[tuple[str, Any]] = []
    for name in names:
        for tensor in _tensors(arguments, name):
            if places.count(place_of(tensor)) == 1 and tensor.untyped_storage().nbytes():
                room, zone_bytes = _room(tensor)
                fresh[place_of(tensor)] = (room, zone_bytes)
                zones += [(name, room[:zone_bytes]), (name, room[-zone_bytes:])]

    def moved(tensor: Any) -> Any:
        if place_of(tensor) not in fresh:
            return tensor
        room, zone_bytes = fresh[place_of(tensor)]
        made = tensor.new_empty(0)
        offset = tensor.storage_offset() + zone_bytes // tensor.element_size()
        return made.set_(room.untyped_storage(), offset, tensor.shape, tensor.stride())

    return arguments.map(moved), Canaries(tuple(zones))


def _tensors(arguments: Arguments, name: str) -> Any:
    return Arguments((arguments.keyword.get(name),)).tensors()


def _room(tensor: Any) -> tuple[Any, int]:
    """The tensor's storage with a zone at each end, as bytes; and how long a zone is."""
    torch = require("torch", "watching the memory around outputs")
    storage = tensor.untyped_storage()
    wanted = min(max(storage.nbytes() // _SHARE, _LEAST_BYTES), _MOST_BYTES)
    zone_bytes = -(-wanted // _STEP_BYTES) * _STEP_BYTES
    room = torch.full((storage.nbytes() + 2 * zone_bytes,), _PATTERN, dtype=torch.uint8, device=tensor.device)
    old = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    room[zone_bytes : zone_bytes + storage.nbytes()] = old
    return room, zone_bytes
