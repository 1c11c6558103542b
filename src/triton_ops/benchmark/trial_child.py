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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from triton_ops import settings
from triton_ops.backend import Arguments, CandidateError, Operation, Packed
from triton_ops.base import require
from triton_ops.device import TorchDevice
from triton_ops.processes import Child, Surroundings
from triton_ops.space import Config
from triton_ops.typed import TypedTarget
from triton_ops.values import ITEM_BYTES, STORED_ALONE, Status, item_bytes

with contextlib.suppress(ImportError):  # not on Windows, where no process is started
    import resource

_ALIGNMENT = 64  # bytes, of torch's memory on a CPU: a clone lies within so many as its original does
_FAMILIES = ("CUDA_", "GOMP_", "KMP_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTORCH_", "TORCH")
_MALLOC = {-1: (1 << 31) - 1, -3: 1 << 25}  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD: fewer faults of pages, less noise
_OF_NUMPY = {name for name in ITEM_BYTES if not name.startswith(("bfloat", "float8"))}
# Of code, which others would run.
_CACHES = ("CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
_ENCODED = msgspec.msgpack.encode


Extent: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag="leaf"):
    """A tensor, an array or a NumPy scalar in an arena; its strides and the place of its first element in bytes."""

    library: Literal["torch", "array", "scalar"]
    dtype: str
    shape: Annotated[list[Extent], msgspec.Meta(max_length=32)]
    strides: Annotated[list[int], msgspec.Meta(max_length=32)]
    at: Extent

    @property
    def item_bytes(self) -> int:
        """Bytes of an element; `UnusableError` where there is no such dtype."""
        known = {*ITEM_BYTES, *STORED_ALONE} if self.library == "torch" else _OF_NUMPY
        if self.dtype not in known:
            raise UnusableError(f"the dtype {self.dtype[:20]!r} is not known")
        return item_bytes(self.dtype)

    @property
    def span(self) -> tuple[int, int]:
        """The place of the first of its bytes, and the end."""
        if 0 in self.shape:
            return self.at, self.at
        ends = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        return self.at + sum(min(end, 0) for end in ends), self.at + sum(max(end, 0) for end in ends) + self.item_bytes

    def meets(self, other: Leaf) -> bool:
        """Tell whether two leaves have a byte in common."""
        (low, high), (other_low, other_high) = self.span, other.span
        # Elements lie at multiples of this, so that the halves of an interleaved array have none.
        step = math.gcd(*self.strides, *other.strides)
        shift = (other.at - self.at) % step if step else 0
        near = shift < self.item_bytes or shift + other.item_bytes > step
        return near and max(low, other_low) < min(high, other_high)


class Several(msgspec.Struct, frozen=True, array_like=True, tag="several"):
    """A tuple or a list of results, or the names and the values of a mapping in turns."""

    kind: Literal["tuple", "list", "mapping"]
    items: list[Node]


Node: TypeAlias = Leaf | Several | bool | int | float | str | None


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The answer that the candidate is loaded; `lacking` is what this system could not keep from it."""

    lacking: list[str]


class Taken(msgspec.Struct, frozen=True, tag=True):
    """The answer that the inputs of a block are there, or that its calls are made."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The answer that the results of a block are written, in so many bytes."""

    used: Extent
    results: list[Node]


class Seen(msgspec.Struct, frozen=True, tag=True):
    """The names of what each call has changed, and for each of its results of what it shares memory with."""

    changed: list[list[str]]
    aliases: list[list[list[str]]]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The answer that a question cannot be answered, and why; `lost` if this process cannot use its GPU any more."""

    kind: Literal["raised", "memory", "type"]
    text: str
    lost: bool = False


Answer: TypeAlias = Ready | Taken | Done | Seen | Refused


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
    surroundings: Surroundings


@dataclass(frozen=True)
class Block:
    """The question to call the candidate on each of these arguments, in which leaves stand for tensors and arrays.

    With `way` "hold" nothing is called, and the arguments are held as results; with "echo" these are written.
    """

    calls: Sequence[Arguments]
    way: Literal["call", "hold", "echo"] = "call"


Step: TypeAlias = Literal["call", "write", "look"]
"""The questions after a block: to make its calls and wait for the device, to write their results, to tell changes."""


class UnusableError(Exception):
    """A value cannot be given to another process."""


def _library(name: str) -> Any:
    return sys.modules.get(name) or require(name, "trying a candidate")


class Place:
    """The memory of a device, by addresses: `copy(to, from, bytes)` copies within it, and `wait` waits for its end."""

    def __init__(self, device: str) -> None:
        self.device, self.on_gpu = device, device != "cpu"
        self.copy: Callable[[int, int, int], object] = ctypes.memmove
        if self.on_gpu:
            self.gpu = TorchDevice(device).raw_memory(_library("torch"))
            self.copy, self._wait = self.gpu.copier(), self.gpu.waiter()

    def wait(self) -> None:
        """Wait for the device by its driver, since a candidate may have replaced torch's own function."""
        if self.on_gpu and self._wait():
            _library("torch").cuda.synchronize(self.device)  # raises what the driver has refused

    def holds(self, value: Any) -> bool:
        """Tell whether a value is a tensor or an array in this memory."""
        if Arguments.is_tensor(value):
            return bool(value.device.type == ("cuda" if self.on_gpu else "cpu"))
        return not self.on_gpu and Arguments.is_array(value)

    def room(self, library: str, size: int) -> tuple[Any, int]:
        """New memory of so many bytes, with its address."""
        if library == "torch":
            torch = _library("torch")
            tensor = torch.empty(size, dtype=torch.uint8, device=self.device)
            return tensor.untyped_storage(), tensor.data_ptr()
        array = _library("numpy").empty(size, "u1")
        return array, array.ctypes.data

    def plain(self, value: Any) -> Any:
        """A result as a plain tensor or array; `UnusableError` if it is none, or not in this memory."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and type(value) is torch.Tensor:
            if value.layout is not torch.strided or value.is_nested or value.is_quantized or value._is_zerotensor():
                raise UnusableError(f"a tensor that is not strided, {value.layout}, is returned")
            if not self.holds(value):
                raise UnusableError(f"a tensor on {value.device} is returned")
            return value.detach().resolve_conj().resolve_neg()
        is_array = numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic))
        if is_array and not self.on_gpu and value.dtype.isnative:
            return sys.modules["numpy"].asarray(value)
        raise UnusableError(f"a value of type {type(value).__module__}.{type(value).__qualname__} is returned")

    def leaf(self, value: Any) -> Leaf:
        """The leaf of a tensor or an array where it lies now."""
        if Arguments.is_array(value):
            return Leaf("array", value.dtype.name, list(value.shape), list(value.strides), value.ctypes.data)
        strides = [stride * value.element_size() for stride in value.stride()]
        return Leaf("torch", str(value.dtype).removeprefix("torch."), list(value.shape), strides, value.data_ptr())

    def clone(self, leaf: Leaf, arena: int) -> Any:
        """A clone of what lies in an arena at this address, at an address of the same alignment."""
        low, high = leaf.span
        memory, address = self.room(leaf.library, high - low + _ALIGNMENT)
        shift = (arena + low - address) % _ALIGNMENT
        self.copy(address + shift, arena + low, high - low)
        shift += leaf.at - low
        if leaf.library != "torch":
            array = _library("numpy").ndarray(leaf.shape, leaf.dtype, memory, shift, leaf.strides)
            return array[()] if leaf.library == "scalar" else array
        torch = _library("torch")
        empty = torch.empty(0, dtype=getattr(torch, leaf.dtype), device=self.device)
        item = empty.element_size()
        return empty.set_(memory, shift // item, leaf.shape, [stride // item for stride in leaf.strides])


class Layout:
    """Where tensors and arrays are to lie in an arena, and the copies that bring them there: to, from, bytes."""

    def __init__(self, place: Place, most_bytes: int) -> None:
        self._place, self._most_bytes = place, most_bytes
        self._copies: list[tuple[int, int, int]] = []
        self._kept: list[Any] = []  # until they are copied
        self.used = 0

    def leaf(self, value: Any) -> Leaf:
        """The leaf of a tensor or an array in the arena; `UnusableError` if there is no room for it."""
        self._kept.append(value)
        here = self._place.leaf(value)
        low, high = here.span
        at = -(-self.used // _ALIGNMENT) * _ALIGNMENT + low % _ALIGNMENT
        self.used = at + high - low
        if self.used > self._most_bytes:
            raise UnusableError(f"they are too large: there is memory for {self._most_bytes:,} bytes")
        self._copies.append((at, low, high - low))
        return msgspec.structs.replace(here, at=at + here.at - low)

    def node(self, value: Any) -> Node:
        """A result as it is told to the parent; `UnusableError` if it is none that can be copied."""
        kind = type(value)
        if kind in (bool, int, float, str, NoneType):
            return value  # type: ignore[no-any-return]
        if isinstance(value, (tuple, list)):
            return Several("list" if isinstance(value, list) else "tuple", [self.node(item) for item in value])
        if isinstance(value, Mapping):
            return Several("mapping", [self.node(part) for pair in value.items() for part in pair])
        plain = self._place.plain(value)
        low, high = self._place.leaf(plain).span
        if high - low < plain.nbytes:  # elements share memory, as those of `expand`, which the parent does not believe
            plain = plain.copy() if Arguments.is_array(plain) else plain.contiguous()
        leaf = self.leaf(plain)
        return leaf if type(plain) is kind else msgspec.structs.replace(leaf, library="scalar")

    def copy(self, arena: int) -> None:
        """Do the copies, to an arena at this address, and wait for their end."""
        for at, address, size in self._copies:
            self._place.copy(arena + at, address, size)
        self._place.wait()


class Trial:
    """A candidate that is loaded, its arenas, and its last block."""

    def __init__(self, task: Task) -> None:
        _limit(task)
        # The driver of a GPU begins with sockets and files that a confined process may not have.
        self.lacking = Child.confine(_writable(), _FAMILIES) if task.device == "cpu" else ()
        TorchDevice(task.device).stay()
        self._task, self.place = task, Place(task.device)
        self._inputs, self._outputs = (self._opened(arena, number) for number, arena in enumerate(task.arenas))
        self._held: list[Any] = []
        self._block, self._calls = Block([]), list[Arguments]()
        self._bound, self._results = list[Callable[[], Any]](), list[Any]()
        self._last: tuple[Sequence[Arguments], list[Arguments], list[Any]] = ((), [], [])
        if self.place.on_gpu:
            self.lacking = Child.confine(_writable(), _FAMILIES)
        task.surroundings.take()
        loaded = None if task.candidate is None else Packed.loaded(task.candidate)
        self._config = loaded.config if isinstance(loaded, TypedTarget) else None
        self._candidate: Any = loaded.called() if isinstance(loaded, TypedTarget) else loaded

    def answer(self, question: Block | Step) -> Taken | Done | Seen:
        """The answer to a question."""
        if isinstance(question, Block):
            return self._take(question)
        steps: dict[Step, Callable[[], Taken | Done | Seen]] = {
            "call": self._call, "write": self._write, "look": self._look,
        }  # fmt: skip
        return steps[question]()

    def _take(self, block: Block) -> Taken:
        """Clone the inputs of a block."""
        self._block, self._bound = block, []
        self._calls = [call.map(self._clone, lambda value: isinstance(value, Leaf)) for call in block.calls]
        if block.way == "hold":
            self._held = [call.positional[0] for call in self._calls]
        elif block.way == "call":
            self._bound = [self._bind(call) for call in self._calls]
        self.place.wait()  # a stream of the candidate's own shall find its inputs
        return Taken()

    def _call(self) -> Taken:
        self._results = [call() for call in self._bound] or self._held
        self.place.wait()
        return Taken()

    def _write(self) -> Done:
        """Write the results of the calls to the arena."""
        results = self._results
        if self._bound:
            results = [self._with_outputs(*each) for each in zip(self._calls, results, strict=True)]
        layout = Layout(self.place, self._task.arena_bytes)
        nodes = [layout.node(result) for result in results]
        layout.copy(self._outputs[0])
        self._last = (self._block.calls, self._calls, results) if self._bound else ((), [], [])
        return Done(layout.used, nodes)

    def _look(self) -> Seen:
        """The names of what each call of the last block has changed, and of what its results share memory with."""
        every = list(zip(*self._last, strict=True))
        self._last = ((), [], [])  # frees its memory, which then takes no time of the next block
        self._calls, self._bound, self._results = [], [], []
        return Seen(
            [[*self._changes(before, after)] for before, after, _ in every],
            [self._aliases(after, result) for _, after, result in every],
        )

    def _opened(self, arena: Any, shared: int) -> tuple[int, Any]:
        """The address of an arena, and what holds it; this process's own changes of its inputs stay its own."""
        if self.place.on_gpu:
            cuda = _library("torch").cuda
            cuda.set_per_process_memory_fraction(min(1.0, self._task.memory_bytes / cuda.mem_get_info()[1]))
            return self.place.gpu.opened(arena), None
        mapped = mmap.mmap(arena, self._task.arena_bytes, mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
        os.close(arena)  # no program that is started here shall have it
        return ctypes.addressof(ctypes.c_char.from_buffer(mapped)), mapped

    def _clone(self, leaf: Leaf) -> Any:
        return self.place.clone(leaf, self._inputs[0])

    def _bind(self, call: Arguments) -> Callable[[], Any]:
        if isinstance(self._candidate, Operation) and self._config is not None:
            return self._candidate.kernel.compile(Config(self._config), call).bind(call)
        return partial(self._candidate, *call.positional, **call.keyword)

    def _with_outputs(self, call: Arguments, result: Any) -> Any:
        if not self._task.outputs:
            return result
        returned = () if result is None else result if isinstance(result, (tuple, list)) else (result,)
        named = Arguments(keyword=dict(_named(call)))
        return (*returned, *(named.result(name) for name in self._task.outputs))

    def _changes(self, before: Arguments, after: Arguments) -> Iterator[str]:
        """The names of arguments that are no outputs and hold other values, and of those that have another form."""
        both = zip(self._leaves(before), self._leaves(after), strict=True)
        for (name, leaf), (_, value) in both:
            now, was = self.place.leaf(value), self._clone(leaf)
            self.place.wait()  # the stream that is the current one may be the candidate's
            same_form = msgspec.structs.replace(now, at=leaf.at) == leaf
            if not same_form or not (name in self._task.outputs or _same(value, was)):
                yield name

    def _aliases(self, call: Arguments, result: Any) -> list[list[str]]:
        """For each tensor of a result the names of arguments and of other results that it shares memory with."""
        named = [(name, self.place.leaf(value)) for name, value in self._leaves(call)]
        results = [self.place.leaf(value) for _, value in self._leaves(Arguments((result,)))]
        every = [*named, *((f"result {at}", leaf) for at, leaf in enumerate(results))]
        return [
            [name for at, (name, other) in enumerate(every, -len(named)) if at != own and leaf.meets(other)]
            for own, leaf in enumerate(results)
        ]

    def _leaves(self, arguments: Arguments) -> Iterator[tuple[str, Any]]:
        """The tensors and arrays, or their leaves, by name: of what is in a container `name[0]`."""
        for name, value in _named(arguments):
            found: list[Any] = []
            Arguments.mapped(value, found.append, lambda each: isinstance(each, Leaf) or self.place.holds(each))
            yield from ((name if part is value else f"{name}[{number}]", part) for number, part in enumerate(found))


def _named(arguments: Arguments) -> list[tuple[str, Any]]:
    """Arguments by name; those that are passed by position by their numbers."""
    return [*zip(map(str, count()), arguments.positional, strict=False), *arguments.keyword.items()]


def _same(first: Any, second: Any) -> bool:
    """Tell whether two tensors or arrays of one form have the same bytes."""
    if Arguments.is_array(first):
        return bool(first.tobytes() == second.tobytes())
    torch = _library("torch")
    both = (each.detach().contiguous().flatten().view(torch.uint8) for each in (first, second))
    return bool(torch.equal(*both))


def main() -> None:
    """Answer questions until the pipe is closed; the first is a `Task`."""
    child, trial = Child(bytes), None
    for question in child.messages():
        try:
            if isinstance(question, Task):
                trial = Trial(question)
                answer = _ENCODED(Ready([*trial.lacking]))
            else:
                assert trial is not None
                answer = _ENCODED(trial.answer(question))
        except UnusableError as error:
            answer = _ENCODED(Refused("type", str(error)))
        except BaseException as error:  # noqa: BLE001 - the candidate's code runs here, and may exit
            answer = _ENCODED(_told(error, trial))
        child.send(answer)


def _writable() -> list[Path]:
    return [Path(tempfile.gettempdir()), Path("/dev/null"), *Path("/dev").glob("nvidia*")]


def _limit(task: Task) -> None:
    """Limit the memory and the files that this process makes, and have its caches in its own folder."""
    for name in _CACHES:
        settings.set_variable(name, str(Path(tempfile.gettempdir(), name.lower())))
    limits = {resource.RLIMIT_FSIZE: task.memory_bytes}  # of files in memory, too
    if task.device == "cpu":  # a GPU's driver reserves addresses without end
        limits[resource.RLIMIT_DATA] = task.memory_bytes
        with contextlib.suppress(AttributeError):  # another C library
            for parameter, most in _MALLOC.items():
                ctypes.CDLL(None).mallopt(parameter, most)
    for limit, most in limits.items():
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))


def _told(error: BaseException, trial: Trial | None) -> Refused:
    try:
        text = CandidateError.one_line(error)
        status = CandidateError.of(error, Status.RUNTIME).status
    except Exception:  # noqa: BLE001 - the candidate's own exception may raise in turn
        text, status = type(error).__name__, Status.RUNTIME
    lost = False
    try:
        if trial is not None:
            trial.place.wait()
    except RuntimeError:  # as after an access to memory that is not there
        lost = True
    memory = status is Status.RESOURCES or "allocate memory" in text
    return Refused("memory" if memory else "raised", text, lost)
