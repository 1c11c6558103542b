"""One candidate from config to finished trial: compile, verify, screening."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from triton_ops.backend import Arguments, CandidateError, Executable, Kernel
from triton_ops.evaluation.judges import Difference
from triton_ops.evaluation.subject import Subject, poison, run_once
from triton_ops.evaluation.verify import BASELINE, LAUNCH, ODD, Verifier
from triton_ops.exceptions import CacheError
from triton_ops.processes import TerminatedError
from triton_ops.space import Config, Members
from triton_ops.timing import EmptyCaptureError, Launch, Rounds, Sampler, ScreenPolicy, SharedTimer, Timer
from triton_ops.values import Measurement, Resources, Status, Trial

_log = logging.getLogger("triton_ops")

COMPILE = "compile"
"""A step that `Evaluator.tell` is called with, beside those of `Verifier.tell`."""
_PATTERNS = 2  # of poison


@dataclass(kw_only=True)
class Evaluator:
    """Turns configs of one kernel into finished trials, on one subject.

    The first config that works chooses `shared_timer`, or the baseline if there is one; the timer is replaced for all
    configs if one of them cannot be captured as a graph. Each screening is measured next to `baseline`; None takes the
    first config that works. `tell` is called with each step that begins; `note_config` with the config that is going to
    run, before each trial, check and visit of a race. `members` are those of an `Enum` that the kernel is given in
    place of their names.
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
    _baseline_sampler: Sampler | None = None
    _measured: dict[str, Trial] = field(default_factory=dict)  # by program
    _working_on_baseline: bool = False
    _baseline_failed: bool = False  # which is said once

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Compile, verify and time `config`; the screening of one much slower than `best` ends early.

        An error of the candidate becomes the trial's status; a `CacheError` is raised, as no config can be compiled.
        """
        executable: Executable | None = None
        self.note_config(config)
        try:
            executable = self._compile(config)
            return self._same_program(executable) or self._remember(executable, self._verify_and_time(executable, best))
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
        self._working_on_baseline = True
        self.announce(BASELINE)
        try:
            executable = self.kernel.compile(config.with_members(self.members), self.subject.arguments)
            if self._wrong(executable) is None:
                self.executables[config] = executable
                self.baseline = config
        except Exception as error:  # noqa: BLE001 - the trial of this config, if there is one, will hold the reason
            _log.warning("config (%s) worked before and does not now: %s", config, CandidateError.one_line(error))
        finally:
            self._working_on_baseline = False

    def wrong_when_repeated(self, config: Config, sampler: Sampler, launches: int, seconds: float) -> Difference | None:
        """Repeat timed launches and check every result, since some errors, such as races, show in some runs only.

        Each repeat launches on every argument set, and there are at least two, one for each poison of the outputs; no
        further one is started after `seconds`. Whatever a launch raises is raised.
        """
        if self.verifier is None:
            return None
        self.note_config(config)
        executable = self._compile(config)
        sets = 1 + len(self.subject.further(executable)) if executable.outputs else 1
        end = time.monotonic() + seconds
        for turn in range(max(math.ceil(launches / sets), _PATTERNS)):
            self.tell(LAUNCH)
            difference = self._wrong_once(self.verifier, executable, sampler, turn % _PATTERNS)
            if difference is not None:
                return suspected(difference, executable)
            if time.monotonic() > end:
                break
        return None

    def announce(self, what: str) -> None:
        """Call `tell` with a step that begins; during work on the baseline the step is `BASELINE`, except for `ODD`."""
        self.tell(BASELINE if self._working_on_baseline and what != ODD else what)

    def _same_program(self, executable: Executable) -> Trial | None:
        """The trial of an equal program that was measured as another config; None if there is none."""
        earlier = None if executable.key is None else self._measured.get(executable.key)
        if earlier is None or earlier.config == executable.config:
            return None
        config = executable.config.plain
        trial = replace(earlier, config=config, compile_s=executable.compile_s, same_code_as=earlier.config)
        if not earlier.error:
            return trial
        return replace(trial, error=f"as ({earlier.config}), the same code: {earlier.error}")

    def _remember(self, executable: Executable, trial: Trial) -> Trial:
        if executable.key is not None and trial.same_code_as is None:
            self._measured[executable.key] = trial
        return trial

    def _wrong(self, executable: Executable) -> Difference | None:
        if self.verifier is None:
            executable.launch(self.subject.arguments)
            return None
        return self.verifier.wrong(executable)

    def _wrong_once(
        self, verifier: Verifier, executable: Executable, sampler: Sampler, pattern: int
    ) -> Difference | None:
        if not executable.outputs:
            return verifier.wrong(executable)
        further = self.subject.further(executable)
        sets = [self.subject.arguments, *further]
        outputs = tuple(arguments.result(name) for arguments in sets for name in executable.outputs)
        for tensor in Arguments(outputs).tensors():
            poison(tensor, pattern)
        # Samples take the sets in turn; outside a round, whose pauses are for timed launches.
        sampler.queue(math.ceil(len(sets) / sampler.launches))()
        return verifier.wrong_after_timing(executable, further, last=True)

    def _timer(self, launch: Launch) -> Timer:
        """The timer; if none is chosen yet, the baseline of an interrupted run chooses it, else this launch."""
        if self.shared_timer.timer is None and self.baseline is not None:
            launch = self._warm(self.baseline)
        return self.shared_timer.start(launch)

    def _plain_sampler(self, config: Config) -> Sampler:
        launch = self._warm(config)
        return self._timer(launch).prepare(launch)

    def _warm(self, config: Config) -> Launch:
        launch = self.subject.launch(self._compile(config))
        self.announce(LAUNCH)
        return run_once(launch)

    def _compile(self, config: Config) -> Executable:
        if config not in self.executables:
            self.announce(COMPILE)
            typed_config = config.with_members(self.members)
            self.executables[config] = self.kernel.compile(typed_config, self.subject.arguments)
        return self.executables[config]

    def _verify_and_time(self, executable: Executable, best: Trial | None) -> Trial:
        config = executable.config.plain
        self.tell(LAUNCH)
        if (difference := self._wrong(executable)) is not None:
            return wrong_trial(config, suspected(difference, executable), executable.resources, executable.compile_s)
        launch = self.subject.launch(executable)
        try:
            samples, relative = self._screen(config, launch, best)
            # Before the reset, which may empty the outputs for the next launch.
            difference = None if self.verifier is None else self.verifier.wrong_after_timing(executable)
        except EmptyCaptureError as error:
            return _failed(config, Status.WRONG, str(error), executable)
        finally:
            if launch.reset is not None:
                launch.reset()
        if difference is not None:
            return wrong_trial(config, suspected(difference, executable), executable.resources, executable.compile_s)
        measurement = Measurement(tuple(samples), self._timer(launch).mode)
        resources, compile_s = executable.resources, executable.compile_s
        return Trial(config, Status.OK, measurement, resources=resources, compile_s=compile_s, relative=relative)

    def _screen(self, config: Config, launch: Launch, best: Trial | None) -> tuple[list[float], float]:
        """Samples of a launch, and its time divided by that of the baseline, which is measured in turn with it."""
        timer = self._timer(launch)
        self.tell(LAUNCH)
        sampler = self.shared_timer.prepare(launch)
        if self.shared_timer.timer is not timer:  # no config is captured any more, and earlier samples do not compare
            self._baseline_sampler = None
        rounds = Rounds(timer=self._timer(launch))
        if self._baseline_sampler is None:
            if self.baseline is None or self.baseline == config:
                self.baseline, self._baseline_sampler = config, sampler
                return rounds.screen(sampler, self.policy)
            self._baseline_sampler = self._sampler_of_baseline(self.baseline)
        self.tell(LAUNCH)
        beside = self._baseline_sampler.inside(_blaming_baseline)
        try:
            return rounds.screen(sampler, self.policy, None if best is None else best.rank, beside=beside)
        except _BaselineFailedError as error:
            if not self._baseline_failed:
                _log.warning("config (%s) worked before and does not now: %s", self.baseline, error)
            self._baseline_failed = True
            return self._screen_alone(sampler, rounds, best)

    def _screen_alone(self, sampler: Sampler, rounds: Rounds, best: Trial | None) -> tuple[list[float], float]:
        """Samples, and the time over that of the baseline, which fails now, by way of the best trial's."""
        self.subject.first.restore()
        samples, _ = rounds.screen(sampler, self.policy, None if best is None else best.median_ms)
        return samples, 1.0 if best is None else best.rank * statistics.median(samples) / max(best.median_ms, 1e-9)

    def _sampler_of_baseline(self, baseline: Config) -> Sampler:
        """A sampler of the baseline; a failure meanwhile is blamed on the baseline, not on the candidate."""
        self.tell(BASELINE)
        self._working_on_baseline = True
        try:
            return self._plain_sampler(baseline)
        finally:
            self._working_on_baseline = False


class _BaselineFailedError(Exception):
    """The baseline fails, and not the candidate beside which it runs."""


@contextmanager
def _blaming_baseline() -> Iterator[None]:
    """Tell errors of the baseline from those of the candidate beside it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise _BaselineFailedError(CandidateError.one_line(error)) from error


def suspected(difference: Difference, executable: Executable) -> Difference:
    """A difference with the compiler's fault that it may come from."""
    fault = executable.suspect()
    return replace(difference, text=f"{difference.text}; {fault}") if fault else difference


def wrong_trial(
    config: Config, difference: Difference, resources: Resources | None = None, compile_s: float | None = None
) -> Trial:
    """The trial of a config whose results are wrong."""
    excess = difference.excess if math.isfinite(difference.excess) else None
    return Trial(config, Status.WRONG, error=difference.text, resources=resources, compile_s=compile_s, excess=excess)


def _failed(config: Config, status: Status, error: str, executable: Executable | None) -> Trial:
    resources, compile_s = (executable.resources, executable.compile_s) if executable else (None, None)
    return Trial(config, status, error=error, resources=resources, compile_s=compile_s)
