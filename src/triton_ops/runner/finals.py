"""The last comparison: the best of the search, the default and the incumbent, measured side by side."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from triton_ops.backend import CandidateError, one_line
from triton_ops.measure import Arm, Decision, Launch, decide, interleave
from triton_ops.measure.decision import Preference
from triton_ops.runner.candidate import Bench
from triton_ops.runner.effort import Effort
from triton_ops.space import Config
from triton_ops.trial import Measurement, Resources, Status, Trial

_SPILL_THRESHOLD_BYTES = 64  # less is common in good kernels and costs nothing measurable
_BLOCK_MS = 5.0  # long enough to rise over the clock, short enough for the power state to hold
_LONGEST_BLOCK = 10


@dataclass(frozen=True)
class Outcome:
    """What the last comparison found.

    Attributes:
        winner: The trial to use; None if no trial is ok.
        ties: Configs that could not be told from the fastest, best first.
        noise: Half-width of a typical 95 % interval, as a share of the time; 0 if nothing was compared.
        trials: All trials, finalists with their final times.
    """

    winner: Trial | None
    ties: tuple[Config, ...]
    noise: float
    trials: tuple[Trial, ...]


def compare_finalists(
    bench: Bench,
    trials: Mapping[Config, Trial],
    effort: Effort,
    default: Config,
    incumbents: Collection[Config],
    seed: int,
) -> Outcome:
    """Measure the finalists side by side and decide.

    Args:
        bench: Launches configs.
        trials: What the search tried.
        effort: How many finalists, how many rounds.
        default: The default config: a finalist whenever it ran.
        incumbents: Configs in use until now: finalists whenever they ran.
        seed: Draws the orders.
    """
    chosen = _finalists(trials, effort.finalists, {default, *incumbents})
    arms = {trial.config: _arm(bench, trial) for trial in chosen}
    _warm_up(bench, arms.values())
    start = time.monotonic()
    interleave(
        [arm for arm in arms.values() if len(arms) > 1],
        bench.timer,
        rounds=effort.rounds,
        block=_block(chosen, arms),
        rng=random.Random(seed),
        go_on=lambda: time.monotonic() - start < effort.rounds_s,
    )
    updated = {
        **trials,
        **{config: _updated(trials[config], arm, bench) for config, arm in arms.items()},
    }
    alive = [updated[config] for config in arms if updated[config].ok]
    everything = tuple(updated.values())
    if not alive:
        return best_first_look(everything)
    decision = _decided(alive, arms, default, incumbents)
    ties = tuple(alive[i].config for i in decision.ties)
    return Outcome(alive[decision.winner], ties, decision.noise, everything)


def best_first_look(trials: Sequence[Trial]) -> Outcome:
    """The outcome where nothing was compared side by side: the fastest first look."""
    best = min((trial for trial in trials if trial.ok), key=lambda trial: trial.median_ms, default=None)
    return Outcome(best, () if best is None else (best.config,), 0.0, tuple(trials))


def _finalists(trials: Mapping[Config, Trial], count: int, always: Collection[Config]) -> list[Trial]:
    ranked = sorted((t for t in trials.values() if t.ok), key=lambda t: (t.median_ms, t.config.text))
    return [t for position, t in enumerate(ranked) if position < count or t.config in always]


def _arm(bench: Bench, trial: Trial) -> Arm:
    try:
        return Arm(bench.launch(trial.config))
    except CandidateError as error:  # it compiled in an interrupted run, and does not now
        return Arm(Launch(lambda: None), error=error)


def _warm_up(bench: Bench, arms: Collection[Arm]) -> None:
    for arm in arms:
        if arm.error is None:
            try:
                if arm.launch.reset is not None:
                    arm.launch.reset()
                arm.launch.call()
                arm.launches = bench.timer.launches_per_sample(arm.launch)
            except Exception as error:  # noqa: BLE001 - one finalist's failure is its own
                arm.error = error.with_traceback(None)  # whose frames would keep what the launch had allocated


def _block(chosen: Sequence[Trial], arms: Mapping[Config, Arm]) -> int:
    """Samples per visit: the slowest finalist's block stays near 5 ms."""
    slowest = max((t.median_ms * arms[t.config].launches for t in chosen), default=1.0)
    return min(max(int(_BLOCK_MS / max(slowest, 1e-6)), 1), _LONGEST_BLOCK)


def _updated(trial: Trial, arm: Arm, bench: Bench) -> Trial:
    if arm.error is not None:
        return Trial(trial.config, Status.RUNTIME, error=one_line(arm.error), resources=trial.resources)
    samples = tuple(arm.samples_ms)
    return replace(trial, final=Measurement(samples, bench.timer.mode)) if samples else trial


def _decided(
    alive: Sequence[Trial],
    arms: Mapping[Config, Arm],
    default: Config,
    incumbents: Collection[Config],
) -> Decision:
    blocks = [[statistics.median(block) for block in arms[t.config].blocks] or [t.median_ms] for t in alive]
    preference = [_preference(t, default, incumbents) for t in alive]
    position = next((i for i, t in enumerate(alive) if t.config == default), None)
    return decide(blocks, preference, default=position)


def _preference(trial: Trial, default: Config, incumbents: Collection[Config]) -> Preference:
    """Among equals: what is in use, the default, no spills, less shared memory, fewer registers, first text."""
    resources = trial.resources or Resources()
    return (
        trial.config not in incumbents,
        trial.config != default,
        (resources.spill_bytes or 0) > _SPILL_THRESHOLD_BYTES,
        resources.shared_bytes or 0,
        resources.registers or 0,
        trial.config.text,
    )
