"""Stations try candidates: each config is compiled, verified and screened, and the best are compared at the end.

A station works here, or in a worker process that a candidate may crash; the search does not know which kind it uses.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Protocol

from triton_ops.backend import Arguments, ArgumentSet, CandidateError, Executable, Kernel, MayCrash
from triton_ops.base import cached_property, require
from triton_ops.device import TorchDevice, Turns
from triton_ops.evaluation import idle_worker
from triton_ops.evaluation.expected import Standard
from triton_ops.evaluation.finals import FinalRequest, Outcome, StationFacts, compare_finalists, confirmed
from triton_ops.evaluation.isolated import Isolated, KernelLoad, NotPortableError
from triton_ops.evaluation.judges import Difference, Precision, reduction_length
from triton_ops.evaluation.verify import StationStep, Subject, Verifier, further_cases, odd_case
from triton_ops.exceptions import (
    CacheError,
    DeviceError,
    KernelTypeError,
    ShapeMismatchError,
    TargetError,
    TritonKernelError,
)
from triton_ops.processes import TerminatedError, WorkerProcess
from triton_ops.request import Effort, KernelProblem, TuneOptions, TuneRequest
from triton_ops.space import Config, Members
from triton_ops.timing import EmptyCaptureError, Launch, Rounds, Sampler, ScreenPolicy, SharedTimer, Timer, guard_for
from triton_ops.values import Measurement, Status, Trial, Work

_log = logging.getLogger("triton_ops")
_PATTERNS = 2  # of poison
_LONG_MS = 10.0  # of a launch that is a sample of its own on every timer


@dataclass(kw_only=True)
class Evaluator:
    """Turns configs of one kernel into finished trials, on one subject.

    The first config that works, or the baseline if there is one, chooses the timer, which is replaced for all configs
    if one cannot be captured as a graph. Each screening is measured next to `baseline`; None takes the first config
    that works. `tell` is called with each step that begins; `note_config` with the config that is going to run, before
    each trial, check and visit of a race. `members` are those of an `Enum` that the kernel gets in place of names. Each
    screening is inside a `turn`; compilations and checks are not.
    """

    kernel: Kernel
    subject: Subject
    shared_timer: SharedTimer
    policy: ScreenPolicy
    verifier: Verifier | None = None
    baseline: Config | None = None
    executables: dict[Config, Executable] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda _: None
    note_config: Callable[[Config], None] = lambda _: None
    members: Members = field(default_factory=dict)
    turn: Callable[[], AbstractContextManager[object]] = nullcontext
    _baseline_sampler: Sampler | None = None
    _measured: dict[str, Trial] = field(default_factory=dict)  # by program
    _long: set[Config] = field(default_factory=set)  # configs of which a sample is one long launch
    _working_on_baseline: bool = False
    _baseline_failed: bool = False  # which is said once

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Compile, verify and time `config`; a `CacheError` is raised, as no config can be compiled."""
        executable: Executable | None = None
        self.note_config(config)
        try:
            executable = self._compile(config)
            trial = self._same_program(executable) or self._verify_and_time(executable, best)
            if executable.key is not None and trial.same_code_as is None:
                self._measured[executable.key] = trial
            return trial
        except CandidateError as error:
            failure, trace = error, CandidateError.trace_of(error)
        except (CacheError, KeyboardInterrupt, TerminatedError):
            raise  # not the config's fault: the user's, or no other config can be compiled either
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit too; it ends this trial
            failure, trace = CandidateError.of(error, Status.RUNTIME), CandidateError.trace_of(error)
        return replace(_failed(config, failure.status, str(failure), executable), trace=trace)

    def sampler(self, config: Config) -> Sampler:
        """A sampler of a config that has worked, compiled again if its executable is not here."""

        @contextmanager
        def noted() -> Iterator[None]:
            self.note_config(config)
            yield

        with noted():
            return self._plain_sampler(config).inside(noted)

    def take_baseline(self, config: Config) -> None:
        """Take a config that has worked in another process as the baseline; a warning says if it fails here."""
        try:
            with self._on_baseline():
                executable = self.kernel.compile(config.with_members(self.members), self.subject.arguments)
                if self._wrong(executable) is None:
                    self.executables[config] = executable
                    self.baseline = config
        except Exception as error:  # noqa: BLE001 - the trial of this config, if there is one, will hold the reason
            _log.warning("config (%s) worked before and does not now: %s", config, CandidateError.one_line(error))

    def wrong_when_repeated(self, config: Config, sampler: Sampler, launches: int, seconds: float) -> Difference | None:
        """Repeat timed launches and check every result, since some errors, such as races, show in some runs only.

        Each repeat launches on every argument set; there is one for each poison, and none is started after `seconds`.
        Fewer launches than there are sets, as of a launch that takes long, are all on the first set. Of small arguments
        there are thousands of sets, and results of as many are compared as launches are asked for.
        """
        if self.verifier is None:
            return None
        self.note_config(config)
        executable = self._compile(config)
        further = self.subject.further(executable) if executable.outputs else []
        sets, share = 1 + len(further), math.ceil(launches / _PATTERNS)
        few = sampler.launches == 1 and launches < sets
        # Samples take the sets in turn; outside a round, whose pauses are for timed launches.
        samples = math.ceil(sets * (1 + len(self.subject.contents)) / sampler.launches)
        end = time.monotonic() + seconds
        difference = None
        for turn in range(math.ceil(launches / _PATTERNS) if few else max(math.ceil(launches / sets), _PATTERNS)):
            self.tell(StationStep.LAUNCH)
            if few or not executable.outputs:
                difference = self.verifier.wrong(executable)
            else:
                judged = further if sets <= launches else further[turn * share :][:share]
                difference = self._wrong_once(self.verifier, executable, judged, turn, lambda: sampler.queue(samples)())
            if difference is not None or time.monotonic() > end:
                break
        return difference

    def announce(self, what: str) -> None:
        """Call `tell` with a step that begins; during work on the baseline the step is `BASELINE`, except for `ODD`."""
        self.tell(StationStep.BASELINE if self._working_on_baseline and what != StationStep.ODD else what)

    def _same_program(self, executable: Executable) -> Trial | None:
        """The trial of an equal program that was measured as another config; None if there is none."""
        earlier = None if executable.key is None else self._measured.get(executable.key)
        if earlier is None or earlier.config == executable.config:
            return None
        return replace(
            earlier, config=executable.config.plain, compile_s=executable.compile_s, same_code_as=earlier.config,
            error=f"as ({earlier.config}), the same code: {earlier.error}" if earlier.error else "",
        )  # fmt: skip

    def _wrong(self, executable: Executable) -> Difference | None:
        if self.verifier is not None:
            return self.verifier.wrong(executable)
        executable.launch(self.subject.arguments)
        return None

    def _wrong_once(
        self, verifier: Verifier, executable: Executable, further: Sequence[Arguments], turn: int,
        launch: Callable[[], object],
    ) -> Difference | None:  # fmt: skip
        """Launch on every set, and judge the results of the first and of some further ones, which held poison."""
        contents = [each.arguments for each in self.subject.contents]
        sets = [self.subject.arguments, *further, *contents]
        outputs = tuple(arguments.result(name) for arguments in sets for name in executable.outputs)
        for tensor in Arguments(outputs).tensors():
            ArgumentSet.fill_with_poison(tensor, turn % _PATTERNS)
        launch()
        return verifier.wrong_after_timing(executable, further, last=True)

    def _timer(self, launch: Launch) -> Timer:
        """The timer; if none is chosen yet, the baseline of an interrupted run chooses it, else this launch."""
        if self.shared_timer.timer is None and self.baseline is not None:
            launch = self._warm(self.baseline)
        return self.shared_timer.start(launch)

    def _plain_sampler(self, config: Config) -> Sampler:
        if config in self._long:  # which has run, and is not run twice more to prepare it
            launch = self.subject.launch(self._compile(config))
            return launch.sampler(self._timer(launch), 1)
        launch = self._warm(config)
        return launch.sampler(self._timer(launch))

    def _warm(self, config: Config) -> Launch:
        launch = self.subject.launch(self._compile(config))
        self.announce(StationStep.LAUNCH)
        return launch.started()

    def _compile(self, config: Config) -> Executable:
        if config not in self.executables:
            self.announce(StationStep.COMPILE)
            self.executables[config] = self.kernel.compile(config.with_members(self.members), self.subject.arguments)
        return self.executables[config]

    def _verify_and_time(self, executable: Executable, best: Trial | None) -> Trial:
        config = executable.config.plain
        self.tell(StationStep.LAUNCH)
        if (difference := self._wrong(executable)) is not None:
            return difference.trial(config, executable.resources, executable.compile_s)
        launch = self.subject.launch(executable)
        try:
            samples, relative = self._screen(config, launch, best)
            self._long |= {config} if min(samples) >= _LONG_MS else set()
            # Before the reset, which may empty the outputs for the next launch. What cannot win is not launched again.
            again = best is None or relative <= self.policy.hopeless * best.rank
            self.tell(StationStep.LAUNCH)
            difference = None if self.verifier is None else self.verifier.wrong_after_timing(executable, again=again)
        except EmptyCaptureError as error:
            return _failed(config, Status.WRONG, str(error), executable)
        finally:
            if launch.reset is not None:
                launch.reset()
        if difference is not None:
            return difference.trial(config, executable.resources, executable.compile_s)
        return Trial(
            config, Status.OK, Measurement(tuple(samples), self._timer(launch).mode), resources=executable.resources,
            compile_s=executable.compile_s, relative=relative,
        )  # fmt: skip

    def _screen(self, config: Config, launch: Launch, best: Trial | None) -> tuple[list[float], float]:
        """Samples of a launch, and its time divided by that of the baseline, which is measured in turn with it."""
        timer = self._timer(launch)
        self.tell(StationStep.LAUNCH)
        sampler = self.shared_timer.prepare(launch)
        if self.shared_timer.timer is not timer:  # no config is captured any more, and earlier samples do not compare
            self._baseline_sampler = None
        rounds = Rounds(timer=self._timer(launch), turn=self.turn)
        if self._baseline_sampler is None:
            if self.baseline is None or self.baseline == config:
                self.baseline, self._baseline_sampler = config, sampler
                return rounds.screen(sampler, self.policy)
            with self._on_baseline():
                self._baseline_sampler = self._plain_sampler(self.baseline)
        self.tell(StationStep.LAUNCH)
        beside = self._baseline_sampler.inside(_blaming_baseline)
        try:
            rank, best_ms = (None, 0.0) if best is None else (best.rank, best.median_ms)
            return rounds.screen(sampler, self.policy, rank, beside=beside, best_ms=best_ms)
        except _BaselineFailedError as error:
            if not self._baseline_failed:
                _log.warning("config (%s) worked before and does not now: %s", self.baseline, error)
            self._baseline_failed = True
        self.subject.first.restore()
        samples, _ = rounds.screen(sampler, self.policy, None if best is None else best.median_ms)
        # Over the time of the baseline by way of the best trial's.
        return samples, 1.0 if best is None else best.rank * statistics.median(samples) / max(best.median_ms, 1e-9)

    @contextmanager
    def _on_baseline(self) -> Iterator[None]:
        """Work inside of which a failure is the baseline's, and not the candidate's."""
        self.tell(StationStep.BASELINE)
        self._working_on_baseline = True
        try:
            yield
        finally:
            self._working_on_baseline = False


class _BaselineFailedError(Exception):
    """The baseline fails, and not the candidate beside which it runs."""


@contextmanager
def _blaming_baseline() -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise _BaselineFailedError(CandidateError.one_line(error)) from error


def _failed(config: Config, status: Status, error: str, executable: Executable | None) -> Trial:
    resources, compile_s = (executable.resources, executable.compile_s) if executable else (None, None)
    return Trial(config, status, error=error, resources=resources, compile_s=compile_s)


@dataclass(frozen=True, kw_only=True)
class Assignment(KernelLoad):
    """The part of a request that a station needs; it can be sent to another process.

    Others are timed next to `baseline`, which has worked before; None takes the first that works. `mode` is that of
    earlier times; None leaves the timer open. Without a reference the results of `trusted` are right; None takes the
    first that runs. `in_turn` has the keys of the devices on which whoever asks has the turn already.
    """

    work: Work | None
    odd: bool = True
    members: Members = field(default_factory=dict)
    trusted: Config | None = None
    in_turn: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: TuneRequest, options: TuneOptions, baseline: Config | None) -> Assignment:
        """The assignment of a station for a request, without its search, which may be none for other processes."""
        common = {each.name: getattr(request, each.name) for each in fields(KernelProblem)}
        return cls(
            **common, work=request.work, baseline=baseline,
            options=options.of_effort(replace(Effort.of(options), search="auto")), trusted=request.space.default_config,
            members=request.space.members,
        )  # fmt: skip

    def station(self, tell: Callable[[str], None]) -> Station:
        """The station of a worker; `tell` is called with each step that begins."""
        return Inline(self, tell)


class Station(Protocol):
    """Tries configs of one problem, one after another, and compares the best at the end."""

    @property
    def facts(self) -> StationFacts:
        """The facts so far."""

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config`; its screening ends early if it is much slower than `best`, the best trial so far."""

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison, and decide."""

    def close(self) -> None:
        """Release processes and memory; further calls of `close` do nothing."""


class Inline:
    """A station in this process: for debugging, and for callables that exist in this process only.

    A candidate that crashes ends this process, and one that hangs is not ended. `note_config` is called with a config
    that is going to run, which may end this process, and with None when one that leaves no trial has ended without
    that: in the last comparison, or after Ctrl-C. A `TritonKernelError` says that the arguments cannot be made, or that
    the reference raises or does not fit.
    """

    def __init__(
        self,
        assignment: Assignment,
        tell: Callable[[str], None] = lambda _: None,
        place: str = "inline",
        note_config: Callable[[Config | None], None] = lambda _: None,
    ) -> None:
        self._assignment, self._tell, self._place, self._note_config = assignment, tell, place, note_config
        self._lost: str | None = None
        with self._on_device():
            self._turn_key = Turns.key_of(assignment.device, assignment.device_name)
            self._turns = Turns(assignment.device_name, begun=True, tell=partial(tell, StationStep.TURN))
            self._evaluator = self._make_evaluator()
        self._started = assignment.baseline is None
        self._since_s = time.time()

    @property
    def facts(self) -> StationFacts:
        """Facts of this process."""
        evaluator, verifier = self._evaluator, self._verifier
        restores = evaluator.subject.restores
        restored = ("the kernel writes its inputs, which are restored before every launch",) if restores else ()
        return StationFacts(
            mode=evaluator.shared_timer.mode, baseline=evaluator.baseline, against=verifier.against, lost=self._lost,
            place=self._place, notes=(*restored, *verifier.notes, *self._turns.notes), suspicion=verifier.suspicion,
            turn_key=self._turn_key,
        )  # fmt: skip

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config` here; after a failure the device is probed, and memory that the candidate held is freed."""
        with self._on_device():
            try:
                self._start(config)
                trial = self._evaluator.attempt(config, best)
            except BaseException:
                self._note_config(None)  # Ctrl-C or an error of this package
                raise
            if trial.status.facts.hurts_device and not self._assignment.device.is_cpu:
                self._lost = _gpu_lost(self._assignment.device_name)
                if self._lost is None:
                    require("torch", "freeing memory").cuda.empty_cache()  # memory that the failed candidate held
            return trial

    def finals(self, final: FinalRequest) -> Outcome:
        """Run the last comparison; a guard of its own reads the device's sensors meanwhile."""
        guard = guard_for(self._assignment.device_name, self._since_s)

        def keep_round() -> bool:
            self._tell(StationStep.RACE)
            return guard.round_ok()

        try:
            with self._on_device():
                self._start(None)
                effort = Effort.of(self._assignment.options)
                outcome = compare_finalists(self._evaluator, final, effort, keep_round, turn=self._turn)
        finally:
            self._note_config(None)
        return replace(outcome, guard=guard.summary())

    def close(self) -> None:
        """Do nothing: this process goes on, and frees memory as its owner drops the station."""

    def _on_device(self) -> AbstractContextManager[None]:
        return TorchDevice(self._assignment.device_name).current()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._turns.turn("" if self._turn_key in self._assignment.in_turn else self._turn_key):
            self._tell(StationStep.LAUNCH)
            yield

    def _start(self, config: Config | None) -> None:
        baseline = self._assignment.baseline
        if not self._started and baseline is not None and config != baseline:
            self._note_config(baseline)
            self._evaluator.take_baseline(baseline)
        self._started = True

    def _make_evaluator(self) -> Evaluator:
        assignment = self._assignment
        shared = SharedTimer(assignment.device, assignment.device_name, cold=assignment.cold, mode=assignment.mode)
        subject = self._subject(shared)
        self._verifier = self._make_verifier(subject)
        evaluator = Evaluator(
            kernel=assignment.kernel, subject=subject, shared_timer=shared, policy=Effort.of(assignment.options).screen,
            verifier=self._verifier, tell=self._tell, note_config=self._note_config, members=assignment.members,
            turn=self._turn,
        )  # fmt: skip
        self._verifier.tell = evaluator.announce
        return evaluator

    def _make_verifier(self, subject: Subject) -> Verifier:
        assignment, kernel, trusted = self._assignment, self._assignment.kernel, self._assignment.trusted
        reduction = reduction_length(assignment.problem, kernel.outputs, assignment.work)
        precision = Precision(inputs=tuple(subject.first.input_dtypes), reduction=reduction)
        what = f"the reference of {assignment.problem} raised"
        with CandidateError.as_error(TargetError, what, "call it with the same arguments to try"):
            return Verifier(
                kernel=kernel, subject=subject, reference=assignment.reference, tell=self._tell,
                trusted=None if trusted is None else trusted.with_members(assignment.members),
                others=further_cases(subject.first, assignment),
                ragged=odd_case(assignment) if assignment.odd else None,
                standard=Standard(precision=precision, tolerance=assignment.tolerance, check=assignment.check),
            )  # fmt: skip

    def _subject(self, shared: SharedTimer) -> Subject:
        assignment = self._assignment
        outputs, seed = assignment.kernel.outputs, assignment.options.seed
        what = f"the arguments of {assignment.problem} cannot be made on {assignment.device_name}:"
        with CandidateError.as_error(ShapeMismatchError, what, "take a smaller problem", MemoryError, RuntimeError):
            if assignment.contents is None:
                return Subject(ArgumentSet(assignment.arguments(), outputs), shared.sets)
            return Subject.over(assignment.contents, assignment.arguments(), outputs, shared.sets, seed)


def _gpu_lost(device_name: str) -> str | None:
    """The reason why this process can no longer use a GPU; None if it can.

    An illegal access leaves the whole process without its GPU. A small computation on the device finds that out.
    """
    torch = require("torch", "asking the GPU")
    try:
        torch.cuda.synchronize(device_name)
        works = torch.ones(1, device=device_name).add_(1).item() == 2
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None if works else "the device computes 1 + 1 wrongly"


@dataclass(frozen=True, kw_only=True)
class Stations:
    """The stations of one problem: in workers, or in this process.

    Without an option, kernels that may crash, such as Triton's on a GPU, are isolated. With `reuse` a worker that the
    tune before has left may serve, and is left to the next.
    """

    problem: KernelProblem
    options: TuneOptions = field(default_factory=TuneOptions)
    reuse: bool = False

    drop_idle = staticmethod(idle_worker.drop_idle_workers)

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
        processes = Effort.of(assignment.options).processes
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
