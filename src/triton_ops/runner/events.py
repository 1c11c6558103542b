"""What a run tells while it goes on. Listeners watch; nothing they do changes the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from triton_ops.space import SpaceSize
from triton_ops.task.budget import Budget
from triton_ops.trial import Problem, Trial, TuningResult


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run is going to do, told before any work.

    Attributes:
        problem: What is tuned for.
        size: Configs before and after the constraints.
        search: The searcher's name.
        budget: Its limits.
        device: Where it runs.
        resumed: Trials taken over from an interrupted run.
        isolated: Whether candidates are meant to run in a process of their own.
    """

    problem: Problem
    size: SpaceSize
    search: str
    budget: Budget
    device: str
    resumed: int = 0
    isolated: bool = False


@dataclass(frozen=True)
class Standing:
    """Where a run is after a trial.

    Attributes:
        trials: Finished, failures included.
        best: The fastest so far; None while nothing ran.
        default: The default config's trial; None if it failed or is still to come.
        elapsed_s: Since the start.
    """

    trials: int
    best: Trial | None
    default: Trial | None
    elapsed_s: float

    @property
    def gain(self) -> float | None:
        """The default's time over the best's so far, by screening; None while one of them is missing."""
        if self.best is None or self.default is None or self.best.median_ms <= 0:
            return None
        return self.default.median_ms / self.best.median_ms


class Listener(Protocol):
    """Hears of a run."""

    def started(self, plan: RunPlan) -> None:
        """Before any work."""

    def tried(self, trial: Trial, standing: Standing) -> None:
        """After each trial."""

    def ended(self, result: TuningResult | None) -> None:
        """At the end, on every path; None if there is no result."""


class Silent:
    """A listener that says nothing."""

    def started(self, plan: RunPlan) -> None:
        """The plan is not shown."""

    def tried(self, trial: Trial, standing: Standing) -> None:
        """The trial is not shown."""

    def ended(self, result: TuningResult | None) -> None:
        """The result is not shown."""
