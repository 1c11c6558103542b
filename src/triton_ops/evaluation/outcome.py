"""The outcome of the last comparison: from the rounds of the finalists to winner, ties, gain and confidence.

The race picks the luckiest of many candidates, so its times flatter what it picks. Fresh rounds of the two, with a
twin of the candidate, decide instead. All three are prepared anew: a difference that comes from where an object lies in
memory is then another one.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from triton_ops.evaluation.candidate import Evaluator
from triton_ops.records import ALONE
from triton_ops.space import Config
from triton_ops.timing import (
    BEYOND_CHANCE,
    INDIFFERENCE,
    Arm,
    DuelPolicy,
    GuardSummary,
    Interval,
    RaceDecision,
    Timer,
    beats,
    decide,
    duel,
    gain,
    gap,
    middle_mean,
    relative_levels,
)
from triton_ops.values import Resources, Trial

_CHECKPOINTS = (16, 32, 64, 128)
_CHANCE = 0.003  # of a gain that is none, as with three standard errors: every noisy tune comes here


@dataclass(frozen=True)
class Resolution:
    """The answer to a doubt.

    Attributes:
        faster: Whether the candidate is proven faster than the default by more than the indifference zone.
        over: The default's time over the candidate's, as a difference of logarithms with its 95 % interval.
    """

    faster: bool
    over: Interval


class ArmFailedError(Exception):
    """A launch of one of the two raised."""

    def __init__(self, config: Config, reason: Exception) -> None:
        super().__init__(str(reason))
        self.config = config
        self.reason = reason


def resolve(
    evaluator: Evaluator,
    timer: Timer,
    challenger: Config,
    default: Config,
    *,
    visit_samples: int,
    seconds: float,
    rng: random.Random,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Resolution:
    """Compare a challenger with the default in fresh rounds.

    No round is started after `seconds`, except for the first six. A round is discarded if `keep_round` answers False.

    Raises:
        ArmFailedError: A launch raised.
    """
    configs = (challenger, default, challenger)
    first, second, twin = (_arm(evaluator, config, visit_samples) for config in configs)
    policy = DuelPolicy(checkpoints=_CHECKPOINTS, seconds=seconds, chance=_CHANCE)
    try:
        verdict = duel((first, second, twin), timer, policy, rng, keep_round=keep_round, clock=clock)
    except Exception as error:
        culprits = [config for config, arm in zip(configs, (first, second, twin), strict=True) if arm.error is not None]
        raise ArmFailedError(culprits[0] if culprits else challenger, error) from error
    return Resolution(verdict.proven, verdict.gain)


def _arm(evaluator: Evaluator, config: Config, visit_samples: int) -> Arm:
    try:
        return Arm(evaluator.sampler(config), visit_samples)
    except Exception as error:
        raise ArmFailedError(config, error) from error


_DIFFERENT = "an A/A comparison of one config with itself showed a difference"
_NO_TIME = "the budget left no time to compare the fastest with the default"
_UNTOLD = math.log(1.02)  # a gain that may be larger than this and was not told from noise lowers the confidence


@dataclass(frozen=True)
class RaceSummary:
    """The course of the last comparison; the times of the finalists are in their trials.

    Attributes:
        dropped_at: Each finalist, in the order of the screenings, with the number of rounds after which it was
            dropped; None for a finalist that stayed to the end.
        twin: The config of which two arms ran in every round, to measure the noise; None if there was none.
        twins_ms: For each of the two arms, its value in every round.
    """

    dropped_at: tuple[tuple[Config, int | None], ...] = ()
    twin: Config | None = None
    twins_ms: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of the last comparison.

    Attributes:
        winner: The trial of the winner; None if no trial is ok.
        ties: Configs that could not be told from the fastest, best first.
        noise: Half-width of a typical 95 % interval, or the difference of a config from its twin if that is larger; 0
            if nothing was compared.
        gain: The default's time divided by the winner's, with its 95 % interval; None if they were not compared.
        confidence: `ok`, or in words why the comparison should not be relied on.
        trials: All trials; those of finalists have their times of the race.
        itself: The relative difference between the two twins, with its 95 % interval; None without twins.
        guard: Summary of the device's sensors during the race; None if they were not read.
        raced: The course of the race; without finalists if nothing was compared.
        elsewhere: The outcomes of the fresh processes that compared the ties again.
    """

    winner: Trial | None
    ties: tuple[Config, ...]
    noise: float
    gain: Interval | None
    confidence: str
    trials: tuple[Trial, ...]
    itself: Interval | None = None
    guard: GuardSummary | None = None
    raced: RaceSummary = RaceSummary()
    elsewhere: tuple[Outcome, ...] = ()

    @property
    def compared(self) -> bool:
        """True if several configs were compared side by side."""
        return len(self.raced.dropped_at) > 1

    @classmethod
    def of_screenings(cls, trials: Sequence[Trial]) -> Outcome:
        """The outcome without a race: the winner is the config with the fastest screening."""
        running = [trial for trial in trials if trial.ok]
        best = min(running, key=lambda trial: trial.rank, default=None)
        programs = [trial for trial in running if trial.same_code_as is None]
        return cls(
            winner=best,
            ties=() if best is None else (best.config,),
            noise=0.0,
            gain=None,
            confidence=ALONE if len(programs) == 1 else "nothing was raced",
            trials=tuple(trials),
        )


@dataclass(frozen=True, kw_only=True)
class Field:
    """The finalists whose results are right, with their rounds.

    Attributes:
        trials: Their trials, fastest screening first.
        arms: Their arms in the race, by config.
        twins: The two arms of one config, or none.
        default: The default config, which may have failed.
        incumbents: Winners of earlier runs.
    """

    trials: Sequence[Trial]
    arms: Mapping[Config, Arm]
    twins: Sequence[Arm]
    default: Config
    incumbents: Collection[Config]

    @property
    def default_ms(self) -> list[float]:
        """The rounds of the default; empty if it failed or did not race."""
        own = self.arms.get(self.default)
        return [] if own is None or not any(t.config == self.default for t in self.trials) else own.values_ms

    def decision(self) -> RaceDecision:
        """Winner and ties by the rounds of the race."""
        places = {trial.config: place for place, trial in enumerate(self.trials)}
        return decide(
            [self.arms[trial.config].values_ms for trial in self.trials],
            [preference(trial, self.default, self.incumbents) for trial in self.trials],
            incumbents=[places[config] for config in self.incumbents if config in places],
            default=places.get(self.default),
            dropped=[place for config, place in places.items() if self.arms[config].dropped_at is not None],
        )

    def challenger(self, decision: RaceDecision) -> Config | None:
        """The config that the default must stand up to: the winner, or else the fastest rival; None without one."""
        winner = self.trials[decision.winner].config
        if winner != self.default:
            return winner
        own = self.default_ms
        rivals = [t.config for t in self.trials if t.config != self.default and self.arms[t.config].dropped_at is None]
        return max(rivals, key=lambda config: gain(own, self.arms[config].values_ms).centre, default=None)


def outcome_of(
    field: Field, trials: Sequence[Trial], decision: RaceDecision, resolution: tuple[Config, Resolution] | None = None
) -> Outcome:
    """The outcome of a race.

    `resolution` is the challenger of the default with the answer to the doubt about it; None without a doubt.
    """
    winner, ties = field.trials[decision.winner].config, [field.trials[i].config for i in decision.ties]
    over = None if winner == field.default or not field.default_ms else _over(field, winner)
    if resolution is not None:
        challenger, verdict = resolution
        winner, over = (challenger, verdict.over) if verdict.faster else (field.default, None)
        tied = {*ties, challenger, field.default} if not verdict.faster else {*ties, challenger} - {field.default}
        ties = [winner, *(t.config for t in field.trials if t.config in tied and t.config != winner)]
    rows = [twin.values_ms for twin in field.twins if twin.visits]
    itself = gap(rows[1], rows[0]) if len(rows) == 2 else None
    return Outcome(
        winner=next(trial for trial in field.trials if trial.config == winner),
        ties=tuple(ties),
        noise=max(decision.noise, abs(itself.centre)) if itself else decision.noise,
        gain=None if over is None else _ratio(over),
        confidence=_confidence(field, winner, decision, itself, resolution),
        trials=tuple(trials),
        itself=itself,
    )


def unraced(trials: Sequence[Trial], default: Config) -> Outcome:
    """The outcome where there was no time for a race: the default, or the fastest screening if the default failed."""
    outcome = Outcome.of_screenings(trials)
    own = next((trial for trial in trials if trial.config == default and trial.ok), outcome.winner)
    if own is None or outcome.confidence == ALONE:
        return outcome
    return replace(outcome, winner=own, ties=(own.config,), confidence=_NO_TIME)


def with_further_processes(
    outcome: Outcome, elsewhere: Sequence[Outcome], default: Config, incumbents: Collection[Config]
) -> Outcome:
    """The decision made again with the outcomes of further processes; a process counts as one round.

    A config that failed in one of the processes, or gave wrong results there, is no longer among the ties.

    `elsewhere` has for each further process its outcome, of a comparison of `outcome.ties`.
    """
    failed = {trial.config: trial for process in elsewhere for trial in process.trials if not trial.ok}
    trials = tuple(failed.get(trial.config, trial) for trial in outcome.trials)
    tied = [config for config in outcome.ties if config not in failed]
    if not tied:
        return Outcome.of_screenings(trials)
    processes = [_by_config(process.trials) for process in (outcome, *elsewhere)]
    levels = [relative_levels([_row(process[config]) for config in tied]) for process in processes]
    rows = [[math.exp(level) for level in column] for column in zip(*levels, strict=True)]
    places = {config: place for place, config in enumerate(tied)}
    first, own = processes[0], processes[0].get(default)
    own_ms = _row(own) if own is not None and own.ok else []
    decision = decide(
        rows,
        [preference(first[config], default, incumbents) for config in tied],
        incumbents=[places[it] for it in incumbents if it in places and beats(_row(first[it]), own_ms)],
        default=places.get(default),
    )
    winner, ties = first[tied[decision.winner]], tuple(tied[i] for i in decision.ties)
    over = outcome.gain if outcome.winner is not None and winner.config == outcome.winner.config else None
    if over is None and winner.config != default and own_ms:
        both = (rows[places[default]], rows[decision.winner]) if default in places else (own_ms, _row(winner))
        over = _ratio(gain(*both))
    return replace(
        outcome, winner=winner, ties=ties, noise=max(outcome.noise, decision.noise), trials=trials, gain=over
    )


def preference(trial: Trial, default: Config, incumbents: Collection[Config]) -> tuple[int | float | str, ...]:
    """The order among tied configs: incumbents, the default, no heavy spills, less shared memory, fewer registers.

    The text of the config comes last, so that the order is the same in every process.
    """
    resources = trial.resources or Resources()
    return (
        trial.config not in incumbents,
        trial.config != default,
        resources.wasteful,
        resources.shared_bytes or 0,
        resources.registers or 0,
        trial.config.text,
    )


def _over(field: Field, config: Config) -> Interval:
    """The default's time over a config's, as a difference of logarithms."""
    return gain(field.default_ms, field.arms[config].values_ms)


def _ratio(logarithm: Interval) -> Interval:
    return Interval(math.exp(logarithm.centre), math.exp(logarithm.low), math.exp(logarithm.high))


def _confidence(
    field: Field,
    winner: Config,
    decision: RaceDecision,
    itself: Interval | None,
    resolution: tuple[Config, Resolution] | None,
) -> str:
    """`ok`, unless a config differs from itself, or the default stays only because a gain was not told from noise."""
    if itself and abs(itself.centre) > max(INDIFFERENCE, BEYOND_CHANCE * itself.margin):
        return _DIFFERENT
    challenger = field.challenger(decision)
    if winner != field.default or challenger is None or not field.default_ms:
        return "ok"
    possible = resolution[1].over if resolution is not None else _over(field, challenger)
    if possible.high <= _UNTOLD:
        return "ok"
    low, high = (100 * math.expm1(end) for end in (possible.low, possible.high))
    return f"the default was kept, since ({challenger}) is {low:+.1f} to {high:+.1f} % faster: noise hides which it is"


def _by_config(trials: Sequence[Trial]) -> dict[Config, Trial]:
    return {trial.config: trial for trial in trials}


def _row(trial: Trial) -> list[float]:
    return [middle_mean(samples) for samples in trial.final.by_round] if trial.final else [trial.median_ms]
