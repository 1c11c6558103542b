"""The figures of a report as short texts, the same ones in every form of it."""

from __future__ import annotations

import math

from triton_ops.base import gain_text
from triton_ops.device import reached, roof_rows
from triton_ops.report.facts import Contender, Report, Row
from triton_ops.report.shapes import ProblemRow
from triton_ops.timing import Interval
from triton_ops.values import Trial


def ms_text(trial: Trial) -> str:
    """The median, or `-`."""
    return f"{trial.median_ms:.4g}" if trial.ok else "-"


def relative_text(trial: Trial) -> str:
    """The time over the baseline's, or `-`."""
    return f"{trial.relative:.3f}x" if trial.ok and trial.relative is not None else "-"


def gap_text(gap: Interval | None) -> str:
    """The slowdown against the winner with the 95 % interval, such as `+1.2% (+0.8% to +1.6%)`."""
    if gap is None:
        return "-"
    centre, low, high = (math.expm1(value) for value in (gap.centre, gap.low, gap.high))
    return f"{centre:+.2%} ({low:+.2%} to {high:+.2%})"


def place_cells(row: Row) -> list[str]:
    """One line of the list of trials: time, time over the baseline's, what became of it, config."""
    return [ms_text(row.trial), relative_text(row.trial), row.fate, str(row.trial.config)]


def contender_cells(one: Contender) -> list[str]:
    """One line of the last comparison: time, gap, rounds, what became of it, config."""
    return [ms_text(one.trial), gap_text(one.gap), str(one.rounds), one.fate, str(one.trial.config)]


def headline(report: Report) -> dict[str, str]:
    """The facts with which a report begins."""
    best, record = report.best, report.record
    facts = {
        "run": report.run.head.id,
        "kernel": report.title,
        "device": report.device,
        "state": report.state,
        "tried": _counts(report),
    }
    if best is None:
        return {**facts, "winner": "none: no config ran"}
    facts["best so far" if record is None else "winner"] = str(best.config)
    facts["time"] = f"{best.median_ms:.4g} ms, {best.best_measurement.mode}"
    if report.gain is not None:
        interval = None if record is None else record.gain_interval
        facts["gain"] = f"{gain_text(report.gain, interval)} as fast as the default"
    if record is not None:
        if record.unproven:
            facts["unproven"] = record.unproven
        facts["confidence"] = record.confidence
        facts["ties"] = f"{max(len(record.ties) - 1, 0)} more within noise ({record.noise:.2%})"
        facts["checked"] = f"results compared with {record.verified.against}" if record.verified.against else ""
        facts.update({f"note {number}": note for number, note in enumerate(record.notes, 1)})
    return {name: text for name, text in facts.items() if text}


def _counts(report: Report) -> str:
    total = sum(report.totals.values())
    counts = ", ".join(f"{count} {status}" for status, count in report.totals.items())
    return f"{total} in {report.run.at_s:.1f} s{f': {counts}' if counts else ''}"


def roof_facts(report: Report) -> dict[str, str]:
    """The ceilings of the device and the places of the best config and the default below them; empty if not known."""
    if report.roof is None:
        return {}
    facts = roof_rows(report.roof)
    if report.roof.least_ms is not None:
        facts["at best"] = f"{report.roof.least_ms:.4g} ms"
    trials = {"best": report.best, "default": report.default}
    for name, trial in trials.items():
        if (place := report.placed(trial)) is not None:
            facts[name] = f"{place.ms:.4g} ms{reached(place)}"
    return facts


def map_cells(row: ProblemRow) -> list[str]:
    """One line of the map over problems: problem, time, share of the limit, gain, then what each config costs."""
    best, gain, record = row.report.best, row.report.gain, row.report.record
    over = "-" if gain is None else "unproven" if record is not None and record.unproven else f"{gain:.2f}x"
    return [
        row.label, "-" if best is None else ms_text(best), "-" if row.of_limit is None else f"{row.of_limit:.0%}",
        over, *map(_slower_text, row.slower),
    ]  # fmt: skip


def _slower_text(slower: float | str | None) -> str:
    return "-" if slower is None else slower if isinstance(slower, str) else f"{slower:.2f}x"


def letter(number: int) -> str:
    """A short name of a config of the map: A to Z, then A1 to Z1 and so on."""
    return f"{chr(ord('A') + number % 26)}{number // 26 or ''}"
