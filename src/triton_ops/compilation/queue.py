"""The queue of a compile pool: proposals in their order, and previews, which are compiled in spare time."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from triton_ops.space import Config
from triton_ops.values import Compiled


@dataclass(eq=False)
class CompileJob:
    """One config to be compiled; a spare one only while nothing else waits, as a preview."""

    config: Config
    spare: bool
    future: Future[Compiled] = field(default_factory=Future)


class Queue:
    """Jobs that take their turn, and spare jobs, which run while no other job waits. Safe to share among threads.

    Args:
        spares: The number of spare jobs that may run at a time.
    """

    def __init__(self, spares: int) -> None:
        self._spares, self._running_spare = spares, 0
        self._now: deque[CompileJob] = deque()
        self._later: dict[Config, CompileJob] = {}
        self._begun_jobs: dict[Config, CompileJob] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add(self, config: Config, spare: bool) -> Future[Compiled]:
        """The future of `config`: that of an earlier spare job of the same config, if there is one, else a new one."""
        with self._lock:
            if (spare_job := self._begun_jobs.get(config)) is not None:
                return spare_job.future
            job = self._later.get(config)
            if job is not None and not spare:
                del self._later[config]
                job.spare = False
                self._begun_jobs[config] = job
                self._now.append(job)
            elif job is None:
                job = CompileJob(config, spare)
                if spare:
                    self._later[config] = job
                else:
                    self._now.append(job)
            if self._closed:
                job.future.cancel()
            return job.future

    def hurried(self) -> bool:
        """Tell whether a job waits that is not spare."""
        return bool(self._now)

    def take(self) -> CompileJob | None:
        """The next job, which the caller later gives to `done`; None if none may begin now."""
        with self._lock:
            while not self._closed:
                job = self._first()
                if job is None:
                    return None
                if job.future.set_running_or_notify_cancel():
                    self._running_spare += job.spare
                    return job
        return None

    def done(self, job: CompileJob) -> None:
        """Note that `job` does not run any more."""
        with self._lock:
            self._running_spare -= job.spare

    def close(self) -> None:
        """Cancel every job that has not begun."""
        with self._lock:
            self._closed = True
            for job in (*self._now, *self._later.values()):
                job.future.cancel()

    def _first(self) -> CompileJob | None:
        if self._now:
            return self._now.popleft()
        if not self._later or self._running_spare >= self._spares:
            return None
        job = self._later.pop(next(iter(self._later)))
        self._begun_jobs[job.config] = job
        return job
