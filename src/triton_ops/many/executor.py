"""The role of what measures problems on one device, and the job that it is given."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from triton_ops.compilation import SharedCpus
from triton_ops.processes import Threads
from triton_ops.tuner import Gate, Listener
from triton_ops.values import TuningResult


class ExecutorLostError(Exception):
    """An executor or its device is gone; the message says how. The problem may go on elsewhere."""


@dataclass(frozen=True, kw_only=True)
class JobPlace:
    """The place of a job in this process; `device` None is the problem's own, `cache_dir` None the run's."""

    device: str | None
    gate: Gate
    shared_cpus: SharedCpus
    listener: Listener
    cache_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One problem of a run, checked and ready to be tuned.

    `name` is the id of its record's key. From `problem`, which the caller gave, the job can be made again elsewhere.
    `devices` None are all. `start_worker` starts a worker process on a device, or on the job's own for None.
    """

    name: str
    label: str
    kernel: str
    problem: Any
    tune: Callable[[JobPlace], TuningResult]
    recall: Callable[[], TuningResult | None] = field(default=lambda: None)
    weight: float = 1.0
    devices: frozenset[str] | None = None
    start_worker: Callable[[str | None], None] = lambda _: None


class Executor(Protocol):
    """Measures jobs on one device, one at a time; its methods return at once, and are called by one thread.

    An executor that is lost raises an `ExecutorLostError`, at once or as the exception of its future.
    """

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Begin with what jobs need before they are measured, the next one first; drop what others needed."""

    def measure(self, job: Job, limit_s: float | None) -> Future[TuningResult]:
        """Tune a job, which may have been prepared, within `limit_s`.

        The future has the result, which says `interrupted` if the executor was closed meanwhile and a config had run.
        Its exception is a `TritonKernelError` if the tune failed, `KeyboardInterrupt` if the executor was closed before
        any config ran, and an `ExecutorLostError` if the executor or its device is gone.
        """

    def close(self) -> None:
        """End what is being measured and prepared, so that it can be gone on with later, and all processes."""


Ready: TypeAlias = "Callable[[str, bool], None]"
"""Is told the name of a job of which enough is prepared, and whether all is; in any thread, and returns at once."""


@runtime_checkable
class TellsReady(Protocol):
    """An executor that can tell when a job is prepared so far that measuring it need not wait."""

    def tell_ready(self, call: Ready) -> None:
        """Have a function called for each job once enough of it is prepared, once all is, or when it ended."""


_log = logging.getLogger("triton_ops")

_HELD_S = 0.3  # the thread of a job that is prepared leaves the interpreter so long to that which has just been let in
_LOOK_S = 0.1  # between two looks whether a job that waits for its former thread is to end
_dropped: weakref.WeakValueDictionary[str, threading.Thread] = weakref.WeakValueDictionary()
"""The threads of jobs that were prepared on one device and dropped there, since another device took them, by name."""


class _Tune:
    """One job in its thread, which begins once the job's former thread has ended: both would tune the same problem."""

    def __init__(self, job: Job, tuned: Callable[[Gate], TuningResult], ready: Ready, held_s: float = 0.0) -> None:
        self.job, self.gate = job, Gate(partial(ready, job.name))
        self._ready, self._held_s = ready, held_s
        self.future: Future[TuningResult] = Future()
        self._tuned, self._before, self._begins = tuned, _dropped.get(job.name), False
        run = partial(copy_context().run, self._run)  # what the caller has set for launches holds for these too
        self.thread = threading.Thread(target=run, name=f"triton-ops {job.label}", daemon=True)
        Threads.begin(self.thread)

    def drop(self) -> None:
        self.gate.end()
        if self._begins:
            _dropped[self.job.name] = self.thread  # waited for by whoever begins the job again

    def _run(self) -> None:
        try:
            while self._before is not None and self._before.is_alive():
                self._before.join(_LOOK_S)
                self.gate.check()
            self.gate.hold(self._held_s)
            self._begins = True
            self.gate.check()  # a drop until here has left the former thread in its place
            result = self._tuned(self.gate)
        except BaseException as error:  # noqa: BLE001 - whoever takes the result raises it
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
        self._ready(self.job.name, True)  # whatever it was waited for comes no more


class LocalExecutor:
    """Measures jobs on a device of this machine, or on each job's own for None, as `tune` does."""

    def __init__(self, shared_cpus: SharedCpus, device: str | None, listener_of: Callable[[Job], Listener]) -> None:
        self._shared_cpus, self._device, self._listener_of = shared_cpus, device, listener_of
        self._ahead: dict[str, _Tune] = {}
        self._now: _Tune | None = None
        self._dropped: list[_Tune] = []
        self._ready: Ready = lambda *_: None

    def tell_ready(self, call: Ready) -> None:
        """From now on have a function called with the name of each job, once enough or all of it is prepared."""
        self._ready = call

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Compile for jobs; what was prepared before for others is dropped."""
        names = [job.name for job in jobs]
        self._dropped = [each for each in self._dropped if each.thread.is_alive()]
        for name in [name for name in self._ahead if name not in names]:
            self._ahead[name].drop()
            self._dropped.append(self._ahead.pop(name))
        if jobs and self._now is None:
            jobs[0].start_worker(self._device)  # it imports while the first configs compile
        for job in jobs:
            if job.name not in self._ahead:
                self._ahead[job.name] = self._begun(job, held_s=_HELD_S if self._now is not None else 0.0)

    def measure(self, job: Job, limit_s: float | None) -> Future[TuningResult]:
        """Tune a job when the one before has ended."""
        prepared = self._ahead.pop(job.name, None)
        if prepared is None:
            job.start_worker(self._device)
        self._now = prepared or self._begun(job)
        self._now.gate.let_in(limit_s)
        return self._now.future

    def close(self) -> None:
        """End all jobs after the step that each is at, for which this waits some seconds."""
        tunes = [each for each in (self._now, *self._ahead.values(), *self._dropped) if each is not None]
        for each in tunes:
            each.gate.end()
        until = time.monotonic() + Gate.GRACE_S
        for each in tunes:
            each.thread.join(max(0.0, until - time.monotonic()))
            if each.thread.is_alive():
                _log.warning("%s does not end: it is left behind", each.job.label)
        self._now, self._ahead, self._dropped = None, {}, []

    def _begun(self, job: Job, held_s: float = 0.0) -> _Tune:
        listener = self._listener_of(job)
        return _Tune(
            job,
            lambda gate: job.tune(
                JobPlace(device=self._device, gate=gate, shared_cpus=self._shared_cpus, listener=listener)
            ),
            self._ready,
            held_s,
        )
