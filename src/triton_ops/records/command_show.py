"""`triton-ops cache show`: records by a kernel's name or the start of an id, with winner, gain, date and device."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Annotated

import typer

from triton_ops.base import Folder, gain_text
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records.record import Record
from triton_ops.records.store import RECORDS, DirectoryStore
from triton_ops.terminal import CacheDir, ExitCode, Facts, folder_of

ID_SHOWN = 8  # hexadecimal digits; equal by chance in one of 10^5 folders of 300 records
Which = Annotated[
    str | None, typer.Argument(metavar="KERNEL|ID", help="A kernel's name, or the start of an id.", show_default=False)
]
_HEADER = ("id", "kernel", "problem", "median ms", "spread", "vs default", "device", "when", "winner")
_FAILURES_SHOWN = 3
_NUMBERS = ("median ms", "spread", "vs default")


def show_command(which: Which = None, cache_dir: CacheDir = None) -> Facts:
    """Show the records: winner, gain over the default, spread, when, on what.

    One record is shown whole, several as a table.
    """
    records = matching(which, cache_dir)
    facts = Facts("records", lambda: [RECORDS.contents(record) for record in records])
    if not records:
        return tell_nothing(facts, which, cache_dir)
    if len(records) == 1:
        return facts.listing(_facts(records[0]))
    rows = [_row(record) for record in records]
    return facts.table(_HEADER, rows, _NUMBERS, narrow=lambda: _blocks(rows))


def _row(record: Record) -> list[str]:
    return [
        record.id[:ID_SHOWN],
        record.key.kernel,
        record.key.label or "-",
        f"{record.timing.median_ms:.4g}",
        _spread(record), gain_text(record.gain, record.gain_interval, record.unproven),
        str(record.key.device.get("name", "-")), _when(record), str(record.winner),
    ]  # fmt: skip


def _blocks(rows: list[list[str]]) -> Facts:
    """A few lines for each record, where a window is too narrow for the table."""
    indent, blocks = " " * (ID_SHOWN + 2), Facts("records")
    for short_id, kernel, problem, median, spread, gain, device, when, config in rows:
        over = {"-": "", "unproven": "unproven"}.get(gain, f"{gain} the default")
        facts = [f"{median} ms", f"spread {spread}", over, device, when]
        blocks.text(f"{kernel} {problem}".removesuffix(" -"), f"{short_id}  ", bold=True)
        blocks.text(config, indent).text(", ".join(filter(None, facts)), indent)
    return blocks


def _facts(record: Record) -> dict[str, str]:
    device, timing = record.key.device, record.timing
    return {
        "id": record.id, "kernel": record.key.kernel, "problem": record.key.label or "-", "winner": str(record.winner),
        "time": f"{timing.median_ms:.4g} ms, spread {_spread(record)}, {timing.samples} samples, {record.mode}",
        "default": _default(record), **({"unproven": record.unproven} if record.unproven else {}),
        "confidence": record.confidence,
        "ties": f"{max(len(record.ties) - 1, 0)} more within noise ({record.noise:.2%})",
        "checked": f"results compared with {record.verified.against}" if record.verified.against else "not known",
        "resources": _resources(record),
        "device": f"{device.get('name')} {device.get('arch')}, {device.get('units')} units",
        "driver": str(device.get("driver") or "not known"), "search": _search(record), "failed": _failed(record),
        "ran": record.place or "not known", "notes": "; ".join(record.notes) or "none", "when": _when(record),
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }  # fmt: skip


def _search(record: Record) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in record.totals.items())
    end = Record.ENDS.get(record.stopped, record.stopped)
    return f"{record.search}, effort {record.effort}: {counts}; {end}, {record.elapsed_s:.1f} s"


def _failed(record: Record) -> str:
    reasons = [f"({each.config}) {each.status}: {each.error}" for each in record.failures[:_FAILURES_SHOWN]]
    more = len(record.failures) - len(reasons)
    if not reasons:
        return "none" if set(record.totals) <= {"ok", "deferred"} else "their reasons are not kept"
    return "; ".join([*reasons, *([f"and {more} more, in --json"] if more else [])])


def _spread(record: Record) -> str:
    timing = record.timing
    return f"{(timing.p80_ms - timing.p20_ms) / timing.median_ms:.1%}" if timing.median_ms > 0 else "0.0%"


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
    resources = record.resources
    if resources is None:
        return "not known"
    return (
        f"{resources.registers} registers, {resources.spill_bytes} bytes spilled, {resources.shared_bytes} bytes shared"
    )


def matching(which: str | None, cache_dir: str | Path | None) -> list[Record]:
    """The records whose kernel is `which`, else those whose id starts with `which`; all for None; newest first.

    A kernel without a name of its own is found by its file too: `work.py:norm` is `work:norm`. Nothing is made or
    changed in the folder. SettingsError: `which` is empty, as after an unset shell variable.
    """
    if which is not None and not which.strip():
        raise SettingsError("KERNEL|ID is empty", hint="leave it out for every record")
    records = _all(folder_of(cache_dir))
    if which is not None:
        by_name = [record for record in records if record.key.kernel in _names(which)]
        records = by_name or [record for record in records if record.id.startswith(which)]
    return sorted(records, key=lambda record: (record.created, record.id), reverse=True)


def _names(which: str) -> set[str]:
    file, colon, name = which.rpartition(":")
    return {which, f"{Path(file).stem}:{name}"} if colon and file.endswith(".py") else {which}


def _all(folder: Path) -> list[Record]:
    Folder(folder).check_home()
    store = DirectoryStore(folder, RECORDS, read_only=True)
    if store.reachable:
        return list(store)
    try:
        os.stat(folder)  # noqa: PTH116 - for its error alone
        reason = os.strerror(errno.EACCES)
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = error.strerror or str(error)
    raise CacheError(f"{folder} cannot be read: {reason}", hint="name a folder that you may read")


def nothing_found(which: str | None, cache_dir: str | None) -> str:
    """The message for a `which` without records."""
    return f"there are no records{f' of {which}' if which else ''} in {folder_of(cache_dir)}"


def tell_nothing(facts: Facts, which: str | None, cache_dir: str | None) -> Facts:
    """Facts that also say that there are no records, and which command makes them."""
    facts.code = ExitCode.NO_RECORD
    return facts.tell(f"{nothing_found(which, cache_dir)}; `triton-ops tune` makes them")
