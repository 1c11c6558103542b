"""A candidate in a confined process of its own, which is given inputs and whose results are judged and timed here.

Neither the reference nor its results, nor the checker, nor a clock that counts is in the memory of that process. It
sees the inputs of a block when the block's time begins: the time is from before they are copied to its arena until its
results are copied from the other one. What it answers is read as plain values, whose places in the arena are checked.
The files are sealed, so that it can neither shorten the results' arena nor change the inputs'.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from triton_ops import settings
from triton_ops.backend import Arguments, Packed
from triton_ops.base import OwnFile, escaped
from triton_ops.benchmark import trial_child as child
from triton_ops.device import TorchDevice
from triton_ops.exceptions import DeviceError
from triton_ops.processes import Reader, Surroundings, WorkerLostError, WorkerProcess, fork_servers, held_bytes
from triton_ops.typed import TypedTarget

with contextlib.suppress(ImportError):  # not on Windows, where no process is started
    import fcntl

_PROGRAM = "triton_ops.benchmark.trial_child"
_READER = Reader(msgspec.msgpack.Decoder(child.Answer).decode, 1 << 24)
_LONGEST_TEXT = 400
_MISALIGNED = "misaligned address"  # which a GPU refuses aloud, as a function refuses an argument by an error
_MOST = 1 << 48  # of an extent or a stride
_HINT = "use a Linux kernel of 5.1 or later, and smaller arguments"
_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE: only memory that is mapped here already can be written; Linux 5.1
_LEAST_BYTES = 1 << 30  # for a process with torch


@dataclass(frozen=True, kw_only=True)
class TrialLimits:
    """The limits of a trial process.

    `start_s` is for its start and for the import of the candidate, `call_s` for one block as a whole, of which the
    first may compile the candidate; `memory_bytes` is the most that it may allocate, and None `TRITON_OPS_MEMORY`, else
    half of what is free.
    """

    start_s: float = 60.0
    call_s: float = 120.0
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class BlockResult:
    """A block of calls: its time as seen here, its results in memory of this process, and what the child saw.

    Of `wall_ns`, `calls_ns` pass with the calls and the rest with copies. The results have `used_bytes`. `changed`
    names for each call the arguments that were changed though they are no outputs; `aliases` for each call and each
    tensor of its result the arguments and other results that it shares memory with. `refused` says why there are no
    results, and is of a `kind`: raised, hung, ended, memory, type, start.
    """

    wall_ns: int = 0
    calls_ns: int = 0
    used_bytes: int = 0
    results: tuple[Any, ...] = ()
    changed: tuple[tuple[str, ...], ...] = ()
    aliases: tuple[tuple[tuple[str, ...], ...], ...] = ()
    refused: str = ""
    kind: Literal["", "raised", "hung", "ended", "memory", "type", "start"] = ""


_Asked = TypeVar("_Asked", child.Ready, child.Taken, child.Done, child.Seen)


class TrialProcess:
    """A candidate in a process of its own, which is ended with all that it has started when the context ends.

    Arguments and results have `arena_bytes` each. `outputs` are the arguments that a call writes: by name, or by number
    where they are passed by position. A result is then what the call returns, and after it the outputs, as a tuple.
    Names of arguments are such names or numbers, and `x[0]` of what is in a container. Of the `imports`, the packages
    that arguments are of, those are imported ahead that this process has, which takes two seconds for torch.

    Raises:
        DeviceError: No process or memory can be had here.
        KernelTypeError: The candidate cannot be sent to another process.
    """

    def __init__(
        self, candidate: TypedTarget | Callable[..., Any], *, device: str, outputs: tuple[str, ...] = (),
        limits: TrialLimits = TrialLimits(), arena_bytes: int, imports: Sequence[str] = ("torch", "numpy"),
    ) -> None:  # fmt: skip
        self._device, packed = device, Packed.of(candidate).content
        loaded = tuple(name for name in imports if name in sys.modules)
        self._own = _Confined(packed, device, outputs, limits, arena_bytes, loaded)
        self._empty = _Confined(None, device, (), limits, arena_bytes, loaded)

    def __enter__(self) -> TrialProcess:
        with TorchDevice(self._device).current():
            self._own.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._own, self._empty):
            each.end()

    @property
    def lacking(self) -> tuple[str, ...]:
        """What this system cannot keep from the candidate, in words; known after the first block."""
        return self._own.lacking

    def run(self, calls: Sequence[Arguments], limit_s: float = math.inf) -> BlockResult:
        """The block of these calls; what the candidate does raises nothing here.

        A process that was lost is started again. The block has `limit_s`, and no more than its process's limit.
        """
        try:
            with TorchDevice(self._device).current():
                return self._own.block(calls, limit_s=limit_s)
        except _RefusedError as error:
            return error.result

    def echo(self, calls: Sequence[Arguments], results: Sequence[Any]) -> int:
        """Nanoseconds of a block with these calls and results in which nothing is called.

        It is in another process, which runs no code of the candidate, and starts at the first echo.
        """
        try:
            with TorchDevice(self._device).current():
                self._empty.block([Arguments((result,)) for result in results], "hold")
                return self._empty.block(calls, "echo").wall_ns
        except _RefusedError as error:
            raise DeviceError(f"a block without calls has failed: {error.result.refused}") from error


class _RefusedError(Exception):
    """The child gave no results; `result` says why."""

    def __init__(self, text: str, kind: Any) -> None:
        super().__init__(text)
        self.result = BlockResult(refused=escaped(text)[:_LONGEST_TEXT], kind=kind)


class _Arena:
    """Memory that a child sees as well; on a CPU a file without a name, which has its size for good."""

    def __init__(self, place: child.Place, size: int, undo: contextlib.ExitStack, *, written_here: bool) -> None:
        self.files: tuple[int, ...] = ()
        if place.on_gpu:
            self.address = place.gpu.allocated(size)
            undo.callback(place.gpu.free, self.address)
            self.passed: Any = place.gpu.handle(self.address)
            return
        file = OwnFile(os.memfd_create("triton-ops-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        undo.callback(file.close)
        os.ftruncate(file.fileno(), size)
        self._mapped = mmap.mmap(file.fileno(), size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | (_FUTURE_WRITE if written_here else 0)
        fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, seals)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapped))
        self.passed, self.files = file.fileno(), (file.fileno(),)


class _Confined:
    """A child with its arenas, which is started when it is needed."""

    def __init__(
        self, candidate: bytes | None, device: str, outputs: tuple[str, ...], limits: TrialLimits, arena_bytes: int,
        imports: tuple[str, ...],
    ) -> None:  # fmt: skip
        self._candidate, self._outputs, self._limits, self._imports = candidate, outputs, limits, imports
        self._device, self._size = device, -(-arena_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._process: WorkerProcess | None = None
        self._undo = contextlib.ExitStack()
        self._task: child.Task | None = None  # until it is answered
        self.lacking: tuple[str, ...] = ()

    def start(self) -> None:
        """Start the child, if there is none, without waiting for it."""
        if self._process is not None:
            return
        self._place = child.Place(self._device)
        with DeviceError.when("no memory can be shared with a trial process", _HINT, OSError, AttributeError):
            self._inputs = _Arena(self._place, self._size, self._undo, written_here=True)
            self._results = _Arena(self._place, self._size, self._undo, written_here=False)
        self._memory, address = self._place.room("torch" if self._place.on_gpu else "array", self._size + mmap.PAGESIZE)
        self._snapshot = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE  # begins as an arena does
        server = fork_servers.borrow_for(_PROGRAM, self._imports)
        self._undo.callback(fork_servers.give_back, server)
        self._process = WorkerProcess(program=server, reader=_READER, files=(*self._inputs.files, *self._results.files))
        self._undo.callback(self._process.kill)
        self._free_bytes = TorchDevice(self._device).free_bytes
        limit = self._limits.memory_bytes or settings.memory_bytes()
        self._most_bytes = limit or max(self._free_bytes // 2, _LEAST_BYTES)
        self._task = child.Task(
            candidate=self._candidate, device=self._device, outputs=self._outputs, memory_bytes=self._most_bytes,
            arenas=(self._inputs.passed, self._results.passed), arena_bytes=self._size,
            surroundings=Surroundings.here(),
        )  # fmt: skip
        self._process.begin(self._task)

    def end(self) -> None:
        """End the child, and give up the arenas."""
        self._process = None
        self._undo.close()

    def block(
        self, calls: Sequence[Arguments], way: Literal["call", "hold", "echo"] = "call", *, limit_s: float = math.inf
    ) -> BlockResult:
        """A block of calls; `_RefusedError` where it has no results."""
        process = self._ready()
        self._end_s = time.monotonic() + min(limit_s, self._limits.call_s)
        layout = child.Layout(self._place, self._size)
        try:
            question = child.Block([call.map(layout.leaf, self._place.holds) for call in calls], way)
        except child.UnusableError as error:
            raise _RefusedError(f"of the arguments {error}", "memory") from error
        self._place.wait()  # for what makes the arguments
        process.pause(False)
        # Both processes and the inputs are awake then, whichever block was before: else the first of two takes longer.
        self._asked("look", child.Seen)
        layout.copy(self._snapshot)  # no memory that the child sees
        begin_ns = time.perf_counter_ns()
        layout.copy(self._inputs.address)
        self._asked(question, child.Taken)
        called_ns = time.perf_counter_ns()
        self._asked("call", child.Taken)
        calls_ns = time.perf_counter_ns() - called_ns
        done = self._asked("write", child.Done)
        used = min(done.used, self._size)
        self._place.copy(self._snapshot, self._results.address, used)
        self._place.wait()
        wall_ns = time.perf_counter_ns() - begin_ns
        results = self._results_of(done, len(calls), used) if way == "call" else ()
        # After an echo, too, so that it differs from other blocks in the calls alone.
        seen = self._asked("look", child.Seen)
        self._watch()  # short blocks are not looked at before
        process.pause(True)
        if way != "call":
            return BlockResult(wall_ns=wall_ns)
        changed = tuple(tuple(map(escaped, names)) for names in seen.changed)
        aliases = tuple(tuple(tuple(map(escaped, names)) for names in each) for each in seen.aliases)
        if not len(changed) == len(aliases) == len(calls):
            raise self._untrue(f"changes of {len(changed)} calls")
        return BlockResult(
            wall_ns=wall_ns, calls_ns=calls_ns, used_bytes=used, results=results, changed=changed,
            aliases=aliases,
        )  # fmt: skip

    def _ready(self) -> WorkerProcess:
        """The child with its candidate loaded."""
        self.start()
        assert self._process is not None
        if (task := self._task) is not None:
            self._task = None
            self.lacking = tuple(self._asked(task, child.Ready).lacking)
        return self._process

    def _asked(self, question: child.Task | child.Block | child.Step, kind: type[_Asked]) -> _Asked:
        """The answer to a question; `_RefusedError` if it is refused, or the child is lost, which is then ended."""
        assert self._process is not None
        starts = isinstance(question, child.Task)
        left_s = self._limits.start_s if starts else max(1, math.ceil(self._end_s - time.monotonic()))
        step = "start" if starts else "block"
        try:
            answer = self._process.ask(
                question, left_s, {}, step, lambda each: isinstance(each, kind | child.Refused), self._watch,
            )  # fmt: skip
        except WorkerLostError as error:
            self.end()
            raise _RefusedError(str(error), "start" if starts else "hung" if error.hung else "ended") from error
        if isinstance(answer, child.Refused):
            if starts or answer.lost:
                self.end()
            else:
                self._process.pause(True)
            ended = answer.lost and _MISALIGNED not in answer.text
            raise _RefusedError(answer.text, "start" if starts else "ended" if ended else answer.kind)
        return answer  # type: ignore[no-any-return]

    def _watch(self) -> None:
        """End the child if its processes have too much memory together, which no limit of each of them counts."""
        if self._place.on_gpu or self._process is None:
            return
        # By whomever, since the look at processes takes 10 ms.
        taken = self._free_bytes - TorchDevice(self._device).free_bytes
        if taken > self._most_bytes and held_bytes(self._process.pid) > self._most_bytes + 2 * self._size:
            self.end()
            raise _RefusedError(f"its processes took more than {self._most_bytes:,} bytes together", "memory")

    def _results_of(self, done: child.Done, count: int, used: int) -> tuple[Any, ...]:
        try:
            results = Values(self._place, self._snapshot, used).of_all(done.results)
        except child.UnusableError as error:
            raise self._untrue(str(error)) from error
        if len(results) != count:
            raise self._untrue(f"results of {len(results)} calls")
        return results

    def _untrue(self, text: str) -> _RefusedError:
        self.end()
        return _RefusedError(f"what its process tells cannot be: {text}", "type")


class Values:
    """The results that a child tells of, cloned from a snapshot of its arena, of which so many bytes are used.

    Together they may be no larger than that, in memory or in elements: a tensor of stride 0 may claim any shape.
    """

    def __init__(self, place: child.Place, snapshot: int, used: int) -> None:
        self._place, self._snapshot, self._used = place, snapshot, used
        self._left = [used, used]

    def of_all(self, nodes: Sequence[child.Node]) -> tuple[Any, ...]:
        """The values of nodes; `UnusableError` if one is none that can be."""
        values = tuple(map(self._of, nodes))
        self._place.wait()
        return values

    def _of(self, node: child.Node) -> Any:
        if not isinstance(node, child.Leaf | child.Several):
            return node
        if isinstance(node, child.Several):
            values = [self._of(item) for item in node.items]
            if node.kind == "mapping":
                return dict(zip(map(str, values[::2]), values[1::2], strict=False))
            return values if node.kind == "list" else tuple(values)
        self._check(node)
        return self._place.clone(node, self._snapshot)

    def _check(self, leaf: child.Leaf) -> None:
        if len(leaf.shape) != len(leaf.strides):
            raise child.UnusableError("a shape has other strides")
        if max(map(abs, (*leaf.shape, *leaf.strides)), default=0) > _MOST:
            raise child.UnusableError("an extent or a stride is too large")
        item, (low, high) = leaf.item_bytes, leaf.span
        whole = leaf.library != "torch" or all(step >= 0 and step % item == 0 for step in (leaf.at, *leaf.strides))
        sizes = high - low, math.prod(leaf.shape) * item
        self._left = [left - size for left, size in zip(self._left, sizes, strict=True)]
        if not (whole and low >= 0 and high <= self._used and min(self._left) >= 0):
            raise child.UnusableError(
                f"shape {leaf.shape} with strides {leaf.strides} does not lie in {self._used} bytes"
            )


class Sides:
    """The candidate and the reference in a process each, and later a twin of the reference; a context manager."""

    NAMES = ("reference", "candidate", "twin")

    def __init__(self, make: Callable[[bool], TrialProcess]) -> None:
        self._make, self._stack = make, contextlib.ExitStack()
        self.by_name: dict[str, TrialProcess] = {}

    def __enter__(self) -> Sides:
        """Begin two processes, side by side."""
        with contextlib.ExitStack() as begun:
            begun.push(self)  # so that the first one ends if the second cannot begin
            self._begin("reference")
            self._begin("candidate")
            begun.pop_all()
        self.echo = self.by_name["reference"].echo
        return self

    def __exit__(self, *error: object) -> None:
        """End all of them, with what they have started."""
        self._stack.close()

    def begin_twin(self) -> None:
        """Begin the third process, if it has not begun."""
        if "twin" not in self.by_name:
            self._begin("twin")

    def change(self) -> None:
        """Give the candidate a new process; the reference and its twin change places."""
        named = self.by_name
        named["candidate"].__exit__(None, None, None)
        named["reference"], named["twin"] = named["twin"], named["reference"]
        self._begin("candidate")

    def _begin(self, name: str) -> None:
        self.by_name[name] = self._stack.enter_context(self._make(name == "candidate"))
