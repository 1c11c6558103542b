"""Private arguments of candidates, which leave the caller's as they were.

Whole storages are copied and restored, so that views, strides and memory shared between arguments are kept exactly; so
are arrays and containers on the host, and the shape that a tensor has over its storage. Objects of other classes are
passed as they are: only their classes know what a copy of them is.

A canary is a zone of known bytes around an output and in its gaps: a device allocator hands out memory in large pieces,
so that a write past the end of a tensor raises nothing, and is found by what it left in a canary.

Fact used, of torch 2.4 and later: `torch.cuda.memory_snapshot()` lists segments with their `address`, each with its
`blocks` by rising address; the `state` of one begins with `active` while somebody holds it.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.backend.roles import Arguments, Executable
from triton_ops.base import require
from triton_ops.values import TensorSpec, as_stored

_ALIGNMENT_BYTES = 64  # a copy of an array begins as far from a cache line's start as the array does
_CONTAINERS = (list, dict, set, bytearray)
_PLAIN = (bool, int, float, complex, str, bytes)
_PIECE = 1 << 20  # elements of an array that are compared at a time
_MOVED_BYTES = 32 << 20  # of a copy on the host that are compared at a time


def with_copies(value: object, arrays: Mapping[int, object]) -> Any:
    """`value` with its containers made anew and every array in it replaced by what `arrays` has for its `id`."""
    return Arguments.mapped(
        value,
        lambda part: arrays[id(part)] if Arguments.is_array(part) else copy.copy(part),
        lambda part: Arguments.is_array(part) or type(part) in (set, bytearray),
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


def _blocks(arrays: Iterable[object]) -> list[list[Any]]:
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
    """The content of one array or container at one time; the items of a container are the same objects."""

    value: Any
    content: Any

    def changed(self) -> bool:
        """Tell whether the value differs from its content at that time; items of containers are compared as objects."""
        if Arguments.is_array(self.value):
            return not _same_array(self.value, self.content)
        return not _same_items(self.value, self.content)

    def restore(self) -> None:
        """Give the value its content back."""
        if Arguments.is_array(self.value):
            if self.value.dtype != self.content.dtype:
                self.value.dtype = self.content.dtype
            if self.value.shape != self.content.shape:
                self.value.shape = self.content.shape
            if self.value.flags.writeable:
                self.value[...] = self.content
        elif isinstance(self.value, (list, bytearray)):
            self.value[:] = self.content
        else:
            self.value.clear()
            self.value.update(self.content)


def _same_array(now: Any, before: Any) -> bool:
    if (now.shape, now.dtype) != (before.shape, before.dtype):
        return False
    if now.dtype.hasobject:
        return all(_host_arguments_same(a, b) for a, b in zip(now.ravel(), before.ravel(), strict=True))
    return Protection.same_elements(now, before)


def _same_items(now: Any, before: Any) -> bool:
    if len(now) != len(before) or isinstance(now, (set, bytearray)):
        return bool(now == before)
    if isinstance(now, dict):
        return list(now) == list(before) and all(_host_arguments_same(now[name], before[name]) for name in before)
    return all(_host_arguments_same(a, b) for a, b in zip(now, before, strict=True))


def _host_arguments_same(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and type(a) in _PLAIN and a == b)


# Neither 0 nor 255: stray zeros, and stray integers of -1, would not be seen among those.
_PATTERN = 0xA5
_LEAST_BYTES = 1 << 16  # a page, and more than one row of most tiles
_MOST_BYTES = 1 << 22
_SHARE = 64  # of the output's bytes: a tile that sticks out reaches as far as its rows are long
_STEP_BYTES = 512  # keeps every alignment that an allocator gives
_MOST_GAPS = 8  # times an output's bytes: in wider gaps, as around one row of a large cache, nothing is looked for


class Protection:
    """A copy of what some values hold, to find writes and to undo them.

    The values are tensors, NumPy arrays and containers, also of one another; other objects among them are left alone.
    Copies of a GPU's tensors are on the host where that is asked for, so that they take none of the GPU's memory.
    """

    def __init__(self, values: Iterable[object], *, on_host: bool = False) -> None:
        values = list(values)
        tensors = list(Arguments(tuple(values)).tensors())
        # Triton tunes on the caller's tensors, and so corrupts what kernels change in place: triton-lang/triton#6547.
        copied = {place: (each, each.cpu() if on_host else each.clone()) for place, each in _storages(tensors).items()}
        self._saved = copied
        self._forms = [Protection.form_of(tensor) for tensor in tensors]
        self._host = [Snapshot(value, value.copy()) for value in Protection.host_values(values)]

    def changed(self) -> bool:
        """Tell whether any byte, item or shape differs from when this was made; waits for the device."""
        return next(self._differences(), None) is not None

    def differing(self) -> set[int]:
        """The `id` of each tensor, array and container that differs from when this was made."""
        return set(self._differences())

    def narrowed(self) -> list[Any]:
        """The tensors that differ from when this was made; of tensors only these are restored from now on."""
        self.leave({id(form.tensor) for form in self._forms} - self.differing())
        return [form.tensor for form in self._forms]

    def leave(self, tensors: Collection[int]) -> None:
        """Restore the tensors of these `id`s no more."""
        self._forms = [form for form in self._forms if id(form.tensor) not in tensors]
        places = {form.place for form in self._forms}
        self._saved = {place: pair for place, pair in self._saved.items() if place in places}

    def restore(self) -> None:
        """Restore every byte, item and shape."""
        for snapshot in self._host:
            snapshot.restore()
        for form in self._forms:
            form.restore()
        for now, before in self._saved.values():
            now.copy_(before)

    @staticmethod
    def same_bytes(a: Any, b: Any) -> bool:
        """Compare two flat tensors of bytes, eight at a time where both allow it, which takes a quarter of the time."""
        torch = require("torch", "comparing tensors")
        if all(not (t.numel() % 8 or t.storage_offset() % 8 or t.data_ptr() % 8) for t in (a, b)):
            a, b = a.view(torch.int64), b.view(torch.int64)
        return bool(torch.equal(a, b))

    @staticmethod
    def same_elements(a: Any, b: Any) -> bool:
        """Compare two arrays of equal shape and dtype as bytes, since NaN differs from itself; in pieces."""
        flat, other = a.reshape(-1), b.reshape(-1)
        parts = (slice(at, at + _PIECE) for at in range(0, flat.size, _PIECE))
        return all(flat[part].tobytes() == other[part].tobytes() for part in parts)

    @staticmethod
    def value_copy(value: object) -> Any:
        """A copy of a result, which later launches cannot change; tensors and arrays may lie otherwise in memory."""
        arrays = {id(array): array.copy() for array in Protection.host_values((value,)) if Arguments.is_array(array)}
        return Arguments((with_copies(value, arrays),)).map(_copied).positional[0]

    @staticmethod
    def host_values(values: Iterable[object]) -> Iterator[Any]:
        """The arrays and containers in `values` that a call may change, to any depth; a container before its items."""
        for value in values:
            if Arguments.is_array(value):
                yield value
                continue
            if type(value) in _CONTAINERS:
                yield value
            if isinstance(value, Mapping):
                yield from Protection.host_values(value.values())
            elif isinstance(value, (tuple, list)):
                yield from Protection.host_values(value)

    @staticmethod
    def private_copy(arguments: Arguments) -> Arguments:
        """The same arguments over new memory: same strides, offsets and sharing, none of the caller's.

        Tensors, NumPy arrays and containers are copied; other objects are passed as they are. `KernelTypeError` if a
        tensor is sparse or nested.
        """
        values = (*arguments.positional, *arguments.keyword.values())
        arrays = copies_of(value for value in Protection.host_values(values) if Arguments.is_array(value))
        named = {name: with_copies(value, arrays) for name, value in arguments.keyword.items()}
        arguments = Arguments(tuple(with_copies(value, arrays) for value in arguments.positional), named)
        copies = {place: storage.clone() for place, storage in _storages(arguments.tensors()).items()}

        def copy(tensor: Any) -> Any:
            fresh = require("torch", "copying tensors").empty(0, dtype=tensor.dtype, device=tensor.device)
            fresh.set_(copies[place_of(tensor)], *_layout(tensor))
            return fresh.requires_grad_(tensor.requires_grad)

        return arguments.map(copy)

    @staticmethod
    def with_canaries(arguments: Arguments, outputs: Iterable[str]) -> tuple[Arguments, Canaries]:
        """The same arguments with the named outputs over new storages that have a zone at each end.

        Strides, offsets, alignment and content stay. An output that shares its storage with another argument keeps it.
        Zones are 1/64 of each storage, at least 64 KiB and at most 4 MiB; where an output has gaps, a byte for each
        element is added.
        """
        places = [place_of(tensor) for tensor in arguments.tensors()]
        fresh: dict[tuple[str, int], tuple[Any, int]] = {}
        zones: list[tuple[str, Any, Any]] = []
        for name in outputs:
            for tensor in _tensors(arguments, name):
                if places.count(place_of(tensor)) == 1 and tensor.untyped_storage().nbytes():
                    room, zone_bytes = fresh[place_of(tensor)] = _room(tensor)
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
            offset = tensor.storage_offset() + zone_bytes // tensor.element_size()
            return tensor.new_empty(0).set_(room.untyped_storage(), offset, tensor.shape, tensor.stride())

        return arguments.map(moved), Canaries(tuple(zones))

    @staticmethod
    def names_of_addresses(arguments: Arguments) -> list[str]:
        """The names of the arguments that hold addresses of this process's memory on a GPU, as tensors or as numbers.

        Copies some values of each tensor of 64-bit integers; where one of them is large, a list of what torch has
        allocated is made too, which takes milliseconds.
        """
        items = {f"argument {place}": value for place, value in enumerate(arguments.positional)} | {**arguments.keyword}

        def may_be(value: object) -> bool:
            return Arguments.is_tensor(value) or (type(value) is int and value >= _LEAST_ADDRESS)

        def is_one(value: object) -> bool:
            return holds_addresses(value) if Arguments.is_tensor(value) else value in _starts(allocated())

        return [name for name, value in items.items() if any(map(is_one, Arguments.tensors_in([value], may_be)))]

    @staticmethod
    def form_of(tensor: Any) -> Form:
        """The place of a tensor over its storage now."""
        storage = tensor.untyped_storage()
        return Form(
            tensor=tensor, storage=storage, place=place_of(tensor), size_bytes=storage.nbytes(), layout=_layout(tensor),
            dtype=tensor.dtype, requires_grad=tensor.requires_grad,
        )  # fmt: skip

    def _differences(self) -> Iterator[int]:
        saved = self._saved.items()
        places = {at for at, (now, old) in saved if not _same_storage(now, old)}
        yield from (id(form.tensor) for form in self._forms if form.place in places or form.changed())
        yield from (id(snapshot.value) for snapshot in self._host if snapshot.changed())


def _copied(tensor: Any) -> Any:
    stored = as_stored(tensor)
    return tensor.clone() if stored is tensor else stored.clone().view(tensor.dtype)


@dataclass(frozen=True, kw_only=True)
class Form:
    """The place of a tensor over its storage at one time, to find and undo what resizes or replaces either.

    `place` is the device and the address of the storage, `layout` the tensor's offset in it, shape and strides.
    """

    tensor: Any
    storage: Any
    place: tuple[str, int]
    size_bytes: int
    layout: tuple[int, Any, Any]
    dtype: Any
    requires_grad: bool

    def changed(self) -> bool:
        """Tell whether the tensor has another storage, shape or dtype, or its storage another size."""
        now = Protection.form_of(self.tensor)
        # Each `untyped_storage()` is a new Python object; the address of torch's own object tells storages apart.
        same_storage = now.storage._cdata == self.storage._cdata
        return not same_storage or (now.size_bytes, now.layout, now.dtype, now.requires_grad) != (
            self.size_bytes, self.layout, self.dtype, self.requires_grad
        )  # fmt: skip

    def restore(self) -> None:
        """Give the tensor its storage, shape and dtype back; the bytes in the storage stay."""
        if not self.changed():
            return
        torch = require("torch", "restoring tensors")
        if self.storage.nbytes() != self.size_bytes:
            self.storage.resize_(self.size_bytes)
        # What a launch has done to it may have made it a part of a graph; torch refuses `detach_` of views.
        if self.tensor.grad_fn is not None and not self.tensor._is_view():
            self.tensor.detach_()
        # By `data`, since autograd refuses `set_` of a leaf that requires a gradient.
        self.tensor.data = torch.empty(0, dtype=self.dtype, device=self.tensor.device).set_(self.storage, *self.layout)
        if self.tensor.is_leaf:
            self.tensor.requires_grad_(self.requires_grad)


def _layout(tensor: Any) -> tuple[int, Any, Any]:
    return tensor.storage_offset(), tensor.shape, tensor.stride()


def place_of(tensor: Any) -> tuple[str, int]:
    """Device and address of the storage behind a tensor."""
    storage = tensor.untyped_storage()
    return str(storage.device), storage.data_ptr()


def _storages(tensors: Iterable[Any]) -> dict[tuple[str, int], Any]:
    """The storage at each place: the longest one, since over memory from NumPy several may begin at one address.

    Raises `KernelTypeError` where a tensor has none, as a sparse one.
    """
    storages: dict[tuple[str, int], Any] = {}
    for tensor in tensors:
        TensorSpec.check_layout(tensor, "an argument")
        storage = tensor.untyped_storage()
        if storage.nbytes() > storages.setdefault(place_of(tensor), storage).nbytes():
            storages[place_of(tensor)] = storage
    return storages


def bytes_of(storage: Any) -> Any:
    """A flat tensor of the bytes of a storage, over the same memory."""
    torch = require("torch", "reading tensors")
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _same_storage(now: Any, old: Any) -> bool:
    """Compare two storages; of one on another device some bytes are copied at a time."""
    a, b = bytes_of(now), bytes_of(old)
    if a.device == b.device:
        return Protection.same_bytes(a, b)
    pairs = zip(a.split(_MOVED_BYTES), b.split(_MOVED_BYTES), strict=True) if len(a) == len(b) else [(a, b[:0])]
    return all(Protection.same_bytes(one, other.to(one.device)) for one, other in pairs)


@dataclass(frozen=True)
class Canaries:
    """The zones around some outputs.

    Each is the name of the output, bytes around it or of its whole storage, and which of them are not its own; None for
    all.
    """

    zones: tuple[tuple[str, Any, Any], ...] = ()

    def stray_writes(self) -> str | None:
        """The number of bytes that were written outside which output, or None; the canaries' pattern is restored."""
        message = None
        for (name, zone, outside), count in zip(self.zones, self._counts(), strict=True):
            if count:
                zone[_strays(zone, outside)] = _PATTERN
                message = message or f"writes {count} bytes outside {name}"
        return message

    def _counts(self) -> list[int]:
        """The number of bytes that were written in each zone; the device is waited for once."""
        if not self.zones:
            return []  # also without torch: its import would be most of the time of a tune of a plain function
        counts = [_strays(zone, outside).sum() for _, zone, outside in self.zones]
        torch = require("torch", "watching the memory around outputs")
        return list(torch.stack([count.to(counts[0].device) for count in counts]).tolist())


def _strays(zone: Any, outside: Any) -> Any:
    hit = zone != _PATTERN
    return hit if outside is None else hit.logical_and_(outside)


def _tensors(arguments: Arguments, name: str) -> Any:
    return Arguments((arguments.keyword.get(name),)).tensors()


def _gaps(tensor: Any) -> Any:
    """The elements of a tensor's storage that are not its own, as a column; None if all are, or too many are not."""
    torch = require("torch", "watching the memory around outputs")
    size, rest = divmod(tensor.untyped_storage().nbytes(), tensor.element_size())
    if rest or not tensor.numel() < size <= _MOST_GAPS * tensor.numel():
        return None
    outside = torch.ones(size, dtype=torch.bool, device=tensor.device)
    outside.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(False)
    return outside[:, None]


def _room(tensor: Any) -> tuple[Any, int]:
    torch = require("torch", "watching the memory around outputs")
    storage = tensor.untyped_storage()
    size = min(max(storage.nbytes() // _SHARE, _LEAST_BYTES), _MOST_BYTES)
    zone_bytes = -(-size // _STEP_BYTES) * _STEP_BYTES
    room = torch.full((storage.nbytes() + 2 * zone_bytes,), _PATTERN, dtype=torch.uint8, device=tensor.device)
    room[zone_bytes : zone_bytes + storage.nbytes()] = bytes_of(storage)
    return room, zone_bytes


def fill_with_poison(values: Any, pattern: int = 0) -> None:
    """Fill a tensor or an array of numbers with what no right result holds: NaN, the largest integer or False.

    Pattern 1 is the largest finite number, the largest integer less 90, or True.
    """
    is_array = Arguments.is_array(values)
    values = values if is_array else as_stored(values)
    dtype = values.dtype
    if is_array and not (values.flags.writeable and dtype.kind in "bcfiu"):
        return
    library = require("numpy" if is_array else "torch", "checking results")
    fill = values.fill if is_array else values.fill_
    if str(dtype).endswith("bool"):
        fill(bool(pattern))
    elif dtype.kind in "cf" if is_array else dtype.is_floating_point or dtype.is_complex:
        fill(library.finfo(dtype).max if pattern else math.nan)
    else:
        fill(library.iinfo(dtype).max - 90 * pattern)


class ArgumentSet:
    """Arguments that one measurement owns, and the means to find and undo what a launch did to them.

    Nothing else may write them. Arguments named in `outputs` are those that launches write, tensors and NumPy arrays;
    they get canaries around them. Changes of inputs can be found and undone if `protected`.

    Cost: a copy of every output with its canaries, and, if `protected`, of every input, which may be `on_host`.
    """

    def __init__(
        self, arguments: Arguments, outputs: Sequence[str] = (), *, protected: bool = True, on_host: bool = False
    ) -> None:
        self.arguments, self._canaries = Protection.with_canaries(arguments, outputs)
        by_name = {name: self.arguments.keyword.get(name) for name in outputs}
        values = list(by_name.values())
        tensors = list(Arguments(tuple(values)).tensors())
        self.outputs = [*tensors, *(value for value in Protection.host_values(values) if Arguments.is_array(value))]
        self._inputs = dict(_inputs(self.arguments, outputs, {Protection.form_of(tensor).place for tensor in tensors}))
        self._before = Protection(self._inputs.values() if protected else (), on_host=on_host)
        self._forms = {name: Protection.form_of(value) for name, value in by_name.items() if Arguments.is_tensor(value)}

    @property
    def input_dtypes(self) -> list[str]:
        """The dtypes of the inputs, by their long names such as `float32`."""
        inputs = [value for value in self._inputs.values() if hasattr(value, "dtype")]
        return [str(value.dtype).removeprefix("torch.") for value in inputs]

    @property
    def extents(self) -> list[int]:
        """The extents of all inputs and outputs that have a shape."""
        values = [value for value in (*self._inputs.values(), *self.outputs) if hasattr(value, "shape")]
        return [extent for value in values for extent in value.shape]

    def written_by(self, executable: Executable) -> list[Any]:
        """The values of the arguments that an executable writes."""
        return [self.arguments.result(name) for name in executable.outputs]

    def poison(self, pattern: int) -> None:
        """Fill the outputs with values that no right result holds; `pattern` is 0 or 1."""
        for values in self.outputs:
            fill_with_poison(values, pattern)

    def stray_writes(self) -> str | None:
        """The bytes that a launch wrote outside an output, in words; None if all canaries are whole."""
        return self._canaries.stray_writes()

    def changed(self) -> dict[str, Any]:
        """The inputs that have changed, if protected, and the outputs that were resized or replaced, by name."""
        differing = self._before.differing()
        inputs = {name: value for name, value in self._inputs.items() if id(value) in differing}
        return inputs | {name: form.tensor for name, form in self._forms.items() if form.changed()}

    def inputs(self, names: Sequence[str]) -> dict[str, Any]:
        """The inputs of these names."""
        return {name: self._inputs[name] for name in names if name in self._inputs}

    def restore(self) -> None:
        """Give protected inputs the content that they had at first, and outputs their shapes and storages."""
        self._before.restore()
        for form in self._forms.values():
            form.restore()


def _inputs(arguments: Arguments, outputs: Sequence[str], written: set[tuple[str, int]]) -> Iterator[tuple[str, Any]]:
    """The parts of arguments, outputs excepted, that launches may change, by name, or `name[0]` in a container."""
    values = [*((f"argument {i}", value) for i, value in enumerate(arguments.positional)), *arguments.keyword.items()]
    for name, value in values:
        tensors = [each for each in Arguments((value,)).tensors() if Protection.form_of(each).place not in written]
        others = [] if name in outputs else list(Protection.host_values((value,)))
        for number, part in enumerate([*tensors, *others]):
            yield (name if part is value else f"{name}[{number}]"), part


_LEAST_ADDRESS = 1 << 32  # no memory of a GPU begins below, and few sizes or indices are as large
_MOST_VALUES = 4096  # of a tensor that are looked at
_DTYPES = {"torch.int64", "torch.uint64"}


def holds_addresses(tensor: Any) -> bool:
    """Tell whether a torch tensor holds addresses of memory that torch has allocated on a GPU of this process.

    All values but zeros lie in such memory then; or one is where a piece of it begins, as in a table in which sizes
    stand beside addresses. While a CUDA graph is captured nothing can be read, and the answer is no.
    """
    cuda = require("torch", "looking for addresses").cuda
    if str(tensor.dtype) not in _DTYPES or (cuda.is_initialized() and cuda.is_current_stream_capturing()):
        return False
    most = max(1, int(_MOST_VALUES ** (1 / max(tensor.ndim, 1))))
    values = tensor.detach()[(slice(most),) * tensor.ndim].cpu().flatten().tolist()
    if max(values, default=0) < _LEAST_ADDRESS or not (pieces := allocated()):
        return False
    starts = _starts(pieces)
    return not set(starts).isdisjoint(values) or all(
        value in pieces[bisect_right(starts, value) - 1] for value in values if value
    )


def _starts(pieces: Sequence[range]) -> list[int]:
    return [piece.start for piece in pieces]


def allocated() -> list[range]:
    """The addresses of each piece of memory that torch has handed out on a GPU, by rising address."""
    cuda = require("torch", "looking for addresses").cuda
    if not cuda.is_initialized():
        return []
    try:
        segments = cuda.memory_snapshot()
    except RuntimeError:  # an allocator that the program brings keeps no list
        return []
    pieces = []
    for segment in segments:
        start = segment["address"]
        for block in segment["blocks"]:
            if block["state"].startswith("active"):
                pieces.append(range(start, start + block["size"]))
            start += block["size"]
    return sorted(pieces, key=lambda piece: piece.start)
