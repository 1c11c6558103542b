"""One run of `tune`, when no winner is known: the search, the last comparison, the record and the run log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from triton_ops.cache import Key, NotedCall, Record, Store
from triton_ops.compile_pool.compiles import Compiles
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.compile_pool.shared_cpus import SharedCpus
from triton_ops.evaluation.finals import FinalRequest
from triton_ops.evaluation.isolated import wants_isolation
from triton_ops.evaluation.outcome import Outcome
from triton_ops.evaluation.station import StationFacts
from triton_ops.expectation.prior import coming_priors
from triton_ops.feed.base import Feed
from triton_ops.feed.compiled import feed_over, open_pool, until_one_is_done
from triton_ops.feed.first import FirstConfigs
from triton_ops.hardware import CpuLoad, Turns, machine_of
from triton_ops.history.nearby import winners_nearby
from triton_ops.history.quarantine import Quarantine
from triton_ops.history.recall import recalled, unknown_note
from triton_ops.history.run_log import Origin, Run, RunLog
from triton_ops.history.runs import Runs
from triton_ops.history.transfer import transfers_to
from triton_ops.processes.worker_process import WorkerProcess
from triton_ops.progress.events import Listener, RunPlan
from triton_ops.results.record import failed, record_of, result_of
from triton_ops.runner.gate import Gate, Prepared, nothing_yet, wait_for_one
from triton_ops.runner.late_priors import readiness, searcher_over
from triton_ops.runner.log_lines import log_comparison, open_log
from triton_ops.runner.loop import TuningLoop
from triton_ops.runner.notes import cut_note, device_error, disturbed_note, resumed_note
from triton_ops.runner.pitfalls import pitfall_notes
from triton_ops.runner.stations import Stations, processes_started_early
from triton_ops.search import USES_PRIORS, Prior, Searcher, begin_imports, make_searcher
from triton_ops.space import Config
from triton_ops.task.budget import RunningBudget
from triton_ops.task.effort import Effort
from triton_ops.task.task import Task
from triton_ops.trial import Trial, TuningResult

_log = logging.getLogger("triton_ops")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The request of one call of `tune`.

    Attributes:
        task: The task that is tuned.
        effort: How much the tune may cost.
        default: The default config.
        key: The key of the record that the tune will store.
        seed: The seed of the search's order, the orders of the race and the dummy tensors.
        cold: Whether L2 holds none of the arguments when a launch starts.
        isolate: Whether candidates run in a separate process; None lets the kernel decide.
        transfer: Whether records of other problems and devices may guide the search.
        folder: The cache folder.
        reuse: Whether a worker that the tune before has left may serve, and is left to the next one.
        call: The call of a decorated kernel, for the record, or why it cannot be made again.
        shared_cpus: The CPUs that the compilers share with those of other tunes; None shares none.
        beside: The same problem on further devices of the same model, which screen the space as well.
    """

    task: Task
    effort: Effort
    default: Config
    key: Key
    seed: int
    cold: bool
    isolate: bool | None
    transfer: bool
    folder: Path
    reuse: bool = False
    call: NotedCall | str | None = None
    shared_cpus: SharedCpus | None = None
    beside: tuple[Task, ...] = ()


@dataclass(frozen=True)
class _Findings:
    """The results of a search and its last comparison."""

    loop: TuningLoop
    outcome: Outcome
    facts: StationFacts

    @property
    def cut_short(self) -> bool:
        """Whether the run was interrupted, so that the next call resumes it."""
        return self.loop.stopped == "interrupted"


@dataclass(kw_only=True)
class Tuning:
    """One run of a search, with its last comparison and its record.

    Attributes:
        request: The request of the caller.
        store: The store that takes the record.
        runs: The run logs of the problem.
        quarantine: Configs of the problem that ended their process before.
        listener: Is told of the run's events.
        start: When `tune` was called, by `time.monotonic`, or when the device became this tune's, if that was later.
        turns: The turns of this tune on the device.
        load: How busy other programs keep the CPUs.
        keep: Whether later calls find what is put into `store`.
        gate: What lets this tune have its device, and may end it; None for a tune that has it at once.
    """

    request: RunRequest
    store: Store[Record]
    runs: Runs
    quarantine: Quarantine
    listener: Listener
    start: float
    turns: Turns
    load: CpuLoad = field(default_factory=CpuLoad)
    keep: bool = True
    gate: Gate | None = None
    _model: Future[list[Prior]] | None = None
    _overlaps: bool = False  # as of `Leave`

    def run(self) -> TuningResult:
        """Search, compare the finalists, and keep the winner.

        Raises:
            TuningFailedError, DeviceError, KeyboardInterrupt: As `tune`.
        """
        task = self.request.task
        begin_imports(self.request.effort.search, task.space)
        with self._prepared() as pool, processes_started_early(
            [task, *self.request.beside], self.request.isolate, self.request.reuse
        ) as processes:  # fmt: skip
            unfinished, known = self._interrupted_run()
            taken = [] if unfinished is not None else self._of_another_space()
            known = known or taken
            self._tell_of_a_sudden_end(unfinished)
            request = self.request
            log = open_log(
                self.runs, unfinished, request.key, task, request.effort, seed=request.seed, start=self.start
            )
            self.listener.started(self._plan(len(known), log.path))
            for trial in taken:
                log.trial(trial, Origin.TAKEN_OVER)
            result: TuningResult | None = None
            try:
                found = self._searched(log, known, processes, pool)
                record = self._record(found, log, len(known))
                result = result_of(
                    record, request.task, record.elapsed_s, found.outcome.trials, request.task.space.members,
                    kept=self.keep and not found.cut_short and not self._why_not_remembered(found.outcome),
                )  # fmt: skip
            finally:
                self.listener.ended(result)
            if not found.cut_short:  # an interrupted run keeps no record and has no end, so that it can be resumed
                self._keep(found.outcome, record, log)
            return result

    @contextmanager
    def _prepared(self) -> Iterator[CompilePool | None]:
        """The compile pool of a tune with a gate, when the device is the tune's; None for a tune without one.

        While it waits, the configs are compiled with which the search would begin now.
        """
        request = self.request
        if self.gate is None:
            yield None
            return
        with open_pool(request.task, request.effort, reuse=request.reuse, shared_cpus=request.shared_cpus) as pool:
            prepared = None
            if pool is not None:
                first = FirstConfigs(pool)
                self._compile_first(first)
                searcher = self._searcher(pool, partial(nothing_yet, self.gate))
                feed_over(first, machine_of(request.task.device), request.effort, searcher)
                first.complete(searcher)
                prepared = Prepared(first.enough, first.whole)
            leave = self.gate.wait(prepared)
            self.start = max(self.start, leave.since_s)
            self._overlaps = leave.overlaps
            if pool is not None:
                pool.go_first()
            self.request = replace(request, effort=request.effort.within(leave.limit_s))
            yield pool

    def _interrupted_run(self) -> tuple[Run | None, list[Trial]]:
        """The interrupted run to resume, and those of its trials that the config space still allows.

        A key with an unknown part may belong to several kernels, so that its runs are not resumed. A failure counts
        where another config has run, and never the default's: no file makes a tune fail.
        """
        space = self.request.task.space
        unfinished = None if self.request.key.unknown else self.runs.unfinished(space.fingerprint)
        before = [] if unfinished is None else unfinished.trials.values()
        allowed = [trial for trial in before if space.why_not(trial.config) is None]
        ran, default = any(trial.ok for trial in allowed), self.request.default
        return unfinished, [trial for trial in allowed if trial.ok or (ran and trial.config != default)]

    def _of_another_space(self) -> list[Trial]:
        """The trials of the last run, if it searched another space with this default, of configs that this one holds.

        A config that joins a list is then the only one that is tried; the finalists race in any case.
        """
        request, space = self.request, self.request.task.space
        run = None if request.key.unknown else self.runs.of_another_space(space.fingerprint, request.effort.name)
        default = None if run is None else run.trials.get(request.default)
        if run is None or default is None or not default.ok:  # times are relative to one default config
            return []
        return [trial for trial in run.trials.values() if space.why_not(trial.config) is None]

    def _tell_of_a_sudden_end(self, unfinished: Run | None) -> None:
        """Warn if the process of the interrupted run ended while a config ran in it."""
        if unfinished is not None and (config := unfinished.under_way) is not None:
            _log.warning(
                "the process that tuned %s before ended while config (%s) ran in it, and %s names it: if it was not "
                "killed, the config ended it; isolate=True (--isolate) runs configs in a process of their own, where "
                "that costs one trial",
                self.request.task.problem, config, unfinished.path,
            )  # fmt: skip

    def _searched(
        self,
        log: RunLog,
        known: Sequence[Trial],
        processes: Sequence[WorkerProcess | None],
        prepared: CompilePool | None,
    ) -> _Findings:
        """Run the search and the last comparison; nothing of this problem is compiled while the finalists race.

        The worker makes the arguments while the kernel is read and the first configs are compiled.
        """
        request, incumbents, nearby = self.request, self._incumbents(), self._nearby(known)
        stations = Stations(
            tasks=[request.task, *request.beside], effort=request.effort, cold=request.cold, isolate=request.isolate,
            reuse=request.reuse, turns=self.turns, gate=self.gate, known=known, overlaps=self._overlaps,
        )  # fmt: skip
        with ExitStack() as opened:
            if (pool := opened.enter_context(self._pool(prepared))) is not None:
                self._compile_first(pool, nearby)
            begun = stations.begin(processes, log.begun)
            searcher = self._searcher(pool, readiness(processes[0]))
            waits = until_one_is_done if self.gate is None else partial(wait_for_one, self.gate)
            machine = machine_of(request.task.device)
            feed = feed_over(pool, machine, request.effort, searcher, log.preview, waits)
            loop = self._loop(log, searcher, feed)
            loop.prepare(incumbents, known, nearby)
            station = opened.enter_context(closing(begun()))
            loop.run(station)
            if pool is not None:
                pool.close() if processes[0] is None else pool.end()  # inline, the wait would run beside the race
            final = FinalRequest(
                trials=tuple(loop.trials.values()),
                default=request.default,
                incumbents=tuple(incumbents),
                seed=request.seed,
                seconds=loop.budget.comparison_s,
            )
            outcome = stations.compared(loop, station, final)
            told, busy = station.facts, self.load.notes(request.task.device)
            seen = pitfall_notes(final.trials, request.task.work)
            compiled = () if pool is None else pool.notes
            notes = (*told.notes, *loop.doubts.notes, *cut_note(loop, final), *busy, *seen, *compiled)
            facts = replace(told, waited_s=feed.waited_s, notes=notes)
        outcome = stations.confirmed(loop, outcome, final, facts.mode)  # after the station has freed its memory
        return _Findings(loop, outcome, facts)

    def _compile_first(self, pool: Compiles, nearby: Sequence[Config] = ()) -> None:
        """Have the configs compiled that are tried first, in spare time until they are proposed."""
        pool.submit(self.request.default, anyway=True, spare=True)
        for config in nearby:
            pool.submit(config, spare=True)

    def _pool(self, prepared: CompilePool | None) -> AbstractContextManager[CompilePool | None]:
        """The compile pool, the prepared one if there is one, which has ended its processes after the block."""
        if self.gate is None:
            return open_pool(self.request.task, self.request.effort, reuse=self.request.reuse)
        return nullcontext() if prepared is None else prepared

    def _loop(self, log: RunLog, searcher: Searcher, feed: Feed) -> TuningLoop:
        effort = self.request.effort
        return TuningLoop(
            space=self.request.task.space,
            searcher=searcher,
            budget=RunningBudget(effort.budget, start=self.start, reserve_s=effort.final_s),
            log=log,
            listener=self.listener,
            default=self.request.default,
            feed=feed,
            quarantine=self.quarantine,
            thorough=effort.thorough,
            worthwhile=effort.worthwhile,
        )

    def _record(self, found: _Findings, log: RunLog, resumed: int) -> Record:
        """The record of the run.

        Raises:
            TuningFailedError, DeviceError, KeyboardInterrupt: There is no winner, or the device was lost.
        """
        request, outcome, stopped = self.request, found.outcome, found.loop.stopped
        for trial in outcome.trials:
            self.quarantine.add(trial)  # a finalist may have crashed in the last comparison
        if stopped == "device lost":
            raise device_error(found.loop.trials)
        if outcome.winner is None:
            if found.cut_short:
                raise KeyboardInterrupt
            log.ended("failed")
            raise failed(request.task, outcome.trials, found.loop.doubts.notes)
        return record_of(
            request.key,
            request.task,
            request.effort,
            outcome,
            found.facts,
            default=request.default,
            stopped=stopped,
            elapsed_s=time.monotonic() - self.start,
            run=log.id,
            notes=[*resumed_note(resumed), *disturbed_note(outcome), *self._why_not_remembered(outcome)],
            call=request.call,
        )

    def _keep(self, outcome: Outcome, record: Record, log: RunLog) -> None:
        """Store the record and end the log; the record is first, so that a tune finds it even if the end is missing."""
        log_comparison(log, outcome)
        if not self._why_not_remembered(outcome):
            self.store.put(record)
        log.ended(record.stopped, record)
        self.runs.prune(log.id)

    def _why_not_remembered(self, outcome: Outcome) -> list[str]:
        """Why the winner cannot be stored; empty if it can."""
        if outcome.guard is not None and outcome.guard.status == "shared":
            return [f"the winner is not remembered, since {outcome.guard.others} while the finalists were compared"]
        key = self.request.key
        if key.unknown is not None:
            return [unknown_note(key)]
        if dict(self.request.task.kernel.identity) != dict(key.identity):
            return [
                "the winner is not remembered, since something that the kernel refers to changed while it was tuned"
            ]
        return []

    def _searcher(self, pool: CompilePool | None, ready: Callable[[], bool]) -> Searcher:
        """The searcher, whose priors may come later once something can be measured."""
        request = self.request
        search, space = request.effort.search, request.task.space
        if search not in USES_PRIORS:
            return make_searcher(search, space, request.seed)
        records = transfers_to(request.task, request.key, self.store, request.folder) if request.transfer else []
        if self._model is None:
            self._model = coming_priors(request.task, request.folder, pool)

        def made(priors: Sequence[Prior]) -> Searcher:
            return make_searcher(search, space, request.seed, priors, records)

        return searcher_over(made, self._model, ready, request.effort.budget.seconds)

    def _incumbents(self) -> list[Config]:
        """The stored winner of this problem if the config space still allows it; it is tried like any other config."""
        record = recalled(self.request.key, self.store)
        held = record is not None and self.request.task.space.why_not(record.winner) is None
        return [record.winner] if record is not None and held else []

    def _nearby(self, known: Sequence[Trial]) -> list[Config]:
        """Winners for problems nearby, of a search that may be guided by other problems, as far as they are to be run.

        A trial of a small budget is not spent on one that ended its process before.
        """
        request = self.request
        if not request.transfer or request.effort.search not in USES_PRIORS:
            return []
        tried = {trial.config for trial in known}
        found = winners_nearby(request.task, request.key, self.store)
        return [config for config in found if config not in tried and self.quarantine.held(config) is None]

    def _plan(self, resumed: int, log: Path | None) -> RunPlan:
        task, effort = self.request.task, self.request.effort
        return RunPlan(
            problem=task.problem,
            size=task.space.size,
            search=effort.search_name,
            budget=effort.budget,
            device=f"{task.device.name} ({', '.join(each.device_name for each in (task, *self.request.beside))})",
            resumed=resumed,
            isolated=wants_isolation(task.kernel, task.device, self.request.isolate),
            log=log,
        )
