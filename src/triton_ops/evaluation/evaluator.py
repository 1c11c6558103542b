"""One config becomes a finished trial: it is compiled, verified, timed beside the baseline, and checked again."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from triton_ops.backend import Arguments, CandidateError, Executable, Kernel, fill_with_poison
from triton_ops.base import warn
from triton_ops.evaluation.cases import Subject
from triton_ops.evaluation.judges import Difference
from triton_ops.evaluation.questions import StationStep
from triton_ops.evaluation.verify import Verifier
from triton_ops.exceptions import CacheError
from triton_ops.processes import TerminatedError
from triton_ops.space import Config, Members
from triton_ops.timing import EmptyCaptureError, Launch, Rounds, Sampler, ScreenPolicy, SharedTimer, Timer
from triton_ops.values import Measurement, Status, Trial

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
            warn("config (%s) worked before and does not now: %s", config, CandidateError.one_line(error))

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
        sets = [self.subject.arguments, *further, *(each.arguments for each in self.subject.contents)]
        outputs = tuple(arguments.result(name) for arguments in sets for name in executable.outputs)
        for tensor in Arguments(outputs).tensors():
            fill_with_poison(tensor, turn % _PATTERNS)
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
                warn("config (%s) worked before and does not now: %s", self.baseline, error)
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
