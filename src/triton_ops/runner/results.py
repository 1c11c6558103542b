"""The result for the caller and the record for the store, made from trials."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

import msgspec

from triton_ops._optional import available
from triton_ops.cache import Key, Limits, Record, Timing, Verified
from triton_ops.evaluation.finals import Outcome
from triton_ops.evaluation.station import StationFacts
from triton_ops.exceptions import TuningFailedError
from triton_ops.hardware import DeviceSpec
from triton_ops.measure.guard import GuardSummary
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.task.request import TuneRequest
from triton_ops.task.task import Task
from triton_ops.trial import KernelMetrics, Measurement, Resources, Status, Trial, TuningResult, Work, totals

_LISTED_FAILURES = 3
_COMPARED_PACKAGES = ("torch", "triton")


def metrics_of(found: Measurement | Timing, work: Work | None, device: DeviceSpec) -> KernelMetrics:
    """The speed of a config; rates are 0 if the work or the device's peak is not known."""
    latency_ms = found.median_ms
    if work is None or latency_ms <= 0:
        return KernelMetrics(latency_ms, p20_ms=found.p20_ms, p80_ms=found.p80_ms)
    gbps = work.gbps(latency_ms)
    share = 100 * gbps / device.bandwidth_gbps if device.bandwidth_gbps else 0.0
    return KernelMetrics(latency_ms, work.tflops(latency_ms), gbps, share, p20_ms=found.p20_ms, p80_ms=found.p80_ms)


def result_of(
    task: Task, outcome: Outcome, default: Config, stopped: str, elapsed_s: float, facts: StationFacts
) -> TuningResult:
    """The result that `tune` returns after a search.

    Raises:
        TuningFailedError: The outcome has no winner.
    """
    winner = outcome.winner
    if winner is None:
        raise failed(task, outcome.trials)
    guard = outcome.guard or GuardSummary(guarded=False, reason="nothing was compared")
    return TuningResult(
        best_config=dict(winner.config),
        metrics=metrics_of(winner.best_measurement, task.work, task.device),
        all_results=[(dict(t.config), metrics_of(t.best_measurement, task.work, task.device)) for t in _ok(outcome)],
        problem_size=task.problem.label,
        device=task.device.name,
        trials=outcome.trials,
        default=next((trial for trial in outcome.trials if trial.config == default), None),
        ties=outcome.ties,
        noise=outcome.noise,
        speedup=outcome.gain.centre if outcome.gain else None,
        gain_interval=(outcome.gain.low, outcome.gain.high) if outcome.gain else None,
        confidence=guard.confidence_reason if guard.confidence == "low" else outcome.confidence,
        guard=msgspec.to_builtins(guard),
        stopped=stopped,
        elapsed_s=elapsed_s,
        place=facts.place,
        verified=facts.against,
        notes=facts.notes,
        waited_s=round(facts.waited_s, 3),
        mode=winner.best_measurement.mode,
        totals=totals(outcome.trials),
        winner=winner,
    )


def _ok(outcome: Outcome) -> list[Trial]:
    return [trial for trial in outcome.trials if trial.ok]


def record_of(
    key: Key, result: TuningResult, winner: Trial, effort: Effort, *, space: str, reference: str | None = None
) -> Record:
    """The record of a finished tune.

    Args:
        key: Kernel, problem, device and cache state for which the winner holds.
        result: The result that the caller gets.
        winner: The winner's trial.
        effort: The effort of the search.
        space: Fingerprint of the config space.
        reference: Fingerprint of the reference with which results were compared; None if there was none.
    """
    default = result.default if result.default is not None and result.default.ok else None
    return Record(
        key=key,
        winner=dict(winner.config),
        timing=timing(winner.best_measurement),
        mode=result.mode,
        default=dict(default.config) if default else None,
        default_timing=timing(default.best_measurement) if default else None,
        ties=tuple(dict(config) for config in result.ties),
        noise=result.noise,
        speedup=result.speedup,
        gain_interval=result.gain_interval,
        confidence=result.confidence,
        guard=result.guard,
        resources=winner.resources,
        space=space,
        effort=effort.name,
        search=effort.search_name,
        budget=Limits(effort.budget.trials, effort.budget.seconds),
        stopped=result.stopped,
        totals=result.totals,
        elapsed_s=round(result.elapsed_s, 3),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=versions(),
        run=result.run,
        verified=Verified(result.verified, reference),
        place=result.place,
        notes=result.notes,
        waited_s=result.waited_s,
    )


def result_from(record: Record, request: TuneRequest, elapsed_s: float) -> TuningResult:
    """The result that `tune` returns when the winner is known: that of the tune that found it, without its trials."""
    default = None
    if record.default is not None and record.default_timing is not None:
        default = _recalled(Config.from_json(record.default), record.default_timing, record.mode)
    return TuningResult(
        best_config=dict(record.config),
        metrics=metrics_of(record.timing, request.work, request.device),
        problem_size=request.problem.label,
        device=request.device.name,
        from_cache=True,
        default=default,
        ties=tuple(Config.from_json(config) for config in record.ties),
        noise=record.noise,
        speedup=record.speedup,
        gain_interval=record.gain_interval,
        confidence=record.confidence,
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
        winner=_recalled(record.config, record.timing, record.mode, record.resources),
    )


def _recalled(config: Config, found: Timing, mode: str, resources: Resources | None = None) -> Trial:
    """A trial with the three times that a record keeps, and the winner's resources."""
    times = Measurement((found.p20_ms, found.median_ms, found.p80_ms), mode)
    return Trial(config, Status.OK, times, resources=resources)


def timing(found: Measurement) -> Timing:
    """The part of a measurement that a record keeps."""
    return Timing(found.median_ms, found.p20_ms, found.p80_ms, len(found.samples_ms))


def failed(task: Task, trials: Sequence[Trial]) -> TuningFailedError:
    """The error for a tune in which no config ran, with the reason for every config."""
    failures = [(dict(trial.config), f"{trial.status}: {trial.error}") for trial in trials]
    shown = "; ".join(f"({Config(config)}) {reason}" for config, reason in failures[:_LISTED_FAILURES])
    more = f"; and {len(failures) - _LISTED_FAILURES} more" if len(failures) > _LISTED_FAILURES else ""
    return TuningFailedError(
        f"none of {len(failures)} configs of {task.problem} ran: {shown}{more}",
        task.problem.label,
        len(failures),
        failures[-1][1] if failures else None,
        failures,
        hint="every reason is in the error's `failures`; -v prints them",
    )


@lru_cache(maxsize=1)
def _versions() -> Mapping[str, str]:
    found: dict[str, Any] = {"python": platform.python_version()}
    for name in ("triton-ops", *_COMPARED_PACKAGES):
        if name == "triton-ops" or available(name):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:  # the package runs from a source tree and is not installed
                continue
    return found


def versions() -> dict[str, str]:
    """Versions of Python, this package, torch and Triton."""
    return dict(_versions())


def trials_json(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Trials as plain JSON values: config, status, error, median, spread, resources."""
    return [
        {
            "config": dict(trial.config),
            "status": trial.status.value,
            "error": trial.error,
            "median_ms": trial.median_ms if trial.ok else None,
            "spread": trial.best_measurement.spread if trial.ok else None,
            "final": trial.final is not None,
            "compile_s": trial.compile_s,
            "resources": None if trial.resources is None else msgspec.to_builtins(trial.resources),
            "same_code_as": None if trial.same_code_as is None else dict(trial.same_code_as),
        }
        for trial in trials
    ]


def result_json(result: TuningResult) -> dict[str, Any]:
    """A result as plain JSON values, without its trials."""
    return {
        "best_config": result.best_config,
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
    }
