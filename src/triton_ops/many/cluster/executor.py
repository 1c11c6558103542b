"""The executor of one actor: sends it one problem at a time, and ends it from outside if it hangs."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from triton_ops.backend import pack
from triton_ops.exceptions import KernelTypeError
from triton_ops.many.cluster.actors import Answer, Work
from triton_ops.many.cluster.copies import Piece, files_of_problem
from triton_ops.many.executor import ExecutorLostError, Job
from triton_ops.trial import TuningResult

_log = logging.getLogger("triton_ops")
_MOST_GUIDES = 8  # problems whose files are sent along: the nearest four guide a search
_MOST_READ = 64  # problems whose files are held in memory
_LOOK_S = 5.0  # between two looks for actors that hang


class Ledger:
    """What the executors of one run share: the keeper, the cache folder, and which problems of a kernel have ended.

    Args:
        ray: The module.
        keeper: The handle of the keeper's actor.
        folder: The cache folder of the run.
        known: For each kernel, the ids of its records.
        patience_s: An actor of which nothing is heard for so long has hung.
    """

    def __init__(self, ray: Any, keeper: Any, folder: Path, known: dict[str, list[str]], patience_s: float) -> None:
        self.ray, self.keeper, self.folder, self.patience_s = ray, keeper, folder, patience_s
        self._known = known
        self._turns = itertools.count(1)
        self._sent: set[str] = set()
        self._guides: dict[str, list[Piece]] = {}  # of the last problems of each kernel, which have ended

    def begin(self, job: Job) -> int:
        """The turn of a problem that is about to be sent.

        The keeper hears of it before, and is waited for, where an earlier measurer may still send something.

        Raises:
            ExecutorLostError: The keeper is gone.
        """
        turn = next(self._turns)
        if job.name not in self._sent:
            self._sent.add(job.name)
            return turn
        try:
            self.ray.get(self.keeper.begin.remote(job.name, turn))
        except self.ray.exceptions.RayError as error:
            raise ExecutorLostError(f"what writes the run logs is gone: {_line(error)}") from error
        return turn

    def pieces_for(self, job: Job) -> list[Piece]:
        """The files of a problem, and of the last problems of its kernel."""
        guides = [name for name in self._known.get(job.kernel, [])[-_MOST_GUIDES:] if name != job.name]
        found = {piece.path: piece for name in guides for piece in self._of_guide(name)}
        found.update((piece.path, piece) for piece in files_of_problem(self.folder, job.name))
        return list(found.values())

    def _of_guide(self, name: str) -> list[Piece]:
        """The files of a problem that has ended, which are read once for all that it guides."""
        if name not in self._guides:
            if len(self._guides) >= _MOST_READ:
                del self._guides[next(iter(self._guides))]
            self._guides[name] = files_of_problem(self.folder, name)
        return self._guides[name]

    def tell_news(self) -> None:
        """Log what measurers have told the keeper."""
        try:
            for line in self.ray.get(self.keeper.news.remote(), timeout=_LOOK_S):
                _log.warning("%s", line)
        except self.ray.exceptions.RayError:
            pass  # a busy keeper; that it is gone is said where something is to be kept

    def ended(self, job: Job) -> None:
        """A problem has a record, which guides the others of its kernel."""
        self._known.setdefault(job.kernel, []).append(job.name)


class ActorExecutor:
    """Measures jobs in an actor of Ray, which has a GPU of its own.

    Args:
        actor: The handle of the actor.
        ledger: What the executors of the run share.
        cpus: How many processes may compile for one problem on the actor's host.
    """

    def __init__(self, actor: Any, ledger: Ledger, cpus: int) -> None:
        self._actor, self._ledger, self._cpus = actor, ledger, cpus
        self._closed = threading.Event()
        self._ended = threading.Event()
        self._turn = 0

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Nothing is prepared: an actor has one call at a time, and what is queued behind a death is lost with it."""

    def measure(self, job: Job, limit_s: float | None) -> Future[TuningResult]:
        """Send a job.

        Raises:
            ExecutorLostError: The keeper is gone.
        """
        future: Future[TuningResult] = Future()
        try:
            content = pack(job.tune).content
        except KernelTypeError as error:
            future.set_exception(error)
            return future
        self._turn = self._ledger.begin(job)
        work = Work(
            name=job.name, turn=self._turn, tune=content, pieces=self._ledger.pieces_for(job), limit_s=limit_s,
            cpus=self._cpus,
        )  # fmt: skip
        self._ended = threading.Event()
        sent = self._actor.measure.remote(work).future()
        sent.add_done_callback(lambda done: self._take(job, done, future, self._ended))
        return future

    def hung(self) -> int | None:
        """The turn of what is being measured; None if nothing is."""
        return None if self._ended.is_set() or not self._turn else self._turn

    def end(self) -> None:
        """End the actor's process from outside; what it measures is lost there."""
        self._ledger.ray.kill(self._actor)

    def close(self) -> None:
        """End the actor: every finished trial is with the keeper."""
        self._closed.set()
        self.end()

    def _take(self, job: Job, done: Future[Answer], future: Future[TuningResult], ended: threading.Event) -> None:
        ended.set()
        error = done.exception()
        if error is not None:
            future.set_exception(self._of_call(error))
            return
        answer = done.result()
        if answer.error is not None:
            future.set_exception(self._of_tune(answer.error))
            return
        assert answer.result is not None
        self._ledger.ended(job)
        future.set_result(answer.result)

    def _of_call(self, error: BaseException) -> BaseException:
        """The exception of a future, for what Ray says of a call that has failed."""
        if self._closed.is_set():
            return KeyboardInterrupt()
        if isinstance(error, self._ledger.ray.exceptions.RayTaskError):  # the actor lives
            return self._of_tune(getattr(error, "cause", None) or error)
        return ExecutorLostError(_line(error))

    def _of_tune(self, error: BaseException) -> BaseException:
        """The exception of a future, for what was raised in the actor, which calls no other actor than the keeper."""
        if isinstance(error, self._ledger.ray.exceptions.RayActorError):
            return ExecutorLostError(f"what writes the run logs is gone: {_line(error)}")
        return error


def watch_for_hangs(executors: Callable[[], list[ActorExecutor]], ledger: Ledger, over: threading.Event) -> None:
    """End actors of which nothing was heard for too long, until the run is over."""
    while not over.wait(_LOOK_S):
        ledger.tell_news()
        turns = {turn: executor for executor in executors() if (turn := executor.hung()) is not None}
        try:
            silences = ledger.ray.get(ledger.keeper.silent_s.remote(list(turns)), timeout=_LOOK_S)
        except ledger.ray.exceptions.RayError:
            continue  # a busy keeper; that it is gone is said where something is to be kept
        for (_, executor), silent_s in zip(turns.items(), silences, strict=True):
            if silent_s > ledger.patience_s:
                _log.warning("an actor is ended: nothing was heard of it for %.0f s", silent_s)
                executor.end()


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
