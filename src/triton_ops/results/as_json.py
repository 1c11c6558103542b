"""Results and their trials as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from triton_ops.space import Config
from triton_ops.trial import Trial, TuningResult


def trials_json(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Trials as plain JSON values: config, status, error, median, spread, resources."""
    return [
        {
            "config": dict(trial.config),
            "status": trial.status.value,
            "error": trial.error,
            "trace": trial.trace,
            "median_ms": trial.median_ms if trial.ok else None,
            "spread": trial.best_measurement.spread if trial.ok else None,
            "final": trial.final is not None,
            "compile_s": trial.compile_s,
            "resources": None if trial.resources is None else msgspec.to_builtins(trial.resources),
            "same_code_as": None if trial.same_code_as is None else dict(trial.same_code_as),
            "excess": trial.excess,
        }
        for trial in trials
    ]


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
