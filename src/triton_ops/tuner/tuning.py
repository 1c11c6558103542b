"""One tune of a checked request: its record, or else search, last comparison, record and run log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from triton_ops.backend import Arguments, Operation, Packed, Protection
from triton_ops.base import Folder, cached_property, counted, warn, warn_once
from triton_ops.compilation import CompilePool, SharedCpus
from triton_ops.device import CpuLoad, DeviceSpec, Machine
from triton_ops.evaluation import Assignment, FinalRequest, Outcome, StationFacts, Stations, TuneMemory
from triton_ops.exceptions import CacheError, DeviceError, KernelTypeError, LockfileError, TargetError
from triton_ops.processes import TerminatedError, WorkerProcess
from triton_ops.records import (
    RECORDS,
    Finalist,
    LockfileInUse,
    MemoryStore,
    NotedCall,
    Quarantine,
    Record,
    Run,
    RunLog,
    Runs,
    Store,
    TrialOrigin,
    may_have_records,
    recalled,
    store_in,
)
from triton_ops.request import Effort, TuneOptions, TuneProblem, TuneRequest
from triton_ops.search import Prior, Search, Searcher, make_searcher
from triton_ops.settings import cache_folder
from triton_ops.space import Config, UnlistedSpace
from triton_ops.tuner.expectation import Expectation
from triton_ops.tuner.feeds import CompiledFeed, Compiles, wait_for_one
from triton_ops.tuner.gate import FirstConfigs, Gate, not_within_itself
from triton_ops.tuner.late_priors import readiness, searcher_over
from triton_ops.tuner.loop import TuningLoop
from triton_ops.tuner.priors import coming_priors, in_use, transfers_to, winners_nearby
from triton_ops.tuner.progress import Listener, ProgressBar, RunPlan, device_error, failed, record_of, result_of
from triton_ops.tuner.remarks import cut_note, pitfall_notes, tell_of_long_rounds, untold
from triton_ops.tuner.same_bits import WithinClass
from triton_ops.tuner.survey import Survey
from triton_ops.tuner.trials import limited_registers
from triton_ops.tuner.wrong_results import TileProof
from triton_ops.values import Key, Status, Trial, TuningResult


@dataclass(frozen=True, kw_only=True)
class Before:
    """What earlier runs have left.

    A limit of trials does not count `further` ones: those of the undecided tunes before, or of one that had nothing to
    compare. `tunes` have led to what is gone on with; 0 without one.
    """

    unfinished: Run | None = None
    trials: tuple[Trial, ...] = ()
    further: int = 0
    tunes: int = 0


def log_comparison(log: RunLog, outcome: Outcome) -> None:
    """Write the last comparison, and those in fresh processes: every finalist with its rounds, and the twins."""
    for process, comparison in enumerate((outcome, *outcome.elsewhere)):
        trials = {trial.config: trial for trial in comparison.trials}
        for config, dropped_at in comparison.dropped_at:
            log.write(Finalist(at_s=log.at_s, trial=trials[config], dropped_at=dropped_at, process=process))
        if comparison.twin is not None:
            log.twins(comparison.twin, comparison.twins_ms, process)


_LIKELY = 3  # configs, of which one most often wins


def _pinned(request: TuneRequest) -> TuneRequest:
    """The request with the class of bits that the lockfile in use names; a `LockfileError` if it names none."""
    if (lockfile := LockfileInUse.now().content) is None:
        raise LockfileError("no lockfile is in use", hint="name one: TRITON_OPS_LOCKFILE, or use_lockfile(path)")
    if (entry := lockfile.pinning(request.key, named=True)) is None:
        raise LockfileError(f"the lockfile names no class of bits for {request.problem}", hint="tune it, then lock it")
    return replace(request, pinned=entry.bits, shown_by=entry.config)


def may_overlap(gate: Gate | None, facts: StationFacts, device: DeviceSpec) -> bool:
    """True if the next trial may begin while the search thinks.

    Where a CPU is measured, or this process measures, the work beside a trial would be in its times.
    """
    return gate is not None and gate.overlaps and facts.apart and not device.is_cpu


_CUT_OFF = ("interrupted", "device lost", "disputed")  # ends of a search after which nothing more is measured


def _compared(loop: TuningLoop, compare: Callable[[], Outcome], otherwise: Outcome) -> Outcome:
    """The outcome of a comparison, or the other one if the run was cut off before or is interrupted meanwhile."""
    if loop.stopped not in _CUT_OFF:
        try:
            loop.check()
            return compare()
        except KeyboardInterrupt:
            loop.stopped = "interrupted"
    return otherwise


_MODEL = "a model of the work"  # orders configs
_GIVEN_UP_S = 2.0  # in which another process of a run ends what it has prepared of a problem that goes on here


@dataclass(frozen=True, kw_only=True)
class RequestedTune:
    """A tune of a request that is checked already.

    A `listener` of None draws a progress bar. `start` is the time of the call, by `time.monotonic`. `call` is the call
    of a decorated kernel, which the record keeps, or why it cannot be made again. `gate` lets this tune have its
    device, and may end it; None has the device at once. `before_race` may wait. `shared_cpus` are the CPUs that the
    compilers share with those of other tunes.
    """

    request: TuneRequest
    options: TuneOptions
    listener: Listener | None = None
    start: float = field(default_factory=time.monotonic)
    call: NotedCall | str | None = None
    gate: Gate | None = None
    shared_cpus: SharedCpus | None = None
    asked: Key | None = None  # of the record, in place of the request's
    before_race: Callable[[], object] = lambda: None
    first: Sequence[Config] = ()  # configs that are tried before all others; the first one is in use

    def __post_init__(self) -> None:
        self.effort  # noqa: B018 - a search that is none is refused before any work
        if self.request.same_bits_as == "lockfile" and not self.request.pinned:
            object.__setattr__(self, "request", _pinned(self.request))

    @cached_property
    def effort(self) -> Effort:
        """The effort that the options ask for."""
        return self.options.settled()

    @cached_property
    def key(self) -> Key:
        """The key of the record."""
        return self.request.key if self.asked is None else self.asked

    @cached_property
    def folder(self) -> str:
        """The path of the cache folder."""
        return cache_folder(self.options.cache_dir)

    def known(self) -> TuningResult | None:
        """The result if the winner is known; None if it is not, or if a search is asked for in any case."""
        options, request = self.options, self.request
        if options.force or not options.keep or not may_have_records(self.folder):
            return None
        if (record := self.record_in(store_in(self.folder))) is None or not record.covers(self.effort):
            return None
        return result_of(record, request, time.monotonic() - self.start)

    def record_in(self, store: Store[Record]) -> Record | None:
        """The record that a store has of this very request, whatever its effort was; None if there is none."""
        of = {"reference": self.request.reference_fingerprint, "contents": self.request.contents_fingerprint}
        return recalled(self.key, store, space=self.request.space, **of)

    def result(self) -> TuningResult:
        """The fastest config, recalled or found; raises as `tune`."""
        if (result := self.known()) is not None:
            return result
        stations = Stations(problem=self.request, options=self.options, reuse=True)
        most = self.options.memory_bytes
        if most is not None and (needed := TuneMemory.of(self.request)).within(int(most)) is None:
            raise needed.refusal(self.request, int(most))
        names = ", ".join(Protection.names_of_addresses(self.request.originals or Arguments()))
        if names and stations.isolated:
            raise Packed.not_for_another_process(f"{names} of {self.request.kernel.name}")
        if names:
            text = "what %s writes by the addresses in %s is neither checked nor restored"
            warn(text, self.request.kernel.name, names)
        self.request.checked()
        keep, folder = self.options.keep, Path(self.folder)
        try:
            folder = Folder(folder).ensure() if keep else folder
        except CacheError as error:
            warn_once(f"winners are found, and not kept: {error}")
            return replace(self, options=replace(self.options, keep=False)).result()
        place = folder if keep else None
        with not_within_itself(self.key), TerminatedError.cleaned_up(), self._alone(place) as (runs, quarantine):
            # Another process may have found the winner while this one waited for the lock.
            if (result := self.known()) is not None:
                return result
            store = store_in(self.folder) if keep else MemoryStore(RECORDS)
            return Tuning(
                requested=self, stations=stations, folder=folder, store=store, runs=runs, quarantine=quarantine
            ).run()

    @classmethod
    def expected(cls, request: TuneRequest) -> RequestedTune:
        """A tune that takes the pick of a model, and is not kept."""
        return cls(request=request, options=TuneOptions(effort="expected", keep=False))

    @classmethod
    def expectation_of_list(cls, operation: Operation, gpu: str) -> Expectation | None:
        """The expectation of the list that the author of an operation has made, on a GPU that need not be here.

        None where nobody has made one. Raises `DeviceError` without figures of the GPU, and as `Expectation.of`.
        """
        space = operation.space
        if not isinstance(space, UnlistedSpace) or space.made_up:
            return None
        if (spec := DeviceSpec.called(gpu)) is None:
            raise DeviceError(f"no device {gpu!r} is in the table", hint="take a name of DeviceSpec.names()")
        tune = cls.expected(TuneProblem(target=operation).request("cuda", spec=spec))  # as torch calls any GPU
        return replace(tune.expectation(Survey(seconds=5.0), of_list=True), device=spec.name)

    def expectation(self, survey: Survey, *, of_list: bool = False) -> Expectation:
        """The model's expectation, on a device that need not be here; raises as `Expectation.of`."""
        with self.pool(launches=False) as pool:
            return Expectation.of(self.request.checked(), self.effort, pool, survey, of_list=of_list)

    def pool(self, *, launches: bool = True) -> AbstractContextManager[CompilePool | None]:
        """A compile pool; None for a kernel that is not compiled ahead, or where there is no GPU."""
        try:
            if (compiler := self.request.compiler()) is None:
                return nullcontext()
            return CompilePool(
                compiler, timeout_s=self.effort.patience.compile_s, launches=launches, reuse=True,
                shared_cpus=self.shared_cpus,
            )  # fmt: skip
        except (TargetError, KernelTypeError) as error:
            if self.request.same_bits_as is not None:
                raise
            warn("nothing is compiled ahead: %s", error.message)
            return nullcontext()

    @contextmanager
    def _alone(self, folder: Path | None) -> Iterator[tuple[Runs, Quarantine]]:
        """The run logs and the quarantine of a problem, for one tune at a time; a second one finds its winner."""
        key = self.key
        if folder is None or not _make_folder(folder, folder / Runs.FOLDER):
            yield Runs(None, key.id), Quarantine.of(folder, key)
            return
        waiting = partial(warn, "another process is tuning %s; waiting for it", f"{key.kernel} {key.label}".rstrip())
        late = threading.Timer(_GIVEN_UP_S, waiting)
        late.daemon = True
        wait = waiting if self.gate is None else late.start
        with Folder(folder / Runs.FOLDER).locked(f"{key.id}.lock", waiting=wait) as lock:
            late.cancel()
            yield Runs(folder, key.id, resumed=lock), Quarantine.of(folder, key)


def _make_folder(folder: Path, place: Path) -> bool:
    """Make the folder of run logs; False if it cannot be written, or if another user has placed it."""
    if not Folder(folder).writable:
        warn("%s cannot be written: this tune will be neither stored nor resumable", folder)
        return False
    try:
        Folder(place).ensure(folder)
    except (OSError, CacheError) as error:
        reason = getattr(error, "strerror", None) or error
        warn("%s is ignored, so that this tune cannot be resumed: %s; move it away", place, reason)
        return False
    return True


@dataclass(kw_only=True)
class Tuning:
    """One run of a search for what `requested` asks, with its last comparison and its record.

    Later calls find what is put into `store` if the options keep it.
    """

    requested: RequestedTune
    stations: Stations
    folder: Path
    store: Store[Record]
    runs: Runs
    quarantine: Quarantine
    load: CpuLoad = field(default_factory=CpuLoad)
    _model: Future[list[Prior]] | None = None
    _ordered_by: tuple[str, ...] = ()
    _expectation: Expectation | None = None
    _within: WithinClass | None = None
    _classes: dict[Config, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        requested = self.requested
        self.request, self.default = requested.request, requested.request.space.default_config
        self._proof = TileProof(self.request.space, judged=self.request.reference is not None)
        self.options, self.effort, self.key = requested.options, requested.effort, requested.key
        self.start, self.gate = requested.start, requested.gate
        self.listener = requested.listener or ProgressBar()
        self._transfers = self.options.transfer and self.options.keep

    def run(self) -> TuningResult:
        """Search, compare the finalists, and keep the winner; raises as `tune`."""
        Search(self.effort.search).begin_imports(self.request.space)  # in a thread, while processes start
        with self._prepare() as opened, self.stations.early_process() as process:
            before = self._before()
            trials = before.trials
            self._tell_of_a_sudden_end(before.unfinished)
            self.effort = self.effort.beyond(before.further)
            log = self.runs.log(before.unfinished, self.start, self.key, self.request, self.effort, self.options.seed)
            self.listener.started(self._plan(len(trials), log.path))
            for trial in before.trials if before.unfinished is None else ():
                log.trial(trial, TrialOrigin.TAKEN_OVER)
            result: TuningResult | None = None
            try:
                loop, outcome, facts = self._search(log, before, process, opened)
                why_not, cut_short = self._why_not_remembered(loop, outcome), loop.stopped == "interrupted"
                record = self._record(loop, outcome, facts, log, before, why_not)
                result = result_of(
                    record, self.request, record.elapsed_s, outcome.trials,
                    stored=self.options.keep and not cut_short and not why_not,
                )  # fmt: skip
            finally:
                self.listener.ended(result)
            if not cut_short and not untold(loop, outcome):  # without a record and an end the next call resumes a run
                self._keep(outcome, record, log, not why_not)
            return result

    @contextmanager
    def _prepare(self) -> Iterator[Callable[[], AbstractContextManager[CompilePool | None]]]:
        """What opens the compile pool; it is open where something is compiled before the device is asked for."""
        if self.gate is None and not self.effort.expected_gain:
            yield self.requested.pool  # a process is started first, whose imports take longer
            return
        with self.requested.pool() as pool:
            if self.effort.expected_gain:
                self._expectation = Expectation.of(self.request, self.effort, pool).worth(self.request, self.effort)
            if self.gate is not None:
                self._wait_at(self.gate, pool)
            yield lambda: pool or nullcontext()

    def _wait_at(self, gate: Gate, pool: CompilePool | None) -> None:
        """Have the first proposals compiled until the device is free."""
        first = None if pool is None else FirstConfigs(pool)
        if pool is not None and first is not None:
            self._compile_first(first)
            searcher = self._searcher(pool, gate.nothing_yet)
            CompiledFeed.over(first, Machine.of(self.request.device), self.effort, searcher)
            first.complete(searcher)
        gate.wait(first)
        self.start = max(self.start, gate.since_s or 0.0)
        if pool is not None:
            pool.go_first()
        self.effort = self.effort.within(gate.limit_s)

    def _before(self) -> Before:
        """What earlier runs have left; nothing for a key with an unknown part, which several kernels may share.

        It is the first of these: an interrupted run, with its trials; the trials of the run whose record is
        undecided; and those of the last run over another space with this default, since a config that joins a list is
        then the only one that is tried. The space decides which trials still hold, whose times are relative to that of
        the default config; of failures the default's does not, and none if nothing ran.
        """
        if self.key.unknown:
            return Before()
        space, runs = self.request.space, self.runs
        record = None if self.options.force else self.requested.record_in(self.store)
        undecided = record if record is not None and record.goes_on and record.default == self.default else None
        own = None if undecided is None else runs.run(undecided.run)
        plain = self.request.contents is None  # else no log says over which contents its trials were
        unfinished = runs.unfinished(space.fingerprint) if plain else None
        run = unfinished or own
        if run is None and plain and (other := runs.of_another_space(space.fingerprint, self.effort.name)) is not None:
            first = other.trials.get(self.default)
            run = other if first is not None and first.ok else None
        allowed = [] if run is None else [it for it in run.trials.values() if space.why_not(it.config) is None]
        ran = any(trial.ok for trial in allowed)  # no file makes a tune fail
        alone = unfinished is not None and Outcome.of_screenings(allowed).confidence == Record.ALONE
        return Before(
            unfinished=unfinished,
            trials=tuple(trial for trial in allowed if trial.ok or (ran and trial.config != self.default)),
            further=0 if run is None or not (alone or own) else len(run.trials),
            tunes=int(alone) if undecided is None else undecided.tunes,
        )

    def _tell_of_a_sudden_end(self, unfinished: Run | None) -> None:
        if unfinished is not None and (config := unfinished.under_way) is not None:
            warn(
                "the process that tuned %s before ended while config (%s) ran in it, and %s names it: if it was not "
                "killed, the config ended it; isolate=True (--isolate) runs configs in a process of their own, where "
                "that costs one trial",
                self.request.problem, config, unfinished.path,
            )  # fmt: skip

    def _search(
        self, log: RunLog, before: Before, process: WorkerProcess | None,
        opened: Callable[[], AbstractContextManager[CompilePool | None]],
    ) -> tuple[TuningLoop, Outcome, StationFacts]:  # fmt: skip
        """Run the search and the last comparison; nothing of this problem is compiled while the finalists race."""
        trials, goes_on = before.trials, before.tunes > 0 or before.unfinished is not None
        first = self.requested.first
        incumbents, nearby = in_use(self.request, self.key, self.store, first), self._nearby(trials)
        if self.effort.compiled_first:  # whose few trials are the searcher's
            self.effort = self.effort.beyond(len({*incumbents, *first, *self._proof.first, *nearby} - {self.default}))
        assignment = self._assignment(trials)
        with ExitStack() as stack:
            if (pool := stack.enter_context(opened())) is not None:
                self._compile_first(pool, nearby)
            if pool is not None and self.request.same_bits_as is not None:
                self._within = WithinClass(pool, self.request)
                first = (self._within.trusted, *first)
                assignment = replace(assignment, trusted=self._within.trusted)
            wait_for_station = self.stations.begin(assignment, process, log.begun)
            searcher = self._searcher(pool, (lambda: False) if self.effort.compiled_first else readiness(process))
            loop = self._loop(log, searcher, self._within or pool)
            loop.prepare(incumbents, trials, [*first, *self._proof.first, *nearby])
            station = stack.enter_context(closing(wait_for_station()))
            loop.run(station, overlaps=may_overlap(self.gate, station.facts, self.request.device))
            if pool is not None:
                self._tell_classes(pool, loop.trials.values())
                pool.close() if process is None else pool.end()  # inline, the wait would run beside the race
            final = FinalRequest(
                trials=tuple(loop.trials.values()), default=self.default, incumbents=tuple(incumbents),
                seed=self.options.seed, seconds=loop.budget.comparison_s, anyway=goes_on,
                nearby=next(iter(nearby), None) if self.request.space.size.total <= Effort.FEW else None,
            )  # fmt: skip
            screened = Outcome.of_screenings(final.trials)

            def race() -> Outcome:
                tell_of_long_rounds(loop.trials.pair, final.seconds)
                self.requested.before_race()
                return station.finals(final)

            outcome = screened if screened.winner is None else _compared(loop, race, screened)
            facts, device, work = station.facts, self.request.device, self.request.work
            notes = (
                *self.stations.turns.notes, *facts.notes, *loop.doubts.notes, *self._proof.notes.values(),
                *cut_note(loop, final.seconds), *self.load.notes(device), *pitfall_notes(final.trials, work),
            )  # fmt: skip
            facts = replace(facts, waited_s=loop.feed.waited_s, notes=notes)
        # The station has freed its memory.
        confirm = partial(self.stations.confirm, outcome, assignment, final, facts.mode, loop.budget.left_s)
        outcome = _compared(loop, confirm, outcome)
        return loop, outcome, facts

    def _assignment(self, trials: Sequence[Trial]) -> Assignment:
        successes = [trial.config for trial in trials if trial.ok]
        baseline = self.default if self.default in successes else next(iter(successes), None)
        return Assignment.of(self.request, self.options.of_effort(self.effort), baseline)

    def _compile_first(self, pool: Compiles, nearby: Sequence[Config] = ()) -> None:
        pool.submit(self.default, anyway=True, spare=True)
        for config in nearby:
            pool.submit(config, spare=True)

    def _loop(self, log: RunLog, searcher: Searcher, pool: Compiles | None) -> TuningLoop:
        machine, check = Machine.of(self.request.device), self.gate.check if self.gate else lambda: None
        return TuningLoop(
            space=self.request.space, searcher=searcher, effort=self.effort, log=log, listener=self.listener, pool=pool,
            machine=machine, wait=partial(wait_for_one, check=check), quarantine=self.quarantine, start=self.start,
            check=check, proof=self._proof, derived=partial(limited_registers, self.request.space, machine),
        )  # fmt: skip

    def _record(
        self, loop: TuningLoop, outcome: Outcome, facts: StationFacts, log: RunLog, before: Before, notes: list[str]
    ) -> Record:  # fmt: skip
        cut_short = loop.stopped == "interrupted"
        for trial in outcome.trials:
            self.quarantine.add(trial)  # a finalist may have crashed in the last comparison
        if loop.stopped == "device lost":
            raise device_error(loop.trials)
        if not cut_short and (self._proof.dispute or outcome.winner is not None):
            self._proof.end(facts.uncompared)
        if outcome.winner is None:
            if cut_short:
                raise KeyboardInterrupt
            suspicion = facts.suspicion
            log.ended(f"failed: {suspicion}" if suspicion else "failed")
            most = self.options.memory_bytes
            if most is not None and all(trial.status is Status.RESOURCES for trial in outcome.trials):
                raise TuneMemory.of(self.request).refusal(self.request, int(most), outcome.trials[0].error)
            raise failed(self.request, outcome.trials, loop.doubts.notes, suspicion)
        amount, were = counted(len(before.trials), "trial"), "was" if len(before.trials) == 1 else "were"
        resumed = [f"{amount} {were} taken over from an earlier run"] if before.trials else []
        others = outcome.guard.others_before if outcome.guard is not None else ""
        disturbed = [f"{others} while configs were tried"] if others else []
        record = record_of(
            self.key, self.request, self.effort, outcome, facts, default=self.default, stopped=loop.stopped,
            elapsed_s=time.monotonic() - self.start, run=log.id,
            notes=[*resumed, *disturbed, *notes], call=self.requested.call,
            tunes=before.tunes + 1,
        )  # fmt: skip
        again = ["the winner of a problem nearby, which leads again"] * outcome.leads_again
        record = self._with_class(record, outcome.trials)
        within = loop.chance_within_1pct(modelled=_MODEL in self._ordered_by, noise=outcome.noise)
        ordered_by = (*self._ordered_by, *again)
        return replace(record, ordered_by=ordered_by, within_1pct=within if outcome.compared else None)

    def _with_class(self, record: Record, trials: Sequence[Trial]) -> Record:
        """The record with the class of the winner's bits, and with notes on faults of the classes."""
        if self._within is not None:
            for trial in self._within.faults(trials):
                self.quarantine.add(trial, fault=True)
            more = self._within.notes(trials)
            return replace(record, bits=self._within.reference.result().key, notes=(*record.notes, *more))
        if self.request.tells_bits and record.winner not in self._classes:
            with self.requested.pool(launches=False) as pool:
                self._tell_classes(pool, [trial for trial in trials if trial.config == record.winner])
        return replace(record, bits=self._classes.get(record.winner, ""))

    def _tell_classes(self, pool: CompilePool | None, trials: Iterable[Trial]) -> None:
        """Have the classes of the fastest read, of which one will win, while processes that compile are there."""
        if pool is not None and self._within is None and self.request.tells_bits:
            fastest = sorted((trial for trial in trials if trial.ok), key=lambda trial: trial.rank)[:_LIKELY]
            futures = [(trial.config, pool.bit_class(trial.config)) for trial in fastest]
            self._classes.update((config, future.result().key) for config, future in futures)

    def _keep(self, outcome: Outcome, record: Record, log: RunLog, remembered: bool) -> None:
        """Store the record, if it is to be, and end the log after that: a tune finds it even without the end."""
        log_comparison(log, outcome)
        if remembered:
            self.store.put(record)
        log.ended(record.stopped, record)
        self.runs.prune(log.id)

    def _why_not_remembered(self, loop: TuningLoop, outcome: Outcome) -> list[str]:
        if reason := untold(loop, outcome):
            return [f"nothing is remembered, since {reason}: tune again"]
        if outcome.guard is not None and outcome.guard.status == "shared":
            return [f"the winner is not remembered, since {outcome.guard.others} while the finalists were compared"]
        if Trial.one_alone(Trial.totals(outcome.trials)):
            return ["the winner is not remembered, since every other config failed"]
        key = self.key
        if key.unknown is not None:
            return [key.unknown_note]
        if dict(self.request.kernel.identity) != dict(key.identity):
            return [
                "the winner is not remembered, since something that the kernel refers to changed while it was tuned"
            ]
        return []

    def _searcher(self, pool: CompilePool | None, ready: Callable[[], bool]) -> Searcher:
        search, space = self.effort.search, self.request.space
        if self._expectation is not None:
            self._ordered_by = (self._expectation.text,)
            return make_searcher(search, self._expectation.pair, self.options.seed)
        if not Search(search).uses_priors:
            return make_searcher(search, space, self.options.seed)
        transfers = self._transfers and space.size.total > Effort.FEW
        records = transfers_to(self.request, self.key, self.store, self.folder) if transfers else []
        self._model = self._model or coming_priors(self.request, self.folder, pool, self.effort.budget.trials)

        def searcher_with(priors: Sequence[Prior]) -> Searcher:
            self._ordered_by = (*[_MODEL] * bool(priors), *["records of other problems"] * bool(records))
            return make_searcher(search, space, self.options.seed, priors, records)

        return searcher_over(searcher_with, self._model, ready, self.effort.budget.seconds)

    def _nearby(self, trials: Sequence[Trial]) -> list[Config]:
        """Winners for problems nearby, if they may guide the search, and did not end their process before."""
        if not self._transfers or self._expectation is not None or not Search(self.effort.search).uses_priors:
            return []
        configs_before = {trial.config for trial in trials}
        winners = winners_nearby(self.request, self.key, self.store)
        return [config for config in winners if config not in configs_before and self.quarantine.held(config) is None]

    def _plan(self, resumed: int, log: Path | None) -> RunPlan:
        request, effort = self.request, self.effort
        return RunPlan(
            problem=request.problem, size=request.space.size,
            search=effort.search_name + ("; Triton's interpreter is timed" if self.key.interpreted else ""),
            budget=effort.budget, device=f"{request.device.name} ({request.device_name})", resumed=resumed,
            isolated=self.stations.isolated, log=log,
        )  # fmt: skip
