"""One run of many problems: executors carry out the schedule's orders, and what becomes of each is gathered."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from triton_ops.exceptions import DeviceError
from triton_ops.many.executor import Executor, ExecutorLostError, Job, TellsReady
from triton_ops.many.schedule import Order, OrderStep, Schedule
from triton_ops.tuner import Listener, Silent
from triton_ops.values import TuningResult

_log = logging.getLogger("triton_ops")


@dataclass(frozen=True, kw_only=True)
class ProblemOutcome:
    """The outcome of one problem of a run.

    Attributes:
        problem: The problem as it was given.
        label: Kernel and problem in words.
        status: `tuned`, `known` (a record answered), `failed`, `interrupted`, or `not begun`.
        result: The result; None if there is none. That of an interrupted problem is the best so far.
        error: Why it failed; None otherwise.
        device: The device that measured it; empty if none did, and for the problem's own.
        began_s: When its measuring began, in seconds of the run.
        ended_s: When it ended.
    """

    problem: Any
    label: str
    status: str
    result: TuningResult | None = None
    error: BaseException | None = None
    device: str = ""
    began_s: float = 0.0
    ended_s: float = 0.0


def outcome_of(
    job: Job, *, result: TuningResult | None = None, error: BaseException | None = None, **place: Any
) -> ProblemOutcome:
    """The outcome of a job that has ended; `place` are the fields of where and when."""
    status = _status(result, error)
    failure = error if status == "failed" else None
    return ProblemOutcome(problem=job.problem, label=job.label, status=status, result=result, error=failure, **place)


def _status(result: TuningResult | None, error: BaseException | None) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if result is None:
        return "failed"
    if result.from_cache:
        return "known"
    return "interrupted" if result.stopped == "interrupted" else "tuned"


def share_saved(result: TuningResult | None) -> float | None:
    """The share of the default's time that a tune saved; None if not known."""
    gain = None if result is None or result.unproven else result.gain
    return None if gain is None or gain <= 0 else 1.0 - 1.0 / gain


class Follows:
    """Follows a run of many problems, and shows nothing but warnings; `tell` is called with each outcome."""

    def __init__(self, tell: Callable[[ProblemOutcome], object] = lambda _: None) -> None:
        self._tell = tell

    def listener(self, job: Job) -> Listener:  # noqa: ARG002 - for those that show single trials
        """The listener of one job, which may be told by another thread than the run's."""
        return Silent()

    def ended(self, outcome: ProblemOutcome) -> None:
        """A job has ended; called by the run's thread."""
        self._tell(outcome)

    def lost(self, device: str, why: BaseException) -> None:
        """A device is gone, and what it measured goes on elsewhere; called by the run's thread."""
        _log.warning("%s is lost, and what it measured goes on elsewhere: %s", device, why)


_GATHERED_S = 5.0  # for what closed executors hand over
_LOOK_S = 0.5  # between two looks at the clock while a device waits until something is ready


class ManyRun:
    """Carries out a schedule. It `stopped` with `complete`, `seconds`, `interrupted`, or `no device`."""

    def __init__(
        self, jobs: Iterable[Job], executors: Mapping[str, Executor], schedule: Schedule, follower: Follows
    ) -> None:
        self._jobs = {job.name: job for job in jobs}
        self._executors, self._schedule, self._follower = dict(executors), schedule, follower
        self._start_s = time.monotonic()
        self._messages: queue.SimpleQueue[tuple[str, str, bool | None]] = queue.SimpleQueue()
        self._running: dict[str, tuple[str, float, Future[TuningResult]]] = {}
        self.ended: dict[str, ProblemOutcome] = {}
        self.stopped = "complete"

    def run(self) -> None:
        """Measure what there is time for, and close all executors; Ctrl-C ends the run, to be gone on with later."""
        try:
            self._join()
            while self._running or self._schedule.waits:
                self._hear()
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        finally:
            self._close()
        if self.stopped == "complete" and self._schedule.unbegun:
            self.stopped = "seconds"
        elif self.stopped == "complete" and self._schedule.waiting:
            self.stopped = "no device"

    def _join(self) -> None:
        telling = {device: each for device, each in self._executors.items() if isinstance(each, TellsReady)}
        for device, executor in telling.items():
            executor.tell_ready(partial(self._say_ready, device))
        self._do(self._schedule.joined(self._executors, self._now_s(), telling))

    def _say_ready(self, device: str, name: str, whole: bool) -> None:
        self._messages.put((name, device, whole))

    def _hear(self) -> None:
        """Wait until a job is ready or has ended, or until it is time for the schedule to look at the clock."""
        try:
            name, device, whole = self._messages.get(timeout=_LOOK_S if self._schedule.waits else None)
        except queue.Empty:
            self._do(self._schedule.looked(self._now_s()))
            return
        if whole is None:
            self._take(name, device)
        else:
            self._do(self._schedule.ready(device, name, self._now_s(), whole=whole))

    def _close(self) -> None:
        for executor in self._executors.values():
            executor.close()
        until_s = self._now_s() + _GATHERED_S
        while self._running and self._now_s() < until_s:
            try:
                name, device, whole = self._messages.get(timeout=max(0.0, until_s - self._now_s()))
            except queue.Empty:
                break
            if whole is None:
                self._gather(name, device)

    def _do(self, orders: Iterable[Order]) -> None:
        for order in orders:
            executor = self._executors.get(order.device)
            if executor is None:  # it was lost with an order before
                continue
            try:
                self._order(executor, order)
            except ExecutorLostError as error:
                self._lose(order.device, error)

    def _order(self, executor: Executor, order: Order) -> None:
        jobs = [self._jobs[name] for name in order.names]
        if order.step is OrderStep.PREPARE:
            executor.prepare(jobs)
            return
        (job,) = jobs
        name, device = job.name, order.device
        began_s = self._now_s()
        future = executor.measure(job, order.limit_s)
        self._running[name] = device, began_s, future
        future.add_done_callback(lambda _: self._messages.put((name, device, None)))

    def _take(self, name: str, device: str) -> None:
        if self._running.get(name, ("",))[0] != device:
            return  # the device was given up meanwhile
        error = self._running[name][2].exception()
        if isinstance(error, ExecutorLostError):
            self._lose(device, error)
            return
        if isinstance(error, DeviceError) and len(self._executors) > 1:  # the next ones would fail there too
            self._lose(device, error)
            return
        outcome = self._gather(name, device)
        seconds, gain = outcome.ended_s - outcome.began_s, share_saved(outcome.result)
        self._do(self._schedule.ended(device, name, self._now_s(), seconds=seconds, gain=gain))

    def _gather(self, name: str, device: str) -> ProblemOutcome:
        _, began_s, future = self._running.pop(name)
        error = future.exception()
        outcome = self.ended[name] = outcome_of(
            self._jobs[name], device=device, error=error, result=None if error else future.result(),
            began_s=began_s, ended_s=self._now_s(),
        )  # fmt: skip
        self._follower.ended(outcome)
        return outcome

    def _lose(self, device: str, why: BaseException) -> None:
        executor = self._executors.pop(device)
        self._follower.lost(device, why)
        executor.close()
        for name in [name for name, (at, *_) in self._running.items() if at == device]:
            del self._running[name]
        now_s, before = self._now_s(), len(self._schedule.lost)
        orders = self._schedule.gone(device, now_s)
        for name in self._schedule.lost[before:]:
            self.ended[name] = outcome_of(self._jobs[name], device=device, error=why, ended_s=now_s)
            self._follower.ended(self.ended[name])
        self._do(orders)

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s
