"""`triton-ops report`: what run logs say, in a terminal, as Markdown, as JSON, or as one page for a browser.

The page is one file that holds its style, the runs as compact rows, and the script that draws. Its charts are plain SVG
made by its own script, as those of the simulator's page are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from triton_ops.base import Page, StoredFile, gain_text, storable
from triton_ops.exceptions import SettingsError
from triton_ops.lab import Sensitivity
from triton_ops.records import Run, Runs
from triton_ops.report.report_tables import (
    SHOWN,
    RunComparison,
    add_comparisons,
    add_run,
    comparison_text,
    comparisons_of,
    contender_cells,
    headline,
    map_cells,
    problem_map,
    roof_facts,
    verdict,
)
from triton_ops.report.run_facts import RaceEntry, Report, TrialRow
from triton_ops.request import named_object
from triton_ops.ship import as_target
from triton_ops.terminal import CacheDir, Facts, Json, folder_of, option
from triton_ops.values import Trial

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
        "roof": _drawn_roof(report), "roof_facts": roof_facts(report),
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


def _drawn_roof(report: Report) -> dict[str, Any] | None:
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


def reports_json(reports: Sequence[Report]) -> dict[str, Any]:
    """All runs, the kernel over its problems (null for one problem), and the comparisons with the first run."""
    problems = problem_map(reports)
    return {
        "runs": [report_json(report) for report in reports],
        "problems": None if not problems else {
            "configs": [dict(config.plain) for config in problems[0].slower],
            "rows": [{"run": row.report.run.head.id, "problem": row.label, "of_limit": row.of_limit,
                      "gain": row.report.gain, "slower": list(row.slower.values())} for row in problems],
        },
        "comparisons": list(map(_comparison_json, comparisons_of(reports))),
    }  # fmt: skip


def report_json(report: Report) -> dict[str, Any]:
    """All of a report; times are in milliseconds, and `gap` is the share by which a config is slower."""
    head, sensitivity = report.run.head, report.sensitivity
    return {
        "run": head.id, "file": str(report.run.path), "kernel": head.key.kernel, "problem": head.key.label,
        "device": report.device, "state": report.state, "elapsed_s": report.run.at_s, "totals": report.totals,
        "best": None if report.best is None else _trial(report, report.best), "gain": report.gain,
        "unproven": None if report.record is None else report.record.unproven,
        "paste": report.paste,
        "finalists": [_contender(one) for one in report.contenders],
        "confirmations": [list(map(_contender, rivals)) for rivals in report.confirmations.values()],
        "roofline": _roof(report),
        "trials": [
            {"number": row.number, "at_s": row.at_s, "origin": row.origin, "fate": row.fate,
             **_trial(report, row.trial)}
            for row in report.rows
        ],
        "best_so_far": [
            {"at_s": at_s, "median_ms": trial.median_ms, "config": dict(trial.config.plain)}
            for at_s, trial in report.run.best_so_far
        ],
        "dropped": report.dropped,
        "failures": [
            {"status": str(one.status), "reason": one.reason, "configs": one.configs, "first": dict(one.first.plain)}
            for one in report.failures
        ],
        "sensitivity": None if isinstance(sensitivity, str) else {
            "explained": sensitivity.explained,
            "knobs": [{"name": knob.name, "share": knob.share, "span": knob.span,
                       "values": [asdict(one) for one in knob.effects]} for knob in sensitivity.knobs],
        },
        "environment": report.environment,
    }  # fmt: skip


def _comparison_json(comparison: RunComparison) -> dict[str, Any]:
    common = comparison.common
    return {
        "first": comparison.first.run.head.id, "second": comparison.second.run.head.id,
        "agreement": comparison.agreement,
        "differences": {name: list(both) for name, both in comparison.differences.items()},
        "common": None if isinstance(common, str) else asdict(common),
        "why_not": common if isinstance(common, str) else "",
    }  # fmt: skip


def _roof(report: Report) -> dict[str, Any] | None:
    roof = report.roof
    if roof is None:
        return None
    best, default = report.placed(report.best), report.placed(report.default)
    return {
        **asdict(roof), "intensity": roof.intensity, "ridge": roof.ridge, "least_ms": roof.least_ms,
        "best": None if best is None else asdict(best), "default": None if default is None else asdict(default),
    }  # fmt: skip


def _trial(report: Report, trial: Trial) -> dict[str, Any]:
    times = trial.best_measurement if trial.ok else None
    gain, interval = report.gain_of(trial)
    return {
        "config": dict(trial.config.plain), "status": str(trial.status), "error": trial.error,
        "median_ms": None if times is None else times.median_ms,
        "p20_ms": None if times is None else times.p20_ms,
        "p80_ms": None if times is None else times.p80_ms,
        "relative": 1 / gain if gain else None, "gain_interval": interval, "compile_s": trial.compile_s,
        "resources": msgspec.to_builtins(trial.resources),
    }  # fmt: skip


def _contender(one: RaceEntry) -> dict[str, Any]:
    gap = None if one.gap is None else [math.expm1(value) for value in (one.gap.centre, one.gap.low, one.gap.high)]
    return {"config": dict(one.trial.config.plain), "rounds": one.rounds, "fate": one.fate,
            "gap": None if gap is None else {"centre": gap[0], "low": gap[1], "high": gap[2]}}  # fmt: skip


_HINT = "choose another -o"


def report_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="A run log, a run's id or its start, or a kernel or TARGET: its last run."
        ),
    ],
    out: Annotated[Path | None, option("--out -o", "Write a page for browsers to FILE.", "FILE")] = None,
    as_text: Annotated[bool, option("--text", "Write text; the default without -o.")] = False,
    as_markdown: Annotated[bool, option("--markdown", "Write Markdown, for pull requests.")] = False,
    top: Annotated[int, option("--top", "Trials and reasons to list.", "N", min=1)] = SHOWN,
    problems: Annotated[
        bool, option("--problems", "Of each kernel the newest run of every problem, beside each other.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> Facts:
    """Show what run logs say: every trial, ties, failures, which tunables matter, and the line to paste.

    Several runs are compared with the first. Nothing is run; a run that goes on is shown as far as it is.
    """
    if sum((as_text, as_markdown, as_json)) > 1 or (out is not None and as_json):
        raise SettingsError("--text, --markdown, --json and a page exclude each other", hint="give one of them")
    folder = folder_of(cache_dir)
    reports = [Report(Run.read(path)) for path in _paths(runs, folder, every=problems)]
    if out is not None and not (as_text or as_markdown):
        Facts.save(out, page_of(reports), _HINT)
        return Facts("report").tell(f"{out} is the page; open it in a browser")
    facts = Facts("report", lambda: reports_json(reports))
    for report in reports:
        add_run(facts, report, top)
    add_comparisons(facts, reports)
    if as_markdown:
        facts = Facts("report").lines(*facts.markdown().splitlines(), end=None)
    if out is None:
        return facts
    Facts.save(out, facts.printed(None), _HINT)
    return Facts("report")


def _paths(texts: Sequence[str], folder: Path, *, every: bool) -> list[Path]:
    """The run logs that are meant; a TARGET means the kernel that it names in records."""
    paths = []
    for text in texts:
        is_target = text.rpartition(":")[0].endswith(".py") and not StoredFile(Path(text)).exists
        name = as_target(named_object(text)).name if is_target else text
        paths += Runs.newest_of(name, folder) if every else [Runs.find(name, folder)]
    return paths
