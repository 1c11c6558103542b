"""Executors, each of which measures the problems of one device: in this process, or in one of its own.

One device is served by this process. Of several devices each has a process, here or on a host of a Ray cluster, that
thinks for it alone: searchers, models and the threads of what is prepared take an interpreter that no other device
waits for. That process has a `LocalExecutor` too, and each side calls methods of the other one by messages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from logging.handlers import QueueHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypeAlias

from triton_ops.backend import CandidateError, Packed, ScratchAllocator
from triton_ops.base import ForkSafeLock
from triton_ops.compilation import SharedCpus
from triton_ops.evaluation import start_one_early
from triton_ops.exceptions import KernelTypeError, TritonKernelError
from triton_ops.many.schedule import Planned
from triton_ops.processes import Surroundings, Threads, WorkerLostError, WorkerProcess
from triton_ops.request import Effort
from triton_ops.tuner import Gate, Listener
from triton_ops.values import TuningResult


class ExecutorLostError(Exception):
    """An executor or its device is gone; the message says how. The problem may go on elsewhere.

    `renew` makes an executor of the same device; it is None where the device is gone too.
    """

    renew: Callable[[], Executor] | None = None


@dataclass(frozen=True, kw_only=True)
class JobPlace:
    """The place of a job in this process; `device` None is the problem's own, `cache_dir` None the run's."""

    device: str | None
    gate: Gate
    shared_cpus: SharedCpus
    listener: Listener
    cache_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Job(Planned):
    """One problem of a run, checked and ready to be tuned.

    `name` is the id of its record's key. From `problem`, which the caller gave, the job can be made again elsewhere.
    `worker` is the device of the worker that runs its configs, where it has one.
    """

    label: str
    problem: Any
    tune: Any
    recall: Callable[[], TuningResult | None] | None = None
    worker: str = ""


Ready: TypeAlias = "Callable[[str, bool], None]"
"""Is told the name of a job of which enough is prepared, and whether all is; in any thread, and returns at once."""


class Executor(Protocol):
    """Measures jobs on one device, one at a time; its methods return at once, and are called by one thread.

    An executor that is lost raises an `ExecutorLostError`, at once or as the exception of its future.
    """

    ready: Ready  # is called for each job once enough of it is prepared, once all is, or when it ended

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Begin with what jobs need before they are measured, the next one first; drop what others needed."""

    def measure(self, job: Job, limit_s: float | None) -> Future[TuningResult]:
        """Tune a job, which may have been prepared, within `limit_s`.

        The future has the result, which says `interrupted` if the executor was closed meanwhile and a config had run.
        Its exception is a `TritonKernelError` if the tune failed, `KeyboardInterrupt` if the executor was closed before
        any config ran, and an `ExecutorLostError` if the executor or its device is gone.
        """

    def end(self) -> None:
        """Have what is being measured and prepared end after the step that each is at, to be gone on with later."""

    def close(self) -> None:
        """End as `end`, wait some seconds until everything has ended, and end all processes."""


_log = logging.getLogger("triton_ops")

_HELD_S = 0.3  # the thread of a job that is prepared leaves the interpreter so long to that which has just been let in


class _Tune:
    """One job in its thread."""

    def __init__(self, job: Job, place: JobPlace, ready: Ready, held_s: float) -> None:
        self.job, self.gate, self._ready = job, place.gate, ready
        self.future: Future[TuningResult] = Future()
        run = partial(copy_context().run, self._run, place, held_s)  # what is set for launches holds for these too
        self.thread = threading.Thread(target=run, name=f"triton-ops {job.label}", daemon=True)
        Threads.begin(self.thread)

    def _run(self, place: JobPlace, held_s: float) -> None:
        def tune() -> TuningResult:
            self.gate.hold(held_s)
            self.gate.check()
            result: TuningResult = self.job.tune(place)
            return result

        Threads.settle(self.future, tune)
        self._ready(self.job.name, True)  # whatever it was waited for comes no more


class LocalExecutor:
    """Measures jobs in this process, on a device of this machine, or on each job's own for None, as `tune` does."""

    def __init__(self, shared_cpus: SharedCpus, device: str | None, listener_of: Callable[[Job], Listener]) -> None:
        self._shared_cpus, self._device, self._listener_of = shared_cpus, device, listener_of
        self._ahead: dict[str, _Tune] = {}
        self._now: _Tune | None = None
        self._dropped: list[_Tune] = []
        self.ready: Ready = lambda *_: None

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Compile for jobs; what was prepared before for others is dropped."""
        names = [job.name for job in jobs]
        self._dropped = [each for each in self._dropped if each.thread.is_alive()]
        for name in [name for name in self._ahead if name not in names]:
            self._ahead[name].gate.end()
            self._dropped.append(self._ahead.pop(name))
        idle = self._now is None
        for at, job in enumerate(jobs):
            if job.name not in self._ahead:
                self._ahead[job.name] = self._begun(job, early=idle and at == 0, held_s=0.0 if idle else _HELD_S)

    def measure(self, job: Job, limit_s: float | None) -> Future[TuningResult]:
        """Tune a job when the one before has ended."""
        self._now = self._ahead.pop(job.name, None) or self._begun(job, early=True)
        self._now.gate.let_in(limit_s)
        return self._now.future

    def lend(self, cpus: int) -> None:
        """Let compilers have so many CPUs more, until this is called again."""
        self._shared_cpus.lend(cpus)

    def end(self) -> None:
        """Have all jobs end after the step that each is at."""
        for each in self._tunes:
            each.gate.end()

    def close(self) -> None:
        """End all jobs after the step that each is at, for which this waits some seconds."""
        self.end()
        until = time.monotonic() + Gate.GRACE_S
        for each in self._tunes:
            each.thread.join(max(0.0, until - time.monotonic()))
            if each.thread.is_alive():
                _log.warning("%s did not end in time: its thread is left running", each.job.label)
        self._now, self._ahead, self._dropped = None, {}, []

    @property
    def _tunes(self) -> list[_Tune]:
        return [each for each in (self._now, *self._ahead.values(), *self._dropped) if each is not None]

    def _begun(self, job: Job, *, early: bool, held_s: float = 0.0) -> _Tune:
        if early and job.worker:  # its imports take longest of all that comes before the first config
            start_one_early(self._device or job.worker)
        place = JobPlace(
            device=self._device, gate=Gate(partial(self.ready, job.name)), shared_cpus=self._shared_cpus,
            listener=self._listener_of(job),
        )  # fmt: skip
        return _Tune(job, place, self.ready, held_s)


SPARED = 2  # CPUs for each problem that is measured, which configs of later problems leave alone
_LOOK_S = 5.0  # between two looks for a process that hangs
_SILENCE_S = 120.0  # over what a step of a tune may take
_SILENT_LAUNCHES = 64  # of the slowest config that ran: a race of long launches tells of nothing until its end


class Call(NamedTuple):
    """A call of a method of the other side, which gives nothing back."""

    method: str
    arguments: tuple[Any, ...] = ()


class ChildExecutor:
    """The executor of a process that measures, which is called from elsewhere; `send` sends calls to there.

    It `shares` its CPUs where the other side lends those that are idle to other executors.
    """

    def __init__(
        self, send: Callable[[Call], None], device: str | None, cpus: int, level: int, *, shares: bool = False
    ) -> None:
        self._send_one, self._guard = send, threading.Lock()
        shared_cpus = SharedCpus(cpus, SPARED, partial(self._send, "idle") if shares else lambda _: None)
        self._executor = LocalExecutor(shared_cpus, device, self._listener)
        self._executor.ready = partial(self._send, "ready")
        # `QueueHandler` makes records that can be pickled, and the other side alone handles them.
        _log.addHandler(QueueHandler(SimpleNamespace(put_nowait=partial(self._send, "log"))))
        _log.setLevel(level)
        _log.propagate = False

    def take(self, call: Call) -> None:
        """Make a call from elsewhere, of a method of the executor; the other side hears how a job ended."""
        future = getattr(self._executor, call.method)(*call.arguments)
        if future is not None:
            future.add_done_callback(partial(self._ended, call.arguments[0].name))

    def _listener(self, job: Job) -> Any:
        """A listener of one job, whose events are sent."""
        events = ("started", "tried", "ended")
        return SimpleNamespace(**{event: partial(self._send, "follow", job.name, event) for event in events})

    def _ended(self, name: str, future: Future[TuningResult]) -> None:
        if (error := future.exception()) is not None:
            try:
                Packed.loaded(Packed.of(error).content)
            except TritonKernelError:  # another process could not make it again
                error = TritonKernelError(CandidateError.one_line(error))
        self._send("ended", name, future.result() if error is None else error)

    def _send(self, method: str, *arguments: Any) -> None:
        with self._guard:
            self._send_one(Call(method, arguments))


_loading = ForkSafeLock()  # threads that import modules which import each other find them half imported


def _tuned(packed: bytes, place: JobPlace) -> TuningResult:
    """The result of what was sent of a job; it is loaded in the job's thread, since that may import modules."""
    with _loading:
        tune: Callable[[JobPlace], TuningResult] = Packed.loaded(packed)
    return tune(place)


class Link(Protocol):
    """The connection to a process that measures; each method raises a `WorkerLostError` if that is gone."""

    def tell(self, message: Call) -> None:
        """Send a call."""

    def hear(self, seconds: float) -> Call | None:
        """The next call; None if there is none in so many seconds."""

    def kill(self) -> None:
        """End the process and all that it has started."""


class LentCpus:
    """Lends the CPUs that some executors of a host leave idle to those that leave none, equally; safe among threads."""

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus  # of its own that the executor of each device has
        self._idle: dict[str, tuple[RemoteExecutor, int]] = {}
        self._lent: dict[RemoteExecutor, int] = {}
        self._guard = threading.Lock()

    def note(self, device: str, executor: RemoteExecutor, idle: int | None) -> None:
        """An executor has so many CPUs of its own idle; None where it is gone, and leaves all of them idle."""
        with self._guard:
            if idle is None and self._idle.get(device, (executor,))[0] is not executor:
                return  # another one is in its place
            self._idle[device] = executor, self._cpus if idle is None else idle
            counts = [count for _, count in self._idle.values()]
            for each, count in self._idle.values():
                lent = 0 if count else sum(counts) // counts.count(0)
                if lent != self._lent.get(each, 0):
                    self._lent[each] = lent
                    each.lend(lent)


class RemoteExecutor:
    """Has a process of its own measure jobs.

    A process of which nothing is heard for longer than a step of a tune may take has hung, and is ended. `content_of`
    has what is sent of a job, and `renew` makes an executor in place of one that is lost. `note` is told how many CPUs
    it leaves idle, and None when it is gone.
    """

    def __init__(
        self, link: Link, listener_of: Callable[[Job], Listener], effort: Effort, *,
        renew: Callable[[], RemoteExecutor] | None = None, content_of: Callable[[Job], Any] = lambda job: job.tune,
        note: Callable[[RemoteExecutor, int | None], object] = lambda *_: None,
    ) -> None:  # fmt: skip
        self._link, self._listener_of, self._renew, self._content_of = link, listener_of, renew, content_of
        self._note, self._telling = partial(note, self), threading.Lock()
        self._step_s = _SILENCE_S + effort.patience.setup_s + effort.patience.trial_s + effort.race.seconds
        self._silence_s = self._step_s
        self.ready: Ready = lambda *_: None
        self._there: dict[str, Listener] = {}  # of the jobs that the process knows
        self._now: tuple[str, Future[TuningResult]] | None = None
        self._gone: ExecutorLostError | None = None
        self._closed, self._guard = False, threading.RLock()
        self._listener = threading.Thread(target=self._listen, name="triton-ops executor", daemon=True)
        Threads.begin(self._listener)

    @classmethod
    def of_device(
        cls, device: str, cpus: int, listener_of: Callable[[Job], Listener], effort: Effort, isolated: bool,
        lent: LentCpus,
    ) -> RemoteExecutor:  # fmt: skip
        """An executor in a new process of this machine, with so many CPUs for compilers; a `DeviceError` without.

        The process begins with a worker if jobs are `isolated`. What is `lent` are the CPUs that others leave idle.
        """
        process = WorkerProcess(program="triton_ops.many.executor_process", duplex=True)
        process.step = "tune"
        allocator = ScratchAllocator.packed()  # the one that the user has given to Triton
        process.tell((Surroundings.here(), allocator, isolated, device, cpus, _log.getEffectiveLevel()))
        renew = partial(cls.of_device, device, cpus, listener_of, effort, isolated, lent)
        return cls(process, listener_of, effort, renew=renew, note=partial(lent.note, device))

    def lend(self, cpus: int) -> None:
        """Let its compilers have so many CPUs more, which others leave idle."""
        self._tell("lend", cpus)

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Send jobs to be prepared; one that cannot be sent is ready, and fails when it is measured."""
        by_name = {job.name: self._sent(job) for job in jobs}
        there = {*by_name, "" if self._now is None else self._now[0]}
        self._there = {name: listener for name, listener in self._there.items() if name in there}
        self._tell("prepare", [each for each in by_name.values() if isinstance(each, Job)])
        for name, each in by_name.items():
            if isinstance(each, KernelTypeError) or self._gone is not None:
                self.ready(name, True)

    def measure(self, job: Job, limit_s: float | None) -> Future[TuningResult]:
        """Send a job; an `ExecutorLostError` if the process is gone."""
        future: Future[TuningResult] = Future()
        if isinstance(job_there := self._sent(job), KernelTypeError):
            future.set_exception(job_there)
            return future
        with self._guard:
            if self._gone is not None:
                raise self._gone
            self._now = job.name, future
        self._tell("measure", job_there, limit_s)
        return future

    def end(self) -> None:
        """Have the process end all jobs after the step that each is at."""
        self._closed = True
        self._tell("end")

    def close(self) -> None:
        """End all jobs, for which this waits some seconds, and the process."""
        if not self._closed:
            self.end()
        if (now := self._now) is not None:
            wait([now[1]], timeout=Gate.GRACE_S)
        self._link.kill()
        self._listener.join(Gate.GRACE_S)

    def _tell(self, method: str, *arguments: Any) -> None:
        try:
            # Two threads may tell: that of the run, and that which hears how many CPUs others leave idle.
            with self._telling:
                self._link.tell(Call(method, arguments))
        except WorkerLostError as error:
            self._lose(error)

    def _sent(self, job: Job) -> Job | KernelTypeError:
        """A job as it is sent, without its `tune` if the process has that; or the reason why it cannot be."""
        bare = replace(job, problem=None, tune=None, recall=None)
        if job.name in self._there:
            return bare
        try:
            packed = Packed.of(self._content_of(job))
        except KernelTypeError as error:
            return error
        if packed.drawn:
            message = f"its tensors are too large to be sent to the process of a GPU: {', '.join(packed.drawn)}"
            hint = "tune it on one GPU, or as an operation that makes its arguments from a shape"
            return KernelTypeError(message, hint=hint)
        self._there[job.name] = self._listener_of(job)
        return replace(bare, tune=partial(_tuned, packed.content))

    def _listen(self) -> None:
        takes: dict[str, Callable[..., Any]] = {
            # `ready` is looked up at each call, since the run sets it later.
            "log": _log.handle, "ready": lambda *args: self.ready(*args), "follow": self._follow, "ended": self._finish,
            "idle": self._note,
        }  # fmt: skip
        silent_s = 0.0
        try:
            while True:
                call = self._link.hear(_LOOK_S)
                silent_s = 0.0 if call is not None or self._now is None else silent_s + _LOOK_S
                if call is not None:
                    takes[call.method](*call.arguments)
                elif silent_s > self._silence_s:
                    self._link.kill()
                    raise WorkerLostError(f"nothing was heard of it for {self._silence_s:.0f} s", "", hung=True)
        except BaseException as error:  # noqa: BLE001 - whoever takes the result raises it
            self._lose(error)
        self._note(None)

    def _follow(self, name: str, method: str, *arguments: Any) -> None:
        if method == "tried" and arguments[0].ok:
            self._silence_s = max(self._silence_s, self._step_s + _SILENT_LAUNCHES * arguments[0].median_ms / 1e3)
        if (listener := self._there.get(name)) is not None:
            getattr(listener, method)(*arguments)

    def _finish(self, name: str, outcome: TuningResult | BaseException) -> None:
        with self._guard:
            if self._now is None or self._now[0] != name:
                return
            future, self._now = self._now[1], None
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _lose(self, error: BaseException) -> None:
        """Note that the process is gone, and tell whoever waits for it."""
        with self._guard:
            first, self._gone = self._gone is None, self._gone or ExecutorLostError(str(error))
            self._gone.renew = self._renew
            now, self._now = self._now, None
        if now is not None:
            now[1].set_exception(KeyboardInterrupt() if self._closed else self._gone)
        for name in list(self._there) if first else ():
            self.ready(name, True)  # whoever measures it hears of the loss
