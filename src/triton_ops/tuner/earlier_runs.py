"""Earlier runs of a problem: one to resume, or trials to take over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triton_ops.records import Record, Run, Runs
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Trial


@dataclass(frozen=True, kw_only=True)
class Before:
    """The legacy of earlier runs.

    Attributes:
        unfinished: The interrupted run that is resumed; None if there is none.
        trials: The finished trials that are not repeated.
        further: How many trials a limit of trials does not count: those of the undecided tunes before.
        tunes: How many tunes have led to the undecided record that is gone on with; 0 without one.
    """

    unfinished: Run | None = None
    trials: tuple[Trial, ...] = ()
    further: int = 0
    tunes: int = 0

    @property
    def taken_over(self) -> tuple[Trial, ...]:
        """The trials that a new run takes over."""
        return self.trials if self.unfinished is None else ()


def left_before(runs: Runs, record: Record | None, space: ConfigSpace, default: Config, effort: str) -> Before:
    """The legacy of earlier runs of a problem to a tune of a space.

    That is the first of these: an interrupted run, with its trials; the trials of the run whose record is undecided;
    and those of a run over another space, since a config that joins a list is then the only one that is tried.

    `record` is that of the problem in this space; None if there is none, or if it does not count. The space decides
    which trials still hold, whose times are relative to that of the default config.
    """
    undecided = record if record is not None and record.goes_on and record.default == default else None
    own = None if undecided is None else runs.run(undecided.run)
    further, tunes = 0 if own is None else len(own.trials), 0 if undecided is None else undecided.tunes
    unfinished = runs.unfinished(space.fingerprint)
    run = unfinished or own or _of_another_space(runs, space, default, effort)
    before = () if run is None else _believed(run.trials.values(), space, default)
    return Before(unfinished=unfinished, trials=before, further=further, tunes=tunes)


def _of_another_space(runs: Runs, space: ConfigSpace, default: Config, effort: str) -> Run | None:
    """The last run, if it searched another space with this default."""
    run = runs.of_another_space(space.fingerprint, effort)
    own = None if run is None else run.trials.get(default)
    return run if own is not None and own.ok else None


def _believed(trials: Iterable[Trial], space: ConfigSpace, default: Config) -> tuple[Trial, ...]:
    """The trials of configs that the space still allows.

    A failure counts where another config has run, and never the default's: no file makes a tune fail.
    """
    allowed = [trial for trial in trials if space.why_not(trial.config) is None]
    ran = any(trial.ok for trial in allowed)
    return tuple(trial for trial in allowed if trial.ok or (ran and trial.config != default))
