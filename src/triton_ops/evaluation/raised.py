"""Arguments in higher precision, and in the bits that TF32 keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Arguments

_TF32_KEPT = ~((1 << 13) - 1)  # TF32 has 13 bits of fraction less than float32


def raises_any(arguments: Arguments, name: str) -> bool:
    """Whether some float is narrower than this precision, and none is wider."""
    sizes = [size for value in (*arguments.tensors(), *_arrays(arguments)) if (size := _float_bytes(value))]
    limit = 8 if name == "float64" else 4
    return bool(sizes) and min(sizes) < limit and max(sizes) <= limit


def _arrays(arguments: Arguments) -> Iterator[Any]:
    values = [*arguments.positional, *arguments.keyword.values()]
    yield from (value for value in values if hasattr(value, "astype") and hasattr(value, "dtype"))


def _float_bytes(value: Any) -> int:
    """Bytes of a floating-point element, or of a part of a complex one; 0 for other dtypes."""
    name = str(value.dtype)
    if "complex" in name:
        return int(value.dtype.itemsize) // 2
    return int(value.dtype.itemsize) if "float" in name else 0


def raised_arguments(
    arguments: Arguments, name: str, change: Callable[[Any], Any], *, tensors: bool = True
) -> Arguments:
    """Copies of arguments, raised to a precision: floats in arrays, and, if `tensors`, in tensors after a change."""
    torch = require("torch", "checking results")
    complex_name = "complex128" if name == "float64" else "complex64"

    def tensor(value: Any) -> Any:
        if not tensors or not _float_bytes(value):
            return value.detach().clone().requires_grad_(value.requires_grad)
        wide = change(value.detach()).to(getattr(torch, complex_name if value.is_complex() else name), copy=True)
        return wide.requires_grad_(value.requires_grad)

    def array(value: Any) -> Any:
        if not (hasattr(value, "astype") and hasattr(value, "dtype") and _float_bytes(value)):
            return value.copy() if hasattr(value, "astype") else value
        return value.astype(complex_name if "complex" in str(value.dtype) else name)

    raised = arguments.map(tensor)
    return Arguments(tuple(map(array, raised.positional)), {n: array(v) for n, v in raised.keyword.items()})


def cut(tensor: Any) -> Any:
    """A float32 tensor cut to the bits that TF32 keeps; any other tensor as it is."""
    torch = require("torch", "checking results")
    if tensor.dtype is not torch.float32:
        return tensor
    return (tensor.contiguous().view(torch.int32) & _TF32_KEPT).view(torch.float32)


@contextmanager
def without_tf32(torch: Any) -> Iterator[None]:
    """Inside, products of float32 are computed in float32, also those that a reference makes by itself."""
    before = [(holder, *_tf32_setting(holder)) for holder in (torch.backends.cuda.matmul, torch.backends.cudnn)]
    try:
        for holder, name, _, off in before:
            setattr(holder, name, off)
        yield
    finally:
        for holder, name, value, _ in before:
            setattr(holder, name, value)


def _tf32_setting(holder: Any) -> tuple[str, Any, Any]:
    """Torch's setting of TF32: its name, its value, and its value for full precision.

    Torch 2.9 has two names for it, and raises where the old one is read after the new one was set.
    """
    try:
        return "allow_tf32", holder.allow_tf32, False
    except RuntimeError:
        return "fp32_precision", holder.fp32_precision, "ieee"
