"""What runs in the actors: a measurer on each GPU, and the keeper of the run's cache folder.

Both are plain classes, which know nothing of Ray. A measurer works in a cache folder of its own, and has the keeper
write each trial into that of the run before it begins the next.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_ops import settings
from triton_ops._cpus import usable_cpus
from triton_ops._files import own_temporary_folder, skip_syncs
from triton_ops.backend import unpack
from triton_ops.compile_pool.made import versions_here
from triton_ops.compile_pool.other_hosts import OtherHost, OtherHosts
from triton_ops.compile_pool.shared_cpus import SharedCpus
from triton_ops.exceptions import TritonKernelError
from triton_ops.hardware import gpus_here
from triton_ops.many.cluster.copies import Piece, Watched, apply
from triton_ops.many.executor import Place
from triton_ops.progress.events import RunPlan, RunProgress
from triton_ops.runner.gate import Leave, Prepared
from triton_ops.trial import Trial, TuningResult

SIMULATED = "simulated"
"""The model of a GPU that is not asked for, where actors stand in for GPUs."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What must be equal on all hosts of a run, and where an actor is.

    Attributes:
        host: The host's name.
        model: The GPU's model.
        python: Python's version.
        triton: Triton's version; empty if it is not installed.
    """

    host: str
    model: str
    python: str
    triton: str


def facts_here(model: str | None = None) -> HostFacts:
    """The facts of this process.

    Args:
        model: The GPU's model; None asks the first GPU that this process sees.

    Raises:
        DeviceError: There is no GPU.
    """
    versions = versions_here()
    return HostFacts(
        host=socket.gethostname(), model=gpus_here()[0].name if model is None else model,
        python=versions["Python"], triton=versions["Triton"],
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Work:
    """One problem as it is sent to a measurer.

    Attributes:
        name: The job's name.
        turn: Counts how often problems were sent; of two measurers that have the same problem, the later may write.
        tune: The job's `tune`, packed.
        pieces: The problem's files, and those of other problems that may guide its search.
        limit_s: Seconds that it may take at most; None is no further limit.
        cpus: How many processes may compile for it.
    """

    name: str
    turn: int
    tune: bytes
    pieces: Sequence[Piece]
    limit_s: float | None
    cpus: int


@dataclass(frozen=True)
class Answer:
    """What became of a piece of work: a result, or the exception that ended it."""

    result: TuningResult | None
    error: BaseException | None = None


class Keeper:
    """Writes what measurers find into the cache folder of the run; it runs on the driver's host.

    Its methods may be called by several threads: pieces of different problems wait for the disk at the same time.

    Args:
        folder: The cache folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._turns: dict[str, int] = {}
        self._heard: dict[int, float] = {}
        self._guard = threading.Lock()
        self._writing: dict[str, threading.Lock] = {}
        self._told: dict[str, bool] = {}  # each line, and whether it was asked for

    def begin(self, name: str, turn: int) -> None:
        """A problem is about to be sent again; what an earlier measurer of it still sends is refused."""
        with self._of(name):
            self._turns[name] = turn
            self._heard[turn] = time.monotonic()

    def keep(self, name: str, turn: int, pieces: Sequence[Piece]) -> bool:
        """Write pieces, and return whether the measurer may go on.

        Raises:
            OSError: A file cannot be written.
        """
        with self._of(name):
            if self._turns.setdefault(name, turn) != turn:
                return False
            apply(self._folder, pieces)
            self._heard[turn] = time.monotonic()
            return True

    def silent_s(self, turns: Sequence[int]) -> list[float]:
        """For how many seconds nothing was heard of some turns, at most since this was first asked."""
        now = time.monotonic()
        return [now - self._heard.setdefault(turn, now) for turn in turns]

    def tell(self, line: str) -> None:
        """Keep what a person should know until it is asked for; what several measurers tell is kept once."""
        with self._guard:
            self._told.setdefault(line, False)

    def news(self) -> list[str]:
        """What was told since the last call."""
        with self._guard:
            new = [line for line, known in self._told.items() if not known]
            self._told.update(dict.fromkeys(new, True))
        return new

    def _of(self, name: str) -> threading.Lock:
        """What one thread at a time holds while a problem's turn or files change."""
        with self._guard:
            return self._writing.setdefault(name, threading.Lock())


class Measurer:
    """Tunes one problem after the other on the GPU that this process sees.

    Args:
        keep: Has the keeper write pieces of a problem, by its name and turn, and returns whether to go on.
        model: The GPU's model, where it is not asked for.
        threads: The driver's `OMP_NUM_THREADS`; Ray sets one of its own, by which records of a CPU would differ.
    """

    def __init__(
        self, keep: Callable[[str, int, Sequence[Piece]], bool], model: str | None = None, threads: str | None = None
    ) -> None:
        settings.set_openmp_text(threads)
        self._keep, self._model = keep, model
        skip_syncs()  # the keeper has what is to last
        self._folder = own_temporary_folder()
        self._watched = Watched(self._folder)
        self._elsewhere: OtherHosts | None = None

    def facts(self) -> HostFacts:
        """Where this is, and what is installed there.

        Raises:
            DeviceError: There is no GPU.
        """
        return facts_here(self._model)

    def usable_cpus(self) -> int:
        """CPUs of this host that this process may use."""
        return usable_cpus()

    def use(self, hosts: Sequence[OtherHost], tell: Callable[[str], object]) -> None:
        """From now on have other hosts compile as well.

        Args:
            hosts: The hosts.
            tell: Is told of each that is used no more.
        """
        self._elsewhere = OtherHosts(hosts, tell)

    def loads(self, tune: bytes) -> str:
        """Why a packed tune cannot be loaded here; empty if it can."""
        try:
            unpack(tune)
        except TritonKernelError as error:
            return error.message
        return ""

    def measure(self, work: Work) -> Answer:
        """Tune a problem; every trial is with the keeper before the next one begins."""
        apply(self._folder, work.pieces)
        self._watched.changes()  # these are known there
        gate = _Open(work.limit_s)
        place = Place(
            device=None, gate=gate, shared_cpus=SharedCpus(work.cpus, elsewhere=self._elsewhere),
            listener=_Sends(lambda: self._send(work, gate)), cache_dir=self._folder,
        )  # fmt: skip
        try:
            result = unpack(work.tune)(place)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the driver raises it
            return Answer(None, error)
        finally:
            self._send(work, gate)
        return Answer(result)

    def _send(self, work: Work, gate: _Open) -> None:
        if (pieces := self._watched.changes()) and not self._keep(work.name, work.turn, pieces):
            gate.ended = True


class _Open:
    """The gate of a problem that has the device, until another measurer has its problem."""

    def __init__(self, limit_s: float | None) -> None:
        self._leave = Leave(limit_s=limit_s)
        self.ended = False

    def wait(self, prepared: Prepared | None = None) -> Leave:  # noqa: ARG002 - the role's signature
        """The device is free."""
        return self._leave

    def check(self) -> None:
        """Do nothing, as long as the problem is this measurer's.

        Raises:
            KeyboardInterrupt: Another measurer has it.
        """
        if self.ended:
            raise KeyboardInterrupt


class _Sends:
    """A listener that has each finished trial sent."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send

    def started(self, plan: RunPlan) -> None:  # noqa: ARG002 - the role's signature
        """Send the head of the run log."""
        self._send()

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        """Send the trial."""
        self._send()

    def ended(self, result: TuningResult | None) -> None:
        """The files are sent when the tune has returned."""
