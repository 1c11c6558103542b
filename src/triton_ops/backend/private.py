"""Private arguments: copies, what puts them back, and canaries around outputs.

The caller's tensors stay as they were, whatever candidates write. Whole storages are copied and put back, so that
views, strides and memory shared between arguments are kept exactly. A canary is a zone of known bytes around an output
and in its gaps: a device allocator hands out memory in large pieces, so that a write past the end of a tensor raises
nothing, and is found by what it left in a canary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from triton_ops._optional import require
from triton_ops.backend.base import Arguments

_PATTERN = 0xA5
_LEAST_BYTES = 1 << 16  # a page, and more than one row of most tiles
_MOST_BYTES = 1 << 22
_SHARE = 64  # of the output's bytes: a tile that sticks out reaches as far as its rows are long
_STEP_BYTES = 512  # keeps every alignment that an allocator gives
_MOST_GAPS = 8  # times an output's bytes: in wider gaps, as around one row of a large cache, nothing is looked for


class Protection:
    """A copy of the storages behind some tensors, to find writes and to take them back.

    Cost: one copy of the bytes when made, one comparison or copy when asked.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self._saved = [(storage, storage.clone()) for storage in _storages(tensors).values()]

    def changed(self) -> bool:
        """Whether any byte differs from when this was made; waits for the device."""
        return any(not _same(now, before) for now, before in self._saved)

    def differing(self) -> set[tuple[str, int]]:
        """The places, as `place_of` tells them, of the storages that differ from when this was made."""
        return {_place(now) for now, before in self._saved if not _same(now, before)}

    def restore(self) -> None:
        """Put every byte back."""
        for now, before in self._saved:
            now.copy_(before)


def place_of(tensor: Any) -> tuple[str, int]:
    """Device and address of the storage behind a tensor."""
    return _place(tensor.untyped_storage())


def _place(storage: Any) -> tuple[str, int]:
    return str(storage.device), storage.data_ptr()


def _storages(tensors: Iterable[Any]) -> dict[tuple[str, int], Any]:
    """The storage at each place: the longest one, since over memory from NumPy several may begin at one address."""
    found: dict[tuple[str, int], Any] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        held = found.setdefault(_place(storage), storage)
        if storage.nbytes() > held.nbytes():
            found[_place(storage)] = storage
    return found


def _same(a: Any, b: Any) -> bool:
    torch = require("torch", "comparing tensors")
    return bool(torch.equal(_bytes(torch, a), _bytes(torch, b)))


def _bytes(torch: Any, storage: Any) -> Any:
    view = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return view.set_(storage)


def private_copy(arguments: Arguments) -> Arguments:
    """The same arguments over new storages: same strides, offsets and sharing, none of the caller's memory."""
    copies = {place: storage.clone() for place, storage in _storages(arguments.tensors()).items()}

    def copy(tensor: Any) -> Any:
        torch = require("torch", "copying tensors")
        storage = copies[_place(tensor.untyped_storage())]
        fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        fresh.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
        return fresh.requires_grad_(tensor.requires_grad)

    return arguments.map(copy)


@dataclass(frozen=True)
class Canaries:
    """The zones around some outputs.

    Attributes:
        zones: Name of the output, bytes around it or of its whole storage, and which of them are not its own; None
            for all.
    """

    zones: tuple[tuple[str, Any, Any], ...] = ()

    def stray_writes(self) -> str | None:
        """How many bytes were written outside which output, or None; the pattern of the canaries is restored."""
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
