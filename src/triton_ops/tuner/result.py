"""The record of a tune, made from the outcome of its last comparison, and the result for the caller, made from it."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

import msgspec

from triton_ops.base import available
from triton_ops.device import DeviceSpec
from triton_ops.evaluation import Outcome, StationFacts
from triton_ops.exceptions import TuningFailedError
from triton_ops.records import NotedCall, Record, Timing, reference_fingerprint
from triton_ops.request import Effort, Task, TuneRequest
from triton_ops.space import Config, Members
from triton_ops.timing import GuardSummary
from triton_ops.values import KernelMetrics, Key, Measurement, Resources, Status, Trial, TuningResult, Work


def result_json(result: TuningResult) -> dict[str, Any]:
    """A result as plain JSON values, without its trials."""
    return {
        "best_config": dict(Config(result.best_config)),
        "metrics": msgspec.to_builtins(result.metrics),
        "problem": result.problem_size,
        "device": result.device,
        "from_cache": result.from_cache,
        "default": None if result.default is None else dict(result.default.config),
        "default_ms": result.default.median_ms if result.default is not None and result.default.ok else None,
        "gain": result.gain,
        "ties": [dict(config) for config in result.ties],
        "noise": result.noise,
        "gain_interval": result.gain_interval,
        "confidence": result.confidence,
        "unproven": result.unproven,
        "guard": result.guard,
        "stopped": result.stopped,
        "elapsed_s": result.elapsed_s,
        "place": result.place,
        "verified": result.verified,
        "notes": list(result.notes),
        "waited_s": result.waited_s,
        "mode": result.mode,
        "run": result.run,
        "totals": result.totals,
        "failures": [
            {"config": dict(trial.config), "status": trial.status.value, "error": trial.error}
            for trial in result.failures
        ],
    }


_FAILED = frozenset(status.value for status in Status if status is not Status.OK)
_LISTED_FAILURES = 3
_COMPARED_PACKAGES = ("torch", "triton")


def metrics_of(times: Measurement | Timing, work: Work | None, device: DeviceSpec) -> KernelMetrics:
    """The speed of a config; rates are 0 if the work or the device's peak is not known."""
    latency_ms = times.median_ms
    if work is None or latency_ms <= 0:
        return KernelMetrics(latency_ms, p20_ms=times.p20_ms, p80_ms=times.p80_ms)
    gbps = work.gbps(latency_ms)
    share = 100 * gbps / device.bandwidth_gbps if device.bandwidth_gbps else 0.0
    return KernelMetrics(latency_ms, work.tflops(latency_ms), gbps, share, p20_ms=times.p20_ms, p80_ms=times.p80_ms)


def record_of(
    key: Key,
    task: Task,
    effort: Effort,
    outcome: Outcome,
    facts: StationFacts,
    *,
    default: Config,
    stopped: str,
    elapsed_s: float,
    run: str = "",
    notes: Sequence[str] = (),
    call: NotedCall | str | None = None,
    tunes: int = 1,
) -> Record:
    """The record of a finished tune; a `TuningFailedError` if its outcome has no winner.

    `elapsed_s` are wall seconds, of a tune in a list from when the device was its own; `notes` are remarks beside those
    of the station; `call` is the call of a decorated kernel or why it cannot be made again; `tunes` counts the tunes of
    which each went on with the one before.
    """
    winner = outcome.winner
    if winner is None:
        raise failed(task, outcome.trials)
    guard = outcome.guard or GuardSummary(guarded=False, reason="nothing was compared")
    untuned = next((trial for trial in outcome.trials if trial.config == default and trial.ok), None)
    return Record(
        key=key,
        winner=winner.config,
        timing=timing(winner.best_measurement),
        mode=winner.best_measurement.mode,
        default=default,
        default_timing=timing(untuned.best_measurement) if untuned else None,
        ties=outcome.ties,
        noise=outcome.noise,
        raced_gain=outcome.gain.centre if outcome.gain else None,
        gain_interval=(outcome.gain.low, outcome.gain.high) if outcome.gain else None,
        confidence=guard.confidence_reason if guard.confidence == "low" and outcome.compared else outcome.confidence,
        guard=msgspec.json.decode(msgspec.json.encode(guard)),  # with lists, as a record that is read has them
        resources=winner.resources,
        space=task.space.fingerprint,
        stopped=stopped,
        elapsed_s=round(elapsed_s, 3),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=versions(),
        run=run,
        place=facts.place,
        notes=(*facts.notes, *notes),
        waited_s=round(facts.waited_s, 3),
        call=call,
        tunes=tunes,
    ).with_tune(effort, outcome.trials, facts.against, reference_fingerprint(task.reference) or None)


def result_of(
    record: Record,
    task: Task | TuneRequest,
    elapsed_s: float,
    trials: Sequence[Trial] = (),
    members: Members | None = None,
    *,
    stored: bool = True,
) -> TuningResult:
    """The result that `tune` returns, whether its record is new or was recalled.

    A recalled record has no `trials`: it keeps only the times of the winner and of the default. `elapsed_s` are wall
    seconds of this call. `best_config` and `all_results` hold the `members` of an `Enum`; None leaves their names.
    `stored` says whether later calls find the record.
    """
    work, device, members = task.work, task.device, members or {}
    by_config: dict[Config | None, Trial] = {trial.config: trial for trial in trials}
    winner, default = by_config.get(record.winner), by_config.get(record.default)
    if not trials:
        winner = _recalled(record.winner, record.timing, record.mode, record.resources)
        default = _recalled(record.default, record.default_timing, record.mode)
    failures = tuple(Trial(f.config, Status(f.status), error=f.error) for f in record.failures if f.status in _FAILED)
    return TuningResult(
        best_config=dict(record.winner.with_members(members)),
        metrics=metrics_of(record.timing, work, device),
        all_results=[
            (dict(t.config.with_members(members)), metrics_of(t.best_measurement, work, device)) for t in trials if t.ok
        ],
        problem_size=task.problem.label,
        device=device.name,
        from_cache=not trials,
        trials=tuple(trials),
        default=default,
        ties=record.ties,
        noise=record.noise,
        raced_gain=record.raced_gain,
        gain_interval=record.gain_interval,
        confidence=record.confidence,
        unproven=record.unproven,
        guard=record.guard,
        stopped=record.stopped,
        elapsed_s=elapsed_s,
        place=record.place,
        verified=record.verified.against,
        notes=record.notes,
        waited_s=record.waited_s,
        mode=record.mode,
        totals=record.totals,
        run=record.run,
        winner=winner,
        recalled_failures=() if trials else failures,
        record=record.id if stored else "",
    )


def _recalled(
    config: Config | None, timing: Timing | None, mode: str, resources: Resources | None = None
) -> Trial | None:
    if config is None or timing is None:
        return None
    times = Measurement((timing.p20_ms, timing.median_ms, timing.p80_ms), mode)
    return Trial(config, Status.OK, times, resources=resources)


def timing(measurement: Measurement) -> Timing:
    """The part of a measurement that a record keeps."""
    return Timing(measurement.median_ms, measurement.p20_ms, measurement.p80_ms, len(measurement.samples_ms))


def failed(task: Task, trials: Sequence[Trial], doubts: Sequence[str] = (), suspicion: str = "") -> TuningFailedError:
    """The error for a tune without a winner: a suspicion, the reason for every config, and a doubt as its hint."""
    failures = [(dict(trial.config), f"{trial.status}: {trial.error}") for trial in trials]
    reasons = "; ".join(f"({Config(config)}) {reason}" for config, reason in failures[:_LISTED_FAILURES])
    more = f"; and {len(failures) - _LISTED_FAILURES} more" if len(failures) > _LISTED_FAILURES else ""
    first = f"{suspicion}; " if suspicion else ""
    what = "was right" if any(trial.status is Status.WRONG for trial in trials) else "ran"
    return TuningFailedError(
        f"{first}none of {len(failures)} configs of {task.problem} {what}: {reasons}{more}",
        task.problem.label,
        len(failures),
        failures[-1][1] if failures else None,
        failures,
        traces=[trial.trace for trial in trials],
        hint=doubts[0] if doubts else "every reason is in the error's `failures`; -v prints them, with traces",
    )


@lru_cache(maxsize=1)
def _versions() -> Mapping[str, str]:
    versions: dict[str, Any] = {"python": platform.python_version()}
    for name in ("triton-ops", *_COMPARED_PACKAGES):
        if name == "triton-ops" or available(name):
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:  # the package runs from a source tree and is not installed
                continue
    return versions


def versions() -> dict[str, str]:
    """Versions of Python, this package, torch and Triton."""
    return dict(_versions())
