"""Rankings as the page shows them: plain JSON values, with texts as a terminal has them and figures to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from triton_ops.compilation import drawn
from triton_ops.device import Machine
from triton_ops.lab.simulator.advice import advice, reasons
from triton_ops.lab.simulator.one_tunable import ShapePoint
from triton_ops.lab.simulator.places import Standing
from triton_ops.lab.simulator.recorded import Overlay
from triton_ops.lab.simulator.simulation import Simulation
from triton_ops.space import Config

SHOWN = 50  # places of one ranking in a file, which has many rankings
_TERMS = 8  # resources in the drawing of one config


def ranking(simulation: Simulation, config: str = "", most: int = SHOWN) -> dict[str, Any]:
    """A simulation: its first places, the knobs and the pipeline of one config, and the configs at other shapes.

    Args:
        simulation: The simulation.
        config: The config whose knobs are turned, as `config_text` has it; otherwise it is the winner.
        most: Number of places.
    """
    standings = simulation.standings
    subject = next((one for one in standings if one.text == config), standings[0])
    return {
        "note": f"{simulation.workload.sides}.",
        "advice": simulation.advice,
        "count": len(standings),
        "rows": [_row(one, simulation.machine) for one in standings[:most]],
        "chosen": subject.text,
        "stages": subject.stages,
        "knobs": [_brief(asdict(dial)) for dial in simulation.dials_of(subject)],
        "pipeline": _pipeline(subject),
        "compared": simulation.compared_texts,
        "shapes": {
            extent: _shapes(simulation.over(extent), axis) for axis, extent in enumerate(simulation.workload.extents)
        },
    }


def recorded_ranking(overlay: Overlay, most: int = SHOWN) -> dict[str, Any]:
    """A recording laid over the prediction: the first places with both times, and every config as a point."""
    places = {ms: place for place, ms in reversed(list(enumerate(sorted(overlay.measured_ms), 1)))}
    rows = [
        {**_row(one, overlay.machine), "measured": _measured(overlay.measured[Config(one.config)], places)}
        for one in overlay.standings[:most]
    ]
    points = [
        [expected, ms]
        for expected, ms in zip(overlay.expected_ms, overlay.measured_ms, strict=True)
        if math.isfinite(expected)
    ]
    winner = overlay.standings[0]
    return {
        "file": overlay.file,
        "title": overlay.title,
        "note": f"Recorded in {overlay.file}; {overlay.failed} further configs did not run.",
        "advice": advice(overlay.standings, ""),
        "agreement": f"{overlay.title} on {overlay.device}. {overlay.agreement}",
        "figures": [
            str(len(overlay.configs)), f"{overlay.spearman:.3f}", str(overlay.floor), overlay.verdict,
            f"{overlay.first_share:.0%}",
        ],
        "count": len(overlay.standings),
        "rows": rows,
        "chosen": winner.text,
        "stages": winner.stages,
        "knobs": [],
        "pipeline": _pipeline(winner),
        "points": _brief(points),
        "shapes": {},
    }  # fmt: skip


def _row(one: Standing, machine: Machine) -> dict[str, Any]:
    terms = [] if one.forecast is None or one.why_not else one.forecast.terms[:_TERMS]
    return {
        "place": one.place,
        "config": one.text,
        "cells": one.cells,
        "score": _brief(one.score),
        "reasons": reasons(one, machine),
        "terms": [[term.name, _brief(term.alone_ms)] for term in terms],
    }


def _measured(ms: float, places: dict[float, int]) -> list[str]:
    return [f"{ms:.4g} ms", str(places[ms])]


def _pipeline(one: Standing) -> list[dict[str, Any]]:
    return [{"stages": line.stages, "busy": f"{line.busy:.0%}", "lines": drawn(line)} for line in one.timelines]


def _shapes(points: Sequence[ShapePoint], axis: int) -> dict[str, Any]:
    return {
        "extents": [point.extents[axis] for point in points],
        "winners": [point.winner for point in points],
        "slower": [[round(slower, 2) for slower in point.slower] for point in points],
    }


def _brief(value: Any) -> Any:
    """Numbers with five significant digits, as long as a drawing can tell, also those within dicts and lists."""
    if isinstance(value, dict):
        return {name: _brief(content) for name, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [_brief(content) for content in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
