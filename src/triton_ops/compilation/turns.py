"""Whose config is compiled next: the jobs of one pool, and pools that share CPUs.

A thread that has compiled asks for the next turn at once. If whoever comes first took it, a pool that has all CPUs
would keep them as long as it has configs, and the problem on another GPU would wait for its end. A turn is therefore
given to a thread that waits, and that one alone is woken: a hundred that look whether it is their turn keep the
interpreter from those that measure.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from triton_ops.space import Config
from triton_ops.values import Compiled


class Queue:
    """Jobs that take their turn, and spare jobs, which run while no other job waits; safe to share among threads.

    At most `spares` spare jobs run at a time. Of queues that share CPUs those that are `first` go before others.
    """

    @dataclass(eq=False)
    class Job:
        """One config to be compiled; a spare one only while nothing else waits, as a preview."""

        config: Config
        spare: bool
        future: Future[Compiled] = field(default_factory=Future)

    def __init__(self, spares: int, first: bool = True) -> None:
        self.first, self.closed = first, False
        self.turns = 0  # that `SharedCpus` has given it
        self._spares, self._running_spare = spares, 0
        self._now: deque[Queue.Job] = deque()
        self._later: dict[Config, Queue.Job] = {}
        self._begun_jobs: dict[Config, Queue.Job] = {}
        self._lock = threading.Lock()

    def add(self, config: Config, spare: bool) -> Future[Compiled]:
        """The future of `config`: that of an earlier spare job of the same config, if there is one, else a new one."""
        with self._lock:
            if (spare_job := self._begun_jobs.get(config)) is not None:
                return spare_job.future
            job = self._later.get(config) or Queue.Job(config, spare)
            if spare:
                self._later[config] = job
            else:
                if self._later.pop(config, None) is not None:
                    job.spare = False
                    self._begun_jobs[config] = job
                self._now.append(job)
            if self.closed:
                job.future.cancel()
            return job.future

    def hurried(self) -> bool:
        """Tell whether a job waits that is not spare."""
        return bool(self._now)

    def take(self) -> Queue.Job | None:
        """The next job, which the caller later gives to `done`; None if none may begin now."""
        with self._lock:
            while not self.closed:
                if (job := self._first()) is None:
                    return None
                # A job whose future was cancelled meanwhile is passed over.
                if job.future.set_running_or_notify_cancel():
                    self._running_spare += job.spare
                    return job
        return None

    def done(self, job: Queue.Job) -> None:
        """Note that `job` does not run any more."""
        with self._lock:
            self._running_spare -= job.spare

    def close(self) -> None:
        """Cancel every job that has not begun."""
        with self._lock:
            self.closed = True
            for job in (*self._now, *self._later.values()):
                job.future.cancel()

    def _first(self) -> Queue.Job | None:
        if self._now:
            return self._now.popleft()
        if not self._later or self._running_spare >= self._spares:
            return None
        job = self._later.pop(next(iter(self._later)))
        self._begun_jobs[job.config] = job
        return job


class SharedCpus:
    """A number of compilations that may run at a time, over all pools that share these CPUs; safe among threads.

    Of these, `spared` are left to pools that are first. `tell_idle` is called with the number that is idle, at once and
    when that has changed, one call after the other.
    """

    def __init__(self, most: int, spared: int = 0, tell_idle: Callable[[int], object] = lambda _: None) -> None:
        self.most, self._lent = max(1, most), 0
        self._spared = min(spared, self.most - 1)
        self._tell_idle, self._idle, self._telling = tell_idle, -1, threading.Lock()
        self._running: Counter[Queue] = Counter()
        self._waiting: dict[Queue, deque[Future[bool]]] = {}
        self._guard = threading.Lock()
        self._closed = False
        self._tell()

    @contextmanager
    def turn(self, member: Queue) -> Iterator[bool]:
        """Wait for a CPU, and hold it inside the block; gives True, or False once this or the pool is closed."""
        waiter: Future[bool] = Future()
        with self._guard:
            self._waiting.setdefault(member, deque()).append(waiter)
            self._give()
        self._tell()
        begins = waiter.result()
        try:
            yield begins
        finally:
            if begins:
                with self._guard:
                    self._running[member] -= 1
                    member.turns += 1
                    self._give()
                self._tell()

    def lend(self, count: int) -> None:
        """Let so many more run at a time, until this is called again: others leave their CPUs idle."""
        self._lent = count
        self.look()

    def look(self) -> None:
        """Look again whose turn it is: a pool is first now, or was closed, and its threads wait no more."""
        with self._guard:
            self._give()

    def close(self) -> None:
        """Let nothing more begin; whoever waits is told."""
        self._closed = True
        self.look()

    def _give(self) -> None:
        """Give the CPUs that are free to those whose turn it is, and have the threads of closed pools go on."""
        for over in [each for each in self._waiting if self._closed or each.closed]:
            for waiter in self._waiting.pop(over):
                waiter.set_result(False)
        while (member := self._next()) is not None:
            self._running[member] += 1
            waiting = self._waiting[member]
            waiting.popleft().set_result(True)
            if not waiting:
                del self._waiting[member]
        self._running += Counter()  # forgets pools of which nothing runs

    def _next(self) -> Queue | None:
        """Whose turn it is: pools that are first before others, those with proposals before others.

        Of the first ones the one with the fewest CPUs comes; of others the one that has compiled most, so that their
        problems are ready one after the other, and those that compile quickly do not wait for the rest.
        """
        free = self.most + self._lent - self._running.total()
        able = [each for each in self._waiting if free > (0 if each.first else self._spared)]
        turns = {each: self._running[each] if each.first else -each.turns for each in able}
        return min(able, key=lambda each: (not each.first, not each.hurried(), turns[each]), default=None)

    def _tell(self) -> None:
        """Tell how many of the own CPUs are idle, outside of the guard, which whoever lends needs meanwhile."""
        with self._telling:
            with self._guard:
                before, self._idle = self._idle, 0 if self._waiting else max(0, self.most - self._running.total())
            if self._idle != before:
                self._tell_idle(self._idle)
