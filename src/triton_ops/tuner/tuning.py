"""One run of `tune`, when no winner is known: the search, the last comparison, the record and the run log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

from triton_ops.compilation import CompilePool, Compiles, SharedCpus
from triton_ops.device import CpuLoad, Turns, load_calibration, machine_of
from triton_ops.evaluation import FinalRequest, Outcome, StationFacts, wants_isolation
from triton_ops.exceptions import DeviceError
from triton_ops.processes import WorkerProcess
from triton_ops.records import (
    Finalist,
    Head,
    NotedCall,
    Quarantine,
    Record,
    Run,
    RunLog,
    Runs,
    Store,
    TrialOrigin,
    Twins,
    recalled,
    transfers_to,
    winners_nearby,
)
from triton_ops.request import Effort, RunningBudget, Task
from triton_ops.search import USES_PRIORS, Prior, Searcher, begin_imports, make_searcher
from triton_ops.space import Config
from triton_ops.tuner.earlier_runs import Before, left_before
from triton_ops.tuner.gate import Gate, Prepared, nothing_yet, wait_for_one
from triton_ops.tuner.late_priors import readiness, searcher_over
from triton_ops.tuner.loop import TuningLoop
from triton_ops.tuner.priors import coming_priors
from triton_ops.tuner.progress import Listener, RunPlan
from triton_ops.tuner.proposals import Feed, FirstConfigs, feed_over, open_pool, until_one_is_done
from triton_ops.tuner.result import failed, record_of, result_of, versions
from triton_ops.tuner.stations import Stations, processes_started_early
from triton_ops.values import Key, Resources, Status, Trial, TuningResult, Work


def open_log(
    runs: Runs, unfinished: Run | None, key: Key, task: Task, effort: Effort, *, seed: int, start: float
) -> RunLog:
    """The log of an interrupted run, which is continued, or else that of a new run.

    Args:
        runs: The runs of the key.
        unfinished: The interrupted run; None if there is none.
        key: The key of the task and of the cache state that was asked for.
        task: The task that is tuned.
        effort: The effort of this call.
        seed: The seed of everything random in the run.
        start: When the tune was called, by `time.monotonic`.
    """
    if unfinished is not None:
        log = RunLog(unfinished.path, start, unfinished.at_s, root=runs.root)
        log.resume(effort=effort.name, searcher=effort.search_name, seed=seed)
        return log
    started = datetime.now(timezone.utc) - timedelta(seconds=time.monotonic() - start)
    run_id = Runs.new_id(started)
    log = RunLog(runs.path(run_id), start, root=runs.root)
    calibration = None if runs.root is None or task.work is None else load_calibration(runs.root, task.device.name)
    log.begin(Head.of(
        run_id, key, task, effort, seed=seed, versions=versions(), started=started, calibration=calibration
    ))  # fmt: skip
    return log


def log_comparison(log: RunLog, outcome: Outcome) -> None:
    """Write the last comparison, and those in fresh processes: every finalist with its rounds, and the twins."""
    for process, found in enumerate((outcome, *outcome.elsewhere)):
        trials, raced = {trial.config: trial for trial in found.trials}, found.raced
        for config, dropped_at in raced.dropped_at:
            log.write(Finalist(at_s=log.at_s, trial=trials[config], dropped_at=dropped_at, process=process))
        if raced.twin is not None:
            log.write(Twins(at_s=log.at_s, config=raced.twin, medians_ms=raced.twins_ms, process=process))


_notes_log = logging.getLogger("triton_ops")


def cut_note(loop: TuningLoop, final: FinalRequest) -> list[str]:
    """What the budget of seconds cut off, in words; empty if nothing."""
    if loop.stopped != "seconds" or final.seconds is None:
        return []
    whole_s, trials = loop.budget.budget.seconds, len(loop.trials)
    if (late_s := loop.budget.late_start_s) is not None:
        said = (
            f"the budget of {whole_s:g} s left no time to search: the first trial began after {late_s:.1f} s; "
            f"{trials} trial{'s' * (trials > 1)} and a comparison of {final.seconds:.1f} s were made all the same; "
            "give more seconds (budget_s)"
        )
        _notes_log.warning("%s", said)
        return [said]
    return [
        f"the budget of {whole_s:g} s ended the search after {trials} trials and left {final.seconds:.1f} s to compare"
    ]


def resumed_note(trials: int) -> list[str]:
    """How many trials an earlier run has left; empty if none."""
    return [f"{trials} trials were taken over from an earlier run"] if trials else []


def disturbed_note(outcome: Outcome) -> list[str]:
    """What others did on the GPU before the last comparison, which decides; empty if nothing was seen."""
    before = "" if outcome.guard is None else outcome.guard.others_before
    return [f"{before} while configs were tried"] if before else []


def device_error(trials: Mapping[Config, Trial]) -> DeviceError:
    """The error for a tune that ended with the GPU that it ran on, of which the last trial says why."""
    last = list(trials.values())[-1]
    return DeviceError(
        f"the GPU cannot be used by this process any more, since config ({last.config}): {last.error}",
        hint="run the same tune again: it goes on after that config",
    )


_FEWEST = 4  # compiled configs, before all of them mean anything
_INTENSE = 64.0  # operations for each byte, above which the matrix unit is needed for most of the rate
_NARROW_BYTES = 2


def pitfall_notes(trials: Sequence[Trial], work: Work | None) -> tuple[str, ...]:
    """What the linter would be asked about, in words with its rules; empty for most tunes.

    Args:
        trials: All trials of the tune.
        work: The work of the problem; None if nobody said it.
    """
    wrong = sum(trial.status is Status.WRONG for trial in trials)
    several = "config was" if wrong == 1 else "configs were"
    said = f"{wrong} {several} wrong: `triton-ops lint` looks for masks, padded lanes and strides that make results so"
    notes = (said,) if wrong else ()
    compiled = {trial.config: trial.resources for trial in trials if trial.resources is not None}
    return (*notes, *_of_space(list(compiled.values()), work)) if len(compiled) >= _FEWEST else notes


def _of_space(compiled: Sequence[Resources], work: Work | None) -> Iterable[str]:
    spills = [used.spill_bytes or 0 for used in compiled]
    if min(spills) > 0:
        yield (
            f"each of {len(compiled)} compiled configs spills registers, the least {min(spills):,} bytes per thread: "
            "the space is held back by register-spill; `triton-ops spills` tries the cures"
        )
    intense = work is not None and work.bytes > 0 and work.flops / work.bytes > _INTENSE
    if intense and all(used.mma == "none" for used in compiled):
        yield (
            f"none of {len(compiled)} compiled configs uses the matrix unit: the space is held back by no-tensor-core; "
            "`triton-ops lint` says in which line"
        )
    widths = [used.load_bytes for used in compiled]
    if all(width is not None and width <= _NARROW_BYTES for width in widths):
        yield (
            f"each of {len(compiled)} compiled configs loads {max(width or 0 for width in widths)} bytes at a time at "
            "most places: the space may be held back by narrow-access; `triton-ops lint` says in which line"
        )


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
        anew: Whether an undecided tune before is not gone on with.
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
    anew: bool = False


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
            before = self._before()
            known = before.trials
            self._tell_of_a_sudden_end(before.unfinished)
            request = self.request = replace(self.request, effort=self.request.effort.beyond(before.further))
            log = open_log(
                self.runs, before.unfinished, request.key, task, request.effort, seed=request.seed, start=self.start
            )
            self.listener.started(self._plan(len(known), log.path))
            for trial in before.taken:
                log.trial(trial, TrialOrigin.TAKEN_OVER)
            result: TuningResult | None = None
            try:
                found = self._searched(log, before, processes, pool)
                record = self._record(found, log, before)
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

    def _before(self) -> Before:
        """What earlier runs leave; of a key with an unknown part nothing, since it may belong to several kernels."""
        request = self.request
        if request.key.unknown:
            return Before()
        space, reference = request.task.space, request.task.reference
        record = None if request.anew else recalled(request.key, self.store, space=space, reference=reference)
        return left_before(self.runs, record, space, request.default, request.effort.name)

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
        before: Before,
        processes: Sequence[WorkerProcess | None],
        prepared: CompilePool | None,
    ) -> _Findings:
        """Run the search and the last comparison; nothing of this problem is compiled while the finalists race.

        The worker makes the arguments while the kernel is read and the first configs are compiled.
        """
        known = before.trials
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
                anyway=before.tunes > 0,
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

    def _record(self, found: _Findings, log: RunLog, before: Before) -> Record:
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
            suspicion = found.facts.suspicion
            log.ended(f"failed: {suspicion}" if suspicion else "failed")
            raise failed(request.task, outcome.trials, found.loop.doubts.notes, suspicion)
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
            notes=[*resumed_note(len(before.trials)), *disturbed_note(outcome), *self._why_not_remembered(outcome)],
            call=request.call,
            tunes=before.tunes + 1,
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
            return [key.unknown_note]
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
            search=effort.search_name + ("; Triton's interpreter is timed" if self.request.key.interpreted else ""),
            budget=effort.budget,
            device=f"{task.device.name} ({', '.join(each.device_name for each in (task, *self.request.beside))})",
            resumed=resumed,
            isolated=wants_isolation(task.kernel, task.device, self.request.isolate),
            log=log,
        )
