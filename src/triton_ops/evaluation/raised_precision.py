"""Copies of a call's arguments in higher precision, from which a reference computes the golden result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Arguments
from triton_ops.base import require
from triton_ops.evaluation.numbers import dtype_name, is_array, is_numbers, library_of

_TF32_KEPT = ~((1 << 13) - 1)  # TF32 has 13 bits of fraction less than float32


@dataclass(frozen=True)
class RaisedPrecision:
    """A way to a golden result: `float64` or `float32`, for all that is computed (`lifts`), or for the inputs alone."""

    name: str
    lifts: bool

    @property
    def float_bytes(self) -> int:
        """Bytes of a number."""
        return 8 if self.name == "float64" else 4

    def applies(self, arguments: Arguments, results: Sequence[object]) -> bool:
        """True if some float of the arguments, or of lifted results, is narrower than this, and none is wider."""
        if self.lifts:
            return any(self._raises(each.tensors()) for each in (arguments, Arguments(tuple(results))))
        return self._raises(Arguments.tensors_in([*arguments.positional, *arguments.keyword.values()], is_numbers))

    def _raises(self, values: Iterable[Any]) -> bool:
        sizes = [size for value in values if (size := _float_bytes(value))]
        return bool(sizes) and min(sizes) < self.float_bytes and max(sizes) <= self.float_bytes

    def copy(self, arguments: Arguments, change: Callable[[Any], Any]) -> Arguments:
        """Copies of arguments: floats in arrays, and, unless all is lifted, in tensors after a change, are raised."""
        complex_name = "complex128" if self.name == "float64" else "complex64"

        def raised(value: Any) -> Any:
            name = complex_name if "complex" in dtype_name(value.dtype) else self.name if _float_bytes(value) else ""
            if is_array(value):
                return value.astype(name) if name else value.copy()
            if self.lifts or not name:
                return value.detach().clone().requires_grad_(value.requires_grad)
            dtype = getattr(library_of(value), name)
            return change(value.detach()).to(dtype, copy=True).requires_grad_(value.requires_grad)

        return arguments.map(raised, lambda value: Arguments.is_tensor(value) or Arguments.is_array(value))

    @staticmethod
    def cut_to_tf32(tensor: Any) -> Any:
        """A float32 tensor cut to the bits that TF32 keeps; any other tensor as it is."""
        torch = require("torch", "checking results")
        if tensor.dtype is not torch.float32:
            return tensor
        return (tensor.contiguous().view(torch.int32) & _TF32_KEPT).view(torch.float32)

    @staticmethod
    def may_be_tf32(arguments: Arguments, *, convolves: bool) -> bool:
        """Tell whether torch may compute products of float32 in TF32: by default a GPU's convolutions alone."""
        if (torch := sys.modules.get("torch")) is None:
            return False
        convolves = convolves and any(tensor.is_cuda for tensor in arguments.tensors())
        in_convolutions = convolves and _tf32_setting(torch.backends.cudnn)[1] not in (False, "ieee")
        return in_convolutions or bool(torch.get_float32_matmul_precision() != "highest")

    @staticmethod
    @contextmanager
    def without_tf32() -> Iterator[None]:
        """Inside, products of float32 are computed in float32, also those that a reference makes by itself."""
        if sys.modules.get("torch") is None:  # then nobody has asked it for products
            yield
            return
        backends = require("torch", "checking results").backends
        before = [(holder, *_tf32_setting(holder)) for holder in (backends.cuda.matmul, backends.cudnn)]
        try:
            for holder, name, _, off in before:
                setattr(holder, name, off)
            yield
        finally:
            for holder, name, value, _ in before:
                setattr(holder, name, value)


def _float_bytes(value: Any) -> int:
    """Bytes of a floating-point element, or of a part of a complex one; 0 for other dtypes."""
    name = str(value.dtype)
    if "complex" in name:
        return int(value.dtype.itemsize) // 2
    return int(value.dtype.itemsize) if "float" in name and "float4" not in name else 0


def _tf32_setting(holder: Any) -> tuple[str, Any, Any]:
    """Torch's setting of TF32: its name, its value, and its value for full precision.

    Torch 2.9 has two names for it, and raises where the old one is read after the new one was set.
    """
    try:
        # The old name is tried first, since versions before 2.9 have no other: pytorch/pytorch#179445 has the error.
        return "allow_tf32", holder.allow_tf32, False
    except RuntimeError:
        return "fp32_precision", holder.fp32_precision, "ieee"
