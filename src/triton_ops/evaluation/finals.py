"""The last comparison: the best of the search, the default and the incumbent race side by side."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from triton_ops.backend import candidate_error, one_line
from triton_ops.evaluation.candidate import Evaluator
from triton_ops.measure import INDIFFERENCE, Arm, Decision, Preference, RacePolicy, Sampler, decide, gain, gap, race
from triton_ops.measure.decision import relative_levels
from triton_ops.measure.guard import GuardSummary
from triton_ops.measure.stats import Interval
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.trial import Measurement, Resources, Status, Trial

_REPEATS = 12  # of timed launches, with their results checked: an error that shows in one run of four passes in 3 %
_REPEATS_S = 0.15  # for each finalist; no further repeat is started after it
_WINNER_REPEATS = 32  # an error that shows in one run of ten passes in 3 %
_WINNER_REPEATS_S = 2.0
_ROUND_MS = 100.0  # a round of many finalists has short visits
_DIFFERENT = "an A/A comparison of one config with itself showed a difference"


@dataclass(frozen=True)
class Raced:
    """How the last comparison went, beside the finalists' times, which are in their trials.

    Attributes:
        dropped_at: Each finalist, in the order of the screenings, with the number of rounds after which it was
            dropped; None for one that stayed to the end.
        twin: The finalist that took part twice more, so that the noise is known; None if none did.
        twins_ms: Medians of the twins' rounds.
    """

    dropped_at: tuple[tuple[Config, int | None], ...] = ()
    twin: Config | None = None
    twins_ms: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What the last comparison found.

    Attributes:
        winner: The trial to use; None if no trial is ok.
        ties: Configs that could not be told from the fastest, best first.
        noise: Half-width of a typical 95 % interval, or what a config differs from itself if that is more; 0 if
            nothing was compared.
        gain: The default's time over the winner's, with its 95 % interval; None if they were not compared.
        confidence: `ok`, or in words why not.
        guard: What the device said of itself meanwhile; None if nothing was asked.
        itself: By which share one finalist differed from itself, with its 95 % interval; None if it was not raced.
        trials: All trials, finalists with their final times.
        raced: How the comparison went; without finalists if nothing was compared.
    """

    winner: Trial | None
    ties: tuple[Config, ...]
    noise: float
    gain: Interval | None
    confidence: str
    trials: tuple[Trial, ...]
    itself: Interval | None = None
    guard: GuardSummary | None = None
    raced: Raced = Raced()


@dataclass(frozen=True, kw_only=True)
class Final:
    """The last comparison, asked for.

    Attributes:
        trials: What the search tried.
        default: The default config: a finalist whenever it ran.
        incumbents: Configs in use until now: finalists whenever they ran.
        seed: Draws the orders.
        race: How long the race may last, and when an arm is out; None takes the effort's.
    """

    trials: tuple[Trial, ...]
    default: Config
    incumbents: tuple[Config, ...] = ()
    seed: int = 0
    race: RacePolicy | None = None


def compare_finalists(
    evaluator: Evaluator,
    final: Final,
    effort: Effort,
    keep_round: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Race the finalists and decide.

    Args:
        evaluator: Samples configs.
        final: What is compared.
        effort: How near the best a finalist must be, and how long the race may last.
        keep_round: Tells after a round whether it counts.
        clock: Seconds, monotonic.
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
    again = {config: _wrong_again(evaluator, config, arm, _REPEATS, _REPEATS_S) for config, arm in left.items()}
    wrong = {config: found for config, found in again.items() if found}
    while True:
        updated = {**trials, **{config: _updated(trials[config], arm, evaluator) for config, arm in arms.items()}}
        updated.update((config, _as_wrong(trials[config], found)) for config, found in wrong.items())
        outcome = _found(updated, arms, twins, final.default, final.incumbents)
        winner = outcome.winner.config if outcome.winner else None
        said = winner in arms and _wrong_again(evaluator, winner, arms[winner], _WINNER_REPEATS, _WINNER_REPEATS_S)
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
    """What the race has shown of those that are right."""
    alive = [trials[config] for config, arm in arms.items() if trials[config].ok and arm.blocks]
    if not alive:
        return best_first_look(tuple(trials.values()))
    decision = _decided(alive, arms, default, incumbents)
    return _outcome(decision, alive, arms, twins, default, tuple(trials.values()))


def _wrong_again(evaluator: Evaluator, config: Config, arm: Arm, repeats: int, seconds: float) -> str | None:
    """What is wrong with the results that a finalist gives when it is timed."""
    if arm.error is not None:
        return None
    try:
        return evaluator.wrong_again(config, arm.sampler, repeats, seconds)
    except Exception as error:  # noqa: BLE001 - one finalist's failure is its own
        arm.error = candidate_error(error, Status.RUNTIME)
        return None


def _as_wrong(trial: Trial, found: str) -> Trial:
    return Trial(trial.config, Status.WRONG, error=found, resources=trial.resources, compile_s=trial.compile_s)


def confirmed(outcome: Outcome, elsewhere: Sequence[Outcome], final: Final) -> Outcome:
    """The outcome after the tied configs were compared in further processes; a process counts as one round.

    A config that failed in one of them, or gave wrong results there, ties no more.

    Args:
        outcome: Of the last comparison.
        elsewhere: Per further process, what it found for `outcome.ties`.
        final: What was compared.
    """
    failed = {trial.config: trial for found in elsewhere for trial in found.trials if not trial.ok}
    trials = tuple(failed.get(trial.config, trial) for trial in outcome.trials)
    tied = [config for config in outcome.ties if config not in failed]
    if not tied:
        return best_first_look(trials)
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


def best_first_look(trials: Sequence[Trial]) -> Outcome:
    """The outcome where nothing was compared side by side: the fastest first look."""
    best = min((trial for trial in trials if trial.ok), key=lambda trial: trial.rank, default=None)
    return Outcome(best, () if best is None else (best.config,), 0.0, None, "nothing was raced", tuple(trials))


def finalists(trials: Mapping[Config, Trial], effort: Effort, always: Collection[Config]) -> list[Trial]:
    """Every config near the best by first looks, best first; no hard cut where configs are close, no code twice."""
    ranked = sorted(
        (t for t in trials.values() if t.ok and t.same_code_as is None), key=lambda t: (t.rank, t.config.text)
    )
    limit = ranked[0].rank * (1 + effort.near) if ranked else 0.0
    return [t for place, t in enumerate(ranked) if t.rank <= limit or t.config in always or place < effort.finalists]


def _arm(evaluator: Evaluator, trial: Trial, policy: RacePolicy) -> Arm:
    try:
        sampler = evaluator.sampler(trial.config)
    except Exception as error:  # noqa: BLE001 - one finalist's failure is its own
        return Arm(Sampler(lambda _: list), error=candidate_error(error, Status.RUNTIME))
    return Arm(sampler, policy.samples(trial.median_ms * sampler.launches))


def _twins(evaluator: Evaluator, arms: Mapping[Config, Arm]) -> tuple[Config | None, list[Arm]]:
    """The first finalist twice more, to the end of the race: what they differ by is the noise floor.

    The finalist itself would not do: it may be out after four rounds.
    """
    config = next((config for config, arm in arms.items() if arm.running), None)
    if config is None or len(arms) < 2:
        return None, []
    return config, [Arm(evaluator.sampler(config), arms[config].block) for _ in range(2)]


def _raced(arms: Mapping[Config, Arm], twin: Config | None, twins: Sequence[Arm]) -> Raced:
    dropped = tuple((config, arm.dropped_at) for config, arm in arms.items())
    return Raced(dropped, twin, tuple(tuple(arm.medians_ms) for arm in twins))


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
    return Outcome(winner, ties, noise, over, confidence, trials, itself)


def _preference(trial: Trial, default: Config, incumbents: Collection[Config]) -> Preference:
    """Among equals: what is in use, the default, no spills, less shared memory, fewer registers, first text."""
    resources = trial.resources or Resources()
    return (
        trial.config not in incumbents,
        trial.config != default,
        resources.wasteful,
        resources.shared_bytes or 0,
        resources.registers or 0,
        trial.config.text,
    )
