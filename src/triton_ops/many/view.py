"""Who follows a run of many problems: a display in the terminal, or a function of the caller's."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from triton_ops._text import gain_text
from triton_ops.many.events import Ended, Follows
from triton_ops.many.executor import Job
from triton_ops.progress.bar import best_text
from triton_ops.progress.events import Listener, RunPlan, RunProgress
from triton_ops.progress.events import Silent as SilentListener
from triton_ops.trial import Trial, TuningResult

_log = logging.getLogger("triton_ops")


class Silent:
    """Follows a run, and shows nothing but warnings."""

    def listener(self, job: Job) -> Listener:  # noqa: ARG002 - the role's signature
        """Nobody follows single trials."""
        return SilentListener()

    def ended(self, ended: Ended) -> None:
        """The job is not shown."""

    def lost(self, device: str, why: BaseException) -> None:
        """Warn."""
        _log.warning("%s is lost, and what it measured goes on elsewhere: %s", device, why)


class Tells:
    """Follows a run with another follower, and calls a function with each job that has ended.

    Args:
        shown: The other follower.
        told: The function.
    """

    def __init__(self, shown: Follows, told: Callable[[Ended], object]) -> None:
        self._shown, self._told = shown, told

    def listener(self, job: Job) -> Listener:
        """The other's listener."""
        return self._shown.listener(job)

    def ended(self, ended: Ended) -> None:
        """Tell both."""
        self._shown.ended(ended)
        self._told(ended)

    def lost(self, device: str, why: BaseException) -> None:
        """Tell the other."""
        self._shown.lost(device, why)


@contextmanager
def display(problems: int, console: Console | None = None) -> Iterator[Follows]:
    """A display on stderr while the block runs: a line for each problem that has ended, and below them a bar.

    The bar shows how many problems have ended, with a line for each one that is being measured. It is drawn on a
    terminal only; elsewhere nothing is written.

    Args:
        problems: The number of problems.
        console: Where it is drawn; None is stderr.
    """
    console = console or Console(file=sys.stderr)
    if not console.is_terminal:
        yield Silent()
        return
    columns = (
        TextColumn("{task.fields[said]}", markup=False), BarColumn(bar_width=16),
        TextColumn("{task.fields[best]}", markup=False), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        yield Display(progress, problems)


class Display:
    """Draws a run of many problems in a terminal.

    Args:
        progress: What draws.
        problems: The number of problems.
    """

    def __init__(self, progress: Progress, problems: int) -> None:
        self._progress, self._problems = progress, problems
        self._ended = self._failed = 0
        self._whole = progress.add_task("", total=problems, said=self._said(), best="")

    def listener(self, job: Job) -> Listener:
        """A line for the job while it is measured."""
        return _Line(self._progress, job.label)

    def ended(self, ended: Ended) -> None:
        """Write what became of a job, and move the bar."""
        self._ended += 1
        self._failed += ended.status == "failed"
        self._progress.console.print(ended_text(ended), markup=False, highlight=False)
        self._progress.update(self._whole, completed=self._ended, said=self._said())

    def lost(self, device: str, why: BaseException) -> None:
        """Write that a device is gone."""
        self._progress.console.print(f"{device} is lost: {why}", markup=False, highlight=False)

    def _said(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._ended}/{self._problems} problems{failed}"


class _Line:
    """The line of one problem while it is measured."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label
        self._task: TaskID | None = None

    def started(self, plan: RunPlan) -> None:
        """Draw the line."""
        self._task = self._progress.add_task("", total=None, said=self._text(plan.resumed), best="")

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        """Count a trial."""
        if self._task is not None:
            self._progress.update(self._task, said=self._text(progress.trials), best=best_text(progress))

    def ended(self, result: TuningResult | None) -> None:  # noqa: ARG002 - the role's signature
        """Remove the line."""
        if self._task is not None:
            self._progress.remove_task(self._task)

    def _text(self, trials: int) -> str:
        return f"{self._label}: {trials} trials"


def ended_text(ended: Ended) -> str:
    """What became of a job in one line."""
    if ended.error is not None and ended.status == "failed":
        return f"failed       {ended.job.label}: {str(ended.error).splitlines()[0] if str(ended.error) else 'error'}"
    result = ended.result
    if result is None:
        return f"{ended.status:12} {ended.job.label}"
    gain = "" if result.gain is None else f", {gain_text(result.gain, result.gain_interval)}"
    gain = ", unproven" if result.unproven else gain
    took = "" if result.from_cache else f", {ended.ended_s - ended.began_s:.1f} s"
    return f"{ended.status:12} {ended.job.label}: {result.metrics.latency_ms:.4g} ms{gain}{took}"
