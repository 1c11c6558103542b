"""Stations in worker processes: a candidate that crashes or hangs ends one trial, and a fresh process goes on.

The step that the worker announced last tells which config is to blame for the end of the worker: the candidate, if the
step was its compilation or launch; the baseline, if the step was work on the baseline. No config is to blame if the
signal came from outside; the candidate is then tried once more.

The placement of data in memory, and the work that ran before, are fixed for the life of a process and favour one config
or another by up to a few tenths of a percent; no number of rounds in one process averages that out. Each further
process is a worker with the same assignment as the first: it verifies results, restores arguments and is guarded too.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from triton_ops.backend import CandidateError, CompilesAhead, Packed, ScratchAllocator
from triton_ops.evaluation import idle_worker
from triton_ops.evaluation.finals import FinalRequest, Outcome, StationFacts, finalists
from triton_ops.evaluation.verify import StationStep
from triton_ops.evaluation.worker import Attempt, Question, Setup, WorkerAnswer, answers
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.processes import WorkerLostError, WorkerProcess
from triton_ops.request import Effort, KernelProblem, TuneOptions
from triton_ops.space import Config
from triton_ops.values import Status, Trial

_log = logging.getLogger("triton_ops")

_MOST_TURNS = 4  # of one trial: one each lost to a signal, to the baseline and to odd extents, and the last one
_STARTS = 3  # the GPU may refuse a new process for a moment after the last one was killed
_PAUSE_S = 1.0
_MOST_ROUNDS = 32  # of long launches in a last comparison, their rests included
_UNSEEN = 3.0  # times a launch's own limit that are added to it, until a first launch was seen: a minute
_PAIR = 3.0  # launches of the default in a step: one beside a launch that may be twice as slow
_TRIAL = 4.0  # times what is added to a step, for a whole trial
_UNFINISHED = "the last comparison could not be run: its process died or hung each time"


class NotPortableError(KernelTypeError):
    """The task cannot be made in another process; the message says why."""


@dataclass(frozen=True, kw_only=True)
class KernelLoad(KernelProblem):
    """A kernel's problem as workers load it, each with its station.

    The setup of a worker changes `baseline`, next to which others are timed, and `mode`, of times that were taken
    before. What else workers load, as a way to compile a model, is a dataclass with the same fields and properties.
    """

    options: TuneOptions
    baseline: Config | None = None
    mode: str | None = None

    @property
    def effort(self) -> Effort:
        """The effort of the options, which is settled."""
        return Effort.of(self.options)

    @property
    def needs(self) -> idle_worker.Needs:
        """Packages and device of a worker."""
        return idle_worker.Needs.of(self.kernel, self.device, self.device_name)

    @property
    def imports(self) -> tuple[str, ...]:
        """Torch for tensors, and what the kernel imports to compile, which a worker imports before it loads the task.

        Left to the first compilation, the import would not read this package's bytecode: it would take 2 to 3 s of the
        first trial where Python keeps none.
        """
        tensors = self.problem.specs if self.originals is None else [*self.originals.tensors()]
        module = self.kernel.compile_imports if isinstance(self.kernel, CompilesAhead) else ""
        return tuple(dict.fromkeys(filter(None, ("torch" if tensors else "", module))))

    @property
    def limits_s(self) -> dict[str, float]:
        """Limits of the steps that a worker announces, in seconds."""
        own_s, compile_s, step = self.effort.patience.launch_s, self.effort.patience.compile_s, StationStep
        launched = dict.fromkeys((step.LAUNCH, step.ODD, step.RACE), own_s)
        return {step.COMPILE: compile_s, **launched, step.BASELINE: compile_s + own_s, step.TURN: math.inf}

    @property
    def environment(self) -> dict[str, str]:
        """Changes of a worker's environment: none."""
        return {}

    def allocator(self) -> bytes | None:
        """The allocator that the user has given to Triton by now, packed; None if there is none."""
        return ScratchAllocator.packed()


class Isolated:
    """A station in a worker process, which is started again after it has died.

    `process` is one from `Stations.early_process`. With `reuse` the worker is left to the next tune, if nothing died or
    hung in it. `load`, or the first question, waits until the worker has loaded the task. A `NotPortableError` says
    that the task exists in this process only, a `TritonKernelError` that the arguments or the reference fail, as with
    `Inline`.
    """

    def __init__(self, assignment: KernelLoad, process: WorkerProcess | None = None, *, reuse: bool = False) -> None:
        self._assignment, self._patience = assignment, assignment.effort.patience
        self._pack_for_workers(mapped=True)
        self._changes: dict[str, Any] = {}
        self._worker: WorkerProcess | None = None
        self._spare = process
        self._new = partial(idle_worker.new, assignment.needs, assignment.environment)
        self._reuse = reuse
        self._asking = False
        self._facts = StationFacts(mode=assignment.mode, baseline=assignment.baseline)
        self._deaths: list[str] = []
        self._baseline_failures = 0
        self._baseline_s: float | None = None  # of one launch, once it was seen
        self._first: Setup | None = self._setup()
        if process is not None:
            process.begin(self._first)

    def _pack_for_workers(self, *, mapped: bool) -> None:
        try:
            packed = Packed.of(self._assignment, mapped=mapped)
        except KernelTypeError as error:
            raise NotPortableError(error.message) from error
        self._packed, self._mapped = packed.content, packed.mapped
        self._notes = tuple(f"drawn anew in its process: {it}" for it in packed.drawn)

    @property
    def facts(self) -> StationFacts:
        """Facts from all workers so far; `lost` is always None, since the next worker can use the device again."""
        ended = f", {len(self._deaths)} ended by what ran in them" if self._deaths else ""
        place = f"in a process of its own{ended}"
        notes = (*self._notes, *self._facts.notes)
        return replace(self._facts, lost=None, place=place, notes=notes, apart=True)

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` in the worker; a worker that dies or hangs ends the trial as `crash` or `timeout`."""
        if best is not None:
            self._note_baseline(best)
        trial = self.tried(Attempt(config, best), self._longer_s)
        if trial.ok:
            self._note_baseline(trial)
        return trial

    def tried(self, question: Attempt, longer_s: float = 0.0) -> Trial:
        """The trial that answers a question, as `attempt`; each of its steps may take `longer_s` more."""
        outside_before = False
        for _ in range(_MOST_TURNS):
            trial, during, outside = self._once(question, longer_s)
            if during is None:
                return trial
            if self._not_its_fault(during):
                continue
            if outside_before or not outside or not question.repeatable:
                return trial
            outside_before = True
        return trial

    def ask_again(self, question: Question) -> Any:
        """The answer of the worker that holds what it has tried; a `CandidateError` if that worker is or was lost."""
        if self._worker is None:
            raise CandidateError(Status.CRASH, "its process has ended")
        try:
            return self._ask(question, self._patience.trial_s).value
        except WorkerLostError as error:
            raise CandidateError(_status_of(error), str(error)) from error

    def finals(self, final: FinalRequest) -> Outcome:
        """Race in the worker; if the worker dies or hangs, the configs that cause it are found and left out."""
        trials = {trial.config: trial for trial in final.trials}
        effort, always = self._assignment.effort, {final.default, *final.incumbents}
        round_s = sum(trial.median_ms for trial in finalists(trials, effort, always)) / 1e3
        whole_s = effort.race.seconds + self._patience.trial_s + self._patience.launch_s * len(trials)
        for _ in range(2):
            try:
                question = replace(final, trials=tuple(trials.values()))
                outcome: Outcome = self._ask(question, whole_s + _MOST_ROUNDS * round_s, 2 * round_s).value
            except WorkerLostError as error:  # noqa: PERF203 - twice at most
                _log.warning("the last comparison starts again: %s", error)
                trials.update((trial.config, trial) for trial in self._failing(final, trials))
            else:
                return outcome
        return replace(Outcome.of_screenings(tuple(trials.values())), confidence=_UNFINISHED)

    def close(self) -> None:
        """Kill the processes, or leave the worker to the next tune; everything that they found has been handed over."""
        if self._worker is not None and self._reuse and not (self._deaths or self._asking):
            worker, self._worker = self._worker, None
            idle_worker.keep(worker)
        for process in (self._worker, self._spare):
            if process is not None:
                process.kill()
        self._worker = self._spare = None

    def _once(self, question: Attempt, longer_s: float) -> tuple[Trial, str | None, bool]:
        """The trial; the step at which its process was lost, or None; and whether a signal from outside ended it."""
        try:
            trial: Trial = self._ask(question, self._patience.trial_s + _TRIAL * longer_s, longer_s).value
        except WorkerLostError as error:
            return _lost(question.config, error), error.during, error.outside
        if self._facts.lost is None or self._worker is None:
            return trial, None, False
        during = self._worker.step
        self._lose(f"it lost its device: {self._facts.lost}")
        return trial, during, False

    @property
    def _longer_s(self) -> float:
        """Seconds that a step may take longer since launches of the default do, or may; not if it ended its process."""
        if self._baseline_s is not None:
            return float(math.floor(_PAIR * self._baseline_s))  # of short launches nothing
        budget = self._assignment.effort.budget
        most_s = budget.seconds if budget.firm and budget.seconds is not None else math.inf
        return 0.0 if self._deaths else min(_UNSEEN * self._patience.launch_s, most_s)

    def _note_baseline(self, trial: Trial) -> None:
        """Learn how long a launch of the default takes, next to which this config was timed."""
        first, self._baseline_s = self._baseline_s is None, trial.median_ms / max(trial.rank, 1e-9) / 1e3
        own_s, longer_s = self._patience.launch_s, self._longer_s
        if first and longer_s > own_s:
            text = "a launch of the default takes %.1f s: a config has hung where a step of it takes more than %.0f s"
            _log.warning(text, self._baseline_s, own_s + longer_s)

    def _not_its_fault(self, during: str) -> bool:
        """True if the step that ended the process was not the candidate's; its cause is then kept from recurring."""
        if during == StationStep.ODD:
            self._changes["odd"] = False
            return True
        if during == StationStep.BASELINE:
            self._baseline_failures += 1
            self._changes["trusted"] = None  # results are compared with those of the first config that runs
            if self._baseline_failures > 1:
                self._facts = replace(self._facts, baseline=None)
            return True
        return False

    def _failing(self, final: FinalRequest, trials: Mapping[Config, Trial]) -> Iterator[Trial]:
        """Failed trials of the finalists that fail again in a trial of their own, or in a race without other arms."""
        for trial in finalists(trials, self._assignment.effort, {final.default, *final.incumbents}):
            again = self.attempt(trial.config, None)
            again = self._race_alone(again, final) if again.ok else again
            if not again.ok:
                yield again

    def _race_alone(self, trial: Trial, final: FinalRequest) -> Trial:
        try:
            question = replace(final, trials=(trial,), incumbents=())
            whole_s = self._patience.trial_s + _TRIAL * self._longer_s
            outcome: Outcome = self._ask(question, whole_s, self._longer_s).value
        except WorkerLostError as error:
            return _lost(trial.config, error)
        return outcome.trials[0]

    def _ask(self, question: Question, whole_s: float, longer_s: float = 0.0) -> WorkerAnswer:
        """The answer to a question; each of its steps but a compilation may take `longer_s` more than by itself."""
        worker = self._worker or self.load()
        self._asking = True
        limits_s = dict(self._assignment.limits_s)
        limits_s.update({step: limits_s[step] + longer_s for step in limits_s if step != StationStep.COMPILE})
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
                    raise TargetError(
                        f"the arguments of {self._assignment.problem}, or its reference, ended the process: {error}",
                        hint="try it inline, where nothing is caught",
                    ) from error
                time.sleep(_PAUSE_S)
        assert self._worker is not None
        return self._worker

    def _start(self) -> WorkerProcess:
        """A worker with the task loaded; after a first death a second process is started, to be ready for the next."""
        worker, self._spare = self._spare or self._new(), None
        first, self._first = self._first, None
        try:
            if self._deaths:
                self._spare = self._new()
            answer = self._asked_to_load(worker, first or self._setup())
            if answer.unloadable and self._mapped:  # the system may let no process map another one's memory
                self._pack_for_workers(mapped=False)
                answer = self._asked_to_load(worker, self._setup())
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

    def _setup(self) -> Setup:
        changes = {**self._changes, "baseline": self._facts.baseline, "mode": self._facts.mode}
        allocator, imports = self._assignment.allocator(), self._assignment.imports
        return Setup(packed=self._packed, changes=changes, allocator=allocator, imports=imports)


def _lost(config: Config, error: WorkerLostError) -> Trial:
    return Trial(config, _status_of(error), error=str(error))


def _status_of(error: WorkerLostError) -> Status:
    return Status.TIMEOUT if error.hung else Status.CRASH
