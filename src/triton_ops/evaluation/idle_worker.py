"""A worker process that a tune has left idle, for the next tune of this process if it follows soon.

Half of the seconds that a short tune takes are the imports of its worker. Decorated kernels are tuned one after the
other when a model runs for the first time, so that each leaves its worker to the next: without its task, its memory on
the GPU and the modules of the user's, which the next task imports anew. A worker in which something died or hung is
never kept.
"""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops.processes.worker_process import WorkerDiedError, WorkerHungError, WorkerProcess

Needs: TypeAlias = tuple[tuple[str, ...], str]  # the packages that it has imported, and its device
_IDLE_S = 15.0
_REST_S = 10.0


@dataclass(frozen=True)
class Rest:
    """The question to give everything up and wait for another task."""


class _Slot:
    """The place of one idle worker."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None
        self._needs: Needs | None = None
        self._timer: threading.Timer | None = None
        self.abandon()

    def put(self, worker: WorkerProcess, needs: Needs) -> None:
        """Keep a worker for a while, in place of the one that is there."""
        timer = threading.Timer(_IDLE_S, self.drop)
        timer.daemon = True
        with self._guard:
            before = self._emptied()
            self._worker, self._needs, self._timer = worker, needs, timer
        timer.start()
        if before is not None:
            before.kill()

    def take(self, needs: Needs) -> WorkerProcess | None:
        """The worker, if there is one with these needs."""
        with self._guard:
            return self._emptied() if self._needs == needs else None

    def holds(self, worker: WorkerProcess) -> bool:
        """Whether it is this worker that waits here."""
        return self._worker is worker

    def drop(self) -> None:
        """Kill the worker, if there is one."""
        with self._guard:
            worker = self._emptied()
        if worker is not None:
            worker.kill()

    def abandon(self) -> None:
        """Forget the worker, which is the parent's: in a forked child."""
        self._guard = threading.Lock()
        self._worker = self._needs = self._timer = None

    def _emptied(self) -> WorkerProcess | None:
        worker, self._worker, self._needs = self._worker, None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return worker


_slot = _Slot()
take, holds, drop_idle_worker = _slot.take, _slot.holds, _slot.drop


def keep(worker: WorkerProcess, needs: Needs) -> None:
    """Keep a worker that has done its task, if it can give everything up; else kill it."""
    try:
        worker.ask(Rest(), _REST_S, {}, "rest")
    except (WorkerHungError, WorkerDiedError):
        worker.kill()
        return
    _slot.put(worker, needs)


atexit.register(drop_idle_worker)
os.register_at_fork(after_in_child=_slot.abandon)
