"""A station in a process of its own: what a candidate does to it ends one trial, and a fresh process goes on.

Who is to blame is told by what the process had begun. The config whose compilation or launch it was; what others are
compared with, if it was that; nobody, if the signal came from outside: then the config is tried once more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from triton_ops.backend import Kernel, MayCrash, pack
from triton_ops.evaluation.candidate import BASELINE, COMPILE
from triton_ops.evaluation.finals import Final, Outcome, best_first_look, finalists
from triton_ops.evaluation.station import RACE, Assignment, Inline, Station, StationFacts
from triton_ops.evaluation.verify import LAUNCH, ODD
from triton_ops.evaluation.worker import Answer, Attempt, Setup
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.hardware import DeviceSpec
from triton_ops.processes.bytecode import being_filled
from triton_ops.processes.process import WorkerDiedError, WorkerHungError, WorkerProcess
from triton_ops.space import Config
from triton_ops.trial import Status, Trial

_log = logging.getLogger("triton_ops")

_MOST_TURNS = 4  # of one trial: from outside, then what it is compared with, then odd extents
_STARTS = 3  # a GPU whose last process was killed needs a moment
_PAUSE_S = 1.0
_UNFINISHED = "the last comparison could not be run: its process died or hung each time"


class NotPortableError(Exception):
    """The task cannot be made in another process; says why."""


class Isolated:
    """A station in another process, which is started when it is first needed, and again when it has died.

    Args:
        assignment: What to work on.
        process: One from `begun`, if there is one already.

    Raises:
        NotPortableError: The task exists in this process only.
        TritonKernelError: As `Inline`.
    """

    def __init__(self, assignment: Assignment, process: WorkerProcess | None = None) -> None:
        try:
            packed = pack(assignment)
        except KernelTypeError as error:
            raise NotPortableError(error.message) from error
        self._packed, self._notes = packed.content, tuple(f"drawn anew in its process: {it}" for it in packed.drawn)
        self._effort = assignment.effort
        self._patience = self._effort.patience
        self._problem = assignment.problem
        self._changes: dict[str, Any] = {}
        self._worker: WorkerProcess | None = None
        self._spare = process
        self._new = partial(_new_process, assignment.kernel, assignment.device, assignment.device_name)
        self._facts = StationFacts(mode=assignment.mode, baseline=assignment.baseline)
        self._deaths: list[str] = []
        self._strikes = 0
        self._ready()

    @property
    def facts(self) -> StationFacts:
        """What is known until now; a device that is lost to a worker is not lost to the next one."""
        ended = f", {len(self._deaths)} ended by what ran in them" if self._deaths else ""
        place = f"in a process of its own{ended}"
        return replace(self._facts, lost=None, place=place, notes=(*self._notes, *self._facts.notes))

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`, whatever it does to its process."""
        outside_before = False
        for _ in range(_MOST_TURNS):
            trial, during, outside = self._once(config, best)
            if during is None:
                return trial
            if self._forgiven(during):
                continue
            if outside_before or not outside:
                return trial
            outside_before = True
        return trial

    def finals(self, final: Final) -> Outcome:
        """The last comparison, among those that live through it."""
        trials = {trial.config: trial for trial in final.trials}
        whole_s = self._effort.race.seconds + self._patience.trial_s + self._patience.launch_s * len(trials)
        for _ in range(2):
            try:
                found: Outcome = self._ask(replace(final, trials=tuple(trials.values())), whole_s, RACE).value
            except (WorkerHungError, WorkerDiedError) as error:  # noqa: PERF203 - twice at most
                _log.warning("the last comparison starts again: %s", error)
                trials.update((trial.config, trial) for trial in self._failing(final, trials))
            else:
                return found
        return replace(best_first_look(tuple(trials.values())), confidence=_UNFINISHED)

    def close(self) -> None:
        """End the process: it holds nothing that would be lost."""
        for process in (self._worker, self._spare):
            if process is not None:
                process.kill()
        self._worker = self._spare = None

    def _once(self, config: Config, best: Trial | None) -> tuple[Trial, str | None, bool]:
        """The trial; what had begun when its process was lost, or None; and whether that came from outside."""
        try:
            trial: Trial = self._ask(Attempt(config, best), self._patience.trial_s, COMPILE).value
        except WorkerHungError as error:
            return Trial(config, Status.TIMEOUT, error=str(error)), error.during, False
        except WorkerDiedError as error:
            return Trial(config, Status.CRASH, error=str(error)), error.during, error.outside
        if self._facts.lost is None or self._worker is None:
            return trial, None, False
        during = self._worker.begun
        self._lose(f"it lost its device: {self._facts.lost}")
        return trial, during, False

    def _forgiven(self, during: str) -> bool:
        """Whether it was not the config's doing; what it was is not done again."""
        if during == ODD:
            self._changes["odd"] = False
            return True
        if during == BASELINE:
            self._strikes += 1
            if self._strikes > 1:
                self._facts = replace(self._facts, baseline=None)
            return True
        return False

    def _failing(self, final: Final, trials: Mapping[Config, Trial]) -> Iterator[Trial]:
        """The finalists that do not live through a trial and a last comparison of their own, as failed trials."""
        for trial in finalists(trials, self._effort, {final.default, *final.incumbents}):
            again = self.attempt(trial.config, None)
            again = self._alone(again, final) if again.ok else again
            if not again.ok:
                yield again

    def _alone(self, trial: Trial, final: Final) -> Trial:
        """A finalist after the launches of a last comparison that it has for itself."""
        try:
            question = replace(final, trials=(trial,), incumbents=())
            found: Outcome = self._ask(question, self._patience.trial_s, RACE).value
        except WorkerHungError as error:
            return Trial(trial.config, Status.TIMEOUT, error=str(error))
        except WorkerDiedError as error:
            return Trial(trial.config, Status.CRASH, error=str(error))
        return found.trials[0]

    def _ask(self, question: Any, whole_s: float, begun: str) -> Answer:
        worker = self._ready()
        own, compile_s = self._patience.launch_s, self._patience.compile_s
        limits_s = {COMPILE: compile_s, LAUNCH: own, ODD: own, RACE: own, BASELINE: compile_s + own}
        try:
            answer: Answer = worker.ask(question, whole_s, limits_s, begun)
        except (WorkerHungError, WorkerDiedError) as error:
            self._lose(str(error))
            raise
        if answer.error is not None:
            raise answer.error
        self._facts = answer.facts or self._facts
        return answer

    def _lose(self, why: str) -> None:
        """Do without the process; the next question starts another."""
        self._deaths.append(why)
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _ready(self) -> WorkerProcess:
        """The process, started and set up if there is none."""
        for turn in range(_STARTS):
            if self._worker is not None:
                return self._worker
            try:
                self._worker = self._started()
            except (WorkerHungError, WorkerDiedError) as error:
                if turn + 1 == _STARTS or not (self._deaths or getattr(error, "outside", False)):
                    raise TargetError(
                        f"the arguments of {self._problem}, or its reference, ended the process: {error}",
                        hint="try it inline, where nothing is caught",
                    ) from error
                time.sleep(_PAUSE_S)
        assert self._worker is not None
        return self._worker

    def _started(self) -> WorkerProcess:
        """A process that has the task; after a first death another stands by, with its imports done."""
        worker, self._spare = self._spare or self._new(), None
        try:
            if self._deaths:
                self._spare = self._new()
            changes = {**self._changes, "baseline": self._facts.baseline, "mode": self._facts.mode}
            answer: Answer = worker.ask(Setup(self._packed, changes), self._patience.setup_s, {}, "start")
            if answer.unloadable:
                raise NotPortableError(answer.error.message if answer.error else "")
            if answer.error is not None:
                raise answer.error
        except BaseException:
            worker.kill()
            raise
        self._facts = replace(answer.facts or self._facts, baseline=self._facts.baseline, mode=self._facts.mode)
        return worker


def _new_process(kernel: Kernel, device: DeviceSpec, device_name: str) -> WorkerProcess:
    own = kernel.process_imports if isinstance(kernel, MayCrash) else ()
    return WorkerProcess(tuple(dict.fromkeys([*own, *(["torch"] if device.kind != "cpu" else [])])), device_name)


@contextmanager
def begun(kernel: Kernel, device: DeviceSpec, device_name: str, isolate: bool | None) -> Iterator[WorkerProcess | None]:
    """Inside, a process for `open_station` is at its imports already; None if candidates are not to be isolated."""
    if not wants_isolation(kernel, device, isolate):
        yield None
        return
    with being_filled():
        process = _new_process(kernel, device, device_name)
        try:
            yield process
        finally:
            process.kill()


def wants_isolation(kernel: Kernel, device: DeviceSpec, isolate: bool | None) -> bool:
    """Whether candidates are to run in a process of their own: as asked, else what may crash on a GPU."""
    return isolate if isolate is not None else device.kind != "cpu" and isinstance(kernel, MayCrash)


def open_station(assignment: Assignment, isolate: bool | None, process: WorkerProcess | None = None) -> Station:
    """The station for a task.

    Args:
        assignment: What to work on.
        isolate: Whether it is to be a process of its own; None isolates what can crash, a Triton kernel on a GPU.
        process: One from `begun`, if there is one already.

    Raises:
        KernelTypeError: Isolation is asked for, and the task exists in this process only.
        TritonKernelError: As `Inline`.
    """
    if isolate is False:
        return Inline(assignment, place="inline, as asked")
    if not wants_isolation(assignment.kernel, assignment.device, isolate):
        return Inline(assignment, place="inline, as callables are unless isolation is asked for")
    try:
        return Isolated(assignment, process)
    except NotPortableError as error:
        if isolate:
            raise KernelTypeError(
                f"{assignment.kernel.name} cannot run in a process of its own: {error}",
                hint="define it in a module that can be imported, or leave the isolation out",
            ) from error
        _log.warning("%s runs inline, where a crash ends this process: %s", assignment.kernel.name, error)
        return Inline(assignment, place=f"inline: {error}")
