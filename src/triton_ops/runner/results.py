"""From trials to what the caller gets, and to what is remembered."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec

from triton_ops._optional import available
from triton_ops.cache import Key, Limits, Record, Timing
from triton_ops.evaluation.finals import Outcome
from triton_ops.evaluation.station import Facts
from triton_ops.exceptions import TuningFailedError
from triton_ops.hardware import DeviceSpec
from triton_ops.measure.guard import GuardSummary
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.task.task import Task
from triton_ops.trial import KernelMetrics, Measurement, Status, Trial, TuningResult, Work, totals

_LISTED_FAILURES = 3
_COMPARED_PACKAGES = ("torch", "triton")


def metrics_of(found: Measurement | Timing, work: Work | None, device: DeviceSpec) -> KernelMetrics:
    """Speed of a config; 0 where the work or the device's peak is not known."""
    latency_ms = found.median_ms
    if work is None or latency_ms <= 0:
        return KernelMetrics(latency_ms, p20_ms=found.p20_ms, p80_ms=found.p80_ms)
    gbps = work.gbps(latency_ms)
    share = 100 * gbps / device.bandwidth_gbps if device.bandwidth_gbps else 0.0
    return KernelMetrics(latency_ms, work.tflops(latency_ms), gbps, share, found.p20_ms, found.p80_ms)


def result_of(
    task: Task, outcome: Outcome, default: Config, stopped: str, elapsed_s: float, facts: Facts
) -> TuningResult:
    """What `tune` returns after a search.

    Raises:
        TuningFailedError: The outcome has no winner.
    """
    winner = outcome.winner
    if winner is None:
        raise failed(task, outcome.trials)
    guard = outcome.guard or GuardSummary(False, "nothing was compared")
    by_config = {trial.config: trial for trial in outcome.trials}
    return TuningResult(
        dict(winner.config),
        metrics_of(winner.best_measurement, task.work, task.device),
        [(dict(t.config), metrics_of(t.best_measurement, task.work, task.device)) for t in outcome.trials if t.ok],
        task.problem.label,
        task.device.name,
        trials=outcome.trials,
        default=by_config.get(default),
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
    )


def record_of(task: Task, key: Key, result: TuningResult, effort: Effort) -> Record:
    """What a finished tune leaves behind."""
    winner = next(trial for trial in result.trials if dict(trial.config) == result.best_config)
    default = result.default if result.default is not None and result.default.ok else None
    return Record(
        key,
        result.best_config,
        timing(winner.best_measurement),
        dict(default.config) if default else None,
        timing(default.best_measurement) if default else None,
        tuple(dict(config) for config in result.ties),
        result.noise,
        result.speedup,
        result.gain_interval,
        result.confidence,
        result.guard,
        winner.resources,
        task.space.fingerprint,
        effort.name,
        effort.search,
        Limits(effort.budget.trials, effort.budget.seconds),
        result.stopped,
        totals(result.trials),
        round(result.elapsed_s, 3),
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions(),
    )


def result_from(record: Record, task: Task, elapsed_s: float) -> TuningResult:
    """What `tune` returns when the winner is known; nothing was measured."""
    default = None
    if record.default is not None and record.default_timing is not None:
        found = record.default_timing
        measured = Measurement((found.p20_ms, found.median_ms, found.p80_ms), record.key.mode)
        default = Trial(Config.from_json(record.default), Status.OK, measured)
    return TuningResult(
        dict(record.config),
        metrics_of(record.timing, task.work, task.device),
        [],
        task.problem.label,
        task.device.name,
        from_cache=True,
        default=default,
        ties=tuple(Config.from_json(config) for config in record.ties),
        noise=record.noise,
        speedup=record.speedup,
        gain_interval=record.gain_interval,
        confidence=record.confidence,
        guard=record.guard,
        stopped="cached",
        elapsed_s=elapsed_s,
    )


def timing(found: Measurement) -> Timing:
    """The figures of a measurement that a record keeps."""
    return Timing(found.median_ms, found.p20_ms, found.p80_ms, len(found.samples_ms))


def failed(task: Task, trials: Sequence[Trial]) -> TuningFailedError:
    """The error for a tune in which nothing ran: every config with its reason."""
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


def versions() -> dict[str, str]:
    """Versions of Python, this package, and the packages that decide how fast a kernel is."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for name in ("triton-ops", *_COMPARED_PACKAGES):
        if name == "triton-ops" or available(name):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
                continue
    return found


def result_json(result: TuningResult) -> dict[str, Any]:
    """A result as plain JSON values."""
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
        "totals": totals(result.trials),
    }
