"""One candidate from config to finished trial: constraint, compile, verify, first look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend import Arguments, Artifact, CandidateError, Kernel, Protection, candidate_error, private_copy
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
from triton_ops.runner.verify import Verifier
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Measurement, Status, Trial


@dataclass
class Bench:
    """Tries configs of one kernel on one set of private arguments.

    Attributes:
        kernel: What is tuned.
        arguments: Private to this bench: candidates may write them.
        space: Says which configs are valid.
        policy: How much a first look may cost.
        choose: Gives the clock, from a launch of the first config that works; asked once, and once more if a candidate
            cannot be timed with that clock.
        copies: How many argument sets to rotate through; asked once.
        verifier: Checks results; None where there is nothing to compare with.
        reference: The config that others are compared with; None takes the first that works.
        timer: The clock; None until a config has worked.
        artifacts: What was compiled, for later launches of the same config.
    """

    kernel: Kernel
    arguments: Arguments
    space: ConfigSpace
    policy: ScreenPolicy
    choose: Callable[[Launch, bool], Timer]
    copies: Callable[[Arguments], int] = lambda _: 1
    verifier: Verifier | None = None
    reference: Config | None = None
    timer: Timer | None = None
    artifacts: dict[Config, Artifact] = field(default_factory=dict)
    _inputs: Protection | None = None
    _writes_inputs: bool = False
    _rotation: list[Arguments] | None = None
    _beside: Sampler | None = None

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`; raises only what is not the candidate's fault.

        Args:
            config: What to try.
            best: The best so far, to cut a hopeless one short.
        """
        if (reason := self.space.why_not(config)) is not None:
            return Trial(config, Status.CONSTRAINT, error=reason)
        artifact: Artifact | None = None
        try:
            artifact = self._compiled(config)
            return self._measured(artifact, best)
        except CandidateError as error:
            status, text = error.status, str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything; it ends this trial only
            sorted_error = candidate_error(error, Status.RUNTIME)
            status, text = sorted_error.status, str(sorted_error)
        resources, compile_s = (artifact.resources, artifact.compile_s) if artifact else (None, None)
        return Trial(config, status, error=text, resources=resources, compile_s=compile_s)

    def sampler(self, config: Config) -> Sampler:
        """Samples a config that has worked, compiling it again if need be.

        Raises:
            CandidateError: It cannot be compiled or loaded.
        """
        launch = self._warm(config)
        return self._clock(launch).prepare(launch)

    def _launch(self, config: Config) -> Launch:
        """A launch of a config, ready to be timed."""
        artifact = self._compiled(config)
        call = self.kernel.bind(artifact, self.arguments)
        outputs = tuple(Arguments(tuple(self.arguments.keyword.get(name) for name in self.kernel.outputs)).tensors())
        if self._writes_inputs and self._inputs is not None:
            return Launch(call, self._inputs.restore, outputs=outputs)
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
        if launch.reset is not None:
            launch.reset()
        launch.call()
        return launch

    def _compiled(self, config: Config) -> Artifact:
        if config not in self.artifacts:
            self.artifacts[config] = self.kernel.compile(config, self.arguments)
        return self.artifacts[config]

    def _measured(self, artifact: Artifact, best: Trial | None) -> Trial:
        facts: dict[str, Any] = {"resources": artifact.resources, "compile_s": artifact.compile_s}
        if (difference := self._first_run(self._plain_call(artifact))) is not None:
            return Trial(artifact.config, Status.WRONG, error=difference, **facts)
        launch = self._launch(artifact.config)
        try:
            samples, relative = self._first_look(artifact.config, launch, best)
        except EmptyCaptureError as error:
            return Trial(artifact.config, Status.WRONG, error=str(error), **facts)
        finally:
            if launch.reset is not None:
                launch.reset()
        mode = self._clock(launch).mode
        return Trial(artifact.config, Status.OK, Measurement(tuple(samples), mode), relative=relative, **facts)

    def _plain_call(self, artifact: Artifact) -> Callable[[], Any]:
        return self.kernel.bind(artifact, self.arguments)

    def _first_look(self, config: Config, launch: Launch, best: Trial | None) -> tuple[list[float], float]:
        """Samples of a launch, and its time over the reference's, measured in turn with it."""
        timer = self._clock(launch)
        try:
            sampler = timer.prepare(launch)
        except CaptureError:
            timer = self._change_clock(launch)
            sampler = timer.prepare(launch)
        if self._beside is None:
            if self.reference is None or self.reference == config:
                self.reference, self._beside = config, sampler
                return screen(sampler, timer, self.policy), 1.0
            self._beside = self.sampler(self.reference)
        return screen_beside(sampler, self._beside, timer, self.policy, None if best is None else best.rank)

    def _change_clock(self, launch: Launch) -> Timer:
        """Another clock for all candidates, since this one cannot be captured; what was measured counts no more."""
        self.timer = self.choose(launch, False)
        self._beside = None
        return self.timer

    def _first_run(self, call: Callable[[], Any]) -> str | None:
        """Run once, as warm-up and check; put written inputs back, and remember that they are written."""
        if self._inputs is None:
            self._inputs = Protection(self._input_tensors())
        difference = None
        if self.verifier is not None:
            difference = self.verifier.wrong(call)
        else:
            call()
        if self._inputs.changed():
            self._inputs.restore()
            self._writes_inputs = True
        return difference

    def _input_tensors(self) -> list[Any]:
        written = Arguments(tuple(self.arguments.keyword.get(name) for name in self.kernel.outputs))
        outputs = {tensor.untyped_storage().data_ptr() for tensor in written.tensors()}
        return [t for t in self.arguments.tensors() if t.untyped_storage().data_ptr() not in outputs]
