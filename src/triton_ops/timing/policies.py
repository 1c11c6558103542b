"""The limits of a screening, a race and a duel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import ClassVar

from triton_ops.exceptions import SettingsError

INDIFFERENCE = 0.005  # a faster config must be faster by more than this share
_LEAST_ROUNDS = 12  # before a race ends although arms are not proven equal: few values may agree by chance


@dataclass(frozen=True)
class ScreenPolicy:
    """The limits of the screening of one candidate.

    Attributes:
        screening_ms: Time that the samples should take; short, so that the power state cannot drift meanwhile.
        least: Fewest samples, unless they take more than a second.
        most: Most samples, however short they are.
        hopeless: A candidate whose first sample is this many times slower than the best so far gets no second sample.
    """

    screening_ms: float = 3.0
    least: int = 3
    most: int = 10
    hopeless: float = 1.5


def fitting(sample_ms: float, wanted_ms: float, least: int, most: int) -> int:
    """Number of samples of `sample_ms` that fill `wanted_ms`, at least `least` and at most `most`."""
    return min(max(int(wanted_ms / max(sample_ms, 1e-6)), least), most)


@dataclass(frozen=True, kw_only=True)
class RacePolicy:
    """The limits of a race, and the rule by which an arm is dropped.

    Attributes:
        checkpoints: After how many rounds arms may be dropped; the last checkpoint ends the race.
        zone: Differences up to this share count as none.
        confidence: Standard errors by which a difference must exceed the zone.
        seconds: Wall seconds after which no round is started; two rounds are always run.
        few_s: Wall seconds that few rounds of long launches may take beyond `seconds`: until the default is decided, or
            16 rounds have shown a tie. No round is started that would not fit.
        few: Whether no duel follows, so that the race goes on until its few rounds tell, however long one takes.
        visit_ms: Time that a visit should take: ten replays of a short kernel, a few launches of a long one, and ten
            arms in one burst.
        longest: Most samples in a visit.
        regret: The race ends as soon as no rival can be faster than the leader by more than this share, with
            confidence, though they are not proven equal: more rounds would hardly find a better winner. None ends it
            only when all are proven equal.

    Raises:
        SettingsError: A field has a value that it cannot have.
    """

    checkpoints: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    zone: float = INDIFFERENCE
    confidence: float = 3.0
    seconds: float = 10.0
    few_s: float = 0.0
    few: bool = False
    visit_ms: float = 2.5
    longest: int = 10
    regret: float | None = None

    def __post_init__(self) -> None:
        checkpoints: object = self.checkpoints
        rounds = checkpoints if isinstance(checkpoints, (tuple, list)) else ()
        steps = (0, *rounds)
        if not rounds or not all(_is_count(step) for step in rounds) or any(b <= a for a, b in pairwise(steps)):
            message = f"checkpoints are {self.checkpoints!r}; they must be numbers of rounds that grow"
            raise SettingsError(message, hint="checkpoints=(4, 8, 16)")
        for name in ("zone", "confidence", "seconds", "few_s", "visit_ms"):
            SettingsError.checked(f"{name} of a race", getattr(self, name), 0, finite=False)
        SettingsError.checked("regret of a race", self.regret or 0, 0)
        SettingsError.checked("longest of a race", self.longest, 1, whole=True)

    def samples(self, sample_ms: float) -> int:
        """Number of samples of `sample_ms` milliseconds that make a visit."""
        return fitting(sample_ms, self.visit_ms, 1, self.longest)

    def undecided(self, gap: float, error: float, rounds: int) -> bool:
        """Check whether a race goes on for an arm."""
        margin = self.confidence * error
        if self.regret is None:
            return gap + margin > self.zone
        return rounds < _LEAST_ROUNDS or margin - gap > self.regret


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


@dataclass(frozen=True)
class DuelPolicy:
    """The limits of a duel, which ends after one of the checkpoints' rounds if the answer is clear, and after the last.

    After so many seconds no round is started; six rounds are always run. Differences up to `zone` count as none. A
    clear difference exceeds the least one that counts by so many standard errors: among several checkpoints a lucky
    early one must not decide. `chance` is how often the interval that must exclude 0 may miss. A visit takes about
    `visit_ms`, and at most `longest` samples.
    """

    LEAST_ROUNDS: ClassVar[int] = 6  # six of one sign have a chance of 1 in 32: fewer cannot bound a median at 95 %

    checkpoints: tuple[int, ...] = (12, 24, 48, 96)
    seconds: float = 10.0
    zone: float = INDIFFERENCE
    errors: float = 3.0
    chance: float = 0.05
    visit_ms: float = 5.0
    longest: int = 10

    @classmethod
    def after_a_race(cls, seconds: float, zone: float = INDIFFERENCE) -> DuelPolicy:
        """The limits for one duel of many: of arms that are equal, 0.3 % (three standard errors) pass by chance."""
        return cls(checkpoints=(16, 32, 64, 128), seconds=seconds, zone=zone, chance=0.003)

    def samples(self, sample_ms: float) -> int:
        """Number of samples of `sample_ms` milliseconds that make a visit."""
        return fitting(sample_ms, self.visit_ms, 1, self.longest)
