"""The last comparison: the fastest configs of the search, the default and the incumbents race against each other.

The race picks the luckiest of many candidates, so its times flatter what it picks. Fresh rounds of the two, with a
twin of the candidate, decide instead. All three are prepared anew: a difference that comes from where an object lies in
memory is then another one.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from triton_ops.backend import CandidateError
from triton_ops.base import warn
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.evaluation.judges import Difference
from triton_ops.evaluation.outcome import Outcome, Resolution, outcome_of, preference, unraced, with_further_processes
from triton_ops.evaluation.questions import StationStep
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import Arm, DuelPolicy, HostTimer, Interval, RacePolicy, Rounds, Sampler
from triton_ops.values import Contents, Status, Trial

# Checked launches of what ties, and of the winner: an error that shows in one launch of four, or of ten, passes in 3
# and 1 % of cases. Of long launches as many as take so long, two at least, since hundreds of times as many programs run
# in each. No further repeat is started after the seconds.
_CHECKED, _CHECKED_MS, _CHECKED_S = 12, 40.0, 0.15
_WINNER_CHECKED, _WINNER_CHECKED_MS, _WINNER_CHECKED_S = 44, 140.0, 2.0
_RACE_SHARE, _CHECK_SHARE = 0.5, 0.3  # of the seconds that are left
_FEW_ROUNDS = 6  # for which there must be time
_LEAST_LOADS = 2  # about three rounds where they take no longer than their samples: one may be disturbed
_LOAD = 1.5  # wall time of a round over that of its samples: rests, and the host's own work
_SLOW = 1.5  # times the fastest: a default as slow as that is not raced twice
_LONG_ROUND_MS = 100.0  # of two: no passing state of a device lasts for a few of them
_LONG_ROUNDS = 8  # for which long launches need time, beside one launch that is checked
_FAR, _FAR_ROUNDS = 2.0, 4  # times the fastest; the rounds after which one that is slower is dropped
_ROUND_MS = 100.0  # a longer round is avoided by shorter visits where there are many finalists


@dataclass(frozen=True, kw_only=True)
class FinalRequest:
    """A request for the last comparison.

    `default` and `incumbents`, which calls run now, are finalists if their trials are ok. `race` None takes the
    effort's policy. With `settle`, a doubt about the default is resolved in fresh rounds after the race. `seconds`
    limit the whole comparison, None leaves it to the race's policy: where they are short, fewer finalists race, and
    where not even the default and the fastest can, the default wins. With `anyway` these two race all the same, for
    some three rounds: a tune that goes on with an undecided one is to decide. `nearby` is the winner for a problem
    nearby, which races against the default alone if it leads again and no screening is near.
    """

    trials: tuple[Trial, ...]
    default: Config
    incumbents: tuple[Config, ...] = ()
    seed: int = 0
    race: RacePolicy | None = None
    settle: bool = True
    seconds: float | None = None
    anyway: bool = False
    nearby: Config | None = None
    step: ClassVar[str] = StationStep.RACE

    def answered_by(self, station: Any) -> Any:
        """The outcome of the comparison in a worker's station."""
        return station.finals(self)

    def fits(self, value: object) -> bool:
        """True if a value of a worker answers this request."""
        return isinstance(value, Outcome)


_ALONE_RACE = RacePolicy(checkpoints=(32,), seconds=60.0, confidence=math.inf)
"""The race in each fresh process, which drops no arm as slower, so that the results of all are checked again."""
_LEAST_S = 10.0
_START_S = 5.0  # a new process imports torch, and makes the arguments


def confirmed(
    outcome: Outcome,
    final: FinalRequest,
    processes: int,
    compare: Callable[[Sequence[FinalRequest]], Iterable[Outcome]],
    left_s: float | None = None,
) -> Outcome:
    """The outcome after fresh processes have compared the tied configs; unchanged without ties, or if all fail.

    `compare` gives the outcomes of the processes that did not fail. Nothing is confirmed in less than 10 s per process
    of `left_s`; None is no limit.
    """
    if len(outcome.ties) < 2 or processes == 0:
        return outcome
    if left_s is not None and left_s < processes * _LEAST_S:
        warn("the tied configs are not confirmed in further processes: the budget left %.1f s for it", left_s)
        return outcome
    each_s = None if left_s is None else left_s / processes - _START_S
    tied = tuple(trial for trial in outcome.trials if trial.config in outcome.ties)
    question = replace(final, trials=tied, race=_ALONE_RACE, settle=False, seconds=each_s)
    elsewhere = list(compare([replace(question, seed=final.seed + n) for n in range(1, processes + 1)]))
    if not elsewhere:
        return outcome
    decided = with_further_processes(outcome, elsewhere, final.default, final.incumbents)
    return replace(
        decided, dropped_at=outcome.dropped_at, twin=outcome.twin, twins_ms=outcome.twins_ms,
        elsewhere=tuple(elsewhere),
    )  # fmt: skip


def compare_finalists(
    evaluator: Evaluator,
    final: FinalRequest,
    effort: Effort,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
    turn: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Outcome:
    """Race the finalists, check their results again, and decide; a round is discarded if `keep_round` answers False."""
    end = clock() + (math.inf if final.seconds is None else final.seconds)
    trials, policy = {trial.config: trial for trial in final.trials}, final.race or effort.race
    always = {final.default, *final.incumbents}
    racing, few = (finalists(trials, each, always) for each in (effort, replace(effort, finalists=1)))
    leads_again = len(few) == len(always) + 1 and few[0].config == final.nearby
    racing = few if leads_again else racing
    policy = replace(policy, visit_ms=min(policy.visit_ms, _ROUND_MS / max(len(racing), 1)))
    is_open, whole_s = final.seconds is None, effort.budget.seconds if final.seconds is None else final.seconds
    whole_s = math.inf if whole_s is None else whole_s
    fewest, least_s = effort.finalists if is_open else 2, math.inf if is_open or final.anyway else whole_s
    racing, most_s = _fitting(racing, policy, whole_s, always, fewest, least_s), _RACE_SHARE * whole_s
    if not racing and not is_open:
        return unraced(final.trials, final.default)
    if final.anyway:
        least_s = _LEAST_LOADS * _visits_ms(racing, policy) / 1e3
        most_s, end = max(most_s, least_s), max(end, clock() + least_s)
    policy = replace(policy, seconds=min(policy.seconds, most_s))
    roomy = not leads_again and _visits_ms([*racing, *racing[:1]], policy) * _FEW_ROUNDS <= 1e3 * policy.seconds
    if any(trial.config in final.incumbents for trial in racing):
        policy = replace(policy, regret=None)  # a config in use stays where it ties, so the race must say what ties
    arms = {trial.config: _arm(evaluator, trial.config) for trial in racing}
    for trial in racing:
        arms[trial.config].visit_samples = policy.samples(trial.median_ms * arms[trial.config].sampler.launches)
    twin, twins = _twins(evaluator, arms, trials, final.default) if roomy else (None, [])
    timer = evaluator.shared_timer.timer or HostTimer()  # without a timer no finalist was prepared, and none will race
    last = _LastComparison(
        evaluator=evaluator, final=final, policy=policy, trials=trials, arms=arms, twins=twins,
        rounds=Rounds(timer=timer, rng=random.Random(final.seed), keep=keep_round, clock=clock, turn=turn), end=end,
        duel=DuelPolicy.after_a_race(max(policy.seconds, effort.doubt_s)),
    )  # fmt: skip
    last.race()
    outcome = last.outcome()
    if leads_again and (outcome.winner is None or outcome.winner.config != final.nearby):
        failed = {trial.config: trial for trial in outcome.trials if not trial.ok}
        remaining = tuple(failed.get(trial.config, trial) for trial in final.trials)
        seconds = None if final.seconds is None else max(end - clock(), 0.0)
        whole = replace(final, trials=remaining, nearby=None, seconds=seconds)  # another one wins here
        return compare_finalists(evaluator, whole, effort, keep_round, clock, turn)
    dropped = tuple((config, arm.dropped_at) for config, arm in arms.items())
    right = {trial.config for trial in outcome.trials if trial.ok}
    contents = _by_content(evaluator, {config: arm for config, arm in arms.items() if config in right})
    return replace(
        outcome, dropped_at=dropped, twin=twin, twins_ms=tuple(tuple(arm.values_ms) for arm in twins),
        leads_again=leads_again, contents=contents,
    )  # fmt: skip


def _by_content(evaluator: Evaluator, arms: Mapping[Config, Arm]) -> tuple[tuple[Any, ...], ...]:
    """Label, weight and times of each content: by those of the arm that stayed longest, in the rounds that both had."""
    rows = {config: list(zip(*arm.sampler.by_content[: len(arm.visits)], strict=True)) for config, arm in arms.items()}
    stayed = max(rows.values(), key=lambda columns: len(columns[0]) if columns else 0, default=[])
    subjects = [evaluator.subject, *evaluator.subject.contents] if stayed else []
    return tuple(
        (*each.labelled, tuple(
            (config, statistics.median(longest) * math.exp(Interval.of_gap(columns[at], longest).centre))
            for config, columns in rows.items() if columns
        ))
        for at, (each, longest) in enumerate(zip(subjects, stayed, strict=True))
    )  # fmt: skip


@dataclass(kw_only=True)
class _LastComparison:
    """One last comparison; of the two arms `twins` of one config the second is no finalist's own."""

    evaluator: Evaluator
    final: FinalRequest
    policy: RacePolicy
    trials: Mapping[Config, Trial]
    arms: Mapping[Config, Arm]
    twins: Sequence[Arm]
    rounds: Rounds
    end: float
    duel: DuelPolicy
    few: bool = False  # whether the rounds of the race decide alone
    wrong: dict[Config, Difference] = field(default_factory=dict)
    resolutions: dict[Config, Resolution] = field(default_factory=dict)
    gone: set[Config] = field(default_factory=set)
    slower: set[Config] = field(default_factory=set)  # than the default on one of several contents, by too much
    checked: set[Config] = field(default_factory=set)

    def race(self) -> None:
        racing = {config: arm for config, arm in self.arms.items() if config not in self.gone}
        trials = sorted((self.trials[config] for config in racing), key=lambda it: it.config != self.final.default)
        seconds = min(self.policy.seconds, self._left_s)
        self.few = _is_long(trials[:2]) or self._duel_s(trials[:2]) > self._left_s - seconds
        checked_s = max((trial.median_ms for trial in trials), default=0.0) / 1e3
        after_s = checked_s if self.few else self._duel_s(trials[:2])
        few_s = 0.0 if self.final.race is not None else max(self._left_s - seconds - after_s, 0.0)
        policy = replace(self.policy, seconds=seconds, few_s=few_s, few=self.few)
        self.rounds.race(list(racing.values()), policy, beside=self.twins[1:], default=racing.get(self.final.default))
        if not self.final.settle:  # of what others have compared, the results of all are checked again
            self._check([config for config, arm in racing.items() if arm.dropped_at is None])
        self._race_again()

    def _race_again(self) -> None:
        """Race once more if those who lost their place have had others dropped, whose rounds say nothing then."""
        candidates = {it: arm for it, arm in self.arms.items() if it not in self.gone and arm.dropped_at is None}
        losers = self._losers & candidates.keys()
        others = [arm for config, arm in self.arms.items() if config not in self.gone | losers]
        if not losers or all(arm.dropped_at is None for arm in others):
            return
        self.gone |= losers
        for arm in [*others, *self.twins]:
            arm.visits, arm.dropped_at = [], None
            arm.sampler.by_content.clear()
        self.race()

    @property
    def _left_s(self) -> float:
        return max(self.end - self.rounds.clock(), 0.0)

    def outcome(self) -> Outcome:
        """The outcome among the configs whose results are right, after doubts and the winner's results were checked."""
        while True:
            outcome = self._outcome()
            winner = outcome.winner.config if outcome.winner is not None else None
            if winner not in self.arms or winner is None:
                return outcome
            before = self._losers
            self._check([config for config in outcome.ties if config != winner])
            self._repeat(winner, _WINNER_CHECKED, _WINNER_CHECKED_MS, min(_WINNER_CHECKED_S, self._left_s))
            if self._losers == before:
                return outcome
            self._race_again()

    def _check(self, configs: Iterable[Config]) -> None:
        due = set(configs) - self.checked
        for config in [config for config in self.arms if config in due]:  # in the same order in every process
            self.checked.add(config)
            self._repeat(config, _CHECKED, _CHECKED_MS, min(_CHECKED_S, _CHECK_SHARE * self._left_s / len(self.arms)))

    @property
    def _losers(self) -> set[Config]:
        return self.slower | {it for it, arm in self.arms.items() if it in self.wrong or arm.error is not None}

    def _outcome(self) -> Outcome:
        updated = {**self.trials, **{config: self._update(config, arm) for config, arm in self.arms.items()}}
        usable = {config for config, trial in updated.items() if trial.ok} - self.slower
        alive = {config: arm for config, arm in self.arms.items() if config in usable and arm.visits}
        if not alive:
            return Outcome.of_screenings(tuple(updated.values()))
        default, incumbents = self.final.default, self.final.incumbents
        preferences = {config: preference(updated[config], default, incumbents) for config in alive}
        standing = self.rounds.standing(alive, default, preference=preferences, incumbents=incumbents)
        challenger = standing.challenger
        raced, leading = _by_content(self.evaluator, alive), (challenger, *standing.decision.ties)
        if raced and (slower := {
            config for config in alive
            if config in leading and Contents.slower(raced, config, default)[0] > Contents.SLOWER
        }):  # fmt: skip
            self.slower |= slower
            self._race_again()
            return self._outcome()
        if challenger is None or not (standing.default_ms and self.final.settle):
            return outcome_of(standing, updated, self._itself)
        pair, is_known = [self.trials[config] for config in (challenger, default)], challenger in self.resolutions
        if not _is_long(pair) and not standing.doubtful(challenger):
            return outcome_of(standing, updated, self._itself)
        if _is_long(pair) or (not is_known and (self.few or self._duel_s(pair) > self._left_s)):
            return outcome_of(standing, updated, None, Resolution(challenger, *standing.by_few_rounds(challenger)))
        if not is_known and not self._resolve(challenger, self._duel_s(pair)):
            return self._outcome()  # one of the two failed, and stands no more
        return outcome_of(standing, updated, self._itself, self.resolutions[challenger])

    @property
    def _itself(self) -> Interval | None:
        """The difference between the twins; None where they did not race, or for too few rounds to tell."""
        rows = [twin.values_ms for twin in self.twins if len(twin.visits) >= DuelPolicy.LEAST_ROUNDS]
        return Interval.of_gap(rows[1], rows[0]) if len(rows) == 2 else None

    def _duel_s(self, pair: Sequence[Trial]) -> float:
        """Seconds of the least rounds of a duel that tell: with fewer it has less power than the race before it."""
        return self.duel.checkpoints[0] * _visits_ms([*pair, *pair[:1]], self.policy) / 1e3

    def _resolve(self, challenger: Config, enough_s: float) -> bool:
        """Compare a challenger with the default in fresh rounds; False if one failed, whose arm then has an error.

        There is time for enough rounds to tell, which take about `enough_s`.
        """
        configs = (challenger, self.final.default, challenger)
        samples = max(self.arms[config].visit_samples for config in configs)
        policy = replace(self.duel, seconds=min(max(self.duel.seconds, enough_s), self._left_s))
        first, second, twin = arms = [_arm(self.evaluator, config) for config in configs]
        try:
            for arm in arms:
                arm.visit_samples = samples
                if arm.error is not None:
                    raise arm.error
            duel = self.rounds.duel((first, second, twin), policy)
        except Exception as error:  # noqa: BLE001 - a config whose launch fails must not end the others
            culprits = [config for config, arm in zip(configs, arms, strict=True) if arm.error is not None]
            self.arms[(culprits or configs)[0]].error = CandidateError.of(error, Status.RUNTIME)
            return False
        self.resolutions[challenger] = Resolution(challenger, duel.proven, duel.gain)
        return True

    def _repeat(self, config: Config, launches: int, most_ms: float, seconds: float) -> None:
        arm = self.arms[config]
        if arm.error is not None:
            return
        launches = min(launches, max(math.ceil(most_ms / max(self.trials[config].median_ms, 1e-6)), 2))
        try:
            if difference := self.evaluator.wrong_when_repeated(config, arm.sampler, launches, seconds):
                self.wrong[config] = difference
        except Exception as error:  # noqa: BLE001 - a finalist that fails must not end the others
            arm.error = CandidateError.of(error, Status.RUNTIME)

    def _update(self, config: Config, arm: Arm) -> Trial:
        trial = self.trials[config]
        if (difference := self.wrong.get(config)) is not None:
            return difference.trial(config, trial.resources, trial.compile_s)
        if arm.error is not None:
            failure = CandidateError.of(arm.error, Status.RUNTIME)
            return Trial(config, failure.status, error=str(failure), resources=trial.resources)
        return replace(trial, final=arm.measurement(self.rounds.timer.mode)) if arm.visits else trial


def finalists(trials: Mapping[Config, Trial], effort: Effort, always: Collection[Config]) -> list[Trial]:
    """The configs that race, fastest first: near the fastest, the effort's number, `always`; one of each program."""
    programs = (t for t in trials.values() if t.ok and t.same_code_as is None)
    ranked = sorted(programs, key=lambda t: (t.rank, t.config.text))
    limit = ranked[0].rank * (1 + effort.near) if ranked else 0.0
    return [t for place, t in enumerate(ranked) if t.rank <= limit or t.config in always or place < effort.finalists]


def _fitting(
    racing: Sequence[Trial], policy: RacePolicy, whole_s: float, always: Collection[Config], fewest: int, least_s: float
) -> list[Trial]:
    """As many finalists as a few rounds have time for in the race's share of `whole_s`, those in `always` first.

    Of long launches eight rounds and a checked launch may take all of it, and of the `fewest` finalists two rounds all
    of `least_s`. There are none if no two rivals fit. The race's own limit leaves nobody out, since two rounds are
    always run.
    """
    fitting: list[Trial] = []
    for trial in sorted(racing, key=lambda trial: trial.config not in always):  # stable: the fastest first
        some = [*fitting, trial]
        times_ms, visits_ms = [each.median_ms for each in some], _visits_ms(some, policy)
        fits = visits_ms * _FEW_ROUNDS <= 1e3 * _RACE_SHARE * whole_s
        rounds = [_FAR_ROUNDS if ms > _FAR * min(times_ms) else _LONG_ROUNDS for ms in times_ms]
        whole_ms = sum(n * ms for n, ms in zip(rounds, times_ms, strict=True)) + max(times_ms)
        fits |= sum(times_ms) >= _LONG_ROUND_MS and whole_ms <= 1e3 * whole_s
        if fits or (len(fitting) < fewest and visits_ms * _LEAST_LOADS <= 1e3 * least_s):
            fitting = some
    return [] if len(fitting) < 2 <= len(racing) else [trial for trial in racing if trial in fitting]


def _is_long(pair: Sequence[Trial]) -> bool:
    return sum(trial.median_ms for trial in pair) >= _LONG_ROUND_MS


def _visits_ms(trials: Sequence[Trial], policy: RacePolicy) -> float:
    return _LOAD * sum(max(policy.visit_ms, trial.median_ms) for trial in trials)


def _arm(evaluator: Evaluator, config: Config) -> Arm:
    """An arm of a config; one that cannot be prepared has an error."""
    try:
        return Arm(evaluator.sampler(config))
    except Exception as error:  # noqa: BLE001 - a finalist that fails must not end the others
        return Arm(Sampler(lambda _: list), error=CandidateError.of(error, Status.RUNTIME))


def _twins(
    evaluator: Evaluator, arms: Mapping[Config, Arm], trials: Mapping[Config, Trial], default: Config
) -> tuple[Config | None, list[Arm]]:
    """A config and two arms of it, of which the second takes part as a further one; none where nothing can be compared.

    What the two differ by, in the rounds that both have, is the noise. A slow default would cost more time than the
    first finalist, whose own arm may be dropped before the last round.
    """
    running = [config for config, arm in arms.items() if arm.running]
    if not running or len(arms) < 2:
        return None, []
    fastest = min(trials[config].rank for config in running)
    twin = default if default in running and trials[default].rank <= _SLOW * fastest else running[0]
    again = _arm(evaluator, twin)
    again.visit_samples = arms[twin].visit_samples
    return twin, [arms[twin], again]
