"""Whether the configs of a problem are tried here or in workers, and the stations that do it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from triton_ops.backend import MayCrash
from triton_ops.base import cached_property
from triton_ops.device import Turns
from triton_ops.evaluation import idle_worker
from triton_ops.evaluation.finals import FinalRequest, confirmed
from triton_ops.evaluation.isolated import Isolated
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.station import Assignment, Inline, Station
from triton_ops.evaluation.task_worker import NotPortableError
from triton_ops.exceptions import DeviceError, KernelTypeError, TritonKernelError
from triton_ops.processes import WorkerProcess
from triton_ops.request import KernelProblem, TuneOptions
from triton_ops.space import Config

_log = logging.getLogger("triton_ops")


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
            _log.warning("%s runs inline, where a crash ends this process: %s", assignment.kernel.name, error)
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
        processes = assignment.effort.processes
        return confirmed(outcome, final, processes, partial(self._outcomes, fresh), left_s)

    def _outcomes(self, assignment: Assignment, questions: Sequence[FinalRequest]) -> Iterator[Outcome]:
        """The outcomes of fresh processes; one that fails is left out with a warning."""
        for question in questions:
            try:
                with closing(Isolated(assignment)) as station:
                    outcome = station.finals(question)
            except NotPortableError as error:
                tied = f"the tied configs of {assignment.problem}"
                _log.warning("%s are not confirmed in further processes: %s", tied, error)
                return
            except TritonKernelError as error:
                _log.warning("a process that should confirm the winner failed: %s", error)
                continue
            if len({len(trial.final.by_round) for trial in outcome.trials if trial.final is not None}) == 1:
                yield outcome
            else:
                _log.warning("a process that should confirm the winner did not compare the tied configs")
