"""A worker process with a task, which is started again after it has died.

The step that the worker announced last tells what has ended it; whoever asks knows whose fault that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from triton_ops.backend import CandidateError, Packed
from triton_ops.evaluation import idle_worker
from triton_ops.evaluation.questions import Question, Setup, StationFacts, StationStep, WorkerAnswer, answers
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.processes import WorkerLostError, WorkerProcess
from triton_ops.request import Patience
from triton_ops.space import Config
from triton_ops.values import Status, Trial

_STARTS = 3  # the GPU may refuse a new process for a moment after the last one was killed
_PAUSE_S = 1.0
TRIAL = 4.0  # times what is added to a step, for a whole trial


class NotPortableError(KernelTypeError):
    """The task cannot be made in another process; the message says why."""


class WorkerTask(Protocol):
    """What workers load, each with its station: a problem of a kernel, or a way to compile a model.

    It is sent to a worker whole, as a dataclass of which a setup may change fields.
    """

    @property
    def patience(self) -> Patience:
        """When a worker has hung."""

    @property
    def needs(self) -> tuple[tuple[str, ...], str]:
        """The packages that a worker imports as it starts, and the device that it readies."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Changes of a worker's environment."""

    @property
    def limits_s(self) -> Mapping[str, float]:
        """Limits of the steps that the station announces, in seconds."""

    @property
    def loaded(self) -> str:
        """What a worker makes as it loads the task, in words, for an error that names what has ended it."""

    def station(self, tell: Callable[[str], None]) -> object:
        """The station in a worker; `tell` is called with each step that begins. It may have found `facts`."""


class TaskWorker:
    """A worker with a task, of which each question is asked once.

    `process` is one that was started ahead. With `reuse` the worker is left to the next tune, if nothing died or hung
    in it. `load`, or the first question, waits until the worker has loaded the task. A `NotPortableError` says that the
    task exists in this process only, a `TritonKernelError` what the worker raised as it loaded it.
    """

    def __init__(
        self, task: WorkerTask, process: WorkerProcess | None = None, *, reuse: bool = False,
        facts: StationFacts | None = None,
    ) -> None:  # fmt: skip
        self._task, self._patience = task, task.patience
        self._pack(mapped=True)
        self._worker: WorkerProcess | None = None
        self._spare = process
        self._new = partial(idle_worker.new, task.needs, task.environment)
        self._reuse = reuse
        self._asking = False
        self._deaths: list[str] = []
        self._facts = facts or StationFacts()
        self._first: Setup | None = self._setup(self._packed)
        if process is not None:
            process.begin(self._first)

    def _setup(self, packed: bytes) -> Setup:
        return Setup(packed)

    def _pack(self, *, mapped: bool) -> None:
        try:
            packed = Packed.of(self._task, mapped=mapped)
        except KernelTypeError as error:
            raise NotPortableError(error.message) from error
        self._packed, self._mapped = packed.content, packed.mapped
        self._notes = tuple(f"drawn anew in its process: {it}" for it in packed.drawn)

    def trial(self, config: Config, question: Question, longer_s: float = 0.0) -> tuple[Trial, WorkerLostError | None]:
        """The trial of a config, and how its worker was lost, if it was; each of its steps may take `longer_s` more."""
        try:
            trial: Trial = self._ask(question, self._patience.trial_s + TRIAL * longer_s, longer_s).value
        except WorkerLostError as error:
            return lost_trial(config, error), error
        return trial, None

    def ask_again(self, question: Question) -> Any:
        """The answer of the worker that holds what it has tried; a `CandidateError` if that worker is or was lost."""
        if self._worker is None:
            raise CandidateError(Status.CRASH, "its process has ended")
        return self.ask(question)

    def ask(self, question: Question) -> Any:
        """The answer of the worker, which is started if there is none; a `CandidateError` if it is lost."""
        try:
            return self._ask(question, self._patience.trial_s).value
        except WorkerLostError as error:
            raise CandidateError(_status_of(error), str(error)) from error

    def load(self) -> WorkerProcess:
        """The worker, once it has loaded the task; it is started if there is none.

        A `TargetError` says that the task itself has ended it.
        """
        for turn in range(_STARTS):
            if self._worker is not None:
                return self._worker
            try:
                self._worker = self._start()
            except WorkerLostError as error:
                if turn + 1 == _STARTS or not (self._deaths or error.outside):
                    message = f"{self._task.loaded}, ended the process: {error}"
                    raise TargetError(message, hint="try it inline, where nothing is caught") from error
                time.sleep(_PAUSE_S)
        assert self._worker is not None
        return self._worker

    def close(self) -> None:
        """Kill the processes, or leave the worker to the next tune; everything that they found has been handed over."""
        if self._worker is not None and self._reuse and not (self._deaths or self._asking):
            worker, self._worker = self._worker, None
            idle_worker.keep(worker)
        for process in (self._worker, self._spare):
            if process is not None:
                process.kill()
        self._worker = self._spare = None

    def _ask(self, question: Question, whole_s: float, longer_s: float = 0.0) -> WorkerAnswer:
        """The answer to a question; each of its steps but a compilation may take `longer_s` more than by itself."""
        worker = self._worker or self.load()
        self._asking = True
        limits_s = {
            step: limit_s + (longer_s if step != StationStep.COMPILE else 0.0)
            for step, limit_s in self._task.limits_s.items()
        }
        try:
            answer: WorkerAnswer = worker.ask(question, whole_s, limits_s, question.step, partial(answers, question))
        except WorkerLostError as error:
            self._lose(str(error))
            raise
        self._asking = False
        if answer.error is not None:
            raise answer.error
        self._facts = answer.facts or self._facts
        return answer

    def _lose(self, why: str) -> None:
        self._deaths.append(why)
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _start(self) -> WorkerProcess:
        """A worker with the task loaded; after a first death a second process is started, to be ready for the next."""
        worker, self._spare = self._spare or self._new(), None
        first, self._first = self._first, None
        try:
            if self._deaths:
                self._spare = self._new()
            answer = self._asked_to_load(worker, first or self._setup(self._packed))
            if answer.unloadable and self._mapped:  # the system may let no process map another one's memory
                self._pack(mapped=False)
                answer = self._asked_to_load(worker, self._setup(self._packed))
            if answer.unloadable:
                raise NotPortableError(answer.error.message if answer.error else "")
            if answer.error is not None:
                raise answer.error
        except BaseException:
            worker.kill()
            raise
        self._facts = replace(answer.facts or self._facts, baseline=self._facts.baseline, mode=self._facts.mode)
        return worker

    def _asked_to_load(self, worker: WorkerProcess, setup: Setup) -> WorkerAnswer:
        answer: WorkerAnswer = worker.ask(setup, self._patience.setup_s, {}, "start", partial(answers, setup))
        return answer


def _status_of(error: WorkerLostError) -> Status:
    return Status.TIMEOUT if error.hung else Status.CRASH


def lost_trial(config: Config, error: WorkerLostError) -> Trial:
    """The trial of a config whose worker was lost."""
    return Trial(config, _status_of(error), error=str(error))
