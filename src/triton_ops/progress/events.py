"""The events of a run, and the role of a listener. A listener does not change the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from triton_ops.exceptions import SettingsError
from triton_ops.problem import Problem
from triton_ops.space import SpaceSize
from triton_ops.task.budget import Budget
from triton_ops.trial import Trial, TuningResult


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The plan of a run, which a listener gets before any work.

    Attributes:
        problem: The problem that is tuned.
        size: Configs before and after the constraints.
        search: The searcher's name.
        budget: The limits of the search.
        device: The device on which the run takes place.
        resumed: The number of trials that were taken over from an interrupted run.
        isolated: Whether candidates are meant to run in a process of their own.
        log: The run log; None if none is kept.
    """

    problem: Problem
    size: SpaceSize
    search: str
    budget: Budget
    device: str
    resumed: int = 0
    isolated: bool = False
    log: Path | None = None


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run after a trial.

    Attributes:
        trials: The number of finished trials, failures included.
        best: The fastest trial so far; None until a config ran.
        default: The default config's trial; None if it failed or has not finished.
        elapsed_s: Seconds since the start.
        failed: How many of the trials failed.
    """

    trials: int
    best: Trial | None
    default: Trial | None
    elapsed_s: float
    failed: int = 0

    @property
    def gain(self) -> float | None:
        """The default's time over the best's so far, by screening; None while one of them is missing."""
        if self.best is None or self.default is None or self.best.median_ms <= 0:
            return None
        return self.default.median_ms / self.best.median_ms


class Listener(Protocol):
    """The role of whoever follows a run, such as a progress bar."""

    def started(self, plan: RunPlan) -> None:
        """The run starts; called before any work."""

    def tried(self, trial: Trial, progress: RunProgress) -> None:
        """A trial has finished."""

    def ended(self, result: TuningResult | None) -> None:
        """The run has ended, even by an exception; `result` is None if there is none."""


def checked_listener(listener: Any) -> Listener | None:
    """The listener, or None for None.

    Raises:
        SettingsError: It lacks a method of the role.
    """
    methods = ("started", "tried", "ended")
    if listener is not None and (
        isinstance(listener, type) or not all(callable(getattr(listener, method, None)) for method in methods)
    ):
        raise SettingsError(
            f"listener is {listener!r}; it must be an object with the methods {', '.join(methods)}",
            hint="leave it out for a progress bar; triton_ops.progress.events.Silent() shows nothing",
        )
    found: Listener | None = listener
    return found


class Silent:
    """A listener that shows nothing."""

    def started(self, plan: RunPlan) -> None:
        """The plan is not shown."""

    def tried(self, trial: Trial, progress: RunProgress) -> None:
        """The trial is not shown."""

    def ended(self, result: TuningResult | None) -> None:
        """The result is not shown."""
