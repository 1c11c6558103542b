"""The last comparison: the fastest configs of the search, the default and the incumbents race against each other."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from triton_ops.backend import CandidateError, one_line
from triton_ops.evaluation.candidate import Evaluator, wrong_trial
from triton_ops.evaluation.judges import Difference
from triton_ops.evaluation.outcome import (
    ArmFailedError,
    Field,
    Outcome,
    RaceSummary,
    Resolution,
    outcome_of,
    resolve,
    unraced,
)
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import LEAST_ROUNDS, Arm, RaceDecision, RacePolicy, Sampler, doubtful, gain, race
from triton_ops.values import Measurement, Status, Trial

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


@dataclass(frozen=True, kw_only=True)
class FinalRequest:
    """A request for the last comparison.

    Attributes:
        default: The default config; it is a finalist if its trial is ok.
        incumbents: Winners of earlier runs; they are finalists if their trials are ok.
        race: How long the race may last, and when an arm is dropped; None takes the effort's policy.
        settle: Whether a doubt about the default is resolved in fresh rounds after the race.
        seconds: How long the whole comparison may last; None leaves it to the race's policy. Where it is short, fewer
            finalists race, and where not even the default and the fastest can, the default wins.
        anyway: Whether these two race all the same, for some three rounds: a tune that goes on with an undecided one is
            to decide.
    """

    trials: tuple[Trial, ...]
    default: Config
    incumbents: tuple[Config, ...] = ()
    seed: int = 0
    race: RacePolicy | None = None
    settle: bool = True
    seconds: float | None = None
    anyway: bool = False


def compare_finalists(
    evaluator: Evaluator,
    final: FinalRequest,
    effort: Effort,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Race the finalists, check their results again, and decide.

    A round is discarded if `keep_round` answers False.
    """
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
    """One last comparison: the arms, and what is found out about them after the race.

    Of the two arms `twins` of one config, those in `beside` are no finalists' own.
    """

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
        """Run the race, and check the results of those that were not dropped."""
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
        """The outcome by what is known so far."""
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
        """The config of which the race cannot say whether it beats the default; None if there is none."""
        challenger = standing.challenger(decision)
        if challenger is None or not standing.default_ms or not self.final.settle:
            return None
        return challenger if doubtful(self.arms[challenger].values_ms, standing.default_ms) else None

    def _too_late(self, standing: Field, challenger: Config) -> bool:
        """True if the time that is left is too short for the fewest rounds that can resolve a doubt."""
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
        """The difference of a finalist's timed launches; None if their results are right, or the finalist failed."""
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
    """The configs that race, fastest screening first.

    They are every config within the effort's share `near` of the fastest, at least as many as the effort asks for, and
    the configs in `always`. Of configs with the same machine code only the one that was measured takes part.
    """
    ranked = sorted(
        (t for t in trials.values() if t.ok and t.same_code_as is None), key=lambda t: (t.rank, t.config.text)
    )
    limit = ranked[0].rank * (1 + effort.near) if ranked else 0.0
    return [t for place, t in enumerate(ranked) if t.rank <= limit or t.config in always or place < effort.finalists]


def _fitting(
    racing: Sequence[Trial], policy: RacePolicy, seconds: float, always: Collection[Config], least: int
) -> list[Trial]:
    """As many finalists as a few rounds have time for in `seconds`; none if not even the most important ones fit.

    `least` of them are taken in any case. The configs in `always` come first, then the fastest. The race's own limit
    leaves nobody out, since two rounds are always run.
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
    """The longest round of which a few fit into `seconds`."""
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
