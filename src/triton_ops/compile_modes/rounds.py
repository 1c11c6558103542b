"""Rounds over compiled models that live in processes of their own: each takes its visit while the others wait.

The rounds, the race and the duel are those of `measure`; a visit is a question to a process. A sample is the wall time
of back-to-back calls, at the end of which the device is waited for, so that the host's part of a call counts as it does
in use.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field

from triton_ops.compile_modes.inductor.modes import CompileMode
from triton_ops.compile_modes.process import ModeLostError, ModeProcess
from triton_ops.compile_modes.questions import Loaded
from triton_ops.timing import (
    INDIFFERENCE,
    Arm,
    DuelPolicy,
    Launch,
    Pace,
    Pending,
    RacePolicy,
    Sampler,
    contrasts,
    decide,
    duel,
    fitting,
    gain,
    guard_for,
    interleave,
    race,
)

_MODE = "wall"
_VISIT_MS = 25.0
_LONGEST_VISIT = 5  # samples
_SCREENING_ROUNDS = 5


def _nothing(_: int) -> Pending:
    raise ModeLostError("it has not been loaded")


@dataclass
class Entrant:
    """A mode whose process is ready to be timed.

    Attributes:
        process: Its process.
        loaded: What was found when it was loaded.
        lines: What its compiler has written; that of an earlier run where it was compiled then.
        arm: Its times.
        relative: Its time divided by eager's, in the same rounds.
        wins: Whether it won the race.
        loss: How its process ended during a visit; empty if it did not.
    """

    process: ModeProcess
    loaded: Loaded
    _: KW_ONLY
    lines: list[str] = field(default_factory=list)
    arm: Arm = field(default_factory=lambda: Arm(Sampler(_nothing)))
    relative: float = math.inf
    wins: bool = False
    loss: str = ""

    @property
    def mode(self) -> CompileMode:
        """The mode of its process."""
        return self.process.mode


class RemoteTimer:
    """The timer of rounds whose samples are taken in other processes.

    Args:
        device_name: Torch's name of the device. A GPU rests between stretches of work.
    """

    def __init__(self, device_name: str) -> None:
        self.device_name = device_name
        self._pace = Pace() if device_name.startswith("cuda") else None

    @property
    def mode(self) -> str:
        """The mode is `wall`: the host's clock around back-to-back calls."""
        return _MODE

    def prepare(self, launch: Launch, launches: int | None = None) -> Sampler:
        """Refused: the samplers of processes are made by the processes.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"a launch of this process ({launch.call}, {launches}) is not timed in another")

    def round(self) -> AbstractContextManager[None]:
        """A stretch of work, with the rest that it costs."""
        return contextlib.nullcontext() if self._pace is None else self._pace.stretch()


def screen_beside(entrant: Entrant, eager: Entrant, timer: RemoteTimer, rng: random.Random) -> str | None:
    """Time a mode beside eager in a few rounds; how its process was lost, or None."""
    other = _arm(eager)
    entrant.arm = other if entrant is eager else _arm(entrant)
    interleave([other] if entrant is eager else [entrant.arm, other], timer, rounds=_SCREENING_ROUNDS, rng=rng)
    if (error := entrant.arm.error or other.error) is not None:
        return str(error)
    entrant.relative = _ratio(entrant.arm, other)
    return None


def race_modes(
    eager: Entrant, others: Sequence[Entrant], timer: RemoteTimer, seconds: float, rng: random.Random
) -> None:
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
    guard = guard_for(timer.device_name)
    policy = RacePolicy(seconds=seconds)
    arms = [entrant.arm for entrant in entrants]
    race(arms, timer, policy, rng, beside=[twin], default=eager.arm, keep_round=guard.round_ok)
    for entrant in entrants:
        entrant.loss = "" if entrant.arm.error is None else str(entrant.arm.error)
    timed = [entrant for entrant in entrants if not entrant.loss and entrant.arm.visits]
    if eager not in timed:
        return
    rows = [entrant.arm.values_ms for entrant in timed]
    noise = gain(twin.values_ms, first.arm.values_ms) if twin.visits and first in timed else None
    zone = INDIFFERENCE if noise is None else max(INDIFFERENCE, abs(noise.low), abs(noise.high))
    dropped = [place for place, entrant in enumerate(timed) if entrant.arm.dropped_at is not None]
    cheap = [(entrant.loaded.compile_s, place) for place, entrant in enumerate(timed)]
    decision = decide(rows, cheap, default=timed.index(eager), dropped=dropped, zone=zone)
    for place, entrant in enumerate(timed):
        entrant.relative = _ratio(entrant.arm, eager.arm)
        entrant.wins = place == decision.winner and entrant is not eager


def confirm(
    best: ModeProcess, eager: ModeProcess, timer: RemoteTimer, seconds: float, rng: random.Random
) -> tuple[bool, str]:
    """Duel of a mode with eager in fresh processes: whether it is faster, and by how much, in words."""
    samples = fitting(max(_one_ms(best), _one_ms(eager)), _VISIT_MS, 1, _LONGEST_VISIT)
    first, second, twin = (Arm(each.sampler, samples) for each in (best, eager, best))
    guard = guard_for(timer.device_name)
    try:
        outcome = duel((first, second, twin), timer, DuelPolicy(seconds=seconds), rng, keep_round=guard.round_ok)
    except ModeLostError as error:
        return False, f"a fresh process was lost: {error}"
    low, centre, high = (100 * math.expm1(each) for each in (outcome.gain.low, outcome.gain.centre, outcome.gain.high))
    text = (
        f"in fresh processes eager takes {centre:+.1f} % ({low:+.1f} to {high:+.1f} %) of {best.mode.name}'s time "
        f"more, {len(first.visits)} rounds, noise {100 * outcome.noise:.1f} %"
    )
    return outcome.verdict == "faster", text


def _arm(entrant: Entrant) -> Arm:
    return Arm(entrant.process.sampler, fitting(_one_ms(entrant.process), _VISIT_MS, 1, _LONGEST_VISIT))


def _one_ms(process: ModeProcess) -> float:
    """Milliseconds of one sample so far, or of a typical one."""
    return sum(statistics.median(each) for each in process.samples_ms if each) or _VISIT_MS / 3


def _visit_samples(entrants: Sequence[Entrant]) -> int:
    """Samples per visit, the same for all: values of equally many samples are comparable."""
    longest = max(_one_ms(entrant.process) for entrant in entrants)
    return fitting(max(longest, 5.0), _VISIT_MS, 1, _LONGEST_VISIT)


def _ratio(arm: Arm, other: Arm) -> float:
    if arm is other:
        return 1.0
    return math.exp(statistics.median(contrasts(arm.values_ms, other.values_ms)))
