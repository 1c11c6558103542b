"""Tensors by what is known of them before there are any: for predicates, and for look-ups by shape or in a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Arguments
from triton_ops.base import require
from triton_ops.dispatch.traced import TracedTensor
from triton_ops.values import TensorSpec, contiguous_stride


@dataclass(frozen=True)
class Described(TracedTensor):
    """A tensor without memory.

    Attributes:
        dtype: The torch dtype.
        device: The torch device.
        shape: Its extents.
        layout: Always `torch.strided`.
        strides: In elements; empty is row-major.
        requires_grad: Whether a gradient is recorded for it.
    """

    strides: tuple[int, ...] = ()
    requires_grad: bool = False

    @classmethod
    def of(cls, spec: TensorSpec, device: str) -> Described:
        """The tensor that a spec describes, on a device."""
        torch = require("torch", "describing tensors")
        return cls(getattr(torch, spec.dtype), torch.device(device), spec.shape, strides=spec.strides)

    def stride(self, axis: int | None = None) -> Any:
        """Steps between neighbours, in elements."""
        strides = self.strides or contiguous_stride(self.shape)
        return strides if axis is None else strides[axis]

    @property
    def is_cuda(self) -> bool:
        """Tell whether it is on a GPU."""
        return bool(self.device.type == "cuda")

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def is_contiguous(self) -> bool:
        """Tell whether it is stored row-major without gaps."""
        steps = zip(self.shape, self.stride(), contiguous_stride(self.shape), strict=True)
        return 0 in self.shape or all(step == usual for extent, step, usual in steps if extent > 1)

    def new_empty(self, shape: Any, dtype: Any = None) -> Described:
        """Another one on the same device."""
        return Described(dtype or self.dtype, self.device, tuple(shape))

    def t(self) -> Described:
        """Its transposition."""
        return self.transpose(0, 1) if self.ndim == 2 else self

    def transpose(self, first: int, second: int) -> Described:
        """With two axes in each other's place."""
        order = list(range(self.ndim))
        order[first], order[second] = order[second], order[first]
        strides = self.stride()
        return Described(
            self.dtype, self.device, tuple(self.shape[axis] for axis in order),
            strides=tuple(strides[axis] for axis in order),
        )  # fmt: skip

    def view(self, *shape: int) -> Described:
        """As row-major, of a shape of as many elements."""
        return Described(self.dtype, self.device, shape)


def described(values: Mapping[str, Any], device: str) -> Arguments:
    """The arguments of a problem by name, with tensors by their specs."""
    return Arguments(
        keyword={
            name: Described.of(value, device) if isinstance(value, TensorSpec) else value
            for name, value in values.items()
        }
    )
