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
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
        self._saved = [(storage, storage.clone()) for storage in storages.values()]

    def changed(self) -> bool:
        """Whether any byte differs from when this was made; waits for the device."""
        return any(not _same(now, before) for now, before in self._saved)

    def restore(self) -> None:
        """Put every byte back."""
        for now, before in self._saved:
            now.copy_(before)


def _same(a: Any, b: Any) -> bool:
    torch = require("torch", "comparing tensors")
    return bool(torch.equal(_bytes(torch, a), _bytes(torch, b)))


def _bytes(torch: Any, storage: Any) -> Any:
    view = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return view.set_(storage)


def private_copy(arguments: Arguments) -> Arguments:
    """The same arguments over new storages: same strides, offsets and sharing, none of the caller's memory."""
    copies: dict[int, Any] = {}

    def copy(tensor: Any) -> Any:
        torch = require("torch", "copying tensors")
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in copies:
            copies[storage.data_ptr()] = storage.clone()
        fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        fresh.set_(copies[storage.data_ptr()], tensor.storage_offset(), tensor.shape, tensor.stride())
        return fresh.requires_grad_(tensor.requires_grad)

    return arguments.map(copy)
