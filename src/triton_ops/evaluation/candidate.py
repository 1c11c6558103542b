"""One candidate from config to finished trial: compile, verify, first look."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.backend import Arguments, Artifact, CandidateError, Kernel, candidate_error, one_line, private_copy
from triton_ops.evaluation.verify import LAUNCH, ODD, Verifier, on_device_of, poison
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

COMPILE, REFERENCE = "compile", "reference"
"""What is going on, as `Bench.tell` is told it, beside `LAUNCH`."""


@dataclass
class Bench:
    """Tries configs of one kernel on one set of private arguments.

    Attributes:
        kernel: What is tuned.
        verifier: Checks results; its first case holds the arguments that candidates are timed on.
        policy: How much a first look may cost.
        choose: Gives the clock, from a launch of the first config that works; asked once, and once more if a candidate
            cannot be timed with that clock.
        copies: How many argument sets to rotate through; asked once.
        reference: The config that others are compared with; None takes the first that works.
        timer: The clock; None until a config has worked.
        artifacts: What was compiled, for later launches of the same config.
        tell: Told what begins: a compilation, a launch, or a launch of the reference config.
    """

    kernel: Kernel
    verifier: Verifier
    policy: ScreenPolicy
    choose: Callable[[Launch, bool], Timer]
    copies: Callable[[Arguments], int] = lambda _: 1
    reference: Config | None = None
    timer: Timer | None = None
    artifacts: dict[Config, Artifact] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda _: None
    _rotation: list[Arguments] | None = None
    _beside: Sampler | None = None
    _measured_codes: dict[Any, Trial] = field(default_factory=dict)
    _at_reference: bool = False

    @property
    def arguments(self) -> Arguments:
        """What candidates are timed on."""
        return self.verifier.cases[0].bed.arguments

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`; raises only what is not the candidate's fault.

        Args:
            config: What to try.
            best: The best so far, to cut a hopeless one short.
        """
        artifact: Artifact | None = None
        try:
            artifact = self._compiled(config)
            return self._known(artifact) or self._remembered(artifact, self._measured(artifact, best))
        except CandidateError as error:
            status, text = error.status, str(error)
        except CacheError:
            raise  # no config can be compiled then
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything; it ends this trial only
            sorted_error = candidate_error(error, Status.RUNTIME)
            status, text = sorted_error.status, str(sorted_error)
        resources, compile_s = (artifact.resources, artifact.compile_s) if artifact else (None, None)
        return Trial(config, status, error=text, resources=resources, compile_s=compile_s)

    def _known(self, artifact: Artifact) -> Trial | None:
        """The trial of a config whose machine code and launch have been measured; None if they have not."""
        known = self._measured_codes.get(self._code(artifact))
        if known is None or known.config == artifact.config:
            return None
        found = replace(known, config=artifact.config, compile_s=artifact.compile_s, same_code_as=known.config)
        return replace(found, error=f"as ({known.config}), the same code: {known.error}") if known.error else found

    def _remembered(self, artifact: Artifact, trial: Trial) -> Trial:
        code = self._code(artifact)
        if code is not None and trial.same_code_as is None:
            self._measured_codes[code] = trial
        return trial

    def _code(self, artifact: Artifact) -> Any:
        """What a launch is: its machine code, its memory, its grid and its plain arguments; None if it is not known."""
        tell = getattr(self.kernel, "launch_key", None)
        if tell is None or artifact.resources is None or artifact.resources.binary is None:
            return None
        launch = tell(artifact.config, self.arguments)
        return None if launch is None else (artifact.resources.binary, artifact.resources.shared_bytes, launch)

    def sampler(self, config: Config) -> Sampler:
        """Samples a config that has worked, compiling it again if need be.

        Raises:
            CandidateError: It cannot be compiled or loaded.
        """
        launch = self._warm(config)
        return self._clock(launch).prepare(launch)

    def start_from(self, config: Config) -> None:
        """Take a config that has worked before, in another process, as what others are compared with.

        If it does not work now, the first that does takes its place.
        """
        self._at_reference = True
        self.say(REFERENCE)
        try:
            artifact = self.kernel.compile(config, self.arguments)
            if self.verifier.wrong(artifact) is None:
                self.artifacts[config] = artifact
                self.reference = config
        except Exception as error:  # noqa: BLE001 - its own attempt, if it comes, says why
            _log.warning("config (%s) worked before and does not now: %s", config, one_line(error))
        finally:
            self._at_reference = False

    def wrong_again(self, config: Config, sampler: Sampler, repeats: int, seconds: float) -> str | None:
        """What is wrong with the results of timed launches, repeated: some errors show in some runs only.

        Raises:
            Exception: Whatever a launch raises.
        """
        sets = [self.arguments, *([] if self.verifier.restores else self._rotated())]
        written = [[arguments.keyword[name] for name in self.kernel.outputs] for arguments in sets]
        end = time.monotonic() + seconds
        for turn in range(repeats):
            self.tell(LAUNCH)
            found = self._wrong_once(config, sampler, written, turn % 2)
            if found is not None or time.monotonic() > end:
                return found
        return None

    def _wrong_once(self, config: Config, sampler: Sampler, written: list[list[Any]], pattern: int) -> str | None:
        if not self.kernel.outputs or self.timer is None:
            return self.verifier.wrong(self._compiled(config))
        for tensor in Arguments(tuple(written)).tensors():
            poison(tensor, pattern)
        with on_device_of(self.arguments):  # not in a round, whose delay and rests are for what is timed
            sampler.queue(len(written))()  # one for each argument set
        return self.verifier.left(written[1:])

    def _launch(self, config: Config) -> Launch:
        """A launch of a config, ready to be timed."""
        artifact = self._compiled(config)
        call = self.kernel.bind(artifact, self.arguments)
        outputs = tuple(self.verifier.cases[0].bed.outputs)
        if self.verifier.restores:
            return Launch(call, self.verifier.cases[0].bed.restore, outputs=outputs)
        copies = tuple(self.kernel.bind(artifact, arguments) for arguments in self._rotated())
        return Launch(call, None, copies, outputs)

    def _rotated(self) -> list[Arguments]:
        """The further argument sets; made when the first launch is timed."""
        if self._rotation is None:
            self._rotation = [private_copy(self.arguments) for _ in range(self.copies(self.arguments) - 1)]
        return self._rotation

    def _clock(self, launch: Launch) -> Timer:
        """The clock: chosen by the reference, where it is known from an interrupted run, else by this launch."""
        if self.timer is None:
            self.timer = self.choose(launch if self.reference is None else self._warm(self.reference), True)
        return self.timer

    def _warm(self, config: Config) -> Launch:
        """A launch of a config that has worked, run once."""
        launch = self._launch(config)
        self.say(LAUNCH)
        if launch.reset is not None:
            launch.reset()
        launch.call()
        return launch

    def say(self, what: str) -> None:
        """Tell what begins; whatever is done for the reference config is its own doing."""
        self.tell(REFERENCE if self._at_reference and what != ODD else what)

    def _compiled(self, config: Config) -> Artifact:
        if config not in self.artifacts:
            self.say(COMPILE)
            self.artifacts[config] = self.kernel.compile(config, self.arguments)
        return self.artifacts[config]

    def _measured(self, artifact: Artifact, best: Trial | None) -> Trial:
        facts: dict[str, Any] = {"resources": artifact.resources, "compile_s": artifact.compile_s}
        self.tell(LAUNCH)
        if (difference := self.verifier.wrong(artifact)) is not None:
            return Trial(artifact.config, Status.WRONG, error=difference, **facts)
        launch = self._launch(artifact.config)
        try:
            samples, relative = self._first_look(artifact.config, launch, best)
        except EmptyCaptureError as error:
            return Trial(artifact.config, Status.WRONG, error=str(error), **facts)
        finally:
            if launch.reset is not None:
                launch.reset()
        if (difference := self.verifier.left()) is not None:
            return Trial(artifact.config, Status.WRONG, error=difference, **facts)
        mode = self._clock(launch).mode
        return Trial(artifact.config, Status.OK, Measurement(tuple(samples), mode), relative=relative, **facts)

    def _first_look(self, config: Config, launch: Launch, best: Trial | None) -> tuple[list[float], float]:
        """Samples of a launch, and its time over the reference's, measured in turn with it."""
        timer = self._clock(launch)
        self.tell(LAUNCH)
        try:
            sampler = timer.prepare(launch)
        except CaptureError:
            timer = self._change_clock(launch)
            sampler = timer.prepare(launch)
        if self._beside is None:
            if self.reference is None or self.reference == config:
                self.reference, self._beside = config, sampler
                return screen(sampler, timer, self.policy), 1.0
            self._beside = self._of_reference(self.reference)
        self.tell(LAUNCH)
        return screen_beside(sampler, self._beside, timer, self.policy, None if best is None else best.rank)

    def _of_reference(self, reference: Config) -> Sampler:
        """Samples the reference; what goes wrong meanwhile is its own doing, not the candidate's."""
        self.tell(REFERENCE)
        self._at_reference = True
        try:
            return self.sampler(reference)
        finally:
            self._at_reference = False

    def _change_clock(self, launch: Launch) -> Timer:
        """Another clock for all candidates, since this one cannot be captured; what was measured counts no more."""
        self.timer = self.choose(launch, False)
        self._beside = None
        return self.timer
