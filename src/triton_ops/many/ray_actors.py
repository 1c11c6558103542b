"""The actor of a Ray run on each GPU: a measurer, whose files are copied into the cache folder of the run.

It is a plain class, which knows nothing of Ray. It works in a cache folder of its own, and has the driver write each
trial into that of the run before it begins the next.

Run logs only grow, so that their new lines are a piece; any other file is a piece as a whole.
"""

from __future__ import annotations

import platform
import queue
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from triton_ops import settings
from triton_ops.backend import Packed
from triton_ops.base import AppendedFile, Folder, Host, StoredFile, TemporaryFolder, installed_version
from triton_ops.device import TorchDevice
from triton_ops.exceptions import TritonKernelError
from triton_ops.many.executor import Call, ChildExecutor, JobPlace
from triton_ops.records import Quarantine, Runs
from triton_ops.values import TuningResult

RUNS, QUARANTINE = Runs.FOLDER, Quarantine.FOLDER
_COPIED = re.compile(
    rf"[0-9a-f]{{32}}\.record\.json|{RUNS}/[0-9a-f]{{32}}/[0-9A-Za-z-]+\.jsonl|{QUARANTINE}/[0-9A-Za-z._-]+\.jsonl"
)


@dataclass(frozen=True)
class Piece:
    """A part of a file, by its path inside the cache folder: the bytes from `at` to its end."""

    path: str
    at: int
    content: bytes


class WatchedFolder:
    """Finds what changes in a cache folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._states: dict[str, tuple[int, int]] = {}

    def changes(self) -> list[Piece]:
        """Pieces that were added since the last call; what was there before the first is new."""
        return [piece for path in _files_of(self.folder) if (piece := self._change(path)) is not None]

    def _change(self, path: Path) -> Piece | None:
        name = path.relative_to(self.folder).as_posix()
        status = path.stat()  # before the file is read, so that what is added meanwhile is a change the next time
        at, changed_ns = self._states.get(name, (0, 0))
        if (status.st_size, status.st_mtime_ns) == (at, changed_ns):
            return None
        content = StoredFile(path).read()
        at = at if path.suffix == ".jsonl" and len(content) >= at else 0
        self._states[name] = len(content), status.st_mtime_ns
        return Piece(name, at, content[at:])


def apply(folder: Path, pieces: Iterable[Piece]) -> None:
    """Write pieces into a cache folder; a `ValueError` if one is of no file that is copied."""
    for piece in pieces:
        if not _COPIED.fullmatch(piece.path):
            raise ValueError(f"{piece.path} is no file of records, run logs or configs that crash")
        path = folder / piece.path
        if path.parent != folder:
            Folder(Folder(path.parent).within(folder)).ensure()
        if piece.at and AppendedFile.append_at(path, piece.at, piece.content):
            continue
        before = StoredFile(path).read()[: piece.at] if piece.at else b""
        StoredFile(path).replace(before + piece.content)


def files_of_problem(folder: Path, name: str) -> list[Piece]:
    """The record and the run logs of a problem, whole, and the configs that crash or hang."""
    paths = (path for path in _files_of(folder, name) if path.is_file())
    return [Piece(path.relative_to(folder).as_posix(), 0, StoredFile(path).read()) for path in paths]


def _files_of(folder: Path, name: str = "*") -> Iterator[Path]:
    places = (f"{name}.record.json", f"{RUNS}/{name}/*.jsonl", f"{QUARANTINE}/*")
    paths = (path for place in places for path in sorted(folder.glob(place)))
    return (path for path in paths if _COPIED.fullmatch(path.relative_to(folder).as_posix()))


SIMULATED = "simulated"
"""The model of a GPU that is not asked for, where actors stand in for GPUs."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The host of an actor with its CPUs, and the versions that must be equal on all hosts; no Triton is empty."""

    host: str
    model: str
    python: str
    triton: str
    cpus: int = 1


def facts_here(model: str | None = None) -> HostFacts:
    """The facts of this process; a `model` of None asks the first GPU that it sees, or raises a `DeviceError`."""
    return HostFacts(
        host=socket.gethostname(), model=TorchDevice.gpus()[0].name if model is None else model,
        python=platform.python_version(), triton=installed_version("triton") or "", cpus=Host.usable_cpus(),
    )  # fmt: skip


@cache
def _own_folder() -> WatchedFolder:
    """The cache folder of this process, of which nothing has to last: the driver has what is to."""
    Folder.skip_syncs()
    return WatchedFolder(TemporaryFolder.own())


@dataclass(frozen=True)
class CopiedTune:
    """A job's `tune` as it is sent to an actor, with its files, and those of other problems that may guide its search.

    It works in the cache folder there.
    """

    tune: Callable[[JobPlace], TuningResult]
    pieces: Sequence[Piece]

    def __call__(self, place: JobPlace) -> TuningResult:
        """The result of the tune."""
        own = _own_folder()
        place.gate.overlaps = False  # each trial is told of before the next one begins
        apply(own.folder, self.pieces)
        own.changes()  # these are known to the driver
        return self.tune(replace(place, cache_dir=own.folder))


class Measurer:
    """Measures on the GPU that this process sees, as the driver calls.

    Ray sets an `OMP_NUM_THREADS` of its own, by which records of a CPU would differ, so that `threads` is the driver's.
    """

    def __init__(self, threads: str | None = None) -> None:
        settings.set_openmp_text(threads)
        self._calls: queue.Queue[Call] = queue.Queue()
        self._heard = False

    def facts(self, model: str | None) -> HostFacts:
        """As `facts_here`."""
        return facts_here(model)

    def loads(self, tune: bytes) -> str:
        """The reason why a packed tune cannot be loaded here; empty if it can."""
        try:
            Packed.loaded(tune)
        except TritonKernelError as error:
            return error.message
        return ""

    def begin(self, cpus: int, level: int) -> None:
        """Begin with so many CPUs for compilers, and what is logged from a level on."""
        self._executor = ChildExecutor(self._send, None, cpus, level)

    def tell(self, call: Call) -> None:
        """Make a call of the driver's."""
        self._executor.take(call)

    def hear(self) -> tuple[Call, Sequence[Piece]]:
        """The next call for the driver, and what has changed in the cache folder; the driver has done the last one."""
        if self._heard:
            self._calls.task_done()
        self._heard = True
        return self._calls.get(), _own_folder().changes()

    def _send(self, call: Call) -> None:
        """Have the driver make a call, and wait until it has: every trial is there before the next one begins."""
        self._calls.put(call)
        self._calls.join()
