"""Tensors of every layout as plain ones, so that results of any kind can be compared, and their bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton_ops.backend import same_bytes
from triton_ops.base import require

_PIECE, _PIECE_ON_CPU = 1 << 24, 1 << 17  # elements; on a CPU as many as its cache holds in float64


def dense(tensor: Any) -> Any:
    """A tensor with strides and real elements: sparse ones filled up, quantised ones as numbers, complex ones in parts.

    Raises:
        RuntimeError: Torch cannot make it, as for nested tensors.
    """
    torch = require("torch", "checking results")
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided or tensor.is_mkldnn:
        tensor = tensor.to_dense()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def kind_of(tensor: Any) -> str:
    """The sort of a tensor beside its dtype: its layout, or `quantized`."""
    return "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")


def pieces(tensor: Any, width: int = 1) -> Iterator[slice]:
    """Slices of a flat tensor, each a multiple of `width` long but for the last, that are worked on at a time.

    Little memory is needed beside the tensor, and on a CPU the work stays in its cache.
    """
    step = (_PIECE_ON_CPU if tensor.device.type == "cpu" else _PIECE) // width * width
    for start in range(0, tensor.numel(), step):
        yield slice(start, min(start + step, tensor.numel()))


def same_bits_of(a: Any, b: Any) -> bool:
    """Compare two tensors bit for bit, which tells the zeros apart and takes a NaN for itself."""
    torch = require("torch", "checking results")
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device or kind_of(a) != kind_of(b):
        return False
    one, two = (dense(t).contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return same_bytes(one, two)
