"""Arguments on the host that a call may change in place: NumPy arrays, lists, dicts, sets and bytearrays.

They are copied and restored as tensors are. Objects of other classes are passed as they are: only their classes know
what a copy of them is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.backend.containers import mapped
from triton_ops.base import require
from triton_ops.exceptions import DeviceError

_ALIGNMENT_BYTES = 64  # a copy of an array begins as far from a cache line's start as the array does
_CONTAINERS = (list, dict, set, bytearray)
_PLAIN = (bool, int, float, complex, str, bytes)


def is_array(value: Any) -> bool:
    """Tell whether `value` is a NumPy array, told without importing NumPy."""
    return any((kind.__module__, kind.__name__) == ("numpy", "ndarray") for kind in type(value).__mro__)


def check_no_arrays(kernel: str, values: Mapping[str, Any]) -> None:
    """Raise if one of the arguments of a compiled Triton kernel is in the memory of the host.

    Raises:
        DeviceError: One is a NumPy array.
    """
    if name := next((name for name, value in values.items() if is_array(value)), None):
        raise DeviceError(
            f"{kernel} is a Triton kernel, which runs on a GPU, and {name} is a NumPy array, which is on the CPU",
            "cuda", "cpu", name, hint=f"give a tensor on a GPU: torch.from_numpy({name}).cuda()",
        )  # fmt: skip


def host_values(values: Iterable[Any]) -> Iterator[Any]:
    """The arrays and containers among `values` that a call may change, to any depth; a container before its items."""
    for value in values:
        if is_array(value):
            yield value
            continue
        if type(value) in _CONTAINERS:
            yield value
        if isinstance(value, Mapping):
            yield from host_values(value.values())
        elif isinstance(value, (tuple, list)):
            yield from host_values(value)


def with_copies(value: Any, arrays: Mapping[int, Any]) -> Any:
    """`value` with its containers made anew and every array in it replaced by what `arrays` has for its `id`."""
    return mapped(
        value,
        lambda part: arrays[id(part)] if is_array(part) else copy.copy(part),
        lambda part: is_array(part) or type(part) in (set, bytearray),
    )


def copies_of(arrays: Iterable[Any]) -> dict[int, Any]:
    """Copies of arrays by the arrays' `id`, with the same strides, alignment and sharing of memory.

    Subclasses of `ndarray` and arrays of objects are copied one by one, as they copy themselves.
    """
    plain, copies = [], {}
    for array in arrays:
        if type(array).__name__ == "ndarray" and not array.dtype.hasobject:
            plain.append(array)
        else:
            copies[id(array)] = copy.deepcopy(array)
    for block in _blocks(plain):
        copies.update(_copied_block(block))
    return copies


def _blocks(arrays: Iterable[Any]) -> list[list[Any]]:
    """The arrays in groups whose memory overlaps."""
    blocks: list[list[Any]] = []
    end = -1
    for array in sorted(arrays, key=_bounds):
        low, high = _bounds(array)
        if low >= end or not blocks:
            blocks.append([])
        blocks[-1].append(array)
        end = max(end, high)
    return blocks


def _bounds(array: Any) -> tuple[int, int]:
    """The address of an array's first byte, and the one after its last."""
    start: int = array.__array_interface__["data"][0]
    if array.size == 0:
        return start, start
    reach = [(extent - 1) * step for extent, step in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(0, way) for way in reach), start + sum(max(0, way) for way in reach) + array.itemsize


def _copied_block(arrays: Sequence[Any]) -> dict[int, Any]:
    """Copies, by `id`, of arrays whose memory overlaps, over one new block of memory."""
    numpy = require("numpy", "copying arrays")
    low, high = min(_bounds(array)[0] for array in arrays), max(_bounds(array)[1] for array in arrays)
    room = numpy.zeros(high - low + _ALIGNMENT_BYTES, dtype=numpy.uint8)
    pad = (low - _bounds(room)[0]) % _ALIGNMENT_BYTES
    copies = {}
    for array in arrays:
        offset = pad + array.__array_interface__["data"][0] - low
        duplicate = numpy.ndarray(array.shape, array.dtype, room, offset, array.strides)
        duplicate[...] = array
        duplicate.flags.writeable = array.flags.writeable
        copies[id(array)] = duplicate
    return copies


@dataclass(frozen=True)
class Snapshot:
    """The content of one array or container at one time.

    Attributes:
        value: The array or container.
        content: A copy of its elements; the items of a container are the same objects.
    """

    value: Any
    content: Any

    @classmethod
    def of(cls, value: Any) -> Snapshot:
        """The content of `value` now."""
        return cls(value, value.copy())

    def changed(self) -> bool:
        """Tell whether the value differs from its content at that time; items of containers are compared as objects."""
        if is_array(self.value):
            return not _same_array(self.value, self.content)
        return not _same_items(self.value, self.content)

    def restore(self) -> None:
        """Give the value its content back."""
        if is_array(self.value):
            _restore_array(self.value, self.content)
        elif isinstance(self.value, (list, bytearray)):
            self.value[:] = self.content
        else:
            self.value.clear()
            self.value.update(self.content)


def _same_array(now: Any, before: Any) -> bool:
    if (now.shape, now.dtype) != (before.shape, before.dtype):
        return False
    if now.dtype.hasobject:
        return all(_same(a, b) for a, b in zip(now.ravel(), before.ravel(), strict=True))
    return bool(now.tobytes() == before.tobytes())  # as bytes, since NaN differs from itself


def _restore_array(array: Any, content: Any) -> None:
    if array.dtype != content.dtype:
        array.dtype = content.dtype
    if array.shape != content.shape:
        array.shape = content.shape
    if array.flags.writeable:
        array[...] = content


def _same_items(now: Any, before: Any) -> bool:
    if len(now) != len(before) or isinstance(now, (set, bytearray)):
        return bool(now == before)
    if isinstance(now, dict):
        return list(now) == list(before) and all(_same(now[name], before[name]) for name in before)
    return all(_same(a, b) for a, b in zip(now, before, strict=True))


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and type(a) in _PLAIN and a == b)
