"""The actors of a Ray run: a measurer on each GPU, and the keeper of the run's cache folder.

Both are plain classes, which know nothing of Ray. A measurer works in a cache folder of its own, and has the keeper
write each trial into that of the run before it begins the next.

Run logs only grow, so that their new lines are a piece; any other file is a piece as a whole.
"""

from __future__ import annotations

import platform
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_ops import settings
from triton_ops.backend import Packed
from triton_ops.base import AppendedFile, Folder, Host, StoredFile, TemporaryFolder, installed_version
from triton_ops.compilation import SharedCpus
from triton_ops.device import TorchDevice
from triton_ops.exceptions import TritonKernelError
from triton_ops.many.executor import JobPlace
from triton_ops.records import Quarantine, Runs
from triton_ops.tuner import Gate, RunPlan, RunProgress, Silent
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
    return HostFacts(
        host=socket.gethostname(), model=TorchDevice.gpus()[0].name if model is None else model,
        python=platform.python_version(), triton=installed_version("triton") or "",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SentWork:
    """One problem as it is sent to a measurer.

    `turn` counts how often problems were sent; of two measurers that have the same problem, the later may write.
    `pieces` are its files, and those of other problems that may guide its search.
    """

    name: str
    turn: int
    tune: bytes
    pieces: Sequence[Piece]
    limit_s: float | None
    cpus: int


class Keeper:
    """Writes what measurers find into the cache folder of the run, on the driver's host, in several threads."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._turns: dict[str, int] = {}
        self._last_news: dict[int, float] = {}
        self._guard = threading.Lock()
        self._writing: dict[str, threading.Lock] = {}

    def begin(self, name: str, turn: int) -> None:
        """A problem is about to be sent again; what an earlier measurer of it still sends is refused."""
        with self._of(name):
            self._turns[name] = turn
            self._last_news[turn] = time.monotonic()

    def keep(self, name: str, turn: int, pieces: Sequence[Piece]) -> bool:
        """Write pieces, and return whether the measurer may go on; an `OSError` if a file cannot be written."""
        with self._of(name):
            if self._turns.setdefault(name, turn) != turn:
                return False
            apply(self._folder, pieces)
            self._last_news[turn] = time.monotonic()
            return True

    def silent_s(self, turns: Sequence[int]) -> list[float]:
        """For how many seconds nothing was heard of some turns, at most since this was first asked."""
        now = time.monotonic()
        return [now - self._last_news.setdefault(turn, now) for turn in turns]

    def _of(self, name: str) -> threading.Lock:
        with self._guard:
            return self._writing.setdefault(name, threading.Lock())


class Measurer:
    """Tunes one problem after the other on the GPU that this process sees.

    `keep` has the keeper write pieces, and returns whether to go on. Ray sets an `OMP_NUM_THREADS` of its own, by which
    records of a CPU would differ, so that `threads` is the driver's.
    """

    def __init__(
        self, keep: Callable[[str, int, Sequence[Piece]], bool], model: str | None = None, threads: str | None = None
    ) -> None:
        settings.set_openmp_text(threads)
        self._keep, self._model = keep, model
        Folder.skip_syncs()  # the keeper has what is to last
        self._folder = TemporaryFolder.own()
        self._watched = WatchedFolder(self._folder)

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

    def measure(self, work: SentWork) -> TuningResult | BaseException:
        """Tune a problem, or give its exception; every trial is with the keeper before the next one begins."""
        apply(self._folder, work.pieces)
        self._watched.changes()  # these are known there
        gate = Gate()
        gate.let_in(work.limit_s, overlaps=False)
        place = JobPlace(
            device=None, gate=gate, shared_cpus=SharedCpus(work.cpus),
            listener=_Sends(lambda: self._send(work, gate)), cache_dir=self._folder,
        )  # fmt: skip
        try:
            result: TuningResult = Packed.loaded(work.tune)(place)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the driver raises it
            return error
        finally:
            self._send(work, gate)
        return result

    def _send(self, work: SentWork, gate: Gate) -> None:
        if (pieces := self._watched.changes()) and not self._keep(work.name, work.turn, pieces):
            gate.end()  # another measurer has the problem


class _Sends(Silent):
    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send

    def started(self, plan: RunPlan) -> None:  # noqa: ARG002 - the role's signature
        self._send()

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        self._send()
