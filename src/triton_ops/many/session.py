"""`tune_many`: problems tuned as one run."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from triton_ops.base import Folder, bar_console, gain_text, require, warn
from triton_ops.compilation import CompilePool, SharedCpus
from triton_ops.exceptions import DeviceError, SettingsError, TritonKernelError
from triton_ops.many.executor import SPARED, Executor, ExecutorLostError, Job, LentCpus, LocalExecutor, RemoteExecutor
from triton_ops.many.problem import RunOptions, as_problem, job_of
from triton_ops.many.schedule import Order, OrderStep, Schedule, estimates_of
from triton_ops.processes import TerminatedError
from triton_ops.records import may_have_records, store_in
from triton_ops.request import Effort, TuneOptions, TuneProblem
from triton_ops.search import AnySearch
from triton_ops.settings import cache_folder
from triton_ops.tuner import Listener, RunPlan, RunProgress, Silent
from triton_ops.values import Trial, TuningResult


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
        ended_s: When it ended, in seconds of the run.
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
        warn("%s is lost, and what it measured goes on elsewhere: %s", device, why)


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
            self._join(self._executors)
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

    def _join(self, executors: Mapping[str, Executor]) -> None:
        for device, executor in executors.items():
            executor.ready = partial(lambda at, name, whole: self._messages.put((name, at, whole)), device)
        self._do(self._schedule.joined(executors, self._now_s()))

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
        # All are told before any is waited for, so that they end side by side.
        for executor in self._executors.values():
            executor.end()
        for executor in self._executors.values():
            executor.close()
        until_s = self._now_s() + _GATHERED_S
        while self._running:
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
        apart = len(self._executors) > 1  # of a device with an error, where the next ones would fail too
        if isinstance(error, ExecutorLostError) or (isinstance(error, DeviceError) and apart):
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
        if isinstance(why, ExecutorLostError) and why.renew is not None:
            with contextlib.suppress(DeviceError):  # no process can be started: the device stays lost
                self._executors[device] = executor = why.renew()
                self._join({device: executor})

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s


@contextmanager
def display(problems: int) -> Iterator[Follows]:
    """A display of a run, on a terminal only: a line for each problem that has ended, and below them a bar."""
    if (console := bar_console()) is None:
        yield Follows()
        return
    bars = require("rich.progress", "a progress bar")
    columns = (
        bars.TextColumn("{task.fields[said]}", markup=False), bars.BarColumn(bar_width=16),
        bars.TextColumn("{task.fields[best]}", markup=False), bars.TimeElapsedColumn(),
    )  # fmt: skip
    with bars.Progress(*columns, console=console, transient=True) as progress:
        yield Display(progress, problems)


class Display(Follows):
    """Draws a run of many problems in a terminal."""

    def __init__(self, progress: Any, problems: int) -> None:
        self._progress, self._problems = progress, problems
        self._ended = self._failed = 0
        self._whole = progress.add_task("", total=problems, said=self._text(), best="")

    def listener(self, job: Job) -> Listener:
        """A line for the job while it is measured."""
        return _ProblemRow(self._progress, job.label)

    def ended(self, outcome: ProblemOutcome) -> None:
        """Write what became of a job, and move the bar."""
        self._ended += 1
        self._failed += outcome.status == "failed"
        self._progress.console.print(_text_of(outcome), markup=False, highlight=False)
        self._progress.update(self._whole, completed=self._ended, said=self._text())

    def lost(self, device: str, why: BaseException) -> None:
        """Write that a device is gone."""
        self._progress.console.print(f"{device} is lost: {why}", markup=False, highlight=False)

    def _text(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._ended}/{self._problems} problems{failed}"


class _ProblemRow:
    def __init__(self, progress: Any, label: str) -> None:
        self._progress, self._label = progress, label
        self._task: int | None = None

    def started(self, plan: RunPlan) -> None:
        self._task = self._progress.add_task("", total=None, said=self._text(plan.resumed), best="")

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        if self._task is not None:
            self._progress.update(self._task, said=self._text(progress.trials), best=progress.best_text)

    def ended(self, result: TuningResult | None) -> None:  # noqa: ARG002 - the role's signature
        if self._task is not None:
            self._progress.remove_task(self._task)

    def _text(self, trials: int) -> str:
        return f"{self._label}: {trials} trials"


def _text_of(outcome: ProblemOutcome) -> str:
    if outcome.error is not None:
        return f"failed       {outcome.label}: {str(outcome.error).splitlines()[0] if str(outcome.error) else 'error'}"
    if (result := outcome.result) is None:
        return f"{outcome.status:12} {outcome.label}"
    gain = "" if result.gain is None else f", {gain_text(result.gain, result.gain_interval)}"
    gain = ", unproven" if result.unproven else gain
    took = "" if result.from_cache else f", {outcome.ended_s - outcome.began_s:.1f} s"
    return f"{outcome.status:12} {outcome.label}: {result.metrics.latency_ms:.4g} ms{gain}{took}"


AHEAD = 3
"""How many problems a device of this machine prepares while it measures one, and two more as long as none is ready."""


@dataclass(frozen=True, kw_only=True)
class ManyResult:
    """The result of a run of many problems.

    Attributes:
        outcomes: What became of each problem, in the order in which they were given.
        elapsed_s: Wall seconds of the run.
        stopped: `complete`; `seconds` if the budget left problems that were not begun; `interrupted`; `no device` if
            all devices were lost.
    """

    outcomes: tuple[ProblemOutcome, ...]
    elapsed_s: float
    stopped: str = "complete"

    @property
    def failures(self) -> tuple[ProblemOutcome, ...]:
        """The problems that failed."""
        return tuple(each for each in self.outcomes if each.status == "failed")

    @property
    def totals(self) -> dict[str, int]:
        """The number of problems of each status."""
        return dict(Counter(each.status for each in self.outcomes))


def tune_many(
    problems: Iterable[TuneProblem | Any],
    *,
    effort: str | Effort | None = None,
    search: AnySearch | None = None,
    trials: int | None = None,
    each_s: float | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    force: bool = False,
    isolate: bool | None = None,
    transfer: bool = True,
    wait: bool = True,
    memory_bytes: int | str | None = None,
    gpus: str | Iterable[int] | None = None,
    engine: str | None = None,
    told: Callable[[ProblemOutcome], None] | None = None,
) -> ManyResult:
    """Tune problems as one run, or recall those whose winners are known.

    One worker process measures all problems of a device, one after the other; the next problem compiles while one is
    measured, and each finished record guides the search on the kernel's other problems. Those problems come first that
    are expected to save most for each second. Problems that are the same are measured once. Each problem has a run log
    and a record of its own, as after `tune`: a run that was ended, however it was, is gone on with by the same call.

    Args:
        problems: `TuneProblem`s, operations for their default problem, or mappings of a problem's fields. All are
            checked before any work.
        effort: The effort for each problem, as for `tune`.
        search: A searcher's name, or a function that makes one from a config space and a seed; None takes the effort's.
        trials: The limit of trials of each problem; None takes the effort's.
        each_s: The limit of seconds of each problem, from when the device is its own; None takes the effort's.
        budget_s: The limit of seconds of the run. A problem gets at most three times its share of what is left, and
            what is not begun when less than a second is left is not tuned. None is no limit.
        seed: The seed of the search's orders and of dummy tensors.
        cache_dir: Folder of records and run logs; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder.
        force: Whether to search even where the winner is known.
        isolate: Whether candidates run in a separate process, as for `tune`.
        transfer: Whether records of a kernel's other problems guide the search.
        wait: Whether to wait for other processes that measure on the same GPU.
        memory_bytes: The most memory that each tune takes, as for `tune`.
        gpus: The GPUs of this machine that measure, each with a worker of its own: `all`, or indices. They must be of
            one model. None measures each problem on its own device, one at a time.
        engine: `ray`, or `ray:HOST:PORT`, for all GPUs of a Ray cluster. None measures on this machine.
        told: Is called with the `ProblemOutcome` of each problem as it ends; None draws a progress display if stderr is
            a terminal.

    Returns:
        What became of each problem. A problem that fails is among them with its error, and ends no other one.

    Raises:
        TritonKernelError: A problem or an option does not fit, as for `tune`; raised before any work, with the number
            of the problem.
        KeyboardInterrupt: A second Ctrl-C, while the first one ends the run.

    Cost: one file is read for each problem whose winner is known; if any is not, all records in the folder are read.
    """
    start = time.monotonic()
    if told is not None and not callable(told):
        raise SettingsError(
            f"told is {told!r}, which cannot be called", hint="pass a function that takes a ProblemOutcome"
        )
    each = TuneOptions(
        effort=effort, search=search, trials=trials, budget_s=each_s, seed=seed, cache_dir=cache_dir, force=force,
        isolate=isolate, transfer=transfer, wait=wait, memory_bytes=memory_bytes,
    )  # fmt: skip
    options = RunOptions.of(each, gpus=gpus, budget_s=budget_s, engine=engine)
    return run_jobs(jobs_of(problems, options), options, told=told, start=start)


def jobs_of(problems: Iterable[Any], options: RunOptions) -> list[Job]:
    """The jobs of problems, each checked; a `TritonKernelError` begins with the problem's number, from 1."""
    if isinstance(problems, (str, bytes, Mapping)) or not isinstance(problems, Iterable):
        raise SettingsError(f"problems is {problems!r}; it must be a list of problems", hint="[TuneProblem(target=…)]")
    jobs: list[Job] = []
    for number, item in enumerate(problems, 1):
        try:
            jobs.append(job_of(as_problem(item), options))
        except TritonKernelError as error:  # noqa: PERF203 - it names its problem
            raise error.about(f"problem {number}") from None
    return jobs


def run_jobs(
    jobs: Sequence[Job], options: RunOptions, *, told: Callable[[ProblemOutcome], None] | None = None,
    start: float | None = None,
) -> ManyResult:  # fmt: skip
    """Run jobs that are checked; those of one name are the same problem, and are measured once.

    `told` is called with the outcome of each problem as it ends, in place of a display.
    """
    start = time.monotonic() if start is None else start
    distinct = {job.name: job for job in jobs}
    results = {name: result for name, job in distinct.items() if job.recall and (result := job.recall()) is not None}
    ended = {name: outcome_of(distinct[name], result=result) for name, result in results.items()}
    new = [job for name, job in distinct.items() if name not in results]
    if new:
        Folder(cache_folder(options.each.cache_dir)).ensure()  # a run of many is worth a folder that keeps it
    stopped = "complete"
    with display(len(distinct)) if told is None else nullcontext(Follows(told)) as view:
        for each in ended.values():
            view.ended(each)
        if new:
            run = _run(new, options, view, start)
            ended.update(run.ended)
            stopped = run.stopped
    outcomes = tuple(
        replace(ended[job.name], problem=job.problem, label=job.label) if job.name in ended
        else ProblemOutcome(problem=job.problem, label=job.label, status="not begun")
        for job in jobs
    )  # fmt: skip
    return ManyResult(outcomes=outcomes, elapsed_s=time.monotonic() - start, stopped=stopped)


def _run(jobs: Sequence[Job], options: RunOptions, view: Follows, start: float) -> ManyRun:
    with TerminatedError.cleaned_up():
        shared_cpus = SharedCpus(CompilePool.usual_workers(), SPARED)
        budget_s, cluster = options.budget_s, options.cluster
        left_s = None if budget_s is None else max(0.0, budget_s - (time.monotonic() - start))
        # Actors prepare nothing: a job is sent with the files that guide it, just before it is measured.
        schedule = Schedule(planned(jobs, options), budget_s=left_s, ahead=AHEAD if cluster is None else 0)
        with contextlib.ExitStack() as stack:
            if cluster is not None:
                executors = stack.enter_context(cluster.executors(jobs, options.each, view.listener))
            else:
                executors = _executors(jobs, options, shared_cpus, view)
            stack.callback(shared_cpus.close)  # what a second Ctrl-C leaves behind compiles nothing more
            run = ManyRun(jobs, executors, schedule, view)
            run.run()
    return run


def _executors(
    jobs: Sequence[Job], options: RunOptions, shared_cpus: SharedCpus, view: Follows
) -> Mapping[str, Executor]:
    """An executor for each GPU, and one for the CPU if a job is measured there; one for all without devices.

    Of several GPUs each has a process of its own, with its share of the CPUs and what others leave of theirs.
    """
    if not (devices := options.devices):
        return {"": LocalExecutor(shared_cpus, None, view.listener)}
    apart = devices if len(devices) > 1 else ()
    cpus, effort = max(1, CompilePool.usual_workers() // len(devices)), options.each.settled()
    isolated, lent = any(job.worker for job in jobs), LentCpus(cpus)
    executors: dict[str, Executor] = {
        name: RemoteExecutor.of_device(name, cpus, view.listener, effort, isolated, lent) for name in apart
    }
    here = {*devices, *(place for job in jobs for place in job.devices or ())}.difference(apart)
    return executors | {name: LocalExecutor(shared_cpus, name, view.listener) for name in sorted(here)}


def planned(jobs: Iterable[Job], options: RunOptions) -> list[Job]:
    """Jobs with estimates from the records of their kernels in the cache folder."""
    folder = cache_folder(options.each.cache_dir)
    estimates = estimates_of(store_in(folder)) if may_have_records(folder) else {}
    return [replace(job, **estimates.get(job.kernel, {})) for job in jobs]
