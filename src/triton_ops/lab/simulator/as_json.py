"""Simulations and recordings laid over them as plain values, for `--json`."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from triton_ops.device import Machine
from triton_ops.lab.simulator.advice import reasons
from triton_ops.lab.simulator.places import Standing
from triton_ops.lab.simulator.recorded import Overlay
from triton_ops.lab.simulator.simulation import Simulation


def simulation_json(found: Simulation, over: str | None = None) -> dict[str, Any]:
    """A simulation with every config's place and reasons; with `over` also how the configs do along that extent."""
    plain: dict[str, Any] = {
        "workload": found.workload.name,
        "shape": list(found.shape),
        "dtype": found.dtype,
        "device": found.device,
        "source": "model",
        "advice": found.advice,
        "configs": [standing_json(one, found.machine) for one in found.standings],
        "knobs": [asdict(dial) for dial in found.dials],
    }
    if over is not None:
        plain["over"] = {"extent": over, "shapes": [asdict(point) for point in found.over(over)]}
    return plain


def standing_json(one: Standing, machine: Machine) -> dict[str, Any]:
    """One config in a ranking."""
    forecast = one.forecast
    figures = {} if forecast is None else {**asdict(forecast), "terms": {t.name: t.alone_ms for t in forecast.terms}}
    expected_ms = figures.pop("expected_ms", None)
    return {
        "place": one.place or None,
        "config": dict(one.config),
        "expected_ms": expected_ms if expected_ms is not None and math.isfinite(expected_ms) else None,
        "score": one.score,
        "why_not": one.why_not or None,
        "limited_by": one.limited_by,
        "occupancy": one.occupancy,
        "idle": one.idle,
        "of_shared": one.of_shared,
        **figures,
        "reasons": dict(reasons(one, machine)),
    }


def overlay_json(found: Overlay) -> dict[str, Any]:
    """A recording: the correlation, and both times of each config."""
    pairs = zip(found.configs, found.expected_ms, found.measured_ms, strict=True)
    return {
        "file": found.file,
        "title": found.title,
        "device": found.device,
        "source": "inferred" if found.read else "declared",
        "spearman": found.spearman,
        "asked": found.floor,
        "first_share": found.first_share,
        "failed": found.failed,
        "configs": [
            {"config": config, "expected_ms": expected if math.isfinite(expected) else None, "measured_ms": measured}
            for config, expected, measured in pairs
        ],
    }
