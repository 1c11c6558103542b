"""Words of a run for its caller: events for a listener, its record, its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from triton_ops.base import Host, bar_console, escaped, require
from triton_ops.device import DeviceSpec
from triton_ops.evaluation import Outcome, StationFacts
from triton_ops.exceptions import DeviceError, SettingsError, TuningFailedError
from triton_ops.records import NotedCall, Record, Timing, time_now
from triton_ops.request import Budget, Effort, TuneRequest
from triton_ops.space import Config, SpaceSize
from triton_ops.timing import GuardSummary
from triton_ops.values import KernelMetrics, Key, Measurement, Problem, Resources, Status, Trial, TuningResult, Work

_FAILED = frozenset(status.value for status in Status if status is not Status.OK)
_LISTED_FAILURES = 3


def metrics_of(times: Measurement | Timing, work: Work | None, device: DeviceSpec) -> KernelMetrics:
    """The speed of a config; rates are 0 if the work or the device's peak is not known."""
    latency_ms = times.median_ms
    if work is None or latency_ms <= 0:
        return KernelMetrics(latency_ms, p20_ms=times.p20_ms, p80_ms=times.p80_ms)
    gbps = work.gbps(latency_ms)
    share = 100 * gbps / device.bandwidth_gbps if device.bandwidth_gbps else 0.0
    return KernelMetrics(latency_ms, work.tflops(latency_ms), gbps, share, p20_ms=times.p20_ms, p80_ms=times.p80_ms)


def record_of(
    key: Key, request: TuneRequest, effort: Effort, outcome: Outcome, facts: StationFacts, *, default: Config,
    stopped: str, elapsed_s: float, run: str = "", notes: Sequence[str] = (), call: NotedCall | str | None = None,
    tunes: int = 1,
) -> Record:  # fmt: skip
    """The record of a finished tune; a `TuningFailedError` if its outcome has no winner.

    `elapsed_s` are wall seconds, of a tune in a list from when the device was its own; `notes` are remarks beside those
    of the station; `call` is the call of a decorated kernel or why it cannot be made again; `tunes` counts the tunes of
    which each went on with the one before.
    """
    if (winner := outcome.winner) is None:
        raise failed(request, outcome.trials)
    guard = outcome.guard or GuardSummary(guarded=False, reason="nothing was compared")
    untuned = next((trial for trial in outcome.trials if trial.config == default and trial.ok), None)
    return Record(
        key=key, winner=winner.config, timing=Timing.of(winner.best_measurement), mode=winner.best_measurement.mode,
        default=default, default_timing=Timing.of(untuned.best_measurement) if untuned else None, ties=outcome.ties,
        noise=outcome.noise, raced_gain=outcome.gain.centre if outcome.gain else None,
        gain_interval=(outcome.gain.low, outcome.gain.high) if outcome.gain else None,
        confidence=guard.confidence_reason if guard.confidence == "low" and outcome.compared else outcome.confidence,
        guard=msgspec.json.decode(msgspec.json.encode(guard)),  # with lists, as a record that is read has them
        resources=winner.resources, space=request.space.fingerprint, stopped=stopped, elapsed_s=round(elapsed_s, 3),
        created=time_now(), versions=Host.versions(), run=run,
        place=facts.place, notes=(*facts.notes, *notes), waited_s=round(facts.waited_s, 3), call=call, tunes=tunes,
    ).with_tune(effort, outcome.trials, facts.against, request.reference_fingerprint or None).with_contents(
        request.contents_fingerprint, outcome.contents
    )  # fmt: skip


def result_of(
    record: Record, request: TuneRequest, elapsed_s: float, trials: Sequence[Trial] = (), *, stored: bool = True
) -> TuningResult:
    """The result that `tune` returns, whether its record is new or was recalled.

    A recalled record has no `trials`: it keeps only the times of the winner and of the default. `elapsed_s` are wall
    seconds of this call. `best_config` and `all_results` hold the members of an `Enum`. `stored` says whether later
    calls find the record.
    """
    work, device, members = request.work, request.device, request.space.members
    by_config: dict[Config | None, Trial] = {trial.config: trial for trial in trials}
    winner, default = by_config.get(record.winner), by_config.get(record.default)
    if not trials:
        winner = _recalled(record.winner, record.timing, record.mode, record.resources)
        default = _recalled(record.default, record.default_timing, record.mode)
    failures = tuple(Trial(f.config, Status(f.status), error=f.error) for f in record.failures if f.status in _FAILED)
    return TuningResult(
        best_config=dict(record.winner.with_members(members)), metrics=metrics_of(record.timing, work, device),
        all_results=[
            (dict(t.config.with_members(members)), metrics_of(t.best_measurement, work, device)) for t in trials if t.ok
        ],
        problem_size=request.problem.label, device=device.name, from_cache=not trials, trials=tuple(trials),
        default=default, unproven=record.unproven, elapsed_s=elapsed_s, verified=record.verified.against, winner=winner,
        recalled_failures=() if trials else failures, record=record.id if stored else "",
        contents=record.contents[1] if record.contents else (), **record.shared,
    )  # fmt: skip


def _recalled(
    config: Config | None, timing: Timing | None, mode: str, resources: Resources | None = None
) -> Trial | None:
    if config is None or timing is None:
        return None
    # three samples, whose quantiles are those that the record keeps
    times = Measurement((timing.p20_ms, timing.median_ms, timing.p80_ms), mode)
    return Trial(config, Status.OK, times, resources=resources)


def failed(
    request: TuneRequest, trials: Sequence[Trial], doubts: Sequence[str] = (), suspicion: str = ""
) -> TuningFailedError:
    """The error for a tune without a winner: a suspicion, the reason for every config, and a doubt as its hint."""
    failures = [(dict(trial.config), f"{trial.status}: {trial.error}") for trial in trials]
    reasons = "; ".join(f"({Config(config)}) {reason}" for config, reason in failures[:_LISTED_FAILURES])
    more = f"; and {len(failures) - _LISTED_FAILURES} more" if len(failures) > _LISTED_FAILURES else ""
    first = f"{suspicion}; " if suspicion else ""
    what = "was right" if any(trial.status is Status.WRONG for trial in trials) else "ran"
    message = f"{first}none of {len(failures)} configs of {request.problem} {what}: {reasons}{more}"
    return TuningFailedError(
        message, request.problem.label, len(failures), failures[-1][1] if failures else None, failures,
        traces=[trial.trace for trial in trials],
        hint=next(iter(doubts), "every reason is in the error's `failures`; `triton-ops -v` prints them, with traces"),
    )  # fmt: skip


def device_error(trials: Mapping[Config, Trial]) -> DeviceError:
    """The error for a tune that ended with the GPU that it ran on, of which the last trial says why."""
    last = list(trials.values())[-1]
    message = f"the GPU cannot be used by this process any more, since config ({last.config}): {last.error}"
    return DeviceError(message, hint="run the same tune again: it goes on after that config")


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
        over = None if self.best is None else self.best.over(self.default)
        return 1 / over if over else None

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
    fits = not isinstance(listener, type) and all(callable(getattr(listener, method, None)) for method in methods)
    if listener is not None and not fits:
        message = f"listener is {listener!r}; it must be an object with the methods {', '.join(methods)}"
        hint = "leave it out for a progress bar; triton_ops.tuner.progress.Silent() shows nothing"
        raise SettingsError(message, hint=hint)
    checked: Listener | None = listener
    return checked


class Silent:
    """A listener that shows nothing."""

    def started(self, *_: Any, **__: Any) -> None:
        """Nothing is shown, neither the plan nor what follows."""

    tried = ended = started


_PURPOSE = "a progress bar"
_SHORTEST_DEVICE = 12  # columns: a shorter name would say nothing, so the line is wrapped instead


class ProgressBar:
    """A listener that draws a progress bar; it draws nothing if stderr is no terminal."""

    def __init__(self, console: Any = None) -> None:
        self._console = bar_console(console)
        self._progress: Any = None
        self._task = 0
        self._plan: RunPlan | None = None

    def started(self, plan: RunPlan) -> None:
        """Show the plan and the empty bar."""
        if self._console is None:
            return
        self._plan = plan
        before, after = f"{plan.problem} on ", f": {plan.size}; search {plan.search}"
        # the device's name is shortened, since what stands after it says more
        room = self._console.width - require("rich.cells", _PURPOSE).cell_len(before + after)
        self._say(f"{before}{_shorten(plan.device, max(room, _SHORTEST_DEVICE))}{after}")
        if plan.resumed:
            self._say(f"going on with {plan.resumed} trials of an earlier run")
        bars = require("rich.progress", _PURPOSE)
        # without markup, since names of kernels and devices may have brackets
        columns = (
            bars.TextColumn("{task.fields[done]}", markup=False), bars.BarColumn(bar_width=16),
            bars.TextColumn("{task.fields[best]}", markup=False), bars.TimeRemainingColumn(compact=True),
            bars.TextColumn("{task.fields[left]}"),
        )  # fmt: skip
        self._progress = bars.Progress(*columns, console=self._console, transient=True)
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

    def _add(self, count_text: str, best: str, total: int | None, completed: int = 0) -> int:
        rest = "" if total is None else "left"
        return int(self._progress.add_task("", total=total, completed=completed, done=count_text, best=best, left=rest))


def _shorten(device: str, columns: int) -> str:
    """`NAME (cuda:0)` in so many columns; only NAME is shortened."""
    cells = require("rich.cells", _PURPOSE)
    if cells.cell_len(device) <= columns:
        return device
    name, _, where = device.rpartition(" ")
    room = columns - cells.cell_len(f"... {where}")
    return f"{cells.set_cell_size(name, max(room, 0)).rstrip()}... {where}"


def _most(plan: RunPlan) -> int:
    return min(limit for limit in (plan.budget.trials, plan.size.valid) if limit is not None)


def _over(plan: RunPlan, progress: RunProgress) -> bool:
    seconds = plan.budget.seconds
    return progress.trials >= _most(plan) or (seconds is not None and progress.elapsed_s >= seconds)
