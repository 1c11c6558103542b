"""The events of a run, and the role of a listener. A listener does not change the run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Task as ProgressTask
from rich.text import Text

from triton_ops.base import escaped
from triton_ops.exceptions import SettingsError
from triton_ops.request import Budget
from triton_ops.space import SpaceSize
from triton_ops.values import Problem, Trial, TuningResult


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The plan of a run, which a listener gets before any work.

    `resumed` counts the trials taken over from an interrupted run; `isolated` says whether candidates are meant to run
    in a process of their own; `log` is None if no run log is kept.
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
    """The progress of a run after a trial; `best` and `default` are None until they ran, if they do."""

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

    @property
    def best_text(self) -> str:
        """The best time so far in words, with its gain over the default."""
        if self.best is None:
            return "nothing ran yet"
        over = "" if self.gain is None else f" ({self.gain:.2f}x the default)"
        return f"best {self.best.median_ms:.4g} ms{over}"


class Listener(Protocol):
    """The role of whoever follows a run, such as a progress bar."""

    def started(self, plan: RunPlan) -> None:
        """The run starts; called before any work."""

    def tried(self, trial: Trial, progress: RunProgress) -> None:
        """A trial has finished."""

    def ended(self, result: TuningResult | None) -> None:
        """The run has ended, even by an exception; `result` is None if there is none."""


def checked_listener(listener: Any) -> Listener | None:
    """The listener, or None for None; a `SettingsError` if it lacks a method of the role."""
    methods = ("started", "tried", "ended")
    if listener is not None and (
        isinstance(listener, type) or not all(callable(getattr(listener, method, None)) for method in methods)
    ):
        raise SettingsError(
            f"listener is {listener!r}; it must be an object with the methods {', '.join(methods)}",
            hint="leave it out for a progress bar; triton_ops.tuner.progress.Silent() shows nothing",
        )
    checked: Listener | None = listener
    return checked


class Silent:
    """A listener that shows nothing."""

    def started(self, plan: RunPlan) -> None:
        """The plan is not shown."""

    def tried(self, trial: Trial, progress: RunProgress) -> None:
        """The trial is not shown."""

    def ended(self, result: TuningResult | None) -> None:
        """The result is not shown."""


_SHORTEST_DEVICE = 12  # columns: a shorter name would say nothing, so the line is wrapped instead


class ProgressBar:
    """A listener that draws a progress bar; it draws nothing if stderr is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr)
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._plan: RunPlan | None = None

    def started(self, plan: RunPlan) -> None:
        """Show the plan and the empty bar."""
        if not self._console.is_terminal:
            return
        self._plan = plan
        self._say(_announcement(plan, self._console.width))
        if plan.resumed:
            self._say(f"going on with {plan.resumed} trials of an earlier run")
        columns = (
            TextColumn("{task.fields[done]}", markup=False), BarColumn(bar_width=16),
            TextColumn("{task.fields[best]}", markup=False), _Left(compact=True),
        )  # fmt: skip
        self._progress = Progress(*columns, console=self._console, transient=True)
        if plan.resumed >= _most(plan):
            self._compare(plan.resumed, "")
        else:
            self._task = self._add(f"{plan.resumed}/{_most(plan)} trials", "", _most(plan), plan.resumed)
        self._progress.start()

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        """Move the bar; after the last trial of the search, say that the finalists are compared."""
        if self._progress is None or self._plan is None:
            return
        best = progress.best_text
        if _over(self._plan, progress):
            self._progress.update(self._task, visible=False)
            self._compare(progress.trials, best)
        else:
            failed = f", {progress.failed} failed" if progress.failed else ""
            count_text = f"{progress.trials}/{_most(self._plan)} trials{failed}"
            self._progress.update(self._task, completed=progress.trials, done=count_text, best=best)

    def ended(self, result: TuningResult | None) -> None:  # noqa: ARG002 - the role's signature
        """Remove the bar from the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _say(self, text: str) -> None:
        self._console.print(escaped(text), markup=False, highlight=False, soft_wrap=False)

    def _compare(self, trials: int, best: str) -> None:
        """Show that the finalists are compared; since that takes seconds without news, the bar moves by itself."""
        self._task = self._add(f"{trials} trials, comparing the best", best, None)

    def _add(self, count_text: str, best: str, total: int | None, completed: int = 0) -> TaskID:
        assert self._progress is not None
        return self._progress.add_task("", total=total, completed=completed, done=count_text, best=best)


class _Left(TimeRemainingColumn):
    """The column of the time left; empty while there is no total."""

    def render(self, task: ProgressTask) -> Text:
        return Text() if task.total is None else super().render(task) + Text(" left")


def _announcement(plan: RunPlan, columns: int) -> str:
    before, after = f"{plan.problem} on ", f": {plan.size}; search {plan.search}"
    room = columns - cell_len(before) - cell_len(after)
    return f"{before}{_shorten(plan.device, max(room, _SHORTEST_DEVICE))}{after}"


def _shorten(device: str, columns: int) -> str:
    """`NAME (cuda:0)` in so many columns; only NAME is shortened."""
    if cell_len(device) <= columns:
        return device
    name, _, where = device.rpartition(" ")
    room = columns - cell_len(f"... {where}")
    return f"{set_cell_size(name, max(room, 0)).rstrip()}... {where}"


def _most(plan: RunPlan) -> int:
    return min(limit for limit in (plan.budget.trials, plan.size.valid) if limit is not None)


def _over(plan: RunPlan, progress: RunProgress) -> bool:
    seconds = plan.budget.seconds
    return progress.trials >= _most(plan) or (seconds is not None and progress.elapsed_s >= seconds)
