"""Processes that hold a compiled model each, timed in rounds.

The rounds, the race and the duel are those of `timing`; a visit is a question to a process. A sample is the wall time
of back-to-back calls, at the end of which the device is waited for, so that the host's part of a call counts as it does
in use.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from triton_ops.backend import CandidateError
from triton_ops.compile_modes.compile_mode import CompileMode
from triton_ops.compile_modes.mode_worker import CallManner, Loaded, ModeAssignment, ModeAttempt, ModeTrial, Visit
from triton_ops.evaluation import Isolated
from triton_ops.exceptions import TritonKernelError
from triton_ops.request import Patience
from triton_ops.space import Config
from triton_ops.timing import Arm, DuelPolicy, HostTimer, Interval, RacePolicy, Rounds, Sampler
from triton_ops.values import Status


@dataclass
class ModeProcess:
    """A process that holds a model under one mode.

    `device` is the GPU that it readies while it imports, else empty; `environment` says where its compiler keeps files,
    and what it logs; `lines` is what it wrote to stderr; `samples_ms` are of one call, by kind of call. `refusal` says
    why the model cannot be made, in which case its trial has failed.
    """

    mode: CompileMode
    limits: Patience
    _: KW_ONLY
    device: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    samples_ms: list[list[float]] = field(default_factory=list)
    refusal: TritonKernelError | None = None
    _station: Isolated | None = None

    def load(self, packed: bytes, manner: CallManner) -> ModeTrial:
        """Start the process, and have the model made, compiled, checked and called until it is steady."""
        config = Config({"mode": self.mode.name})
        try:
            self._station = Isolated(
                ModeAssignment(
                    way=self.mode, manner=manner, patience=self.limits, device=self.device, environment=self.environment
                ),
                wait=False,
            )
            trial = self._station.tried(ModeAttempt(config, packed=packed))
        except TritonKernelError as error:
            self.refusal, trial = error, ModeTrial(config, Status.RUNTIME, error=error.message)
        if not isinstance(trial, ModeTrial):  # its process was lost
            trial = ModeTrial(config, trial.status, error=trial.error)
        self.lines += trial.lines
        if not trial.ok:
            self.close()
        return trial

    @property
    def sampler(self) -> Sampler:
        """Takes samples of one call of each kind, added up, in milliseconds."""
        return Sampler.of_taken(self.visit)

    def visit(self, count: int) -> list[float]:
        """Take samples now; a `CandidateError` if the process is lost, or the model does not work any more."""
        if self._station is None:
            raise CandidateError(Status.CRASH, "its process has ended")
        try:
            samples_ms, lines = self._station.ask_again(Visit(count))
        except TritonKernelError as error:
            self.close()
            raise CandidateError(Status.RUNTIME, error.message) from error
        except CandidateError:
            self.close()
            raise
        self.lines += lines
        self.samples_ms = self.samples_ms or [[] for _ in samples_ms]
        for samples, new in zip(self.samples_ms, samples_ms, strict=True):
            samples += new
        return [sum(each) for each in zip(*samples_ms, strict=True)]

    def close(self) -> None:
        """End the process with all that it has started."""
        if self._station is not None:
            self._station.close()
            self._station = None

    @property
    def alive(self) -> bool:
        """Tell whether the process can take samples."""
        return self._station is not None


_VISITS = DuelPolicy(visit_ms=25.0, longest=5)
_SCREENING_ROUNDS = 5


@dataclass
class Entrant:
    """A mode whose process is ready to be timed.

    `lines` are those of an earlier run where it was compiled then; `relative` is its time divided by eager's, in the
    same rounds; `loss` tells how its process ended during a visit, empty if it did not.
    """

    process: ModeProcess
    loaded: Loaded
    _: KW_ONLY
    lines: list[str] = field(default_factory=list)
    arm: Arm = field(default_factory=lambda: Arm(Sampler(lambda _: list)))
    relative: float = math.inf
    wins: bool = False
    loss: str = ""

    @property
    def mode(self) -> CompileMode:
        """The mode of its process."""
        return self.process.mode


def rounds_on(device_name: str, rng: random.Random) -> Rounds:
    """Rounds whose samples the processes take on a device."""
    return Rounds(timer=HostTimer.for_processes(device_name), rng=rng)


def screen_beside(entrant: Entrant, eager: Entrant, rounds: Rounds) -> str | None:
    """Time a mode beside eager in a few rounds; how its process was lost, or None."""
    other = _arm(eager)
    entrant.arm = other if entrant is eager else _arm(entrant)
    rounds.run([other] if entrant is eager else [entrant.arm, other], _SCREENING_ROUNDS)
    if (error := entrant.arm.error or other.error) is not None:
        return str(error)
    entrant.relative = _ratio(entrant.arm, other)
    return None


def race_modes(eager: Entrant, others: Sequence[Entrant], rounds: Rounds, device_name: str, seconds: float) -> None:
    """Race modes beside eager; their arms and ratios become those of the race, and the winner is marked.

    The winner is proven faster than eager; among equals it is the one that compiles faster. Equal is what differs by no
    more than the one that was fastest so far and its twin. Eager is no measure of that: its calls wait for the host,
    whose times vary by tens of percent where a recorded graph's vary by one.
    """
    entrants = [eager, *others]
    first = min(entrants, key=lambda entrant: entrant.relative)
    samples = _visit_samples(entrants)
    for entrant in entrants:
        entrant.arm = Arm(entrant.process.sampler, samples)
    twin = Arm(first.process.sampler, samples)
    policy = RacePolicy(seconds=seconds)
    guarded, _ = Rounds.guarded(rounds.timer, device_name, rng=rounds.rng)
    guarded.race([entrant.arm for entrant in entrants], policy, beside=[twin], default=eager.arm)
    for entrant in entrants:
        entrant.loss = "" if entrant.arm.error is None else str(entrant.arm.error)
    timed = [entrant for entrant in entrants if not entrant.loss and entrant.arm.visits]
    if eager not in timed:
        return
    noise = Interval.of_gain(twin.values_ms, first.arm.values_ms) if twin.visits and first in timed else None
    decision = rounds.standing(
        {place: entrant.arm for place, entrant in enumerate(timed)},
        timed.index(eager),
        preference={place: (entrant.loaded.compile_s, place) for place, entrant in enumerate(timed)},
        zone=policy.zone if noise is None else max(policy.zone, abs(noise.low), abs(noise.high)),
    ).decision
    for place, entrant in enumerate(timed):
        entrant.relative = _ratio(entrant.arm, eager.arm)
        entrant.wins = place == decision.winner and entrant is not eager


def confirm(
    best: ModeProcess, eager: ModeProcess, rounds: Rounds, device_name: str, seconds: float
) -> tuple[bool, str]:
    """Duel of a mode with eager in fresh processes: whether it is faster, and by how much, in words."""
    policy = replace(_VISITS, seconds=seconds)
    samples = policy.samples(max(_one_ms(best), _one_ms(eager)))
    first, second, twin = (Arm(each.sampler, samples) for each in (best, eager, best))
    guarded, _ = Rounds.guarded(rounds.timer, device_name, rng=rounds.rng)
    try:
        outcome = guarded.duel((first, second, twin), policy)
    except CandidateError as error:
        return False, f"a fresh process was lost: {error}"
    low, centre, high = (100 * math.expm1(each) for each in (outcome.gain.low, outcome.gain.centre, outcome.gain.high))
    text = (
        f"in fresh processes eager takes {centre:+.1f} % ({low:+.1f} to {high:+.1f} %) of {best.mode.name}'s time "
        f"more, {len(first.visits)} rounds, noise {100 * outcome.noise:.1f} %"
    )
    return outcome.verdict == "faster", text


def _arm(entrant: Entrant) -> Arm:
    return Arm(entrant.process.sampler, _VISITS.samples(_one_ms(entrant.process)))


def _one_ms(process: ModeProcess) -> float:
    """Milliseconds of one sample so far, or of a typical one."""
    return sum(statistics.median(each) for each in process.samples_ms if each) or _VISITS.visit_ms / 3


def _visit_samples(entrants: Sequence[Entrant]) -> int:
    """Samples per visit, the same for all: values of equally many samples are comparable."""
    longest = max(_one_ms(entrant.process) for entrant in entrants)
    return _VISITS.samples(max(longest, 5.0))


def _ratio(arm: Arm, other: Arm) -> float:
    if arm is other:
        return 1.0
    return math.exp(Interval.of_gap(arm.values_ms, other.values_ms).centre)
