"""The page: one file that holds its style, the translated model, its data and the script that draws.

Its charts are plain SVG made by its own script. A plotting library would add one to four and a half megabytes to every
page for bars and a scatter plot, and has marks that neither a keyboard nor a screen reader reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triton_ops.base import PageParts, assembled, data_script, part
from triton_ops.cost_model import FAMILIES, spearman, work_json
from triton_ops.device import Costs, Machine, UnitLimits
from triton_ops.lab.simulator.advice import advice, config_text, percent, reasons
from triton_ops.lab.simulator.one_tunable import dials, over_shapes, series, timelines
from triton_ops.lab.simulator.places import ranked
from triton_ops.lab.simulator.recorded import Overlay
from triton_ops.lab.simulator.script.translate import script_of
from triton_ops.lab.simulator.simulation import COMPARED, LARGEST, MOST_CONFIGS, SHAPES, Simulation, tunables_of
from triton_ops.lab.simulator.workloads import LESSON, WORKLOADS, Workload, known_devices, least_sides, work_of

_PARTS = ("model.js", "charts.js", "views.js", "controls.js")
MODEL: dict[str, Callable[..., Any] | type] = {
    "work_of": work_of, "least_sides": least_sides, "ranked": ranked, "advice": advice, "reasons": reasons,
    "config_text": config_text, "percent": percent, "dials": dials, "timelines": timelines,
    "over_shapes": over_shapes, "series": series, "spearman": spearman, "Machine": Machine, "Costs": Costs,
    "UnitLimits": UnitLimits,
    **{f"tiles_{name}": family for name, family in FAMILIES.items()},
}  # fmt: skip
"""What the page calculates with, by the names under which its script calls it."""


def page_of(first: Simulation, overlays: Sequence[Overlay] = ()) -> str:
    """The page as HTML.

    Args:
        first: What the page shows when it is opened.
        overlays: Recordings that it can lay over the prediction.

    Cost: half a second; some 150 kB, and 20 kB for each recording of 500 configs.
    """
    folder = Path(__file__).parent / "assets"
    return assembled(PageParts(
        template=part(folder, "page.html"),
        style=[part(folder, "style.css")],
        scripts=[_data_script(first, overlays), model_script(), *(part(folder, name) for name in _PARTS)],
    ))  # fmt: skip


def model_script() -> str:
    """The model as JavaScript, whose object is called `MODEL`."""
    return script_of(MODEL, "MODEL")


def _data_script(first: Simulation, overlays: Sequence[Overlay]) -> str:
    devices = {**known_devices(), first.device: first.machine, **{one.device: one.machine for one in overlays}}
    found = {
        "workloads": [_workload_data(one) for one in WORKLOADS.values()],
        "devices": {name: asdict(machine) for name, machine in devices.items()},
        "lesson": [dict(config) for config in LESSON],
        "limits": {"extent": LARGEST, "configs": MOST_CONFIGS, "compared": COMPARED, "shapes": SHAPES},
        "first": {
            "workload": first.workload.name, "shape": first.shape, "dtype": first.dtype, "device": first.device,
            "configs": [dict(config) for config in first.configs],
        },
        "recordings": [_overlay_data(one) for one in overlays],
    }  # fmt: skip
    return data_script("DATA", found)


def _workload_data(found: Workload) -> dict[str, Any]:
    return {**asdict(found), "tunables": tunables_of(found)}


def _overlay_data(found: Overlay) -> dict[str, Any]:
    """A recording: its configs as rows, and its work, or expected times where the page cannot calculate them."""
    names = list(dict.fromkeys(name for config in found.configs for name in config))
    work = None if found.read else work_json(found.work)
    return {
        "file": found.file,
        "title": found.title,
        "device": found.device,
        "kind": found.kind,
        "asked": found.floor,
        "failed": found.failed,
        "names": names,
        "rows": [[config.get(name) for name in names] for config in found.configs],
        "measured_ms": list(found.measured_ms),
        "work": work if work is not None and "tiles" in work else None,
        "expected_ms": None if work is not None and "tiles" in work else _plain(found.expected_ms),
    }


def _plain(times: Sequence[float]) -> list[float | str | None]:
    """Times as JSON has them: a block that does not fit is `inf`, no forecast null."""
    return [ms if math.isfinite(ms) else None if math.isnan(ms) else "inf" for ms in times]
