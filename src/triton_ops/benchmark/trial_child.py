"""The program of a trial process: it runs a candidate on inputs that come by copy, and writes results for its parent.

Inputs and results go through two arenas, pieces of memory that both processes see. A block is told by one message; then
the inputs are cloned, the candidate is called on each, the device is waited for, and the results are written. Nothing
that this process says of time, changes and shared memory is more than a hint, since the candidate can change it all.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from triton_ops import settings
from triton_ops.backend import Arguments, CandidateError, CompilesAtLaunch, Operation, Packed
from triton_ops.base import require
from triton_ops.device import TorchDevice
from triton_ops.processes import Child, Surroundings, confine, import_heavy
from triton_ops.space import Config
from triton_ops.typed import TypedTarget
from triton_ops.values import Status

with contextlib.suppress(ImportError):  # not on Windows, where no process is started
    import resource

_ALIGNMENT = 64  # bytes, of torch's memory on a CPU: a clone lies within so many as its original does
_FAMILIES = ("CUDA_", "GOMP_", "KMP_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTORCH_", "TORCH")
_KINDS = "bcfiu"  # of NumPy's numbers
_CACHES = ("CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")  # of code, which others would run
_PURPOSE = "trying a candidate"

_MEMCMP = ctypes.CDLL(None).memcmp
_MEMCMP.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

Extent: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag="leaf"):
    """A tensor, an array or a NumPy scalar in an arena: strides and place in bytes; of inputs the number of the piece."""

    library: Literal["torch", "array", "scalar"]
    dtype: str
    shape: Annotated[list[Extent], msgspec.Meta(max_length=64)]
    strides: Annotated[list[int], msgspec.Meta(max_length=64)]
    at: Extent
    piece: int = 0

    @property
    def item_bytes(self) -> int:
        """Bytes of an element; `UnusableError` where there is no such dtype."""
        if self.library == "torch":
            dtype = getattr(require("torch", _PURPOSE), self.dtype, None)
            size = getattr(dtype, "itemsize", None)
        else:
            known = len(self.dtype) <= 4 and self.dtype[1:2] in {*_KINDS} and self.dtype[2:].isdecimal()
            size = require("numpy", _PURPOSE).dtype(self.dtype).itemsize if known else None
        if not isinstance(size, int):
            raise UnusableError(f"the dtype {self.dtype[:20]!r} is not known")
        return size

    @property
    def reach(self) -> tuple[int, int]:
        """The first of its bytes in the arena, and the end."""
        low, high = reach(self.shape, self.strides, self.item_bytes)
        return self.at + low, self.at + high


class Plain(msgspec.Struct, frozen=True, array_like=True, tag="plain"):
    """A result that is no tensor."""

    value: bool | int | float | str | None


class Several(msgspec.Struct, frozen=True, array_like=True, tag="several"):
    """A tuple or a list of results."""

    kind: Literal["tuple", "list"]
    items: list[Node]


class Named(msgspec.Struct, frozen=True, array_like=True, tag="named"):
    """A mapping from names to results."""

    items: dict[str, Node]


Node: TypeAlias = Leaf | Plain | Several | Named


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The answer that the candidate is loaded; `lacking` is what this system could not keep from it."""

    lacking: list[str]


class Done(msgspec.Struct, frozen=True, tag=True):
    """The answer that the results of a block are written, in so many bytes; the calls took `inside_ns`."""

    inside_ns: Extent
    used: Extent
    results: list[Node]


class Seen(msgspec.Struct, frozen=True, tag=True):
    """The names of what each call has changed, and for each of its results of what it shares memory with."""

    changed: list[list[str]]
    aliases: list[list[list[str]]]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The answer that a question cannot be answered, and why."""

    kind: Literal["raised", "memory", "type"]
    text: str


Answer: TypeAlias = Ready | Done | Seen | Refused


@dataclass(frozen=True, kw_only=True)
class Task:
    """The first question: to load a candidate, packed, or none.

    `arenas` are for inputs and for results: numbers of open files, or handles of a GPU's memory.
    """

    candidate: bytes | None
    device: str
    outputs: tuple[str, ...]
    memory_bytes: int
    arenas: tuple[Any, Any]
    arena_bytes: int
    imports: tuple[str, ...]
    surroundings: Surroundings


@dataclass(frozen=True, kw_only=True)
class Block:
    """The question to call the candidate on each of these arguments, whose leaves lie in `pieces` of the arena.

    With `way` "hold" nothing is called, and the arguments are held as results; with "echo" these are written.
    """

    calls: Sequence[Arguments]
    pieces: Sequence[tuple[int, int]]
    way: Literal["call", "hold", "echo"] = "call"


class Look:
    """The question what the last block has changed."""


class UnusableError(Exception):
    """A value cannot be given to another process."""


def reach(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> tuple[int, int]:
    """The first byte and the end of a tensor's memory, from its first element on."""
    if 0 in shape:
        return 0, 0
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0) + item_bytes


class Place:
    """The memory of a device, by addresses: `copy(to, from, bytes)` copies within it, and `wait` waits for its end."""

    def __init__(self, device: str) -> None:
        self.device, self.on_gpu = device, device != "cpu"
        self.copy: Callable[[int, int, int], object] = ctypes.memmove
        if self.on_gpu:
            self.gpu = TorchDevice(device).raw_memory(require("torch", _PURPOSE))
            self.copy = self.gpu.copier()

    def wait(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            require("torch", _PURPOSE).cuda.synchronize(self.device)

    def holds(self, value: Any) -> bool:
        """Tell whether a value is a tensor or an array in this memory."""
        if Arguments.is_tensor(value):
            return bool(value.device.type == ("cuda" if self.on_gpu else "cpu"))
        return not self.on_gpu and Arguments.is_array(value)

    def same(self, first: int, second: int, size: int) -> bool:
        """Tell whether the bytes at two addresses are equal."""
        if not self.on_gpu:
            return bool(_MEMCMP(first, second, size) == 0)
        torch = require("torch", _PURPOSE)
        both = torch.empty((2, size), dtype=torch.uint8, device=self.device)
        for row, address in zip(both, (first, second), strict=True):
            self.copy(row.data_ptr(), address, size)
        return bool(torch.equal(*both))

    def plain(self, value: Any) -> Any:
        """A result as a plain tensor or array; `UnusableError` if it is none, or not in this memory."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and type(value) is torch.Tensor:
            if value.layout is not torch.strided or value.is_nested or value.is_quantized or value._is_zerotensor():
                raise UnusableError(f"a tensor that is not strided, {value.layout}, is returned")
            if not self.holds(value):
                raise UnusableError(f"a tensor on {value.device} is returned")
            return value.detach().resolve_conj().resolve_neg()
        if numpy is not None and not self.on_gpu and (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
            if value.dtype.kind in _KINDS:
                return numpy.asarray(value)
            raise UnusableError(f"an array of {value.dtype} is returned")
        raise UnusableError(f"a value of type {type(value).__module__}.{type(value).__qualname__} is returned")

    def room(self, library: str, size: int) -> tuple[Any, int]:
        """New memory of at least so many bytes, with its address."""
        if library == "torch":
            torch = require("torch", _PURPOSE)
            tensor = torch.empty(size, dtype=torch.uint8, device=self.device)
            return tensor.untyped_storage(), tensor.data_ptr()
        array = require("numpy", _PURPOSE).empty(size, "u1")
        return array, array.ctypes.data


class Layout:
    """Where tensors and arrays are to lie in an arena, and the copies that bring them there: to, from, bytes."""

    def __init__(self, place: Place, most_bytes: int) -> None:
        self._place, self._most_bytes = place, most_bytes
        self.copies: list[tuple[int, int, int]] = []
        self.used = 0
        self._kept: list[Any] = []  # until they are copied

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """The places of the pieces of memory that are copied, with their bytes."""
        return [(at, size) for at, _, size in self.copies]

    def copy(self, arena: int) -> None:
        """Do the copies, to an arena at this address."""
        for at, address, size in self.copies:
            self._place.copy(arena + at, address, size)

    def arguments(self, arguments: Arguments) -> Arguments:
        """The arguments with leaves in place of tensors and arrays; those that share memory stay together."""
        found: list[Any] = []
        arguments.map(found.append, self._place.holds)
        merged: list[list[int]] = []
        for low, high in sorted({spanned(value) for value in found}):
            if merged and low < merged[-1][1]:
                merged[-1][1] = max(high, merged[-1][1])
            else:
                merged.append([low, high])
        pieces = [(low, high, self._piece(low, high), len(self.copies) - 1) for low, high in merged]

        def leaf(value: Any) -> Leaf:
            low, high = spanned(value)
            start, _, at, number = next(each for each in pieces if each[0] <= low and high <= each[1])
            return _leaf(value, at - start, number)

        return arguments.map(leaf, self._place.holds)

    def node(self, value: Any) -> Node:
        """A result as it is told to the parent; `UnusableError` if it is none that can be copied."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return Plain(value)
        if isinstance(value, (tuple, list)):
            return Several("list" if isinstance(value, list) else "tuple", [self.node(item) for item in value])
        if isinstance(value, Mapping) and all(type(name) is str for name in value):
            return Named({name: self.node(item) for name, item in value.items()})
        value = self._place.plain(value)
        self._kept.append(value)
        low, high = spanned(value)
        leaf = _leaf(value, self._piece(low, high) - low)
        return leaf if kind is type(value) else msgspec.structs.replace(leaf, library="scalar")

    def _piece(self, low: int, high: int) -> int:
        at = -(-self.used // _ALIGNMENT) * _ALIGNMENT + low % _ALIGNMENT
        self.used = at + high - low
        if self.used > self._most_bytes:
            raise UnusableError(f"too large: there is memory for {self._most_bytes:,} bytes")
        self.copies.append((at, low, high - low))
        return at


def spanned(value: Any) -> tuple[int, int]:
    """The addresses of the first byte of a tensor or an array, and of the end."""
    address, strides = _address(value)
    low, high = reach(value.shape, strides, value.dtype.itemsize)
    return address + low, address + high


def _address(value: Any) -> tuple[int, Sequence[int]]:
    if Arguments.is_array(value):
        return value.ctypes.data, value.strides
    item = value.dtype.itemsize
    return value.data_ptr(), [stride * item for stride in value.stride()]


def _leaf(value: Any, offset: int, piece: int = 0) -> Leaf:
    """The leaf of a value that lies in the arena `offset` bytes away from where it lies now."""
    address, strides = _address(value)
    is_array = Arguments.is_array(value)
    dtype = value.dtype.str if is_array else str(value.dtype).removeprefix("torch.")
    return Leaf("array" if is_array else "torch", dtype, list(value.shape), list(strides), address + offset, piece)


class Clones:
    """Clones of what lies in an arena at some address: each piece of memory has a clone of its own."""

    def __init__(self, place: Place, arena: int, pieces: Sequence[tuple[int, int]]) -> None:
        self._place, self._arena, self.pieces = place, arena, pieces
        self.rooms: dict[int, tuple[Any, int, int]] = {}  # by the piece's number: memory, its address, the clone's

    def take(self, leaf: Leaf) -> Any:
        """The tensor, array or scalar of a leaf."""
        if leaf.piece not in self.rooms:
            self.rooms[leaf.piece] = self._room(leaf)
        memory, address, clone = self.rooms[leaf.piece]
        offset = clone - address + leaf.at - self.pieces[leaf.piece][0]
        if leaf.library != "torch":
            array = require("numpy", _PURPOSE).ndarray(leaf.shape, leaf.dtype, memory, offset, leaf.strides)
            return array[()] if leaf.library == "scalar" else array
        torch = require("torch", _PURPOSE)
        empty = torch.empty(0, dtype=getattr(torch, leaf.dtype), device=self._place.device)
        item = empty.element_size()
        return empty.set_(memory, offset // item, leaf.shape, [stride // item for stride in leaf.strides])

    def changed(self) -> set[int]:
        """The numbers of the pieces whose clones have other bytes."""
        at = self._arena
        rooms = ((number, *self.pieces[number], clone) for number, (_, _, clone) in self.rooms.items())
        return {number for number, start, size, clone in rooms if not self._place.same(at + start, clone, size)}

    def _room(self, leaf: Leaf) -> tuple[Any, int, int]:
        start, size = self.pieces[leaf.piece]
        memory, address = self._place.room(leaf.library, size + _ALIGNMENT)
        clone = address + (self._arena + start - address) % _ALIGNMENT  # an arena begins at a page
        self._place.copy(clone, self._arena + start, size)
        return memory, address, clone


class Trial:
    """A candidate that is loaded, its arenas, and its last block."""

    def __init__(self, task: Task) -> None:
        self._task, self._place = task, Place(task.device)
        self._inputs, self._outputs = (self._opened(arena, number) for number, arena in enumerate(task.arenas))
        self._held: list[Any] = []
        self._last: tuple[Block, Clones, list[Arguments], list[Any]] | None = None
        task.surroundings.take()
        loaded = None if task.candidate is None else Packed.loaded(task.candidate)
        self._config = loaded.config if isinstance(loaded, TypedTarget) else None
        self._candidate: Any = loaded.load() if isinstance(loaded, TypedTarget) else loaded

    def run(self, block: Block) -> Done:
        """Clone the inputs, call the candidate on each of them, wait for the device, and write the results."""
        self._last = None  # frees its memory
        clones = Clones(self._place, self._inputs[0], block.pieces)
        calls = [call.map(clones.take, lambda value: isinstance(value, Leaf)) for call in block.calls]
        inside_ns, results = 0, self._held
        if block.way == "hold":
            self._held, results = [call.positional[0] for call in calls], []
        elif block.way == "call":
            inside_ns, results = self._called(calls)
        layout = Layout(self._place, self._task.arena_bytes)
        nodes = [layout.node(result) for result in results]
        layout.copy(self._outputs[0])
        self._place.wait()
        self._last = block, clones, calls, results
        return Done(inside_ns, layout.used, nodes)

    def look(self) -> Seen:
        """The names of what each call of the last block has changed, and of what its results share memory with."""
        if self._last is None:
            return Seen([], [])
        block, clones, calls, results = self._last
        changed, both = clones.changed(), list(zip(block.calls, calls, strict=True))
        return Seen(
            [[*self._changes(clones, changed, *each)] for each in both],
            [_aliases([*_named(call)], [*_parts(result)]) for call, result in zip(calls, results, strict=True)],
        )

    def _opened(self, arena: Any, shared: int) -> tuple[int, Any]:
        """The address of an arena, and what holds it; this process's own changes of its inputs stay its own."""
        if self._place.on_gpu:
            return self._place.gpu.opened(arena), None
        flags = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        mapped = mmap.mmap(arena, self._task.arena_bytes, flags)
        os.close(arena)  # no program that is started here shall have it
        return ctypes.addressof(ctypes.c_char.from_buffer(mapped)), mapped

    def _called(self, calls: list[Arguments]) -> tuple[int, list[Any]]:
        bound = [self._bound(call) for call in calls]
        begin_ns = time.perf_counter_ns()
        results = [call() for call in bound]
        self._place.wait()
        inside_ns = time.perf_counter_ns() - begin_ns
        return inside_ns, [self._with_outputs(*each) for each in zip(calls, results, strict=True)]

    def _bound(self, call: Arguments) -> Callable[[], Any]:
        if isinstance(self._candidate, Operation) and self._config is not None:
            kernel, config = self._candidate.kernel, Config(self._config)
            if isinstance(kernel, CompilesAtLaunch):
                return kernel.executable(config).bind(call)
            return kernel.compile(config, call).bind(call)
        return partial(self._candidate, *call.positional, **call.keyword)

    def _with_outputs(self, call: Arguments, result: Any) -> Any:
        if not self._task.outputs:
            return result
        returned = () if result is None else result if isinstance(result, (tuple, list)) else (result,)
        values = dict(zip(map(str, count()), call.positional, strict=False)) | {**call.keyword}
        named = Arguments(keyword=values)
        return (*returned, *(named.result(name) for name in self._task.outputs))

    def _changes(self, clones: Clones, changed: set[int], before: Arguments, after: Arguments) -> Iterator[str]:
        """The names of arguments that are no outputs and have other bytes, and of those that lie elsewhere now."""
        both = list(zip(_named(before, Leaf), _named(after), strict=True))
        outputs = {leaf.piece for (name, leaf), _ in both if name in self._task.outputs}
        for (name, leaf), (_, value) in both:
            at = clones.rooms[leaf.piece][2] - clones.pieces[leaf.piece][0]
            if leaf.piece in changed - outputs or _leaf(value, -at, leaf.piece) != leaf:
                yield name


def _parts(value: Any, kind: type | None = None) -> list[Any]:
    """The tensors and arrays in a value, or what is of a kind."""
    found: list[Any] = []

    def fits(each: Any) -> bool:
        own = Arguments.is_tensor(each) or Arguments.is_array(each)
        return own if kind is None else isinstance(each, kind)

    Arguments.mapped(value, found.append, fits)
    return found


def _named(arguments: Arguments, kind: type | None = None) -> Iterator[tuple[str, Any]]:
    """The tensors and arrays in arguments by name, `name[0]` in a container; of positional ones by their number."""
    for name, value in [*zip(map(str, count()), arguments.positional, strict=False), *arguments.keyword.items()]:
        for number, part in enumerate(_parts(value, kind)):
            yield (name if part is value else f"{name}[{number}]"), part


def _aliases(named: list[tuple[str, Any]], results: list[Any]) -> list[list[str]]:
    """For each result the names of arguments and of other results that it shares memory with."""
    every = [*named, *((f"result {at}", result) for at, result in enumerate(results))]
    return [
        [name for at, (name, value) in enumerate(every) if at != own and _overlap(result, value)]
        for own, result in enumerate(results, len(named))
    ]


def _overlap(first: Any, second: Any) -> bool:
    (low, high), (other_low, other_high) = spanned(first), spanned(second)
    if not (low < other_high and other_low < high):
        return False
    (address, strides), (other_address, other_strides) = _address(first), _address(second)
    # Elements lie at multiples of this, so that the halves of an interleaved array do not meet.
    step = math.gcd(*strides, *other_strides)
    shift = (other_address - address) % step if step else 0
    return bool(shift < first.dtype.itemsize or shift + second.dtype.itemsize > step)


def main() -> None:
    """Answer questions until the pipe is closed; the first is a `Task`."""
    child = Child(msgspec.msgpack.encode)
    trial: Trial | None = None
    for question in child.messages():
        try:
            if isinstance(question, Task):
                lacking = _confined(question)
                import_heavy(question.imports, _PURPOSE)
                trial = Trial(question)
                answer: Answer = Ready([*lacking])
            else:
                assert trial is not None
                answer = trial.look() if isinstance(question, Look) else trial.run(question)
        except UnusableError as error:
            answer = Refused("type", str(error))
        except BaseException as error:  # noqa: BLE001 - the candidate's code runs here, and may exit
            answer = Refused(*_told(error))
        child.send(answer)


def _confined(task: Task) -> tuple[str, ...]:
    """Confine this process to its own folder, and limit the memory and the files that it makes."""
    folder = Path(tempfile.gettempdir())
    for name in _CACHES:
        settings.set_variable(name, str(folder / name.lower()))
    limits = {resource.RLIMIT_FSIZE: task.memory_bytes}  # of files in memory, too
    if task.device == "cpu":  # a GPU's driver reserves addresses without end
        limits[resource.RLIMIT_DATA] = task.memory_bytes
    for limit, most in limits.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    return confine((folder, "/dev/null", *Path("/dev").glob("nvidia*")), _FAMILIES)


def _told(error: BaseException) -> tuple[Literal["raised", "memory"], str]:
    try:
        text = CandidateError.one_line(error)
        status = CandidateError.of(error, Status.RUNTIME).status
    except Exception:  # noqa: BLE001 - the candidate's own exception may raise in turn
        return "raised", type(error).__name__
    return ("memory" if status is Status.RESOURCES or "allocate memory" in text else "raised"), text
