"""The outcome of the last comparison: who wins, what ties, by how much, and how far that can be relied on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from triton_ops.records import Record
from triton_ops.space import Config
from triton_ops.timing import DuelPolicy, GuardSummary, Interval, Standing
from triton_ops.values import Resources, Trial

_DIFFERENT = "an A/A comparison of one config with itself showed a difference"
_NO_TIME = "the budget left no time to compare the fastest with the default"
_UNTOLD = math.log(1.02)  # a gain that may be larger than this and was not told from noise lowers the confidence


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of the last comparison; the times of the finalists are in their trials.

    `ties` are best first. `noise` is the half-width of a typical 95 % interval, or the difference of a config from its
    twin if that is larger. `gain` is the default's time divided by the winner's, and `itself` the relative difference
    between the two twins, each with its 95 % interval. `confidence` is `ok`, or says why the comparison should not be
    relied on. A finalist was dropped after `dropped_at` rounds; None if it stayed. `twins_ms` are the values of the two
    arms of `twin` in every round, which measure the noise. `elsewhere` has the outcomes of fresh processes.
    `leads_again` tells that the winner for a problem nearby led again, and raced against the default alone. `contents`
    have what is told of each, where there are several, and the times there.
    """

    winner: Trial | None
    ties: tuple[Config, ...]
    noise: float
    gain: Interval | None
    confidence: str
    trials: tuple[Trial, ...]
    itself: Interval | None = None
    guard: GuardSummary | None = None
    dropped_at: tuple[tuple[Config, int | None], ...] = ()
    twin: Config | None = None
    twins_ms: tuple[tuple[float, ...], ...] = ()
    elsewhere: tuple[Outcome, ...] = ()
    leads_again: bool = False
    contents: tuple[tuple[Any, ...], ...] = ()

    @property
    def compared(self) -> bool:
        """True if several configs were compared side by side."""
        return len(self.dropped_at) > 1

    @property
    def told(self) -> bool:
        """False where time ran out before a few rounds could tell whether a config beats the default."""
        rounds = 0 if self.winner is None or self.winner.final is None else self.winner.final.rounds
        few = self.compared and rounds < DuelPolicy.LEAST_ROUNDS
        return self.confidence == "ok" or not (few or self.confidence == _NO_TIME)

    @classmethod
    def of_screenings(cls, trials: Sequence[Trial]) -> Outcome:
        """The outcome without a race: the winner is the config with the fastest screening."""
        running = [trial for trial in trials if trial.ok]
        best = min(running, key=lambda trial: trial.rank, default=None)
        programs = [trial for trial in running if trial.same_code_as is None]
        return cls(
            winner=best, ties=() if best is None else (best.config,), noise=0.0, gain=None,
            confidence=Record.ALONE if len(programs) == 1 else "nothing was raced", trials=tuple(trials),
        )  # fmt: skip


@dataclass(frozen=True)
class Resolution:
    """The answer to a doubt about the challenger of the default: by how much the default is slower, and if for sure."""

    challenger: Config
    faster: bool
    over: Interval


def outcome_of(
    standing: Standing[Config],
    trials: Mapping[Config, Trial],
    itself: Interval | None,
    resolution: Resolution | None = None,
) -> Outcome:
    """The outcome of a race among the configs whose results are right; `itself` is the difference of the twins."""
    decision, default = standing.decision, standing.default
    winner, ties = decision.winner, list(decision.ties)
    over = None if winner == default or not standing.default_ms else standing.gain(winner)
    if resolution is not None and default is not None:
        challenger = resolution.challenger
        winner, over = (challenger, resolution.over) if resolution.faster else (default, None)
        tied = {*ties, challenger, default} if not resolution.faster else {*ties, challenger} - {default}
        ties = [winner, *(config for config in standing.rows_ms if config in tied and config != winner)]
    return Outcome(
        winner=trials[winner],
        ties=tuple(ties),
        noise=max(decision.noise, abs(itself.centre)) if itself else decision.noise,
        gain=None if over is None else over.ratio,
        confidence=_DIFFERENT if itself and itself.disturbed else _confidence(standing, winner, resolution),
        trials=tuple(trials.values()),
        itself=itself,
    )


def _confidence(standing: Standing[Config], winner: Config, resolution: Resolution | None) -> str:
    """`ok`, unless the default stays only because a gain was not told from noise."""
    challenger = standing.challenger
    if winner != standing.default or challenger is None or not standing.default_ms:
        return "ok"
    possible = standing.possible(challenger) if resolution is None else resolution.over
    if possible.high <= _UNTOLD:
        return "ok"
    interval = " to ".join(f"{100 * math.expm1(end):+.1f}" for end in (possible.low, possible.high)) + " %"
    if possible.low > 0 and not possible.counts:
        return f"the default was kept, since ({challenger}) may gain less than counts: {interval}"
    if possible.low > 0:
        return f"the default was kept, since all that ({challenger}) gains may be noise: {interval}"
    return f"the default was kept, since noise hides whether ({challenger}) is faster: {interval}"


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
    processes = [
        Standing(rows_ms={it.config: it.final.rounds_ms if it.final else [it.median_ms] for it in process.trials
                          if it.ok}, default=default)
        for process in (outcome, *elsewhere)
    ]  # fmt: skip
    own, trial_of = processes[0], {trial.config: trial for trial in outcome.trials}
    standing = Standing(
        rows_ms=Standing.levels(processes, tied),
        default=default,
        preference={config: preference(trial_of[config], default, incumbents) for config in tied},
        incumbents=[config for config in incumbents if config in tied and own.beats(config)],
    )
    decision = standing.decision
    over = outcome.gain if outcome.winner is not None and decision.winner == outcome.winner.config else None
    if over is None and decision.winner != default and own.default_ms:
        over = (standing if standing.default_ms else own).gain(decision.winner).ratio
    return replace(
        outcome, winner=trial_of[decision.winner], ties=decision.ties, noise=max(outcome.noise, decision.noise),
        trials=trials, gain=over,
    )  # fmt: skip


def preference(trial: Trial, default: Config, incumbents: Collection[Config]) -> tuple[int | float | str, ...]:
    """The order among ties: incumbents, default, no heavy spills, no limit of registers, less memory, fewer registers.

    Among equals in all that, a smaller p20 comes first, then a smaller p80. The text of the config comes last.
    """
    resources, times = trial.resources or Resources(), trial.best_measurement
    return (
        trial.config not in incumbents,
        trial.config != default,
        resources.wasteful,
        trial.config.get("maxnreg") is not None,
        resources.shared_bytes or 0,
        resources.registers or 0,
        times.p20_ms,
        times.p80_ms,
        trial.config.text,
    )
