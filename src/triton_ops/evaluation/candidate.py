"""One candidate from config to finished trial: compile, verify, screening."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from triton_ops.backend import Arguments, CandidateError, Executable, Kernel, candidate_error, one_line
from triton_ops.evaluation.poison import poison
from triton_ops.evaluation.subject import Clock, Subject, on_device_of, run_once
from triton_ops.evaluation.verify import LAUNCH, ODD, Verifier
from triton_ops.exceptions import CacheError
from triton_ops.measure import (
    CaptureError,
    EmptyCaptureError,
    Launch,
    Sampler,
    ScreenPolicy,
    Timer,
    screen,
    screen_beside,
)
from triton_ops.space import Config
from triton_ops.trial import Measurement, Status, Trial

_log = logging.getLogger("triton_ops")

COMPILE, BASELINE = "compile", "baseline"
"""What is going on, as `Evaluator.tell` is told it, beside `LAUNCH`."""


@dataclass(kw_only=True)
class Evaluator:
    """Turns configs of one kernel into finished trials, on one subject.

    Attributes:
        kernel: What is tuned.
        subject: What executables are timed on.
        clock: The timer; chosen by the first config that works, or by the baseline if there is one, and changed for all
            if a candidate cannot be captured.
        policy: How much a screening may cost.
        verifier: Checks results before and after they are timed; None checks nothing.
        baseline: The config that others are timed beside; None takes the first that works.
        executables: What was compiled, for later launches of the same config.
        tell: Told what begins: a compilation, a launch, or a launch of the baseline.
    """

    kernel: Kernel
    subject: Subject
    clock: Clock
    policy: ScreenPolicy
    verifier: Verifier | None = None
    baseline: Config | None = None
    executables: dict[Config, Executable] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda _: None
    _beside: Sampler | None = None
    _measured: dict[str, Trial] = field(default_factory=dict)  # by program
    _at_baseline: bool = False

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`; raises only what is not the candidate's fault.

        Args:
            config: What to try.
            best: The best so far, to cut a hopeless one short.
        """
        executable: Executable | None = None
        try:
            executable = self._compiled(config)
            return self._known(executable) or self._remembered(executable, self._tried(executable, best))
        except CandidateError as error:
            status, text = error.status, str(error)
        except CacheError:
            raise  # no config can be compiled then
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything; it ends this trial only
            sorted_error = candidate_error(error, Status.RUNTIME)
            status, text = sorted_error.status, str(sorted_error)
        return _failed(config, status, text, executable)

    def sampler(self, config: Config) -> Sampler:
        """Samples a config that has worked, compiling it again if need be.

        Raises:
            CandidateError: It cannot be compiled or loaded.
        """
        launch = self._warm(config)
        return self._timer(launch).prepare(launch)

    def start_from(self, config: Config) -> None:
        """Take a config that has worked before, in another process, as the baseline.

        If it does not work now, the first that does takes its place.
        """
        self._at_baseline = True
        self.say(BASELINE)
        try:
            executable = self.kernel.compile(config, self.subject.arguments)
            if self._wrong(executable) is None:
                self.executables[config] = executable
                self.baseline = config
        except Exception as error:  # noqa: BLE001 - its own attempt, if it comes, says why
            _log.warning("config (%s) worked before and does not now: %s", config, one_line(error))
        finally:
            self._at_baseline = False

    def wrong_again(self, config: Config, sampler: Sampler, repeats: int, seconds: float) -> str | None:
        """What is wrong with the results of timed launches, repeated: some errors show in some runs only.

        Raises:
            Exception: Whatever a launch raises.
        """
        if self.verifier is None:
            return None
        executable = self._compiled(config)
        end = time.monotonic() + seconds
        for turn in range(repeats):
            self.tell(LAUNCH)
            found = self._wrong_once(self.verifier, executable, sampler, turn % 2)
            if found is not None or time.monotonic() > end:
                return found
        return None

    def say(self, what: str) -> None:
        """Tell what begins; whatever is done for the baseline is its own doing."""
        self.tell(BASELINE if self._at_baseline and what != ODD else what)

    def _known(self, executable: Executable) -> Trial | None:
        """The trial of a config whose program has been measured; None if it has not."""
        known = None if executable.key is None else self._measured.get(executable.key)
        if known is None or known.config == executable.config:
            return None
        config = executable.config
        found = replace(known, config=config, compile_s=executable.compile_s, same_code_as=known.config)
        return replace(found, error=f"as ({known.config}), the same code: {known.error}") if known.error else found

    def _remembered(self, executable: Executable, trial: Trial) -> Trial:
        if executable.key is not None and trial.same_code_as is None:
            self._measured[executable.key] = trial
        return trial

    def _wrong(self, executable: Executable) -> str | None:
        """How an executable is wrong, found by launching it; None if it is right, or nothing is checked."""
        if self.verifier is None:
            executable.launch(self.subject.arguments)
            return None
        return self.verifier.wrong(executable)

    def _wrong_once(self, verifier: Verifier, executable: Executable, sampler: Sampler, pattern: int) -> str | None:
        if not executable.outputs:
            return verifier.wrong(executable)
        further = self.subject.further()
        sets = [self.subject.arguments, *further]
        for tensor in Arguments(tuple(given.keyword[name] for given in sets for name in executable.outputs)).tensors():
            poison(tensor, pattern)
        with on_device_of(self.subject.arguments):  # not in a round, whose delay and rests are for what is timed
            sampler.queue(len(sets))()  # one for each argument set
        return verifier.left(executable, further)

    def _timer(self, launch: Launch) -> Timer:
        """The timer: chosen by the baseline where it is known from an interrupted run, else by this launch."""
        if self.clock.timer is None and self.baseline is not None:
            launch = self._warm(self.baseline)
        return self.clock.start(launch)

    def _warm(self, config: Config) -> Launch:
        """A launch of a config that has worked, run once."""
        launch = self.subject.launch(self._compiled(config))
        self.say(LAUNCH)
        return run_once(launch)

    def _compiled(self, config: Config) -> Executable:
        if config not in self.executables:
            self.say(COMPILE)
            self.executables[config] = self.kernel.compile(config, self.subject.arguments)
        return self.executables[config]

    def _tried(self, executable: Executable, best: Trial | None) -> Trial:
        config = executable.config
        self.tell(LAUNCH)
        if (difference := self._wrong(executable)) is not None:
            return _failed(config, Status.WRONG, difference, executable)
        launch = self.subject.launch(executable)
        try:
            samples, relative = self._screened(config, launch, best)
        except EmptyCaptureError as error:
            return _failed(config, Status.WRONG, str(error), executable)
        finally:
            if launch.reset is not None:
                launch.reset()
        if self.verifier is not None and (difference := self.verifier.left(executable)) is not None:
            return _failed(config, Status.WRONG, difference, executable)
        found = Measurement(tuple(samples), self._timer(launch).mode)
        resources, compile_s = executable.resources, executable.compile_s
        return Trial(config, Status.OK, found, resources=resources, compile_s=compile_s, relative=relative)

    def _screened(self, config: Config, launch: Launch, best: Trial | None) -> tuple[list[float], float]:
        """Samples of a launch, and its time over the baseline's, measured in turn with it."""
        timer = self._timer(launch)
        self.tell(LAUNCH)
        try:
            sampler = timer.prepare(launch)
        except CaptureError:  # then no candidate is captured, and what another timer measured counts no more
            timer, self._beside = self.clock.change(launch), None
            sampler = timer.prepare(launch)
        if self._beside is None:
            if self.baseline is None or self.baseline == config:
                self.baseline, self._beside = config, sampler
                return screen(sampler, timer, self.policy), 1.0
            self._beside = self._of_baseline(self.baseline)
        self.tell(LAUNCH)
        return screen_beside(sampler, self._beside, timer, self.policy, None if best is None else best.rank)

    def _of_baseline(self, baseline: Config) -> Sampler:
        """Samples the baseline; what goes wrong meanwhile is its own doing, not the candidate's."""
        self.tell(BASELINE)
        self._at_baseline = True
        try:
            return self.sampler(baseline)
        finally:
            self._at_baseline = False


def _failed(config: Config, status: Status, error: str, executable: Executable | None) -> Trial:
    resources, compile_s = (executable.resources, executable.compile_s) if executable else (None, None)
    return Trial(config, status, error=error, resources=resources, compile_s=compile_s)
