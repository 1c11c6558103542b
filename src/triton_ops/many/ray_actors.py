"""The actors of a Ray run: a measurer on each GPU, and the keeper of the run's cache folder.

Both are plain classes, which know nothing of Ray. A measurer works in a cache folder of its own, and has the keeper
write each trial into that of the run before it begins the next.

Run logs only grow, so that their new lines are a piece; any other file is a piece as a whole.
"""

from __future__ import annotations

import importlib.metadata
import platform
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from triton_ops import settings
from triton_ops.backend import Packed
from triton_ops.base import AppendedFile, Folder, Host, StoredFile, TemporaryFolder
from triton_ops.device import TorchDevice
from triton_ops.exceptions import TritonKernelError
from triton_ops.many.executor import Call, ChildExecutor, JobPlace
from triton_ops.records import Quarantine, Runs
from triton_ops.tuner import Listener, RunPlan, RunProgress
from triton_ops.values import Trial, TuningResult

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
        self._folder = folder
        self._states: dict[str, tuple[int, int]] = {}

    def changes(self) -> list[Piece]:
        """Pieces that were added since the last call; what was there before the first is new."""
        return [piece for path in _files_of(self._folder) if (piece := self._change(path)) is not None]

    def _change(self, path: Path) -> Piece | None:
        name = path.relative_to(self._folder).as_posix()
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
    paths = [folder / f"{name}.record.json", *(folder / RUNS / name).glob("*.jsonl"), *(folder / QUARANTINE).glob("*")]
    return [
        Piece(path.relative_to(folder).as_posix(), 0, StoredFile(path).read())
        for path in paths
        if _is_copied(folder, path) and path.is_file()
    ]


def _files_of(folder: Path) -> Iterator[Path]:
    places = ("*.record.json", f"{RUNS}/*/*.jsonl", f"{QUARANTINE}/*")
    return (path for place in places for path in sorted(folder.glob(place)) if _is_copied(folder, path))


def _is_copied(folder: Path, path: Path) -> bool:
    return _COPIED.fullmatch(path.relative_to(folder).as_posix()) is not None


SIMULATED = "simulated"
"""The model of a GPU that is not asked for, where actors stand in for GPUs."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The host of an actor, and the versions that must be equal on all hosts; Triton's is empty if it is missing."""

    host: str
    model: str
    python: str
    triton: str


def facts_here(model: str | None = None) -> HostFacts:
    """The facts of this process; a `model` of None asks the first GPU that it sees, or raises a `DeviceError`."""
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = ""
    return HostFacts(
        host=socket.gethostname(), model=TorchDevice.gpus()[0].name if model is None else model,
        python=platform.python_version(), triton=triton,
    )  # fmt: skip


class Keeper:
    """Writes what measurers find into the cache folder of the run, on the driver's host, in several threads."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._turns: dict[str, int] = {}
        self._guard = threading.Lock()
        self._writing: dict[str, threading.Lock] = {}

    def begin(self, name: str, turn: int) -> None:
        """A problem is about to be sent again; what an earlier measurer of it still sends is refused."""
        with self._of(name):
            self._turns[name] = turn

    def keep(self, name: str, turn: int, pieces: Sequence[Piece]) -> bool:
        """Write pieces, and return whether the measurer may go on; an `OSError` if a file cannot be written."""
        with self._of(name):
            if self._turns.setdefault(name, turn) != turn:
                return False
            apply(self._folder, pieces)
            return True

    def _of(self, name: str) -> threading.Lock:
        with self._guard:
            return self._writing.setdefault(name, threading.Lock())


@dataclass(frozen=True, kw_only=True)
class CopiedTune:
    """A job's `tune` as it is sent to an actor: it works in a folder there, from which the keeper gets each trial.

    `turn` counts how often problems were sent; of two actors that have the same problem, the later may write. `pieces`
    are its files, and those of other problems that may guide its search. `keep` has the keeper write pieces, and
    returns whether to go on.
    """

    name: str
    turn: int
    tune: Callable[[JobPlace], TuningResult]
    pieces: Sequence[Piece]
    keep: Callable[[str, int, Sequence[Piece]], bool]

    def __call__(self, place: JobPlace) -> TuningResult:
        """The result of the tune; every trial is with the keeper before the next one begins."""
        folder, watched = _own_folder()
        apply(folder, self.pieces)
        watched.changes()  # these are known there

        def send() -> None:
            if (pieces := watched.changes()) and not self.keep(self.name, self.turn, pieces):
                place.gate.end()  # another actor has the problem

        try:
            return self.tune(replace(place, cache_dir=folder, listener=_Sends(place.listener, send)))
        finally:
            send()


@cache
def _own_folder() -> tuple[Path, WatchedFolder]:
    """The cache folder of this process, which nothing has to last in: the keeper has what is to last."""
    Folder.skip_syncs()
    folder = TemporaryFolder.own()
    return folder, WatchedFolder(folder)


class Measurer:
    """Measures on the GPU that this process sees, as ordered.

    Ray sets an `OMP_NUM_THREADS` of its own, by which records of a CPU would differ, so that `threads` is the driver's.
    """

    def __init__(self, model: str | None = None, threads: str | None = None) -> None:
        settings.set_openmp_text(threads)
        self._model = model
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._executor: ChildExecutor | None = None

    def facts(self) -> HostFacts:
        """The facts of this process; a `DeviceError` if there is no GPU."""
        return facts_here(self._model)

    def usable_cpus(self) -> int:
        """CPUs of this host that this process may use."""
        return Host.usable_cpus()

    def loads(self, tune: bytes) -> str:
        """The reason why a packed tune cannot be loaded here; empty if it can."""
        try:
            Packed.loaded(tune)
        except TritonKernelError as error:
            return error.message
        return ""

    def begin(self, cpus: int, level: int) -> None:
        """Begin with so many CPUs for compilers, and what is logged from a level on."""
        self._executor = ChildExecutor(self._calls.put, None, cpus, overlaps=False, level=level)

    def tell(self, call: Call) -> None:
        """Make a call of the driver's."""
        assert self._executor is not None
        self._executor.take(call)

    def hear(self) -> Call:
        """The next call for the driver, which this waits for."""
        return self._calls.get()


class _Sends:
    """A listener that is followed by what it has sent."""

    def __init__(self, listener: Listener, send: Callable[[], None]) -> None:
        self._listener, self._send = listener, send
        self.ended = listener.ended

    def started(self, plan: RunPlan) -> None:
        self._send()
        self._listener.started(plan)

    def tried(self, trial: Trial, progress: RunProgress) -> None:
        self._send()
        self._listener.tried(trial, progress)
