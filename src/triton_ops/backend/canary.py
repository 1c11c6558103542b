"""Zones of a known pattern around each output and in its gaps: a write that misses its tensor leaves a mark there.

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
_MOST_GAPS = 8  # times an output's bytes: in wider gaps, as around one row of a large cache, nothing is looked for


@dataclass(frozen=True)
class Canaries:
    """The zones around some outputs.

    Attributes:
        zones: Name of the output, bytes around it or of its whole storage, and which of them are not its own; None
            for all.
    """

    zones: tuple[tuple[str, Any, Any], ...] = ()

    def missed(self) -> str | None:
        """Which output was missed by how many bytes, and the pattern put back; None if all zones are whole."""
        said = None
        for name, zone, outside in self.zones:
            hit = zone != _PATTERN
            if outside is not None:
                hit &= outside
            if count := int(hit.sum()):
                zone[hit] = _PATTERN
                said = said or f"writes {count} bytes outside {name}"
        return said


def with_canaries(arguments: Arguments, outputs: Iterable[str]) -> tuple[Arguments, Canaries]:
    """The same arguments with the named outputs over new storages that have a zone at each end.

    Strides, offsets, alignment and content stay. An output that shares its storage with another argument keeps it.

    Cost: a copy of the outputs' storages; zones of 1/64 of each, at least 64 KiB and at most 4 MiB; where an output has
    gaps, a byte for each element of its storage.
    """
    names = [name for name in outputs if next(_tensors(arguments, name), None) is not None]
    places = [place_of(tensor) for tensor in arguments.tensors()]
    fresh: dict[tuple[str, int], tuple[Any, int]] = {}
    zones: list[tuple[str, Any, Any]] = []
    for name in names:
        for tensor in _tensors(arguments, name):
            if places.count(place_of(tensor)) == 1 and tensor.untyped_storage().nbytes():
                room, zone_bytes = _room(tensor)
                fresh[place_of(tensor)] = (room, zone_bytes)
                zones += [(name, room[:zone_bytes], None), (name, room[-zone_bytes:], None)]
                if (outside := _gaps(tensor)) is not None:
                    inner = room[zone_bytes:-zone_bytes].view(len(outside), -1)
                    inner[outside[:, 0]] = _PATTERN
                    zones.append((name, inner, outside))

    if not fresh:
        return arguments, Canaries()

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


def _gaps(tensor: Any) -> Any:
    """Which elements of a tensor's storage are not its own, as a column; None if all are, or too many are not."""
    torch = require("torch", "watching the memory around outputs")
    size, rest = divmod(tensor.untyped_storage().nbytes(), tensor.element_size())
    if rest or not tensor.numel() < size <= _MOST_GAPS * tensor.numel():
        return None
    outside = torch.ones(size, dtype=torch.bool, device=tensor.device)
    outside.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(False)
    return outside[:, None]


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
