"""The last comparison: the fastest configs of the search, the default and the incumbents race against each other.

The race picks the luckiest of many candidates, so its times flatter what it picks. Fresh rounds of the two, with a
twin of the candidate, decide instead. All three are prepared anew: a difference that comes from where an object lies in
memory is then another one.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from triton_ops.backend import CandidateError, one_line
from triton_ops.evaluation.candidate import Evaluator, wrong_trial
from triton_ops.evaluation.judges import Difference
from triton_ops.records import Record
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import (
    BEYOND_CHANCE,
    INDIFFERENCE,
    LEAST_ROUNDS,
    Arm,
    DuelPolicy,
    GuardSummary,
    Interval,
    RaceDecision,
    RacePolicy,
    Sampler,
    Timer,
    beats,
    decide,
    doubtful,
    duel,
    gain,
    gap,
    middle_mean,
    race,
    relative_levels,
)
from triton_ops.values import Measurement, Resources, Status, Trial

_CHECKPOINTS = (16, 32, 64, 128)
_CHANCE = 0.003  # of a gain that is none, as with three standard errors: every noisy tune comes here


@dataclass(frozen=True)
class Resolution:
    """The answer to a doubt: `over` is the default's time over the candidate's, as a difference of logarithms."""

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
    """Compare a challenger with the default in fresh rounds, six at least; an `ArmFailedError` if a launch raised."""
    configs = (challenger, default, challenger)
    first, second, twin = (_duel_arm(evaluator, config, visit_samples) for config in configs)
    policy = DuelPolicy(checkpoints=_CHECKPOINTS, seconds=seconds, chance=_CHANCE)
    try:
        verdict = duel((first, second, twin), timer, policy, rng, keep_round=keep_round, clock=clock)
    except Exception as error:
        culprits = [config for config, arm in zip(configs, (first, second, twin), strict=True) if arm.error is not None]
        raise ArmFailedError(culprits[0] if culprits else challenger, error) from error
    return Resolution(verdict.proven, verdict.gain)


def _duel_arm(evaluator: Evaluator, config: Config, visit_samples: int) -> Arm:
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

    An arm was dropped after `dropped_at` rounds; None if it stayed. `twins_ms` are the values of the two arms of `twin`
    in every round, which measure the noise.
    """

    dropped_at: tuple[tuple[Config, int | None], ...] = ()
    twin: Config | None = None
    twins_ms: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of the last comparison.

    `ties` are best first. `noise` is the half-width of a typical 95 % interval, or the difference of a config from its
    twin if that is larger. `gain` is the default's time divided by the winner's, and `itself` the relative difference
    between the two twins, each with its 95 % interval. `confidence` is `ok`, or says why the comparison should not be
    relied on. `elsewhere` has the outcomes of fresh processes.
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
            confidence=Record.ALONE if len(programs) == 1 else "nothing was raced",
            trials=tuple(trials),
        )


@dataclass(frozen=True, kw_only=True)
class Field:
    """The finalists whose results are right, fastest screening first; `default` may have failed."""

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
    """The outcome of a race; `resolution` is the challenger of the default with the answer to the doubt about it."""
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
    if own is None or outcome.confidence == Record.ALONE:
        return outcome
    return replace(outcome, winner=own, ties=(own.config,), confidence=_NO_TIME)


def with_further_processes(
    outcome: Outcome, elsewhere: Sequence[Outcome], default: Config, incumbents: Collection[Config]
) -> Outcome:
    """The decision made again with further processes, each one round; a config that failed in one ties no more."""
    failed = {trial.config: trial for process in elsewhere for trial in process.trials if not trial.ok}
    trials = tuple(failed.get(trial.config, trial) for trial in outcome.trials)
    tied = [config for config in outcome.ties if config not in failed]
    if not tied:
        return Outcome.of_screenings(trials)
    processes = [{trial.config: trial for trial in process.trials} for process in (outcome, *elsewhere)]
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


def _row(trial: Trial) -> list[float]:
    return [middle_mean(samples) for samples in trial.final.by_round] if trial.final else [trial.median_ms]


_CHECKED = 12  # checked launches of a finalist: an error that shows in one launch of four stays unseen in 3 % of cases
_CHECKED_S = 0.15  # for each finalist; no further repeat is started after this time
_WINNER_CHECKED = 32  # checked launches of the winner: for an error that shows in one launch of ten it is 3 % as well
_WINNER_CHECKED_S = 2.0
_RACE_SHARE, _CHECK_SHARE = 0.5, 0.3  # of the seconds that are left
_FEW_ROUNDS = 6  # for which there must be time
_LEAST_LOADS = 2  # about three rounds where they take no longer than their samples: one may be disturbed
_LOAD = 1.5  # wall time of a round over that of its samples: rests, and the host's own work
_SLOW = 1.5  # times the fastest: a default as slow as that is not raced twice
_ROUND_MS = 100.0  # a longer round is avoided by shorter visits where there are many finalists


RACE = "race"
"""The step of each round of the last comparison."""


@dataclass(frozen=True, kw_only=True)
class FinalRequest:
    """A request for the last comparison.

    `default` and `incumbents`, winners of earlier runs, are finalists if their trials are ok. `race` None takes the
    effort's policy. With `settle`, a doubt about the default is resolved in fresh rounds after the race. `seconds`
    limit the whole comparison, None leaves it to the race's policy: where they are short, fewer finalists race, and
    where not even the default and the fastest can, the default wins. With `anyway` these two race all the same, for
    some three rounds: a tune that goes on with an undecided one is to decide.
    """

    trials: tuple[Trial, ...]
    default: Config
    incumbents: tuple[Config, ...] = ()
    seed: int = 0
    race: RacePolicy | None = None
    settle: bool = True
    seconds: float | None = None
    anyway: bool = False
    step: ClassVar[str] = RACE

    def answered_by(self, station: Any) -> Outcome:
        """The outcome of the comparison in a worker's station."""
        outcome: Outcome = station.finals(self)
        return outcome

    def fits(self, value: Any) -> bool:
        """True if a value of a worker answers this request."""
        return isinstance(value, Outcome)


def compare_finalists(
    evaluator: Evaluator,
    final: FinalRequest,
    effort: Effort,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Race the finalists, check their results again, and decide; a round is discarded if `keep_round` answers False."""
    end = clock() + (math.inf if final.seconds is None else final.seconds)
    trials, policy = {trial.config: trial for trial in final.trials}, final.race or effort.race
    racing = finalists(trials, effort, {final.default, *final.incumbents})
    policy = replace(policy, visit_ms=min(policy.visit_ms, _ROUND_MS / max(len(racing), 1)))
    most_s = math.inf if final.seconds is None else _RACE_SHARE * final.seconds
    least = 2 if final.anyway else 0
    racing = _fitting(racing, policy, most_s, {final.default, *final.incumbents}, least)
    if not racing and final.seconds is not None:
        return unraced(final.trials, final.default)
    if final.anyway:
        least_s = _LEAST_LOADS * _visits_ms(racing, policy) / 1e3
        most_s, end = max(most_s, least_s), max(end, clock() + least_s)
    roomy = _visits_ms([*racing, *racing[:1] * 2], policy) <= _room_ms(most_s)
    policy = replace(policy, seconds=min(policy.seconds, most_s))
    if any(trial.config in final.incumbents for trial in racing):
        policy = replace(policy, regret=None)  # a config in use stays where it ties, so the race must say what ties
    arms = {trial.config: _arm(evaluator, trial, policy) for trial in racing}
    twin, twins, beside = _twins(evaluator, arms, trials, final.default) if roomy else (None, [], [])
    last = _LastComparison(
        evaluator=evaluator, final=final, policy=policy, trials=trials, arms=arms, twins=twins, beside=beside,
        keep_round=keep_round, clock=clock, end=end, doubt_s=effort.doubt_s, rng=random.Random(final.seed),
    )  # fmt: skip
    last.race()
    outcome = last.outcome()
    dropped = tuple((config, arm.dropped_at) for config, arm in arms.items())
    return replace(outcome, raced=RaceSummary(dropped, twin, tuple(tuple(arm.values_ms) for arm in twins)))


@dataclass(kw_only=True)
class _LastComparison:
    """One last comparison; of the two arms `twins` of one config, those in `beside` are no finalists' own."""

    evaluator: Evaluator
    final: FinalRequest
    policy: RacePolicy
    trials: Mapping[Config, Trial]
    arms: Mapping[Config, Arm]
    twins: Sequence[Arm]
    beside: Sequence[Arm]
    keep_round: Callable[[], bool]
    clock: Callable[[], float]
    end: float
    doubt_s: float
    rng: random.Random
    wrong: dict[Config, Difference] = field(default_factory=dict)
    resolutions: dict[Config, Resolution] = field(default_factory=dict)
    gone: set[Config] = field(default_factory=set)

    def race(self) -> None:
        timer = self.evaluator.shared_timer.timer
        racing = {config: arm for config, arm in self.arms.items() if config not in self.gone}
        if timer is not None and len(racing) > 1:
            policy = replace(self.policy, seconds=min(self.policy.seconds, self._left_s))
            race(
                list(racing.values()), timer, policy, self.rng, beside=self.beside,
                default=racing.get(self.final.default), keep_round=self.keep_round, clock=self.clock,
            )  # fmt: skip
        for config, arm in racing.items():
            if arm.dropped_at is not None:
                continue
            seconds = min(_CHECKED_S, _CHECK_SHARE * self._left_s / len(self.arms))
            if difference := self._wrong_again(config, _CHECKED, seconds):
                self.wrong[config] = difference
        self._race_again()

    def _race_again(self) -> None:
        """Race once more if those who lost their place have had others dropped, whose rounds say nothing then."""
        candidates = {it: arm for it, arm in self.arms.items() if it not in self.gone and arm.dropped_at is None}
        losers = {config for config, arm in candidates.items() if config in self.wrong or arm.error is not None}
        others = [arm for config, arm in self.arms.items() if config not in self.gone | losers]
        if not losers or all(arm.dropped_at is None for arm in others):
            return
        self.gone |= losers
        for arm in [*others, *self.twins]:
            arm.start_again()
        self.race()

    @property
    def _left_s(self) -> float:
        return max(self.end - self.clock(), 0.0)

    def outcome(self) -> Outcome:
        """The outcome among the configs whose results are right, after doubts and the winner's results were checked."""
        while True:
            outcome = self._outcome()
            winner = outcome.winner.config if outcome.winner is not None else None
            if winner not in self.arms or winner is None:
                return outcome
            difference = self._wrong_again(winner, _WINNER_CHECKED, min(_WINNER_CHECKED_S, self._left_s))
            if difference is not None:
                self.wrong[winner] = difference
                self._race_again()
            elif self.arms[winner].error is None:
                return outcome

    def _outcome(self) -> Outcome:
        updated = {**self.trials, **{config: self._update(config, arm) for config, arm in self.arms.items()}}
        alive = [updated[config] for config, arm in self.arms.items() if updated[config].ok and arm.visits]
        if not alive:
            return Outcome.of_screenings(tuple(updated.values()))
        standing = Field(
            trials=alive, arms=self.arms, twins=self.twins, default=self.final.default, incumbents=self.final.incumbents
        )
        decision = standing.decision()
        challenger = self._doubted(standing, decision)
        if challenger is None:
            return outcome_of(standing, tuple(updated.values()), decision)
        if challenger not in self.resolutions and self._too_late(standing, challenger):
            own, rival = standing.default_ms, self.arms[challenger].values_ms
            self.resolutions[challenger] = Resolution(faster=False, over=gain(own, rival))
        if challenger not in self.resolutions and not self._resolve(challenger):
            return self._outcome()  # one of the two failed, and stands no more
        return outcome_of(standing, tuple(updated.values()), decision, (challenger, self.resolutions[challenger]))

    def _doubted(self, standing: Field, decision: RaceDecision) -> Config | None:
        challenger = standing.challenger(decision)
        if challenger is None or not standing.default_ms or not self.final.settle:
            return None
        return challenger if doubtful(self.arms[challenger].values_ms, standing.default_ms) else None

    def _too_late(self, standing: Field, challenger: Config) -> bool:
        pair = [trial for trial in standing.trials if trial.config in (challenger, self.final.default)]
        return _visits_ms([*pair, *pair[:1]], self.policy) * LEAST_ROUNDS > 1e3 * self._left_s

    def _resolve(self, challenger: Config) -> bool:
        """Resolve a doubt; False if a launch failed, whose arm then has an error."""
        default, timer = self.final.default, self.evaluator.shared_timer.timer
        assert timer is not None  # there are rounds, so there is a timer
        samples = max(self.arms[config].visit_samples for config in (challenger, default))
        seconds = min(max(self.policy.seconds, self.doubt_s), self._left_s)
        try:
            self.resolutions[challenger] = resolve(
                self.evaluator, timer, challenger, default, visit_samples=samples, seconds=seconds,
                rng=self.rng, keep_round=self.keep_round, clock=self.clock,
            )  # fmt: skip
        except ArmFailedError as error:
            self.arms[error.config].error = CandidateError.of(error.reason, Status.RUNTIME)
            return False
        return True

    def _wrong_again(self, config: Config, launches: int, seconds: float) -> Difference | None:
        arm = self.arms[config]
        if arm.error is not None:
            return None
        try:
            return self.evaluator.wrong_when_repeated(config, arm.sampler, launches, seconds)
        except Exception as error:  # noqa: BLE001 - a finalist that fails must not end the others
            arm.error = CandidateError.of(error, Status.RUNTIME)
            return None

    def _update(self, config: Config, arm: Arm) -> Trial:
        trial, timer = self.trials[config], self.evaluator.shared_timer.timer
        if (difference := self.wrong.get(config)) is not None:
            return wrong_trial(config, difference, trial.resources, trial.compile_s)
        if arm.error is not None:
            return Trial(config, Status.RUNTIME, error=one_line(arm.error), resources=trial.resources)
        if not arm.visits or timer is None:
            return trial
        return replace(trial, final=Measurement(tuple(arm.samples_ms), timer.mode, len(arm.visits)))


def finalists(trials: Mapping[Config, Trial], effort: Effort, always: Collection[Config]) -> list[Trial]:
    """The configs that race, fastest first: near the fastest, the effort's number, `always`; one of each program."""
    ranked = sorted(
        (t for t in trials.values() if t.ok and t.same_code_as is None), key=lambda t: (t.rank, t.config.text)
    )
    limit = ranked[0].rank * (1 + effort.near) if ranked else 0.0
    return [t for place, t in enumerate(ranked) if t.rank <= limit or t.config in always or place < effort.finalists]


def _fitting(
    racing: Sequence[Trial], policy: RacePolicy, seconds: float, always: Collection[Config], least: int
) -> list[Trial]:
    """As many finalists as a few rounds have time for in `seconds`, at least `least`, those in `always` first.

    There are none if no two rivals fit. The race's own limit leaves nobody out, since two rounds are always run.
    """
    fitting: list[Trial] = []
    for trial in sorted(racing, key=lambda trial: trial.config not in always):  # stable: the fastest first
        if len(fitting) < least or _visits_ms([*fitting, trial], policy) <= _room_ms(seconds):
            fitting.append(trial)
    rivals = len(racing) > 1
    return [] if rivals and len(fitting) < 2 else [trial for trial in racing if trial in fitting]


def _visits_ms(trials: Sequence[Trial], policy: RacePolicy) -> float:
    return _LOAD * sum(max(policy.visit_ms, trial.median_ms) for trial in trials)


def _room_ms(seconds: float) -> float:
    return 1e3 * seconds / _FEW_ROUNDS


def _arm(evaluator: Evaluator, trial: Trial, policy: RacePolicy) -> Arm:
    try:
        sampler = evaluator.sampler(trial.config)
    except Exception as error:  # noqa: BLE001 - a finalist that fails must not end the others
        return Arm(Sampler(lambda _: list), error=CandidateError.of(error, Status.RUNTIME))
    return Arm(sampler, policy.samples(trial.median_ms * sampler.launches))


def _twins(
    evaluator: Evaluator, arms: Mapping[Config, Arm], trials: Mapping[Config, Trial], default: Config
) -> tuple[Config | None, list[Arm], list[Arm]]:
    """A config, two arms of it that stay to the end of the race, and which of the two take part as further arms.

    What the two differ by is the noise. The default's own arm is never dropped, so that one further arm of it is
    enough; a slow default would cost more time than two further arms of the first finalist, whose own may be dropped.
    """
    running = [config for config, arm in arms.items() if arm.running]
    if not running or len(arms) < 2:
        return None, [], []
    fastest = min(trials[config].rank for config in running)
    if default in running and trials[default].rank <= _SLOW * fastest:
        further = [Arm(evaluator.sampler(default), arms[default].visit_samples)]
        return default, [arms[default], *further], further
    further = [Arm(evaluator.sampler(running[0]), arms[running[0]].visit_samples) for _ in range(2)]
    return running[0], further, further
