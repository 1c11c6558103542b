"""The queue of a compile pool: proposals in their order, and previews, which are compiled in spare time.

What waits is compiled on this host, or elsewhere: by other hosts, which get what this one cannot begin at once.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

from triton_ops.space import Config
from triton_ops.values import Compiled


@dataclass(eq=False)
class CompileJob:
    """One config to be compiled.

    Attributes:
        config: The config.
        spare: Whether the config is compiled only in spare time, as a preview.
        elsewhere: Whether another host compiles it.
        future: The compiler's result.
    """

    config: Config
    spare: bool
    elsewhere: bool = False
    future: Future[Compiled] = field(default_factory=Future)


class Queue:
    """Jobs that take their turn, and spare jobs, which run while no other job waits. Safe to share among threads.

    Args:
        spares: The number of spare jobs that may run at a time on this host.
        here: How many jobs this host runs at a time.
    """

    def __init__(self, spares: int, here: int = 1) -> None:
        self._spares, self._here = spares, here
        self._running = self._running_spare = 0  # on this host
        self._returned: deque[CompileJob] = deque()
        self._now: deque[CompileJob] = deque()
        self._later: dict[Config, CompileJob] = {}
        self._begun: dict[Config, CompileJob] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add(self, config: Config, spare: bool) -> Future[Compiled]:
        """The future of `config`: that of an earlier spare job of the same config, if there is one, else a new one."""
        with self._lock:
            if (begun := self._begun.get(config)) is not None:
                return begun.future
            job = self._later.get(config)
            if job is not None and not spare:
                del self._later[config]
                job.spare = False
                self._begun[config] = job
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
        """Whether a job waits that is not spare."""
        return bool(self._now or self._returned)

    def take(self, elsewhere: bool = False) -> CompileJob | None:
        """The next job, which the caller later gives to `done` or to `give_back`; None if none may begin now.

        Args:
            elsewhere: Whether another host is to compile it: this host must have more to do than it can begin.
        """
        with self._lock:
            while not self._closed:
                job = self._first_elsewhere() if elsewhere else self._first()
                if job is None:
                    return None
                if job.elsewhere or job.future.set_running_or_notify_cancel():  # what was given back runs already
                    self._count(job, elsewhere, 1)
                    return job
        return None

    @property
    def overflows(self) -> bool:
        """Whether there is a job for another host."""
        with self._lock:
            return not self._closed and len(self._now) + len(self._later) > self._free

    def done(self, job: CompileJob) -> None:
        """Note that `job` does not run any more."""
        with self._lock:
            self._count(job, job.elsewhere, -1)

    def give_back(self, job: CompileJob) -> bool:
        """Have a job that another host has not compiled be compiled on this one, before all others.

        Returns:
            Whether it will be: nothing is compiled any more once the queue is closed.
        """
        with self._lock:
            if not self._closed:
                self._returned.append(job)
            return not self._closed

    def _count(self, job: CompileJob, elsewhere: bool, change: int) -> None:
        job.elsewhere = elsewhere
        if not elsewhere:
            self._running += change
            self._running_spare += change * job.spare

    def close(self) -> None:
        """Cancel every job that has not begun."""
        with self._lock:
            self._closed = True
            for job in (*self._now, *self._later.values()):
                job.future.cancel()
            for job in self._returned:  # they run, so that they cannot be cancelled
                job.future.set_exception(CancelledError())

    def _first(self) -> CompileJob | None:
        for waiting in (self._returned, self._now):
            if waiting:
                return waiting.popleft()
        return self._first_spare() if self._running_spare < self._spares else None

    @property
    def _free(self) -> int:
        """How many jobs this host could begin at once."""
        return max(0, self._here - self._running)

    def _first_elsewhere(self) -> CompileJob | None:
        if len(self._now) > self._free:
            return self._now.popleft()
        return self._first_spare() if len(self._now) + len(self._later) > self._free else None

    def _first_spare(self) -> CompileJob | None:
        if not self._later:
            return None
        job = self._later.pop(next(iter(self._later)))
        self._begun[job.config] = job
        return job
