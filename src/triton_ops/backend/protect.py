"""The caller's tensors stay as they were, whatever the candidates write.

Works on whole storages, so views, strides and shared memory between arguments are kept exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triton_ops._optional import require
from triton_ops.backend.base import Arguments


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
