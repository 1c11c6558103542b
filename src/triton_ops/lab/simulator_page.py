"""The page: one file with rankings that were calculated when it was made, or a page whose server calculates them.

Its charts are plain SVG made by its own script. A plotting library would add one to four and a half megabytes to every
page for bars and a scatter plot, and has marks that neither a keyboard nor a screen reader reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from triton_ops.base import PageParts, assembled, data_script, json_text, part
from triton_ops.device import Machine
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.lab.recorded_overlay import Overlay
from triton_ops.lab.simulated_ranking import (
    LESSON,
    WORKLOADS,
    PlacedConfig,
    TextbookWorkload,
    advice,
    config_text,
    known_devices,
    reasons,
)
from triton_ops.lab.simulation import (
    LARGEST,
    Simulation,
    SizePoint,
    parse_configs,
    simulate,
    whole_space,
    workload_named,
)
from triton_ops.lab.stage_timelines import drawn
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


def _row(one: PlacedConfig, machine: Machine) -> dict[str, Any]:
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


def _pipeline(one: PlacedConfig) -> list[dict[str, Any]]:
    return [{"stages": line.stages, "busy": f"{line.busy:.0%}", "lines": drawn(line)} for line in one.timelines]


def _shapes(points: Sequence[SizePoint], axis: int) -> dict[str, Any]:
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


Grid = Mapping[str, Mapping[str, Mapping[str, dict[str, Any]]]]
_ASSETS = Path(str(files("triton_ops.lab"))) / "assets"
_SCRIPTS = ("charts.js", "views.js", "controls.js")
_ASKED = "as asked"  # the name of a size that is none of the workload's own
_SERVED_ROWS = 1000
_MOST_FIELDS = 16  # of a question


def page_of(first: Simulation, overlays: Sequence[Overlay] = ()) -> str:
    """The page as HTML that needs no network: it has the rankings of `grid_of`.

    Args:
        first: What the page shows when it is opened.
        overlays: Recordings that it can lay over the prediction.

    Cost: some four seconds; at most 2 MB, and 0.2 MB for each recording.
    """
    return _page(first, overlays, grid_of(first))


def grid_of(first: Simulation) -> Grid:
    """The rankings of a file, by workload, device and size: the sizes of every workload, and the one that was asked."""
    devices = {**known_devices(), first.device: first.machine}
    return {
        workload.name: {
            device: {
                size: ranking(replace(simulation, device=device, machine=machine))
                for size, simulation in _simulations(workload, first).items()
            }
            for device, machine in devices.items()
        }
        for workload in WORKLOADS.values()
    }


def _simulations(workload: TextbookWorkload, first: Simulation) -> dict[str, Simulation]:
    """The simulations of a workload, by the name of its size."""
    lesson = replace(first, workload=workload, configs=LESSON, factors=())
    simulations = {size: replace(lesson, shape=shape) for size, shape in workload.sizes.items()}
    if workload == first.workload and first not in simulations.values():
        simulations[_ASKED] = first
    return simulations


def answers_of(
    first: Simulation, overlays: Sequence[Overlay] = ()
) -> Callable[[str], tuple[HTTPStatus, str, str] | None]:
    """The function by which a server answers for the page: path and query in; status, text and media type out."""
    page = _page(first, overlays, None)

    def answer(question: str) -> tuple[HTTPStatus, str, str] | None:
        path, _, query = question.partition("?")
        if path == "":
            return HTTPStatus.OK, page, "text/html"
        return (HTTPStatus.OK, json_text(_answer(query)), "application/json") if path == "ranking.json" else None

    return answer


def _answer(query: str) -> dict[str, Any]:
    """The ranking that a page asks for, or what is wrong with its question."""
    try:
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
        return ranking(_simulation(fields), fields.get("config", ""), _SERVED_ROWS)
    except TritonKernelError as error:
        return {"problem": f"{error.message[:1].upper()}{error.message[1:]}."}
    except ValueError as error:  # too many fields
        return {"problem": f"The question cannot be read: {error}."}


def _simulation(fields: Mapping[str, str]) -> Simulation:
    workload = workload_named(fields.get("workload", ""))
    source = fields.get("source", "lesson")
    configs: Sequence[Mapping[str, Any]] = LESSON
    if source != "lesson":
        configs = whole_space(workload.space) if source == "space" else parse_configs(fields.get("own", ""), workload)
    return simulate(
        workload.name,
        shape=_extents(workload, fields.get("extents", "").split(",")),
        dtype=fields.get("dtype"),
        gpu=fields.get("device", ""),
        configs=configs,
    )


def _extents(workload: TextbookWorkload, texts: Sequence[str]) -> list[int]:
    for name, text in zip(workload.extents, texts, strict=False):
        if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST)) and 1 <= int(text) <= LARGEST):
            raise SettingsError(f"{name} must be a whole number from 1 to {LARGEST:,}")
    return list(map(int, texts))


def _page(first: Simulation, overlays: Sequence[Overlay], grid: Grid | None) -> str:
    """The page; without a grid it asks its server."""
    data = _data(first, overlays, grid)
    return assembled(PageParts(
        template=part(_ASSETS, "page.html"),
        style=[part(_ASSETS, "style.css")],
        scripts=[data_script("DATA", data), *(part(_ASSETS, name) for name in _SCRIPTS)],
        asks=grid is None,
    ))  # fmt: skip


def _data(first: Simulation, overlays: Sequence[Overlay], grid: Grid | None) -> dict[str, Any]:
    devices = {**known_devices(), first.device: first.machine}
    sizes = {name: _simulations(workload, first) for name, workload in WORKLOADS.items()}
    return {
        "workloads": [
            {
                "name": name, "title": workload.title, "extents": workload.extents, "shape": workload.shape,
                "sizes": {size: one.shape for size, one in sizes[name].items()},
            }
            for name, workload in WORKLOADS.items()
        ],
        "devices": list(devices),
        "dtypes": list(dict.fromkeys(name for machine in devices.values() for name in machine.mma_flops_per_cycle)),
        "lesson": len(LESSON),
        "first": {
            "workload": first.workload.name, "shape": first.shape, "dtype": first.dtype, "device": first.device,
            "size": next(size for size, one in sizes[first.workload.name].items() if one == first or size == _ASKED),
            "own": "" if first.configs == LESSON else "\n".join(map(config_text, first.configs)),
        },
        "recordings": [recorded_ranking(one) for one in overlays],
        "grid": grid,
    }  # fmt: skip
