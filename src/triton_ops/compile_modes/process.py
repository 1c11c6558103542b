"""A handle of the process that holds one compiled model: what it says, how long it may take, how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from triton_ops.compile_modes.inductor.modes import INDUCTOR, CompileMode
from triton_ops.compile_modes.questions import (
    CALLING,
    COMPILING,
    LOADING,
    REFERENCE,
    CallManner,
    Failed,
    Load,
    Loaded,
    Reply,
    Visit,
)
from triton_ops.processes import WorkerDiedError, WorkerHungError, WorkerProcess
from triton_ops.timing import Pending, Sampler
from triton_ops.values import Status

_PROGRAM = "triton_ops.compile_modes.worker"
_IMPORTS = ("torch",)  # else the first call would pay for them
_COMPILERS = ("torch._dynamo",)
_INDUCTOR = ("torch._inductor.compile_fx",)


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """Limits of the steps of a mode's process, in seconds.

    Attributes:
        load_s: Making the model, and computing the results that are expected.
        compile_s: Compiling, with all that the compiler tunes.
        call_s: The calls until they are steady, or one visit.
    """

    load_s: float = 300.0
    compile_s: float = 1200.0
    call_s: float = 120.0

    def within(self, left_s: float) -> StepLimits:
        """These limits, with a compilation that takes no longer than what is left of a budget."""
        return StepLimits(load_s=self.load_s, compile_s=min(self.compile_s, max(left_s, 1.0)), call_s=self.call_s)

    @property
    def by_step(self) -> dict[str, float]:
        """The limit of each step that a worker announces."""
        return {LOADING: self.load_s, REFERENCE: self.load_s, COMPILING: self.compile_s, CALLING: self.call_s}


class ModeLostError(Exception):
    """The process of a mode ended, or answered that the mode does not work, during a visit."""


@dataclass
class ModeProcess:
    """A process that holds a model under one mode.

    Attributes:
        mode: How the model is compiled.
        limits: How long its steps may take.
        device: The GPU that the process readies while it imports, else empty.
        environment: Where its compiler keeps files, and what it logs.
        lines: What it has written to stderr.
        samples_ms: Milliseconds of one call of each kind, by kind, in the order taken.
    """

    mode: CompileMode
    limits: StepLimits
    _: KW_ONLY
    device: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    samples_ms: list[list[float]] = field(default_factory=list)
    _worker: WorkerProcess | None = None

    def load(self, packed: bytes, manner: CallManner) -> Loaded | Failed:
        """Start the process, and have the model made, compiled, checked and called until it is steady."""
        limits = self.limits.by_step
        self._worker = WorkerProcess(_imports(self.mode), self.device, program=_PROGRAM, changes=self.environment)
        answer = self._ask(Load(packed, self.mode, manner), sum(limits.values()), LOADING)
        if not isinstance(answer, (Loaded, Failed)):
            answer = Failed(Status.CRASH, "its process answered something else")
        if isinstance(answer, Failed):
            self.close()
        return answer

    @property
    def sampler(self) -> Sampler:
        """Takes samples of one call of each kind, added up, in milliseconds."""

        def queue(count: int) -> Pending:
            samples = self.visit(count)
            return lambda: samples

        return Sampler(queue)

    def visit(self, count: int) -> list[float]:
        """Take samples now.

        Raises:
            ModeLostError: The process is lost.
        """
        answer = self._ask(Visit(count), self.limits.call_s * (count + 1), CALLING)
        if isinstance(answer, Failed) or not isinstance(answer, list):
            self.close()
            raise ModeLostError(answer.reason if isinstance(answer, Failed) else "its process answered something else")
        self.samples_ms = self.samples_ms or [[] for _ in answer]
        for samples, new in zip(self.samples_ms, answer, strict=True):
            samples += new
        return [sum(each) for each in zip(*answer, strict=True)]

    def close(self) -> None:
        """End the process with all that it has started."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    @property
    def alive(self) -> bool:
        """Tell whether the process can take samples."""
        return self._worker is not None

    def _ask(self, question: object, whole_s: float, step: str) -> object:
        if self._worker is None:
            return Failed(Status.CRASH, "its process has ended")
        try:
            reply: Reply = self._worker.ask(
                question, whole_s, self.limits.by_step, step, lambda message: isinstance(message, Reply)
            )
        except WorkerHungError as error:
            return Failed(Status.TIMEOUT, str(error))
        except WorkerDiedError as error:
            return Failed(Status.CRASH, str(error))
        self.lines += reply.lines
        return reply.value


def _imports(mode: CompileMode) -> tuple[str, ...]:
    if mode.eager:
        return _IMPORTS
    return (*_IMPORTS, *_COMPILERS, *(_INDUCTOR if mode.backend == INDUCTOR else ()))


def compiler_folders(folder: Path | None) -> dict[str, str]:
    """Variables by which a compiler keeps what it makes in a folder; empty where it shares what earlier ones made."""
    if folder is None:
        return {}
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
