"""The last comparison: the fastest configs of the search, the default and the incumbents race against each other."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from triton_ops.backend import candidate_error, one_line
from triton_ops.evaluation.candidate import Evaluator, wrong_trial
from triton_ops.evaluation.criteria import Difference
from triton_ops.measure import INDIFFERENCE, Arm, Decision, Preference, RacePolicy, Sampler, decide, gain, gap, race
from triton_ops.measure.decision import relative_levels
from triton_ops.measure.guard import GuardSummary
from triton_ops.measure.stats import Interval
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.trial import Measurement, Resources, Status, Trial

_REPEATS = 12  # checked launches of a finalist: an error that shows in one launch of four stays unseen in 3 % of cases
_REPEATS_S = 0.15  # for each finalist; no further repeat is started after this time
_WINNER_REPEATS = 32  # checked launches of the winner: for an error that shows in one launch of ten it is 3 % as well
_WINNER_REPEATS_S = 2.0
_ROUND_MS = 100.0  # a longer round is avoided by shorter blocks where there are many finalists
_DIFFERENT = "an A/A comparison of one config with itself showed a difference"


@dataclass(frozen=True)
class RaceSummary:
    """The course of the last comparison; the times of the finalists are in their trials.

    Attributes:
        dropped_at: Each finalist, in the order of the screenings, with the number of rounds after which it was
            dropped; None for a finalist that stayed to the end.
        twin: The finalist that took part as two further arms, to measure the noise; None if there was none.
        twins_ms: For each of the two further arms, its median in every round.
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


@dataclass(frozen=True, kw_only=True)
class FinalRequest:
    """A request for the last comparison.

    Attributes:
        trials: The trials of the search.
        default: The default config; it is a finalist if its trial is ok.
        incumbents: Winners of earlier runs; they are finalists if their trials are ok.
        seed: Seed of the random order inside rounds.
        race: How long the race may last, and when an arm is dropped; None takes the effort's policy.
    """

    trials: tuple[Trial, ...]
    default: Config
    incumbents: tuple[Config, ...] = ()
    seed: int = 0
    race: RacePolicy | None = None


def compare_finalists(
    evaluator: Evaluator,
    final: FinalRequest,
    effort: Effort,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Race the finalists, check their results again, and decide.

    Args:
        evaluator: Makes the samplers of configs, and checks results.
        final: The request.
        effort: How near the best a finalist must be, and how long the race may last.
        keep_round: Called after each round; the round is discarded if the answer is False.
        clock: Monotonic seconds.
    """
    trials, policy = {trial.config: trial for trial in final.trials}, final.race or effort.race
    field = finalists(trials, effort, {final.default, *final.incumbents})
    policy = replace(policy, block_ms=min(policy.block_ms, _ROUND_MS / max(len(field), 1)))
    arms = {trial.config: _arm(evaluator, trial, policy) for trial in field}
    twin, twins = _twins(evaluator, arms)
    if evaluator.clock.timer is not None and len(arms) > 1:
        rng, timer = random.Random(final.seed), evaluator.clock.timer
        race(list(arms.values()), timer, policy, rng, beside=twins, keep_round=keep_round, clock=clock)
    left = {config: arm for config, arm in arms.items() if arm.dropped_at is None}
    again = {config: _wrong_when_repeated(evaluator, config, arm, _REPEATS, _REPEATS_S) for config, arm in left.items()}
    wrong = {config: found for config, found in again.items() if found}
    while True:
        updated = {**trials, **{config: _updated(trials[config], arm, evaluator) for config, arm in arms.items()}}
        updated.update(
            (config, wrong_trial(config, found, trials[config].resources, trials[config].compile_s))
            for config, found in wrong.items()
        )
        outcome = _found(updated, arms, twins, final.default, final.incumbents)
        winner = outcome.winner.config if outcome.winner else None
        said = winner in arms and _wrong_when_repeated(
            evaluator, winner, arms[winner], _WINNER_REPEATS, _WINNER_REPEATS_S
        )
        if winner is None or not said:
            return replace(outcome, raced=_raced(arms, twin, twins))
        wrong[winner] = said


def _found(
    trials: Mapping[Config, Trial],
    arms: Mapping[Config, Arm],
    twins: Sequence[Arm],
    default: Config,
    incumbents: Collection[Config],
) -> Outcome:
    """The outcome of the race among the configs whose results are right."""
    alive = [trials[config] for config, arm in arms.items() if trials[config].ok and arm.blocks]
    if not alive:
        return fastest_screening(tuple(trials.values()))
    decision = _decided(alive, arms, default, incumbents)
    return _outcome(decision, alive, arms, twins, default, tuple(trials.values()))


def _wrong_when_repeated(
    evaluator: Evaluator, config: Config, arm: Arm, repeats: int, seconds: float
) -> Difference | None:
    """How the results of a finalist's timed launches are wrong; None if they are right, or the finalist failed."""
    if arm.error is not None:
        return None
    try:
        return evaluator.wrong_when_repeated(config, arm.sampler, repeats, seconds)
    except Exception as error:  # noqa: BLE001 - a finalist that fails must not end the others
        arm.error = candidate_error(error, Status.RUNTIME)
        return None


def with_further_processes(outcome: Outcome, elsewhere: Sequence[Outcome], final: FinalRequest) -> Outcome:
    """The decision made again with the outcomes of further processes; a process counts as one round.

    A config that failed in one of the processes, or gave wrong results there, is no longer among the ties.

    Args:
        outcome: The outcome of the last comparison.
        elsewhere: For each further process its outcome, of a comparison of `outcome.ties`.
        final: The request of the last comparison.
    """
    failed = {trial.config: trial for found in elsewhere for trial in found.trials if not trial.ok}
    trials = tuple(failed.get(trial.config, trial) for trial in outcome.trials)
    tied = [config for config in outcome.ties if config not in failed]
    if not tied:
        return fastest_screening(trials)
    processes = [_by_config(found.trials) for found in (outcome, *elsewhere)]
    levels = [relative_levels([_row(found[config]) for config in tied]) for found in processes]
    places = {config: place for place, config in enumerate(tied)}
    decision = decide(
        [[math.exp(level) for level in column] for column in zip(*levels, strict=True)],
        [_preference(processes[0][config], final.default, final.incumbents) for config in tied],
        kept=[places[config] for config in (*final.incumbents, final.default) if config in places],
        default=places.get(final.default),
    )
    winner, ties = processes[0][tied[decision.winner]], tuple(tied[i] for i in decision.ties)
    return replace(outcome, winner=winner, ties=ties, noise=max(outcome.noise, decision.noise), trials=trials)


def _by_config(trials: Sequence[Trial]) -> dict[Config, Trial]:
    return {trial.config: trial for trial in trials}


def _row(trial: Trial) -> list[float]:
    return [statistics.median(block) for block in trial.final.blocks] if trial.final else [trial.median_ms]


def fastest_screening(trials: Sequence[Trial]) -> Outcome:
    """The outcome without a race: the winner is the config with the fastest screening."""
    best = min((trial for trial in trials if trial.ok), key=lambda trial: trial.rank, default=None)
    return Outcome(
        winner=best,
        ties=() if best is None else (best.config,),
        noise=0.0,
        gain=None,
        confidence="nothing was raced",
        trials=tuple(trials),
    )


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


def _arm(evaluator: Evaluator, trial: Trial, policy: RacePolicy) -> Arm:
    try:
        sampler = evaluator.sampler(trial.config)
    except Exception as error:  # noqa: BLE001 - a finalist that fails must not end the others
        return Arm(Sampler(lambda _: list), error=candidate_error(error, Status.RUNTIME))
    return Arm(sampler, policy.samples(trial.median_ms * sampler.launches))


def _twins(evaluator: Evaluator, arms: Mapping[Config, Arm]) -> tuple[Config | None, list[Arm]]:
    """Two further arms of the first finalist, which stay to the end of the race: their difference is the noise.

    The finalist's own arm cannot serve as one of the two: it may be dropped after four rounds.
    """
    config = next((config for config, arm in arms.items() if arm.running), None)
    if config is None or len(arms) < 2:
        return None, []
    return config, [Arm(evaluator.sampler(config), arms[config].block) for _ in range(2)]


def _raced(arms: Mapping[Config, Arm], twin: Config | None, twins: Sequence[Arm]) -> RaceSummary:
    dropped = tuple((config, arm.dropped_at) for config, arm in arms.items())
    return RaceSummary(dropped, twin, tuple(tuple(arm.medians_ms) for arm in twins))


def _updated(trial: Trial, arm: Arm, evaluator: Evaluator) -> Trial:
    if arm.error is not None:
        return Trial(trial.config, Status.RUNTIME, error=one_line(arm.error), resources=trial.resources)
    if not arm.blocks or evaluator.clock.timer is None:
        return trial
    return replace(trial, final=Measurement(tuple(arm.samples_ms), evaluator.clock.timer.mode, len(arm.blocks)))


def _decided(
    alive: Sequence[Trial], arms: Mapping[Config, Arm], default: Config, incumbents: Collection[Config]
) -> Decision:
    places = {trial.config: place for place, trial in enumerate(alive)}
    return decide(
        [arms[trial.config].medians_ms for trial in alive],
        [_preference(trial, default, incumbents) for trial in alive],
        kept=[places[config] for config in (*incumbents, default) if config in places],
        default=places.get(default),
        dropped=[place for config, place in places.items() if arms[config].dropped_at is not None],
    )


def _outcome(
    decision: Decision,
    alive: Sequence[Trial],
    arms: Mapping[Config, Arm],
    twins: Sequence[Arm],
    default: Config,
    trials: tuple[Trial, ...],
) -> Outcome:
    winner = alive[decision.winner]
    rows = [twin.medians_ms for twin in twins if twin.blocks]
    itself = gap(rows[1], rows[0]) if len(rows) == 2 else None
    over = None
    if default in arms and arms[default].blocks and default != winner.config:
        found = gain(arms[default].medians_ms, arms[winner.config].medians_ms)
        over = Interval(math.exp(found.centre), math.exp(found.low), math.exp(found.high))
    ties = tuple(alive[i].config for i in decision.ties)
    noise = max(decision.noise, abs(itself.centre)) if itself else decision.noise
    confidence = _DIFFERENT if itself and abs(itself.centre) > max(INDIFFERENCE, itself.margin) else "ok"
    return Outcome(
        winner=winner, ties=ties, noise=noise, gain=over, confidence=confidence, trials=trials, itself=itself
    )


def _preference(trial: Trial, default: Config, incumbents: Collection[Config]) -> Preference:
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
