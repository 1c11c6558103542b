"""`triton-ops show`: show the records, with winner, gain, confidence, date and device."""

from __future__ import annotations

from triton_ops.base import gain_text
from triton_ops.cli.console import CacheDir, Json, Verbose, bold, fits, listing, paragraph, say, say_json, table, width
from triton_ops.cli.record_selection import ID_SHOWN, Which, matching, tell_nothing
from triton_ops.records import RECORDS, Record

ENDS = {
    "complete": "every config tried",
    "settled": "too little left to gain",
    "trials": "limit of trials reached",
    "seconds": "limit of seconds reached",
    "interrupted": "interrupted",
}  # why a search ended, in words
_HEADER = ("id", "kernel", "problem", "median ms", "spread", "vs default", "device", "when", "winner")
_FAILURES_SHOWN = 3
_NUMBERS = ("median ms", "spread", "vs default")


def show_command(
    which: Which = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Show the records: winner, gain over the default, spread, when, on what.

    One record is shown whole, several as a table.
    """
    records = matching(which, cache_dir)
    if as_json:
        say_json([RECORDS.contents(record) for record in records])
    elif not records:
        tell_nothing(which, cache_dir)
    elif len(records) == 1:
        say(*listing(_facts(records[0]), width()))
    else:
        say(*_overview(records, width()))


def _overview(records: list[Record], columns: int | None) -> list[str]:
    """One line for each record if the lines fit, else several lines for each."""
    rows = [_row(record) for record in records]
    lines = table(_HEADER, rows, None, _NUMBERS)
    if fits(lines, columns):
        return [bold(lines[0]), *lines[1:]]
    return [line for row in rows for line in _block(row, columns)]


def _row(record: Record) -> list[str]:
    return [
        record.id[:ID_SHOWN],
        record.key.kernel,
        record.key.label or "-",
        f"{record.timing.median_ms:.4g}",
        _spread(record),
        "unproven" if record.unproven else _gain(record) or "-",
        str(record.key.device.get("name", "-")),
        _when(record),
        str(record.winner),
    ]


def _block(row: list[str], columns: int | None) -> list[str]:
    short_id, kernel, problem, median, spread, gain, device, when, config = row
    indent = " " * (ID_SHOWN + 2)
    over = {"-": "", "unproven": "unproven"}.get(gain, f"{gain} the default")
    facts = [f"{median} ms", f"spread {spread}", over, device, when]
    return [
        *map(bold, paragraph(f"{short_id}  ", f"{kernel} {problem}".removesuffix(" -"), columns)),
        *paragraph(indent, config, columns),
        *paragraph(indent, ", ".join(filter(None, facts)), columns),
    ]


def _facts(record: Record) -> dict[str, str]:
    device, timing = record.key.device, record.timing
    return {
        "id": record.id,
        "kernel": record.key.kernel,
        "problem": record.key.label or "-",
        "winner": str(record.winner),
        "time": f"{timing.median_ms:.4g} ms, spread {_spread(record)}, {timing.samples} samples, {record.mode}",
        "default": _default(record),
        **({"unproven": record.unproven} if record.unproven else {}),
        "confidence": record.confidence,
        "ties": f"{max(len(record.ties) - 1, 0)} more within noise ({record.noise:.2%})",
        "checked": _checked(record),
        "resources": _resources(record),
        "device": f"{device.get('name')} {device.get('arch')}, {device.get('units')} units",
        "driver": str(device.get("driver") or "not known"),
        "search": _search(record),
        "failed": _failed(record),
        "ran": record.place or "not known",
        "notes": "; ".join(record.notes) or "none",
        "when": _when(record),
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }


def _checked(record: Record) -> str:
    against = record.verified.against
    return f"results compared with {against}" if against else "not known"


def _search(record: Record) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in record.totals.items())
    end = ENDS.get(record.stopped, record.stopped)
    return f"{record.search}, effort {record.effort}: {counts}; {end}, {record.elapsed_s:.1f} s"


def _failed(record: Record) -> str:
    shown = [f"({each.config}) {each.status}: {each.error}" for each in record.failures[:_FAILURES_SHOWN]]
    more = len(record.failures) - len(shown)
    if not shown:
        return "none" if set(record.totals) <= {"ok", "deferred"} else "their reasons are not kept"
    return "; ".join([*shown, *([f"and {more} more, in --json"] if more else [])])


def _spread(record: Record) -> str:
    timing = record.timing
    return f"{(timing.p80_ms - timing.p20_ms) / timing.median_ms:.1%}" if timing.median_ms > 0 else "0.0%"


def _gain(record: Record) -> str:
    return "" if record.gain is None else f"{record.gain:.2f}x"


def _when(record: Record) -> str:
    return record.created.replace("+00:00", "Z")


def _default(record: Record) -> str:
    if record.default is None or record.default_timing is None:
        return "not measured"
    if record.default == record.winner:
        return "the winner"
    versus = "" if record.gain is None else f"; the winner is {gain_text(record.gain, record.gain_interval)} as fast"
    return f"{record.default}: {record.default_timing.median_ms:.4g} ms{versus}"


def _resources(record: Record) -> str:
    found = record.resources
    if found is None:
        return "not known"
    return f"{found.registers} registers, {found.spill_bytes} bytes spilled, {found.shared_bytes} bytes shared"
