"""The stations of one tune: one on its device, and one on each further GPU that screens the same space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from triton_ops.device import Turns
from triton_ops.evaluation import (
    Assignment,
    FinalRequest,
    Outcome,
    SideBySide,
    Station,
    TakesTurns,
    assignment_of,
    begin_station,
    confirm_in_fresh_processes,
    fastest_screening,
    process_started_early,
)
from triton_ops.processes import WorkerProcess
from triton_ops.request import Effort, Task
from triton_ops.space import Config
from triton_ops.tuner.gate import Gate, Stoppable
from triton_ops.tuner.loop import TuningLoop
from triton_ops.values import Trial


@contextmanager
def processes_started_early(
    tasks: Sequence[Task], isolate: bool | None, reuse: bool
) -> Iterator[list[WorkerProcess | None]]:
    """A process for each task, as of `process_started_early`."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(
                process_started_early(task.kernel, task.device, task.device_name, isolate, reuse=reuse)
            )
            for task in tasks
        ]


@dataclass(kw_only=True)
class Stations:
    """The stations of one tune.

    Attributes:
        tasks: The problem on each device, on that of the last comparison first.
        effort: How much the tune may cost.
        cold: Whether L2 holds none of the arguments when a launch starts.
        isolate: Whether candidates run in a separate process; None lets the kernel decide.
        reuse: Whether workers are left to the next tune.
        turns: The turns on the first device; those on the others wait as these do.
        gate: What may end the tune; None for one that only Ctrl-C ends.
        known: The trials of an interrupted run.
        overlaps: Whether a trial in another process may begin before the search knows of the one before.
    """

    tasks: Sequence[Task]
    effort: Effort
    cold: bool
    isolate: bool | None
    reuse: bool
    turns: Turns
    gate: Gate | None
    known: Sequence[Trial]
    overlaps: bool = False
    _side_by_side: SideBySide | None = field(default=None, init=False)

    def begin(
        self, processes: Sequence[WorkerProcess | None], begun: Callable[[Config | None], None]
    ) -> Callable[[], Station]:
        """Begin to open the stations; the function that this returns waits for the first one, and gives them as one.

        Args:
            processes: The processes that were started early, one for each task.
            begun: As of `begin_station`, for the first device.
        """
        first, *others = (self._assignment(task) for task in self.tasks)
        opens = begin_station(first, self.isolate, processes[0], begun, reuse=self.reuse)
        if not others:
            return lambda: self._alone(opens(), first)
        beside = {
            each.device_name: partial(
                self._opened, begin_station(each, self.isolate, process, reuse=self.reuse), each.device_name
            )
            for each, process in zip(others, processes[1:], strict=True)
        }

        def opened() -> Station:
            lead = first.device_name, self._on(opens(), self.turns)
            self._side_by_side = SideBySide(lead, beside, self.effort)
            return self._side_by_side

        return opened

    def compared(self, loop: TuningLoop, station: Station, final: FinalRequest) -> Outcome:
        """The last comparison, or the fastest screening if the run was interrupted."""
        if loop.stopped not in ("interrupted", "device lost") and any(trial.ok for trial in final.trials):
            try:
                return station.finals(final)
            except KeyboardInterrupt:
                loop.stopped = "interrupted"
        return fastest_screening(final.trials)

    def confirmed(self, loop: TuningLoop, outcome: Outcome, final: FinalRequest, mode: str | None) -> Outcome:
        """The outcome after ties were confirmed in fresh processes on the device of the last comparison."""
        if loop.stopped in ("interrupted", "device lost"):
            return outcome
        led = self.tasks[0].device_name if self._side_by_side is None else self._side_by_side.leader
        task = next(task for task in self.tasks if task.device_name == led)
        try:
            return confirm_in_fresh_processes(
                outcome, self._assignment(task), final, mode, turns=self._turns_on(led), left_s=loop.budget.left_s
            )
        except KeyboardInterrupt:
            loop.stopped = "interrupted"
        return outcome

    def _alone(self, opened: Station, assignment: Assignment) -> Station:
        """The station of a tune on one device: if it may, one that tries a config while the search thinks.

        Where a CPU is measured, the work of this process beside a trial would be in its times.
        """
        station = self._on(opened, self.turns)
        if not (self.overlaps and station.facts.apart) or assignment.device.kind == "cpu":
            return station
        return SideBySide((assignment.device_name, station), {}, self.effort)

    def _opened(self, opens: Callable[[], Station], device_name: str) -> Station:
        return self._on(opens(), self._turns_on(device_name))

    def _turns_on(self, device_name: str) -> Turns:
        return self.turns if device_name == self.tasks[0].device_name else Turns(device_name, self.turns.wait)

    def _on(self, opened: Station, turns: Turns) -> Station:
        """A station that takes turns on its device, and measures nothing more once the gate is shut."""
        station = TakesTurns(opened, turns)
        return station if self.gate is None else Stoppable(station, self.gate)

    def _assignment(self, task: Task) -> Assignment:
        """The assignment of a station; its baseline is a config that worked in the interrupted run."""
        worked = [trial for trial in self.known if trial.ok]
        default = task.space.default_config
        baseline = next((trial for trial in worked if trial.config == default), next(iter(worked), None))
        return assignment_of(task, self.effort, self.cold, None if baseline is None else baseline.config)
