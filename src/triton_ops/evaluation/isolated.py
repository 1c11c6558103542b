"""Stations in worker processes: a candidate that crashes or hangs ends one trial, and a fresh process goes on.

The step that the worker announced last tells which config is to blame for the end of the worker: the candidate, if the
step was its compilation or launch; the baseline, if the step was work on the baseline. No config is to blame if the
signal came from outside; the candidate is then tried once more.

The placement of data in memory, and the work that ran before, are fixed for the life of a process and favour one config
or another by up to a few tenths of a percent; no number of rounds in one process averages that out. Each further
process is a worker with the same assignment as the first: it verifies results, restores arguments and is guarded too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from triton_ops.backend import MayCrash, ScratchAllocator
from triton_ops.base import cached_property, warn
from triton_ops.device import Turns
from triton_ops.evaluation import idle_worker
from triton_ops.evaluation.finals import FinalRequest, confirmed, finalists
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.questions import Attempt, Setup, StationFacts, StationStep
from triton_ops.evaluation.station import Assignment, Inline, Station
from triton_ops.evaluation.task_worker import TRIAL, NotPortableError, TaskWorker, lost_trial
from triton_ops.exceptions import DeviceError, KernelTypeError, TritonKernelError
from triton_ops.processes import WorkerLostError, WorkerProcess
from triton_ops.request import KernelProblem, TuneOptions
from triton_ops.space import Config
from triton_ops.values import Trial

_MOST_TURNS = 4  # of one trial: one each lost to a signal, to the baseline and to odd extents, and the last one
_MOST_ROUNDS = 32  # of long launches in a last comparison, their rests included
_UNSEEN = 3.0  # times a launch's own limit that are added to it, until a first launch was seen: a minute
_PAIR = 3.0  # launches of the default in a step: one beside a launch that may be twice as slow
_UNFINISHED = "the last comparison could not be run: its process died or hung each time"


class Isolated(TaskWorker):
    """A station in a worker process; raises as `TaskWorker`.

    `process` is one from `Stations.early_process`. The setup of a worker changes `baseline`, next to which others are
    timed, and `mode`, of times that were taken before.
    """

    lost = None  # the next worker can use the device again

    def __init__(self, assignment: Assignment, process: WorkerProcess | None = None, *, reuse: bool = False) -> None:
        self._assignment = assignment
        self._changes: dict[str, Any] = {}
        self._baseline_failures = 0
        self._baseline_s: float | None = None  # of one launch, once it was seen
        facts = StationFacts(mode=assignment.mode, baseline=assignment.baseline)
        super().__init__(assignment, process, reuse=reuse, facts=facts)

    def _setup(self, packed: bytes) -> Setup:
        changes = {**self._changes, "baseline": self._facts.baseline, "mode": self._facts.mode}
        return Setup(packed, changes=changes, allocator=ScratchAllocator.packed(), imports=self._assignment.imports)

    @property
    def facts(self) -> StationFacts:
        """Facts from all workers so far."""
        ended = f", {len(self._deaths)} ended by what ran in them" if self._deaths else ""
        place = f"in a process of its own{ended}"
        return replace(self._facts, lost=self.lost, place=place, notes=(*self._notes, *self._facts.notes), apart=True)

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` in the worker; a worker that dies or hangs ends the trial as `crash` or `timeout`."""
        if best is not None:
            self._note_baseline(best)
        trial = self._tried(Attempt(config, best), self._longer_s)
        if trial.ok:
            self._note_baseline(trial)
        return trial

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
                warn("the last comparison starts again: %s", error)
                trials.update((trial.config, trial) for trial in self._failing(final, trials))
            else:
                return outcome
        return replace(Outcome.of_screenings(tuple(trials.values())), confidence=_UNFINISHED)

    def _tried(self, question: Attempt, longer_s: float) -> Trial:
        outside_before = False
        for _ in range(_MOST_TURNS):
            trial, lost = self.trial(question.config, question, longer_s)
            during = None if lost is None else lost.during
            if lost is None and self._facts.lost is not None and self._worker is not None:
                during = self._worker.step
                self._lose(f"it lost its device: {self._facts.lost}")
            if during is None:
                return trial
            if self._not_its_fault(during):
                continue
            if outside_before or lost is None or not lost.outside:
                return trial
            outside_before = True
        return trial

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
            warn(text, self._baseline_s, own_s + longer_s)

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
            whole_s = self._patience.trial_s + TRIAL * self._longer_s
            outcome: Outcome = self._ask(question, whole_s, self._longer_s).value
        except WorkerLostError as error:
            return lost_trial(trial.config, error)
        return outcome.trials[0]


@dataclass(frozen=True, kw_only=True)
class Stations:
    """The stations of one problem: in workers, or in this process.

    Without an option, kernels that may crash, such as Triton's on a GPU, are isolated. With `reuse` a worker that the
    tune before has left may serve, and is left to the next.
    """

    problem: KernelProblem
    options: TuneOptions = field(default_factory=TuneOptions)
    reuse: bool = False

    @property
    def isolated(self) -> bool:
        """True if candidates run in a worker."""
        if self.options.isolate is not None:
            return self.options.isolate
        return not self.problem.device.is_cpu and isinstance(self.problem.kernel, MayCrash)

    @cached_property
    def turns(self) -> Turns:
        """The turns of this process, of which a first one is waited for before anything is measured."""
        return Turns(self.problem.device_name, self.options.wait)

    @contextmanager
    def early_process(self) -> Iterator[WorkerProcess | None]:
        """Start a process for `begin` ahead, so that its imports run meanwhile; None without isolation."""
        if not self.isolated:
            yield None
            return
        needs = idle_worker.Needs.of(self.problem.kernel, self.problem.device, self.problem.device_name)
        process = (idle_worker.take(needs) if self.reuse else None) or idle_worker.new(needs)
        try:
            yield process
        finally:
            if not idle_worker.holds(process):
                process.kill()

    def begin(
        self,
        assignment: Assignment,
        process: WorkerProcess | None = None,
        note_config: Callable[[Config | None], None] = lambda _: None,
    ) -> Callable[[], Station]:
        """Begin to open a station for an assignment; what is returned waits for it, and for a first turn.

        A worker loads the task and makes the arguments as soon as its imports are done, while this process does other
        things. `note_config` is as of `Inline`, and not called for a worker, which a config ends alone.

        The wait raises as `Inline` does, a `KernelTypeError` if isolation is asked for and the task exists in this
        process only, and a `DeviceError` if others measure and are not to be waited for. Until then the given process
        is the caller's to kill.
        """
        assignment, isolate = replace(assignment, in_turn=Turns.held()), self.options.isolate

        def inline(place: str) -> Station:
            return self._after_a_turn(Inline(assignment, note_config=note_config, place=place))

        if not self.isolated:
            why = "as asked" if isolate is False else "as callables are unless isolation is asked for"
            return partial(inline, f"inline, {why}")

        def not_portable(error: NotPortableError) -> Station:
            if isolate:
                message = f"{assignment.kernel.name} cannot run in a process of its own: {error}"
                hint = "define it in a module that can be imported, or leave the isolation out"
                raise KernelTypeError(message, hint=hint) from error
            warn("%s runs inline, where a crash ends this process: %s", assignment.kernel.name, error)
            return inline(f"inline: {error}")

        try:
            station = Isolated(assignment, process, reuse=self.reuse)
        except NotPortableError as error:
            return partial(not_portable, error)

        def open_station() -> Station:
            try:
                station.load()
            except NotPortableError as error:
                return not_portable(error)
            return self._after_a_turn(station)

        return open_station

    def _after_a_turn(self, station: Station) -> Station:
        try:
            with self.turns.turn(station.facts.turn_key):
                return station
        except DeviceError:
            station.close()
            raise

    def confirm(
        self, outcome: Outcome, assignment: Assignment, final: FinalRequest, mode: str | None,
        left_s: float | None = None,
    ) -> Outcome:  # fmt: skip
        """The outcome after fresh processes, as many as the effort asks for, have compared the tied configs.

        `mode` is that in which the station timed: times of other modes would not be comparable. Nothing is confirmed
        where `left_s`, None for no limit, is short.

        Cost: about 10 s per process on a GPU, one after another.
        """
        fresh = replace(assignment, baseline=next(iter(outcome.ties), None), mode=mode, in_turn=Turns.held())
        return confirmed(outcome, final, assignment.effort.processes, partial(self._outcomes, fresh), left_s)

    def _outcomes(self, assignment: Assignment, questions: Sequence[FinalRequest]) -> Iterator[Outcome]:
        """The outcomes of fresh processes; one that fails is left out with a warning."""
        for question in questions:
            try:
                with closing(Isolated(assignment)) as station:
                    outcome = station.finals(question)
            except NotPortableError as error:
                warn("the tied configs of %s are not confirmed in further processes: %s", assignment.problem, error)
                return
            except TritonKernelError as error:
                warn("a process that should confirm the winner failed: %s", error)
                continue
            if len({len(trial.final.by_round) for trial in outcome.trials if trial.final is not None}) == 1:
                yield outcome
            else:
                warn("a process that should confirm the winner did not compare the tied configs")
