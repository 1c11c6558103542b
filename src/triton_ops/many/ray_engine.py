"""Ray as the engine of a run: connecting, checking that all hosts are alike, and the actor that measures on each GPU.

The actor is a plain class, which knows nothing of Ray. It works in a cache folder of its own, and has the driver write
each trial into that of the run before it begins the next. Run logs only grow, so that their new lines are a piece; any
other file is a piece as a whole.

Facts of Ray that this relies on (2.60): the call of an actor that dies raises, and so do those queued behind it; a
method that runs cannot be cancelled, hence `kill`; each concurrency group of an actor has a thread of its own; an actor
dies with its driver.
"""

from __future__ import annotations

import logging
import pickletools
import platform
import queue
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.backend import Origin, Packed
from triton_ops.base import AppendedFile, Folder, StoredFile, TemporaryFolder, installed_version, require
from triton_ops.compilation import CompilePool
from triton_ops.device import TorchDevice
from triton_ops.exceptions import DeviceError, SettingsError, TargetError, TritonKernelError
from triton_ops.many.executor import Call, ChildExecutor, Executor, Job, JobPlace, RemoteExecutor
from triton_ops.processes import WorkerLostError
from triton_ops.records import Quarantine, Runs, store_in
from triton_ops.request import Effort, TuneOptions
from triton_ops.settings import cache_folder
from triton_ops.tuner import Listener
from triton_ops.values import TuningResult

RUNS, QUARANTINE = Runs.FOLDER, Quarantine.FOLDER
# Nothing else that a host sends is written, and nothing outside of the cache folder.
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
            Folder(path.parent).ensure(folder)
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
    copied = (path for path in paths if _COPIED.fullmatch(path.relative_to(folder).as_posix()))
    return (path for path in copied if Folder(path.parent).is_within(folder))


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
        python=platform.python_version(), triton=installed_version("triton") or "", cpus=CompilePool.usual_workers(),
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

    # ray-project/ray#30496 sets it to the CPUs of an actor.

    def __init__(self, threads: str | None = None) -> None:
        settings.set_variable("OMP_NUM_THREADS", threads)
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

    def hear(self) -> tuple[Call | None, Sequence[Piece]]:
        """The next call for the driver, and what has changed in the cache folder; the driver has done the last one.

        None after some seconds without a call, which says that this process goes on.
        """
        if self._heard:
            self._calls.task_done()
        self._heard = False
        try:
            call = self._calls.get(timeout=_BEAT_S)
        except queue.Empty:
            return None, ()
        self._heard = True
        return call, _own_folder().changes()

    def _send(self, call: Call) -> None:
        """Have the driver make a call, and wait until it has: every trial is there before the next one begins."""
        self._calls.put(call)
        self._calls.join()


_MOST_GUIDES = 8  # problems whose files are sent along: the nearest four guide a search
_MOST_READ = 64  # problems whose files are held in memory


class Guides:
    """What is sent of a job: its tune, its files, and those of other problems of its kernel, which guide the search."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = lru_cache(_MOST_READ)(partial(files_of_problem, folder))
        self._problems: dict[str, list[str]] = {}
        for record in store_in(str(folder)):
            self._problems.setdefault(record.key.kernel, []).append(record.id)

    def content(self, job: Job) -> CopiedTune:
        """The content for a job, of whose kernel the last problems that have a record are sent along."""
        names = self._problems.setdefault(job.kernel, [])
        recorded = (name for name in reversed(names) if (self._folder / f"{name}.record.json").exists())
        guides = list(islice((name for name in recorded if name != job.name), _MOST_GUIDES))
        pieces = {piece.path: piece for name in guides for piece in self._files(name)}
        pieces.update((piece.path, piece) for piece in files_of_problem(self._folder, job.name))
        if job.name not in names:
            names.append(job.name)
        return CopiedTune(job.tune, list(pieces.values()))


class ActorLink:
    """The link to an actor, whose files are written into a folder as they are heard of."""

    def __init__(self, ray: Any, actor: Any, folder: Path) -> None:
        self._ray, self._actor, self._folder = ray, actor, folder
        self._call: Any = None
        self._silent_s = 0.0

    def tell(self, message: Call) -> None:
        """Send a call; that the actor is gone is heard."""
        self._actor.tell.remote(message)

    def hear(self, seconds: float) -> Call | None:
        """The next call; None if there is none in so many seconds.

        A `WorkerLostError` if the actor is gone, or stopped: Ray itself waits for one that is stopped for ever.
        """
        try:
            self._call = self._call or self._actor.hear.options(concurrency_group=_HEARING).remote()
            if not self._ray.wait([self._call], timeout=seconds)[0]:
                self._silent_s += seconds
                if self._silent_s <= _STOPPED_S:
                    return None
                self.kill()
                raise WorkerLostError(f"its process has not gone on for {_STOPPED_S:.0f} s", "", hung=True)
            call, pieces = self._ray.get(self._call)
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(_line(error), "") from error
        self._call, self._silent_s = None, 0.0
        apply(self._folder, pieces)
        return None if call is None else Call(*call)

    def kill(self) -> None:
        """End the actor's process from outside."""
        self._ray.kill(self._actor)


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


_ANSWERS_S = 5.0  # for a host to take a connection
_BEAT_S = 5.0  # after which an actor without anything to tell says that it goes on
_STOPPED_S = 120.0  # without that an actor is stopped; code of the user's may keep the interpreter for a while
_READY_S = 300.0  # for all actors to start, code and packages included
_HEARING = "hear"  # the group of calls that wait in a thread of their own; all others are made in their order
_PACKAGE = Path(__file__).parents[2]
_FORM = "write --engine ray, or ray:HOST:PORT"
_ADDRESS = re.compile(r"\[?[^\s/]+\]?:\d{1,5}")
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # of a client, with settings that are empty
_FRAME_BYTES, _SETTINGS_FRAME = 9, 4  # the head of a frame, and the kind of the first one


@dataclass(frozen=True)
class RayEngine:
    """Measures on the GPUs of a Ray cluster, one actor for each.

    `address` is HOST:PORT of the cluster's head; empty is the cluster of `RAY_ADDRESS`, or else one of this machine
    alone, which is started for the run. `simulated` actors stand in for GPUs, and ask for none; None takes the
    cluster's GPUs.
    """

    address: str = ""
    simulated: int | None = None

    @contextmanager
    def executors(
        self, jobs: Sequence[Job], options: TuneOptions, listener_of: Callable[[Job], Listener]
    ) -> Iterator[Mapping[str, Executor]]:
        """The executors by their devices' names, until all actors are gone; an error if a host does not fit."""
        ray = require("ray", "--engine ray")
        packed = {job.kernel: Packed.of(job.tune).content for job in jobs}
        # The run ends with `ray.shutdown`, which would end what the program does with Ray.
        if ray.is_initialized():
            raise SettingsError("this process uses Ray already", hint="call ray.shutdown() first")
        _connect(ray, self.address, [_PACKAGE, *_modules_in(packed.values())])
        try:
            folder = Folder(cache_folder(options.cache_dir)).ensure().resolve()
            actors = _actors(ray, self.simulated)
            facts = _facts_of(ray, actors, self.simulated)
            _check_loading(ray, actors, facts, packed)
            yield _executors(ray, actors, facts, folder, listener_of, options.settled())
        finally:
            ray.shutdown()


def engine_named(text: Any) -> RayEngine | None:
    """The engine that `--engine` names, or None for None; a `SettingsError` if there is none."""
    if text is None:
        return None
    name, _, address = text.partition(":") if isinstance(text, str) else ("", "", "")
    host, _, port = address.rpartition(":")
    if name != "ray":
        raise SettingsError(f"there is no engine {text!r}", hint=_FORM)
    if address.startswith("ray://"):
        message = f"{address} is an address for Ray's client; run logs are written where the run is started"
        hint = "start the run on a host of the cluster, with ray:HOST:PORT or `ray job submit`"
        raise SettingsError(message, hint=hint)
    if address and not (host and port.isdigit() and 0 < int(port) < 1 << 16):
        raise SettingsError(f"{address!r} is no address of a cluster", hint=_FORM)
    if text.endswith(":"):
        raise SettingsError(f"the address in {text!r} is empty", hint=_FORM)
    return RayEngine(address)


def _connect(ray: Any, address: str, modules: Iterable[Path]) -> None:
    place = address or settings.ray_address()  # which Ray would wait for, for minutes
    if _ADDRESS.fullmatch(place):
        check_answer(place)
    environment = {"py_modules": [str(path) for path in modules]}
    try:
        ray.init(address=address or None, runtime_env=environment, log_to_driver=False, logging_level="ERROR")
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:  # Ray has no class of its own for these
        # Of other versions Ray says in the first line that they differ, and below it which they are.
        reason = " ".join(str(error).split()) if "ersion" in _line(error) else _line(error)
        message = f"Ray does not connect to {place or 'a cluster'}: {reason}"
        raise SettingsError(message, hint="`ray status` there says how it is") from error


def check_answer(address: str) -> None:
    """Ask an address for the greeting of a server of HTTP/2, as Ray's head is; a `SettingsError` without."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_S) as connection:
            # Behind TLS the greeting would be refused.
            if settings.ray_is_encrypted():
                return
            connection.sendall(_GREETING)
            answer = connection.recv(_FRAME_BYTES, socket.MSG_WAITALL)
    except OSError as error:
        late = isinstance(error, TimeoutError)
        how = f" within {_ANSWERS_S:g} s" if late else f": {error.strerror or error}"
        message = f"{address} does not answer{how}"
        raise SettingsError(message, hint="is Ray's head running there? `ray status`") from error
    if len(answer) < _FRAME_BYTES or answer[3] != _SETTINGS_FRAME:
        message = f"what answers at {address} is no head of a Ray cluster"
        raise SettingsError(message, hint="name the port of `ray start --head`, 6379 unless it was given another")


def _modules_in(packed: Iterable[bytes]) -> list[Path]:
    """The modules that packed tunes name and hosts may lack, the user's above all, as files or folders."""
    words = {word for content in packed for _, word, _ in pickletools.genops(content) if isinstance(word, str)}
    tops = {word.partition(".")[0] for word in words} & sys.modules.keys()
    paths = []
    for top in sorted(tops):
        file = getattr(sys.modules[top], "__file__", None)
        if file is not None and Origin.is_carried(top, file):
            path = Path(file).resolve()
            paths.append(path.parent if path.name == "__init__.py" else path)
    return paths


def _actors(ray: Any, simulated: int | None) -> list[Any]:
    count = int(ray.cluster_resources().get("GPU", 0)) if simulated is None else simulated
    if not count:
        raise DeviceError("the cluster has no GPU", hint="`ray status` lists what its hosts have")
    needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 1} if simulated is None else {"num_cpus": 0}
    # An actor that Ray starts again would lack its files and all that it was told.
    remote_class = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={_HEARING: 1}, **needs)(Measurer)
    return [remote_class.remote(settings.openmp_text()) for _ in range(count)]


def _facts_of(ray: Any, actors: Sequence[Any], simulated: int | None) -> list[HostFacts]:
    model = None if simulated is None else SIMULATED
    facts: list[HostFacts] = _answers(ray, [actor.facts.remote(model) for actor in actors])
    check_alike(facts, facts_here(model))
    return facts


def _answers(ray: Any, calls: Sequence[Any]) -> list[Any]:
    """What actors answer before a run; SettingsError if one does not, in minutes."""
    try:
        answers: list[Any] = ray.get(calls, timeout=_READY_S)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        message = f"the actors do not start: {lines[-1].strip() if lines else type(error).__name__}"
        raise SettingsError(message, hint="`ray status` says what is asked for and what is there") from error
    return answers


def check_alike(hosts: Iterable[HostFacts], here: HostFacts) -> None:
    """Compare the hosts of actors with this one; an error if a host has other versions or another model of GPU."""
    for facts in hosts:
        for what, there, own in (("Python", facts.python, here.python), ("Triton", facts.triton, here.triton)):
            if there != own:
                message = f"{facts.host} has {what} {there or '(none)'}, and this host {own or '(none)'}"
                raise SettingsError(message, hint="install the same versions on all hosts: a record holds for one")
        if facts.model != here.model:
            message = f"one run is for GPUs of one model: {facts.host} has {facts.model}, and this host {here.model}"
            raise DeviceError(message, hint="start a run for each model, with the same cache folder")


def _check_loading(ray: Any, actors: Sequence[Any], hosts: Sequence[HostFacts], packed: Mapping[str, bytes]) -> None:
    for host, actor in dict(zip((facts.host for facts in hosts), actors, strict=True)).items():
        whys = _answers(ray, [actor.loads.remote(content) for content in packed.values()])
        for kernel, why in zip(packed, whys, strict=True):
            if why:
                raise TargetError(f"{host} cannot load {kernel}: {why}", hint="install what it imports on all hosts")


def _executors(
    ray: Any, actors: Sequence[Any], hosts: Sequence[HostFacts], folder: Path,
    listener_of: Callable[[Job], Listener], effort: Effort,
) -> dict[str, RemoteExecutor]:  # fmt: skip
    on_host, numbers, guides = Counter(facts.host for facts in hosts), Counter[str](), Guides(folder)
    level = logging.getLogger("triton_ops").getEffectiveLevel()
    executors = {}
    for actor, facts in zip(actors, hosts, strict=True):
        actor.begin.remote(max(1, facts.cpus // on_host[facts.host]), level)
        name = f"{facts.host}:{numbers[facts.host]}"
        numbers[facts.host] += 1
        link = ActorLink(ray, actor, folder)
        executors[name] = RemoteExecutor(link, listener_of, effort, content_of=guides.content)
    return executors
