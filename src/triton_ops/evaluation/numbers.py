"""Numbers in torch's tensors and in NumPy's arrays, under one set of names.

What the rule of verdicts calls has one name and one meaning in both libraries, or stands here. So the same code judges
tensors and arrays, and arrays where there is no torch too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from triton_ops.backend import Arguments, Protection
from triton_ops.base import require
from triton_ops.device import TorchDevice
from triton_ops.values import as_stored

_PIECE, _PIECE_ON_CPU = 1 << 24, 1 << 17  # elements; on a CPU as many as its cache holds in float64
_BYTES_OF_AN_ELEMENT = 256  # of what is left of a tune's memory: a judge holds some ten numbers in float64 of each
_NUMERIC = (*"biufc",)  # kinds of NumPy's dtypes


def library_of(values: object) -> Any:
    """The module whose functions take these values: torch for a tensor, else NumPy."""
    return require("torch" if Arguments.is_tensor(values) else "numpy", "checking results")


def quietly() -> AbstractContextManager[object]:
    """Inside, NumPy computes infinity and NaN without a warning, as torch does."""
    quiet: AbstractContextManager[object] = nullcontext()
    return sys.modules["numpy"].errstate(all="ignore") if "numpy" in sys.modules else quiet


def is_array(value: object) -> bool:
    """Tell an array, such as NumPy's, one of its scalars, or a series of a data frame."""
    return hasattr(value, "astype") and hasattr(value, "shape")


def is_numbers(value: object) -> bool:
    """Tell a tensor, or an array of numbers; not an array of texts, dates, records or objects."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return Arguments.is_tensor(value) or (is_array(value) and kind in _NUMERIC)


def plain_array(array: object) -> Any:
    """An array as NumPy's own, or as a tensor if it is on a GPU."""
    if hasattr(array, "__cuda_array_interface__"):
        return require("torch", "checking results").as_tensor(array)
    return require("numpy", "checking results").asarray(array)


def dtype_name(dtype: object) -> str:
    """The long name of a dtype of either library, such as `float32`."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def is_floating(values: Any) -> bool:
    """Tell real floating-point numbers from complex ones and integers."""
    return bool(values.dtype.is_floating_point if Arguments.is_tensor(values) else values.dtype.kind == "f")


def as_dtype(values: Any, dtype: Any) -> Any:
    """Numbers in another dtype of their library."""
    return values.to(dtype) if Arguments.is_tensor(values) else values.astype(dtype, copy=False)


def wide(values: object) -> Any:
    """Numbers in float64."""
    return as_dtype(values, library_of(values).float64)


def dense(values: Any) -> Any:
    """Values with strides and real elements; `RuntimeError` where torch cannot make it, as for nested tensors."""
    library = library_of(values)
    if not Arguments.is_tensor(values):
        return library.stack([values.real, values.imag], -1) if values.dtype.kind == "c" else library.asarray(values)
    if (stored := as_stored(values)) is not values:
        return _codes(stored) if "float4" in str(values.dtype) else stored
    if values.is_quantized:
        values = values.dequantize()
    if values.layout is not library.strided or values.is_mkldnn:
        values = values.to_dense()
    return library.view_as_real(values.resolve_conj()) if values.is_complex() else values


def _codes(pairs: Any) -> Any:
    """Pairs of 4-bit floats as whole numbers in the order of their values, from -7 to 7; both zeros are 0."""
    library = library_of(pairs)
    bits = as_dtype(library.stack([pairs & 15, pairs >> 4], -1), library.int8)
    return library.where(bits > 7, 8 - bits, bits)


def device_of(values: Any) -> Any:
    """The device of a tensor; `cpu` for an array."""
    return values.device if Arguments.is_tensor(values) else "cpu"


def form_of(values: Any) -> dict[str, object]:
    """Shape, dtype, device and sort of values, each under the word before it in a message.

    The sort of a tensor is its layout, or `quantized`, and that of an array its type.
    """
    kind = type(values).__name__
    if Arguments.is_tensor(values):
        kind = "quantized" if values.is_quantized else str(values.layout).removeprefix("torch.")
    dtype = str(values.dtype).removeprefix("torch.")
    return {"shape ": tuple(values.shape), "dtype ": dtype, "on ": device_of(values), "": kind}


def pieces(values: Any, width: int = 1) -> Iterator[slice]:
    """Slices of flat values, multiples of `width` long, that are worked on at a time, in memory or in cache."""
    device, most = str(device_of(values)), _PIECE
    if device != "cpu" and (allowed := TorchDevice(device).allowed_bytes) is not None:
        most = min(_PIECE, max(allowed // _BYTES_OF_AN_ELEMENT, _PIECE_ON_CPU))
    step = (_PIECE_ON_CPU if device == "cpu" else most) // width * width
    for start in range(0, len(values), step):
        yield slice(start, min(start + step, len(values)))


def same_bits_of(a: Any, b: Any) -> bool:
    """Compare two tensors or arrays bit for bit, which tells the zeros apart and takes a NaN for itself."""
    alike = form_of(a) == form_of(b)
    if not alike or 0 in a.shape:  # one without elements may have a stride of 0, and no view as bytes
        return alike
    if not Arguments.is_tensor(a):
        return Protection.same_elements(a, b)
    plain = (dense(as_stored(each)).contiguous() for each in (a, b))
    one, two = (each.reshape(-1).view(library_of(each).uint8) for each in plain)
    return Protection.same_bytes(one, two)
