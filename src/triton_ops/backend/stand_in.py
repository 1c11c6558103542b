"""Stand-ins for tensors: what a compiler sees of them, without their memory."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

from triton_ops.backend.containers import is_tensor
from triton_ops.backend.roles import Arguments
from triton_ops.base import require
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, TensorSpec


@dataclass(frozen=True)
class StandIn:
    """The properties of a tensor that specialisation sees; pickles without the tensor's memory.

    For NVIDIA's backend it can stand in for the tensor itself, which needs no torch (`rehearse`).

    Attributes:
        dtype: Long name.
        shape: Extents.
        strides: In elements.
        offset_bytes: Where the data starts, from a multiple of 16 bytes.
        storage_bytes: Size of the storage that it is a view of.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    _: KW_ONLY
    offset_bytes: int
    storage_bytes: int

    @classmethod
    def of(cls, tensor: Any) -> StandIn:
        """The stand-in of a tensor, or of the tensor that would be made from a `TensorSpec`."""
        if isinstance(tensor, TensorSpec):
            item = ITEM_BYTES[tensor.dtype]
            offset = 0 if tensor.aligned else item
            size = offset + item * _span(tensor.shape, tensor.strides)
            return cls(tensor.dtype, tensor.shape, tensor.strides, offset_bytes=offset, storage_bytes=size)
        dtype = str(tensor.dtype).removeprefix("torch.")
        offset = tensor.data_ptr() % ALIGNMENT_BYTES
        size = tensor.untyped_storage().nbytes()
        return cls(dtype, tuple(tensor.shape), tuple(tensor.stride()), offset_bytes=offset, storage_bytes=size)

    def data_ptr(self) -> int:
        """An address that is aligned as the data are."""
        return self.offset_bytes

    def numel(self) -> int:
        """Elements; grid functions ask for it."""
        return math.prod(self.shape)

    def size(self, axis: int | None = None) -> int | tuple[int, ...]:
        """The extents, or one of them."""
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis: int | None = None) -> int | tuple[int, ...]:
        """The strides, or one of them."""
        return self.strides if axis is None else self.strides[axis]

    def tensor(self) -> Any:
        """A torch tensor on the `meta` device: no memory at all, whatever its shape."""
        torch = require("torch", "describing tensors to the compiler")
        dtype = getattr(torch, self.dtype)
        offset = self.offset_bytes // dtype.itemsize
        span = offset + _span(self.shape, self.strides)
        room = torch.empty(max(span, self.storage_bytes // dtype.itemsize), dtype=dtype, device="meta")
        return room.as_strided(self.shape, self.strides, offset)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last of a tensor, both counted."""
    return 0 if 0 in shape else 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))


def described(arguments: Arguments, light: bool = False) -> Arguments:
    """`arguments` with every tensor or tensor spec replaced by a tensor without memory.

    Args:
        arguments: Of a launch.
        light: By its `StandIn` instead, which needs no torch; NVIDIA's backend takes these.
    """

    def one(value: Any) -> Any:
        stand_in = value if isinstance(value, StandIn) else StandIn.of(value)
        return stand_in if light else stand_in.tensor()

    return arguments.map(one, lambda value: isinstance(value, (TensorSpec, StandIn)) or is_tensor(value))
