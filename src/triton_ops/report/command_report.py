"""`triton-ops report`: what run logs say, in a terminal, as Markdown, as JSON, or as one page for a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from triton_ops.base import StoredFile
from triton_ops.exceptions import SettingsError
from triton_ops.records import Run
from triton_ops.report.live import page_of
from triton_ops.report.report_tables import SHOWN, RunComparison, add_comparisons, add_run, comparisons_of, problem_map
from triton_ops.report.run_choice import newest_of, run_named
from triton_ops.report.run_facts import RaceEntry, Report
from triton_ops.ship import as_target
from triton_ops.terminal import Facts, folder_of, option
from triton_ops.typed import named_object
from triton_ops.values import Trial


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
            {**Facts.members(row, "number", "at_s", "origin", "fate"), **_trial(report, row.trial)}
            for row in report.rows
        ],
        "best_so_far": [
            {"at_s": at_s, "median_ms": one.median_ms, "config": one.config.plain}
            for at_s, one in report.best_so_far
        ],
        "dropped": report.dropped,
        "failures": [
            {**Facts.members(one, "status", "reason", "configs"), "first": one.first.plain} for one in report.failures
        ],
        "sensitivity": None if isinstance(sensitivity, str) else {
            "explained": sensitivity.explained,
            "knobs": [Facts.members(knob, "name", "share", "span", values="effects") for knob in sensitivity.knobs],
        },
        "environment": report.environment,
    }  # fmt: skip


def _comparison_json(comparison: RunComparison) -> dict[str, Any]:
    common = comparison.common
    return {
        "first": comparison.first.run.head.id, "second": comparison.second.run.head.id,
        "agreement": comparison.agreement,
        "differences": comparison.differences, "common": None if isinstance(common, str) else common,
        "why_not": common if isinstance(common, str) else "",
    }  # fmt: skip


def _roof(report: Report) -> dict[str, Any] | None:
    roof = report.roof
    if roof is None:
        return None
    best, default = report.placed(report.best), report.placed(report.default)
    derived = Facts.members(roof, "intensity", "ridge", "least_ms")
    return {**asdict(roof), **derived, "best": best, "default": default}


def _trial(report: Report, trial: Trial) -> dict[str, Any]:
    times = trial.best_measurement if trial.ok else None
    gain, interval = report.gain_of(trial)
    names = ("median_ms", "p20_ms", "p80_ms")
    return {
        **Facts.members(trial, "status", "error", "compile_s", "resources"), "config": trial.config.plain,
        **(Facts.members(times, *names) or dict.fromkeys(names)),
        "relative": 1 / gain if gain else None, "gain_interval": interval,
    }  # fmt: skip


def _contender(one: RaceEntry) -> dict[str, Any]:
    return {"config": one.trial.config.plain, **Facts.members(one, "rounds", "fate", "gap")}


_HINT = "choose another -o"


def report_command(
    runs: Annotated[
        list[str], option("RUN...", "A run log, a run's id or its start, or a kernel or TARGET: its last run.")
    ],
    out: Annotated[Path | None, option("--out -o", "Write a page for browsers to FILE.", "FILE")] = None,
    as_text: Annotated[bool, option("--text", "Write text; the default without -o.")] = False,
    as_markdown: Annotated[bool, option("--markdown", "Write Markdown, for pull requests.")] = False,
    top: Annotated[int, option("--top", "How many trials, and reasons of failures, are listed.", "N", min=1)] = SHOWN,
    problems: Annotated[
        bool, option("--problems", "Show the newest run of every problem of each kernel, side by side.")
    ] = False,
    cache_dir: str | None = None,
    as_json: bool = False,
) -> Facts:
    """Show what run logs say: every trial, ties, failures, which tunables matter, and the line to paste.

    Several runs are compared with the first. Nothing is run; a run that still goes on is shown up to now.

    Exit code 4: a file is no run log of this version, or an id or kernel has no run.
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
    facts = facts.as_markdown if as_markdown else facts
    if out is None:
        return facts
    Facts.save(out, facts.printed(None), _HINT)
    return Facts("report")


def _paths(texts: Sequence[str], folder: Path, *, every: bool) -> list[Path]:
    """The run logs that are meant; a TARGET means the kernel that it names in records."""
    paths = []
    for text in texts:
        # A run log may have such a name, too.
        is_target = text.rpartition(":")[0].endswith(".py") and not StoredFile(Path(text)).exists
        name = as_target(named_object(text)).name if is_target else text
        paths += newest_of(name, folder) if every else [run_named(name, folder)]
    return paths
