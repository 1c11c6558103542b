"""What a station is asked, as a worker or here, and what it answers; its steps, and the facts that it has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import Surroundings
from triton_ops.space import Config
from triton_ops.values import Trial


class StationStep:
    """The steps that a station announces: by the last one it is known what has ended a process."""

    COMPILE, LAUNCH, ODD, BASELINE, RACE, TURN = "compile", "launch", "odd extents", "baseline", "race", "wait"


@dataclass(frozen=True, kw_only=True)
class StationFacts:
    """The facts that a station has found out so far.

    `mode` and `baseline` are None before the first config has worked. `against` says what results are compared with,
    `uncompared` why they are not, `lost` why this station cannot use the device any more, `suspicion` why the reference
    rather than every config is wrong. In `waited_s` nothing was compiled yet. Measurements on the device take turns
    under `turn_key`. `apart` tells that configs are tried in another process.
    """

    mode: str | None = None
    baseline: Config | None = None
    against: str = ""
    uncompared: str = ""
    lost: str | None = None
    place: str = ""
    notes: tuple[str, ...] = ()
    suspicion: str = ""
    waited_s: float = 0.0
    turn_key: str = ""
    apart: bool = False


class TriesConfigs(Protocol):
    """The part of a station that a search needs."""

    @property
    def lost(self) -> str | None:
        """The reason why it cannot use its device any more; None if it can."""

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """Try `config`; its screening ends early if it is much slower than `best`, the best trial so far."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The question to load a task, `packed` as bytes, with `changes` of some of its fields by name.

    `allocator` is the one that the user has given to Triton, packed. `imports` are packages that compilations need and
    that a worker need not have imported, such as one that has served other tunes. `surroundings` are search path,
    `sys.argv` and bytecode settings for the user's code; the worker has imported its own modules before it takes them
    over.
    """

    packed: bytes = field(kw_only=False)
    changes: dict[str, Any] = field(default_factory=dict)
    allocator: bytes | None = None
    imports: tuple[str, ...] = ()
    surroundings: Surroundings = field(default_factory=Surroundings.here)


@dataclass(frozen=True)
class Attempt:
    """The question to try a config; `best` is the best trial so far, and `step` where the worker is at first."""

    config: Config
    best: Trial | None = None
    step: ClassVar[str] = StationStep.COMPILE

    def answered_by(self, station: Any) -> Any:
        """The answer of the worker's station."""
        return station.attempt(self.config, self.best)

    def fits(self, value: object) -> bool:
        """True if a value answers this question."""
        return isinstance(value, Trial) and value.config == self.config


class Question(Protocol):
    """A question to a worker's station, such as an `Attempt`."""

    @property
    def step(self) -> str:
        """The step at which the worker is until it announces one."""

    def answered_by(self, station: Any) -> Any:
        """The answer of the worker's station."""

    def fits(self, value: object) -> bool:
        """True if a value answers this question."""


@dataclass(frozen=True)
class WorkerAnswer:
    """The answer to a question; `unloadable` if the task cannot be made in another process."""

    value: Any = None
    facts: StationFacts | None = None
    error: TritonKernelError | None = None
    unloadable: bool = False


def answers(question: Any, message: object) -> bool:
    """True if a message of a worker answers a question; one that does may still be untrue."""
    if not isinstance(message, WorkerAnswer) or not isinstance(message.facts, StationFacts | None):
        return False
    if message.error is not None:
        return isinstance(message.error, TritonKernelError)
    return bool(question.fits(message.value)) if hasattr(question, "fits") else True
