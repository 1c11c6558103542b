"""One candidate from config to finished trial: constraint, compile, verify, first look."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend import (
    Arguments,
    Artifact,
    CandidateError,
    Kernel,
    Protection,
    candidate_error,
)
from triton_ops.measure import Launch, ScreenPolicy, Timer, screen
from triton_ops.runner.verify import Verifier
from triton_ops.space import Config, ConfigSpace
from triton_ops.trial import Status, Trial


@dataclass
class Bench:
    """Tries configs of one kernel on one set of private arguments.

    Attributes:
        kernel: What is tuned.
        arguments: Private to this bench: candidates may write them.
        space: Says which configs are valid.
        timer: The clock.
        policy: How much a first look may cost.
        verifier: Checks results; None where there is nothing to compare with.
        artifacts: What was compiled, for later launches of the same config.
    """

    kernel: Kernel
    arguments: Arguments
    space: ConfigSpace
    timer: Timer
    policy: ScreenPolicy
    verifier: Verifier | None = None
    artifacts: dict[Config, Artifact] = field(default_factory=dict)
    _inputs: Protection | None = None
    _writes_inputs: bool = False

    def attempt(self, config: Config, best_ms: float | None) -> Trial:
        """The finished trial of `config`; raises only what is not the candidate's fault.

        Args:
            config: What to try.
            best_ms: Median of the best candidate so far, to cut a hopeless one short.
        """
        if (reason := self.space.why_not(config)) is not None:
            return Trial(config, Status.CONSTRAINT, error=reason)
        artifact: Artifact | None = None
        try:
            artifact = self._compiled(config)
            return self._measured(artifact, best_ms)
        except CandidateError as error:
            status, text = error.status, str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything; it ends this trial only
            sorted_error = candidate_error(error, Status.RUNTIME)
            status, text = sorted_error.status, str(sorted_error)
        resources, compile_s = (artifact.resources, artifact.compile_s) if artifact else (None, None)
        return Trial(config, status, error=text, resources=resources, compile_s=compile_s)

    def launch(self, config: Config) -> Launch:
        """A launch of a config, ready to be timed; compiles it if that was not done.

        Raises:
            CandidateError: It cannot be compiled or loaded.
        """
        call = self.kernel.bind(self._compiled(config), self.arguments)
        reset = self._inputs.restore if self._inputs is not None and self._writes_inputs else None
        return Launch(call, reset)

    def _compiled(self, config: Config) -> Artifact:
        if config not in self.artifacts:
            self.artifacts[config] = self.kernel.compile(config, self.arguments)
        return self.artifacts[config]

    def _measured(self, artifact: Artifact, best_ms: float | None) -> Trial:
        facts: dict[str, Any] = {"resources": artifact.resources, "compile_s": artifact.compile_s}
        launch = self.launch(artifact.config)
        if (difference := self._first_run(launch)) is not None:
            return Trial(artifact.config, Status.WRONG, error=difference, **facts)
        launch = self.launch(artifact.config)  # again: the first run may have shown that it writes its inputs
        try:
            measurement = screen(launch, self.timer, self.policy, best_ms)
        finally:
            if launch.reset is not None:
                launch.reset()
        return Trial(artifact.config, Status.OK, measurement, **facts)

    def _first_run(self, launch: Launch) -> str | None:
        """Run once, as warm-up and check; put written inputs back, and remember that they are written."""
        if self._inputs is None:
            self._inputs = Protection(self._input_tensors())
        difference = None
        if self.verifier is not None:
            difference = self.verifier.wrong(launch.call)
        else:
            launch.call()
        if self._inputs.changed():
            self._inputs.restore()
            self._writes_inputs = True
        return difference

    def _input_tensors(self) -> list[Any]:
        written = Arguments(tuple(self.arguments.keyword.get(name) for name in self.kernel.outputs))
        outputs = {tensor.untyped_storage().data_ptr() for tensor in written.tensors()}
        return [t for t in self.arguments.tensors() if t.untyped_storage().data_ptr() not in outputs]
