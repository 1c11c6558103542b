"""Triton's interpreter with every load, store and atomic operation watched.

Facts used, of Triton 3.6 to 3.9: `triton.runtime.interpreter` calls `load`, `store`, `atomic_rmw` and `atomic_cas` of
the native module that it holds as `_interpreter`, with arrays of addresses; `interpreter_builder` has the program in
`grid_idx` and the grid in `grid_dim`; every launch goes through `InterpretedFunction.run`; kernels run as Python code
whose file and lines are those of the source; `_implicit_cvt` makes a pointer of each tensor.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from triton_ops.backend import Arguments, replaced
from triton_ops.base import require

OUTSIDE, UNWRITTEN, CONFLICT = "outside", "unwritten", "conflict"
_LOCKS = "it has atomic operations by which programs may wait for each other"
PATIENCE = 6
"""Seconds of the clock for each second of a CPU that a run may take: on a machine that is busy, and for what sleeps."""


@dataclass(frozen=True)
class WatchRequest:
    """A run that is asked for: an operation, or a function without parameters, packed, and its seconds of a CPU.

    On a shape of None an operation chooses a small one.
    """

    packed: bytes
    limit_s: float
    shape: tuple[int, ...] | None
    with_torch: bool = True  # which a process that runs kernels has imported


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One thing that a run has shown; its kind is `outside`, `unwritten` or `conflict`."""

    kind: str
    kernel: str
    file: str
    line: int
    evidence: str


@dataclass(frozen=True)
class RunRecord:
    """The observations of one watched run of some kernels, whose launches have ended.

    Attributes:
        whole: Why the run did not end, or did not begin; empty if it ended.
        locked: Kernels whose programs may wait for each other, so that nothing is known of their conflicts.
    """

    observations: tuple[Observation, ...] = ()
    kernels: frozenset[str] = frozenset()
    whole: str = ""
    locked: frozenset[str] = frozenset()

    def why_open(self, kind: str, kernel: str) -> str:
        """The reason why a kind stays undecided of a kernel in which it was not seen; empty if it was decided."""
        if kind == CONFLICT and kernel in self.locked:
            return _LOCKS
        if self.whole:
            return self.whole
        return "" if kernel in self.kernels else "the run does not launch it"


_NOBODY, _SEVERAL = -1, -2  # in the place of a program's number


@dataclass(eq=False)
class Region:
    """The storage behind one or more arguments of a launch.

    Attributes:
        writer: int32 [bytes]: the program that stored last, or -1; of the first byte of each element.
    """

    name: str
    start: int
    own: Any  # bool [bytes]: which bytes are elements of an argument
    shift: int = 0  # what is added to addresses in it for the kernel, so that no other region is within its reach
    stores: Any = field(init=False)  # bool [bytes]: which bytes were stored to
    writer: Any = field(init=False)
    reader: Any = field(init=False)  # int32 [bytes]: the program that loaded, -1 for none, -2 for several

    def __post_init__(self) -> None:
        self.stores = np.zeros(len(self.own), dtype=bool)
        self.writer = np.full(len(self.own), _NOBODY, dtype=np.int32)
        self.reader = np.full(len(self.own), _NOBODY, dtype=np.int32)

    def note_loads(self, at: Any, program: int) -> dict[str, int]:
        """Note loads of one program; how many of them conflict with other programs, by the conflict in words."""
        others = (self.writer[at] != _NOBODY) & (self.writer[at] != program)
        before = self.reader[at]
        self.reader[at] = np.where((before == _NOBODY) | (before == program), program, _SEVERAL)
        return {f"reads what another program of this launch has written to {self.name}": int(others.sum())}

    def note_stores(self, at: Any, changed: Any, program: int) -> dict[str, int]:
        """As `note_loads`, of stores, of which some change what is there."""
        overwritten = changed & (self.writer[at] != _NOBODY) & (self.writer[at] != program)
        races = changed & (self.reader[at] != _NOBODY) & (self.reader[at] != program) & ~overwritten
        self.writer[at] = program
        return {
            f"writes other values to elements of {self.name} that another has written": int(overwritten.sum()),
            f"changes elements of {self.name} that another program has read": int(races.sum()),
        }

    def where(self, offset: int, width: int) -> str:
        """A place of `width` bytes that is no argument's, in words."""
        ours = self.own.nonzero()[0]
        if not len(ours):
            return "beside one without elements"
        if offset < ours[0]:
            return f"{-(-(int(ours[0]) - offset) // width)} before its first"
        return f"{(offset - int(ours[-1]) - 1) // width + 1} past its last" if offset > ours[-1] else "between its rows"


def regions_of(tensors: Mapping[str, Any]) -> list[Region]:
    """The regions of a launch, in the order of their addresses."""
    by_start: dict[int, Region] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        start, own = storage.data_ptr(), _own_bytes(tensor, storage.nbytes())
        if start in by_start:
            by_start[start].own |= own
            by_start[start].name += f" and {name}"
        else:
            by_start[start] = Region(name, start, own)
    regions = sorted(by_start.values(), key=lambda one: one.start)
    for number, region in enumerate(regions, start=1):
        region.shift = number << _SHIFT_BITS  # from 1 on: what has none was not made of an argument
    return regions


def _own_bytes(tensor: Any, size: int) -> Any:
    """Which bytes of its storage are a tensor's: bool [size]."""
    torch = require("torch", "watching a launch")
    room = torch.zeros(size, dtype=torch.bool)
    bytes_of_elements(tensor, room).fill_(True)
    return room.numpy()


def bytes_of_elements(tensor: Any, storage_bytes: Any) -> Any:
    """Of what is known of each byte of a storage, that of a tensor in it: along a last axis, of each element."""
    width = tensor.element_size()
    steps = (step * width for step in tensor.stride())
    return storage_bytes.as_strided((*tensor.shape, width), (*steps, 1), tensor.storage_offset() * width)


_SHIFT_BITS = 48  # addresses of a process have 47
_REACH = 1 << (_SHIFT_BITS - 2)  # bytes before an argument's begin, up to which an address counts as made of it


def _located(regions: list[Region], addresses: Any) -> tuple[Any, Any]:
    """int64: the region of whose argument each address was made, or the next one; and the addresses without shifts."""
    # The upper bits of a shifted address name its region; `_REACH` keeps addresses before a tensor's begin in it.
    which = ((addresses + _REACH) >> _SHIFT_BITS) - 1
    which = np.where(which < len(regions), which, -1)
    shifts = np.array([*(one.shift for one in regions), 0], dtype=np.int64)
    addresses = addresses - shifts[which]
    if not regions or (which >= 0).all():
        return np.maximum(which, 0), addresses
    starts = np.array([one.start for one in regions], dtype=np.int64)
    ends = np.array([one.start + len(one.own) for one in regions], dtype=np.int64)
    before = np.clip(np.searchsorted(starts, addresses, side="right") - 1, 0, None)
    after = np.clip(before + 1, None, len(regions) - 1)
    closer = starts[after] - addresses < addresses - ends[before]
    return np.where(which >= 0, which, np.where((addresses >= ends[before]) & closer, after, before)), addresses


def _inside(regions: list[Region], which: Any, addresses: Any, width: int) -> Any:
    """bool: whether all bytes of each access are an argument's."""
    inside = np.zeros(addresses.shape, dtype=bool)
    for number in np.unique(which) if regions else ():
        region, members = regions[number], which == number
        at = addresses[members] - region.start
        valid = (at >= 0) & (at + width <= len(region.own))
        safe = np.where(valid, at, 0)
        last = np.where(valid, at + width - 1, 0)
        inside[members] = valid & region.own[safe] & region.own[last] if len(region.own) else False
    return inside


_SHOWN_AXES = 3


@dataclass(kw_only=True)
class MemoryWatch:
    """The accesses to memory of the launches of one run.

    Attributes:
        locked: Kernels with atomic operations by which programs may wait for each other.
        stores: For the address of each storage that was stored to, which bytes were: bool [bytes].
        last_stores: For the address of each storage the kernel, file and line of the last store.
        notes: For each kind, kernel, file and line what first happened to elements, in words, and how many there were.
    """

    kernels: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    stores: dict[int, Any] = field(default_factory=dict)
    last_stores: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    notes: dict[tuple[str, str, str, int], tuple[str, int]] = field(default_factory=dict)

    def observations(self) -> list[Observation]:
        """Everything that was noted, a line once for each kind."""
        return [
            Observation(kind=kind, kernel=kernel, file=file, line=line, evidence=f"{words}; {count} elements in all")
            for (kind, kernel, file, line), (words, count) in self.notes.items()
            if kind != CONFLICT or kernel not in self.locked
        ]

    def keep_stores(self, kernel: str, regions: list[Region]) -> None:
        """Keep what a launch has stored that has ended."""
        self.kernels.add(kernel)
        for region in regions:
            if region.stores.any():
                before = self.stores.get(region.start)
                same = before is not None and len(before) == len(region.stores)
                self.stores[region.start] = before | region.stores if same else region.stores


@dataclass
class _WatchedLaunch:
    watch: MemoryWatch
    kernel: str
    regions: list[Region]
    builder: Any
    kernel_line: tuple[str, int]

    def allowed(
        self, does: str, pointers: Any, mask: Any, width: int, changed: Callable[[Any, Any], Any] | None = None
    ) -> tuple[Any, Any]:
        """The pointers of accesses without shifts, and which of them are within the arguments; all are noted.

        It `reads`, `writes` or `adds to` them; of stores `changed` tells which of those within change what is there.
        """
        line, pointers = _line() or self.kernel_line, np.asarray(pointers)
        active = np.broadcast_to(np.asarray(mask, dtype=bool), pointers.shape)
        which, real = _located(self.regions, pointers.astype(np.int64))
        which, addresses = which[active], real[active]
        inside = _inside(self.regions, which, addresses, width)
        if not inside.all():
            words = self._outside(does, addresses[~inside], which[~inside], width)
            self._note(OUTSIDE, line, int((~inside).sum()), words)
        pointers, allowed = real.astype(np.uint64), active.copy()
        allowed[active] = inside
        differ = None if changed is None else changed(pointers, allowed)[active]
        for number, region in enumerate(self.regions):
            members = (which == number) & inside
            if members.any():
                at = addresses[members] - region.start
                if does != "reads":
                    region.stores[(at[:, None] + np.arange(width)).reshape(-1)] = True
                    self.watch.last_stores[region.start] = (self.kernel, *line)
                self._note_conflicts(line, region, at, None if differ is None else differ[members], does)
        return pointers, allowed

    def _note_conflicts(self, line: tuple[str, int], region: Region, at: Any, differ: Any, does: str) -> None:
        conflicts = region.note_loads(at, self.program) if does == "reads" else {}
        if differ is not None:
            conflicts = region.note_stores(at, differ, self.program)
        for words, count in conflicts.items():
            if count:
                self._note(CONFLICT, line, count, words)

    def shifted(self, argument: Any, value: Any) -> Any:
        """An argument as the interpreter holds it, a tensor with an address of which no other tensor is in reach."""
        if hasattr(argument, "data_ptr"):
            address = int(value.handle.data[0])
            within = (one for one in self.regions if one.start <= address <= one.start + len(one.own))
            value.handle.data = value.handle.data + np.uint64(next((one.shift for one in within), 0))
        return value

    @property
    def program(self) -> int:
        """The number of the program that runs."""
        (x, y, z), (_, rows, planes) = self.builder.grid_idx, self.builder.grid_dim
        return int((x * rows + y) * planes + z)

    def _note(self, kind: str, line: tuple[str, int], count: int, words: str) -> None:
        program = tuple(int(place) for place in self.builder.grid_idx[:_SHOWN_AXES])
        first, before = self.watch.notes.get((kind, self.kernel, *line), (f"program {program} {words}", 0))
        self.watch.notes[(kind, self.kernel, *line)] = first, before + count

    def _outside(self, does: str, addresses: Any, which: Any, width: int) -> str:
        if not self.regions:
            return f"{does} memory of no argument"
        region = self.regions[int(which[0])]
        first = region.where(int(addresses[0]) - region.start, width)
        return f"{does} {len(addresses)} elements outside of {region.name}, the first {first}"


def _line() -> tuple[str, int] | None:
    """The place in the user's source that runs: the innermost that is neither Triton's nor of this folder."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(".py") and not file.startswith(_not_users()):
            return file, frame.f_lineno
        frame = frame.f_back
    return None


@cache
def _not_users() -> tuple[str, ...]:
    triton = Path(str(require("triton", "running kernels").__file__)).parent
    return f"{triton}/", f"{Path(__file__).parent}/"


class _Native:
    """Stands for the native module of Triton's interpreter; what a launch does with memory is watched."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.launch: _WatchedLaunch  # that runs: nothing is loaded or stored outside of launches

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        pointers, mask = self.launch.allowed("reads", pointers, mask, np.dtype(dtype).itemsize)
        return self.native.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        changed = partial(self._differences, value)
        pointers, mask = self.launch.allowed("writes", pointers, mask, value.dtype.itemsize, changed)
        return self.native.store(pointers, value, mask)

    def atomic_rmw(self, does: Any, pointers: Any, value: Any, mask: Any, order: Any) -> Any:
        if value.dtype.kind != "f":  # whole numbers may count those that wait, or be a lock
            self.launch.watch.locked.add(self.launch.kernel)
        pointers, mask = self.launch.allowed("adds to", pointers, mask, value.dtype.itemsize)
        return self.native.atomic_rmw(does, pointers, value, mask, order)

    def atomic_cas(self, pointers: Any, expected: Any, value: Any, order: Any) -> Any:
        self.launch.watch.locked.add(self.launch.kernel)
        whole = np.ones(np.asarray(pointers).shape, dtype=bool)
        pointers, allowed = self.launch.allowed("adds to", pointers, whole, value.dtype.itemsize)
        if not allowed.all():
            return np.zeros_like(value)  # it cannot be left out for some elements
        return self.native.atomic_cas(pointers, expected, value, order)

    def _differences(self, value: Any, pointers: Any, allowed: Any) -> Any:
        """bool, in the shape of the store: which of the bytes there differ from those that come."""
        value = np.ascontiguousarray(np.broadcast_to(value, allowed.shape))
        now = np.ascontiguousarray(self.native.load(pointers, allowed, value, value.dtype))
        width = value.dtype.itemsize
        differ = now.reshape(-1).view(np.uint8) != value.reshape(-1).view(np.uint8)
        return differ.reshape(-1, width).any(axis=1).reshape(allowed.shape)


@contextmanager
def watch_launches(watch: MemoryWatch) -> Iterator[None]:
    """Inside, launches of interpreted kernels are watched, and reach no memory but that of their tensors."""
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    function = interpreter.InterpretedFunction
    native, run, convert = _Native(interpreter._interpreter), function.run, interpreter._implicit_cvt
    tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner

    def run_watched(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        arguments = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
        regions = regions_of(dict(pair for name, value in arguments.items() for pair in named_tensors(name, value)))
        code = kernel.fn.__code__
        native.launch = _WatchedLaunch(
            watch, kernel.fn.__name__, regions, interpreter.interpreter_builder,
            (code.co_filename, code.co_firstlineno),
        )  # fmt: skip
        result = run(kernel, grid=grid, warmup=warmup, **arguments)
        watch.keep_stores(kernel.fn.__name__, regions)
        return result

    def converted(argument: Any) -> Any:
        return native.launch.shifted(argument, convert(argument))

    with (
        replaced(interpreter, {"_interpreter": native, "_implicit_cvt": converted}),
        replaced(function, {"run": run_watched}),
        replaced(tuner, {"run": _run_first}),
    ):
        yield


def _run_first(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch the first config of `triton.autotune` that is not pruned, since no GPU can compare them."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    config = next(iter(tuner.prune_configs(kwargs)))
    if config.pre_hook is not None:
        config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())


def named_tensors(name: str, value: Any) -> list[tuple[str, Any]]:
    """The tensors of an argument, each with the words for it."""
    several = list(Arguments((value,)).tensors())
    return [(name if len(several) == 1 else f"{name}[{at}]", one) for at, one in enumerate(several)]
