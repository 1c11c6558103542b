"""The page: one file with rankings that were calculated when it was made, or a page whose server calculates them.

Its charts are plain SVG made by its own script. A plotting library would add one to four and a half megabytes to every
page for bars and a scatter plot, and has marks that neither a keyboard nor a screen reader reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from triton_ops.base import PageParts, assembled, data_script, json_text, part
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.lab.simulator.places import config_text
from triton_ops.lab.simulator.recorded import Overlay
from triton_ops.lab.simulator.shown import ranking, recorded_ranking
from triton_ops.lab.simulator.simulation import (
    LARGEST,
    Simulation,
    parse_configs,
    simulate,
    whole_space,
    workload_named,
)
from triton_ops.lab.simulator.workloads import LESSON, WORKLOADS, Workload, known_devices

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


def _simulations(workload: Workload, first: Simulation) -> dict[str, Simulation]:
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


def _extents(workload: Workload, texts: Sequence[str]) -> list[int]:
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
