"""A progress bar on stderr: trials done, the best so far and its gain over the default, time left."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from triton_ops.runner.events import Plan, Standing
from triton_ops.trial import Trial, TuningResult


class ProgressBar:
    """A listener that draws; silent when stderr is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr)
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def started(self, plan: Plan) -> None:
        """Show what is going to be done, and the empty bar."""
        if not self._console.is_terminal:
            return
        self._console.print(f"[bold]{plan.problem}[/bold] on {plan.device}: {plan.size}; search {plan.search}")
        if plan.resumed:
            self._console.print(f"going on with {plan.resumed} trials of an interrupted run")
        limits = [limit for limit in (plan.budget.trials, plan.size.valid) if limit is not None]
        columns = (
            TextColumn("{task.completed}/{task.total} trials"), BarColumn(bar_width=24),
            TextColumn("{task.fields[best]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("", total=min(limits), best="", completed=0)
        self._progress.start()

    def tried(self, trial: Trial, standing: Standing) -> None:  # noqa: ARG002 - the role's signature
        """Move the bar."""
        if self._progress is not None:
            self._progress.update(self._task, completed=standing.trials, best=_best(standing))

    def ended(self, result: TuningResult | None) -> None:  # noqa: ARG002 - the role's signature
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _best(standing: Standing) -> str:
    if standing.best is None:
        return "nothing ran yet"
    gain = standing.gain
    over = "" if gain is None else f" ({gain:.2f}x the default)"
    return f"best {standing.best.median_ms:.4g} ms{over}"
