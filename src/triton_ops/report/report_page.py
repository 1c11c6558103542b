"""The page: one file that holds its style, the runs as compact rows, and the script that draws.

Its charts are plain SVG made by its own script, as those of the simulator's page are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triton_ops.base import Page, gain_text, storable
from triton_ops.lab import Sensitivity
from triton_ops.report.report_tables import (
    RunComparison,
    comparison_text,
    comparisons_of,
    contender_cells,
    headline,
    map_cells,
    problem_map,
    roof_facts,
    verdict,
)
from triton_ops.report.run_facts import Report, TrialRow

MOST_ROWS = 20_000
"""Trials that a page holds of one run, the fastest first: 4 MB. Totals, failures and what was dropped count all."""
_ERROR_LETTERS = 400
_SCRIPTS = ("charts.js", "trials.js", "views.js", "start.js")
_FOLLOWS = "live.js"
_RESOURCES = ("registers", "spill_bytes", "shared_bytes")


def page_of(reports: Sequence[Report]) -> str:
    """The page as HTML. It shows one run at a time, and the comparison of the first with each other.

    Cost: some 2 s and 1 MB for a run of 5,000 trials.
    """
    return _page({
        "runs": [run_data(report) for report in reports],
        "comparisons": list(map(_comparison, comparisons_of(reports))),
        "map": _map(reports),
    })  # fmt: skip


def live_page(run: dict[str, Any], version: int) -> str:
    """The page of a run that goes on: it asks the server that it came from for what is new since `version`."""
    return _page({"runs": [run], "comparisons": [], "map": None, "version": version}, _FOLLOWS)


def _page(data: dict[str, Any], *further: str) -> str:
    folder = Path(__file__).parent / "assets"
    return Page(
        title="Tuning report", body=Page.part(folder, "page.html"),
        style=[Page.part(folder, "style.css")],
        scripts=[Page.data("DATA", data), *(Page.part(folder, name) for name in (*_SCRIPTS, *further))],
        asks=_FOLLOWS in further,
    ).html  # fmt: skip


def run_data(report: Report) -> dict[str, Any]:
    """The data of a run for the page, as plain JSON values."""
    data: dict[str, Any] = storable(_run(report))
    return data


def _run(report: Report) -> dict[str, Any]:
    knobs = report.sensitivity
    rows = report.fastest_first[:MOST_ROWS]
    table = _TrialRows(report, rows)
    return {
        "id": report.run.head.id, "title": report.title, "device": report.device,
        "facts": headline(report), "paste": report.paste, "environment": report.environment,
        "verdict": verdict(report), "limits": report.limits,
        "all": len(report.rows), "ended": report.run.end is not None,
        "names": table.names, "values": table.values, "errors": table.errors, "fates": table.fates,
        "rows": table.rows,
        "curve": [[at_s, trial.rank, trial.median_ms, str(trial.config)] for at_s, trial in report.run.best_so_far],
        "relative": all(trial.relative is not None for _, trial in report.run.best_so_far),
        "elapsed_s": report.run.at_s,
        "contenders": [[*contender_cells(one), _gap(one.gap)] for one in report.contenders],
        "confirmations": [
            [process, [[*contender_cells(one), _gap(one.gap)] for one in rivals]]
            for process, rivals in report.confirmations.items()
        ],
        "roof": _roof(report), "roof_facts": roof_facts(report),
        "dropped": list(report.dropped.items()),
        "failures": [[one.configs, str(one.status), one.reason, str(one.first)] for one in report.failures],
        "unclear": knobs if isinstance(knobs, str) else "",
        "explained": None if isinstance(knobs, str) else knobs.explained,
        "knobs": [] if isinstance(knobs, str) else [
            {"name": knob.name, "share": knob.share, "span": knob.span,
             "values": [[str(one.value), one.configs, one.failed, one.slower, one.best_ms] for one in knob.effects]}
            for knob in knobs.knobs
        ],
    }  # fmt: skip


def _roof(report: Report) -> dict[str, Any] | None:
    """The lines of a roofline, and what a time's height below them is; None without operations per byte."""
    roof = report.roof
    if roof is None or roof.intensity is None or not math.isfinite(roof.intensity) or roof.memory is None:
        return None
    units = roof.units
    return {
        "intensity": roof.intensity, "flops": roof.flops, "gbps": [roof.memory.peak, roof.memory.measured],
        "tflops": None if units is None else [units.peak, units.measured], "units": "" if units is None else units.name,
        "default_ms": report.default.median_ms if report.default is not None and report.default.ok else None,
    }  # fmt: skip


def _map(reports: Sequence[Report]) -> dict[str, Any] | None:
    if not (problems := problem_map(reports)):
        return None
    data: dict[str, Any] = storable({
        "configs": [str(config) for config in problems[0].slower],
        "rows": [[*map_cells(row)[:4], list(row.slower.values())] for row in problems],
    })  # fmt: skip
    return data


class _TrialRows:
    """Rows of numbers: texts that repeat stand in lists once, and rows name their places in them."""

    def __init__(self, report: Report, rows: Sequence[TrialRow]) -> None:
        self._report, tunables = report, report.run.head.space.tunables
        configs = [dict(row.trial.config.plain) for row in rows]
        self.names = list(dict.fromkeys((*tunables, *(name for config in configs for name in config))))
        places: dict[str, dict[str, int]] = {name: {} for name in self.names}
        for name, values in tunables.items():
            for value in Sensitivity.in_order(values):
                _place(places[name], str(tuple(value) if isinstance(value, list) else value))
        self._errors: dict[str, int] = {}
        self._fates: dict[str, int] = {}
        self.rows = [
            [
                *self._facts(row),
                *(_place(places[name], str(config[name])) if name in config else -1 for name in self.names),
            ]
            for row, config in zip(rows, configs, strict=True)
        ]
        self.values = [list(places[name]) for name in self.names]
        self.errors, self.fates = list(self._errors), list(self._fates)

    def _facts(self, row: TrialRow) -> list[Any]:
        trial, resources = row.trial, row.trial.resources
        gain, interval = self._report.gain_of(trial)
        error = trial.error if len(trial.error) <= _ERROR_LETTERS else f"{trial.error[:_ERROR_LETTERS]}…"
        return [
            row.number, _brief(row.at_s), _place(self._fates, row.fate), _place(self._errors, error),
            _brief(trial.median_ms) if trial.ok else None,
            _brief(1 / gain if gain else None),
            _brief(trial.best_measurement.spread) if trial.ok else None,
            _brief(trial.compile_s),
            *(None if resources is None else getattr(resources, name) for name in _RESOURCES),
            interval and gain_text(gain, interval),
        ]  # fmt: skip


def _place(places: dict[str, int], text: str) -> int:
    return places.setdefault(text, len(places))


def _brief(value: float | None) -> float | None:
    """A number with five significant digits, as long as a chart can tell."""
    return None if value is None else float(f"{value:.5g}")


def _gap(gap: Any) -> list[float] | None:
    return None if gap is None else [math.expm1(value) for value in (gap.centre, gap.low, gap.high)]


def _comparison(comparison: RunComparison) -> Any:
    return storable({
        "first": comparison.first.run.head.id, "second": comparison.second.run.head.id,
        "common": comparison_text(comparison),
        "differences": [[name, *both] for name, both in comparison.differences.items()],
    })  # fmt: skip
