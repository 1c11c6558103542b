"""Commands on the content of a cache folder: `triton-ops cache` on records, `misses` on problems without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from triton_ops import device
from triton_ops.base import Folder, StoredFile, counted, gain_text
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import RECORDS, Misses, Record, export_records, import_records, matching, open_store
from triton_ops.settings import is_url, shown
from triton_ops.terminal import ExitCode, Facts, folder_of, option

ID_SHOWN = 8  # hexadecimal digits; equal by chance in one of 10^5 folders of 300 records
Which = Annotated[str | None, option("KERNEL|ID", "A kernel's name, or the start of an id.", show_default=False)]
ENDS = {
    "complete": "every config tried", "settled": "too little left to gain", "trials": "limit of trials reached",
    "seconds": "limit of seconds reached", "interrupted": "interrupted",
}  # fmt: skip
"""Why a search ended, in words."""
_HEADER = ("id", "kernel", "problem", "median ms", "spread", "vs default", "device", "when", "winner")
_FAILURES_SHOWN = 3
_NUMBERS = ("median ms", "spread", "vs default")


def show_command(which: Which = None, cache_dir: str | None = None) -> Facts:
    """Show the records: winner, gain over the default, spread, when, on what.

    One record is shown whole, several as a table.

    The newest record comes first. A winner that no comparison has proven is marked `unproven`. Exit code 4: there
    is none.
    """
    records = matching(which, folder_of(cache_dir))
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
    for short_id, kernel, problem, median, spread, gain, where, when, config in rows:
        over = {"-": "", "unproven": "unproven"}.get(gain, f"{gain} the default")
        facts = [f"{median} ms", f"spread {spread}", over, where, when]
        blocks.text(f"{kernel} {problem}".removesuffix(" -"), f"{short_id}  ", bold=True)
        blocks.text(config, indent).text(", ".join(filter(None, facts)), indent)
    return blocks


def _facts(record: Record) -> dict[str, str]:
    facts, timing = record.key.device, record.timing
    return {
        "id": record.id, "kernel": record.key.kernel, "problem": record.key.label or "-", "winner": str(record.winner),
        "time": f"{timing.median_ms:.4g} ms, spread {_spread(record)}, {timing.samples} samples, {record.mode}",
        "default": _default(record), **({"unproven": record.unproven} if record.unproven else {}),
        "confidence": record.confidence,
        "ties": f"{max(len(record.ties) - 1, 0)} more within noise ({record.noise:.2%})",
        "checked": f"results compared with {record.verified.against}" if record.verified.against else "not known",
        "resources": _resources(record),
        "device": f"{facts.get('name')} {facts.get('arch')}, {facts.get('units')} units",
        "driver": str(facts.get("driver") or "not known"), "search": _search(record), "failed": _failed(record),
        "ran": record.place or "not known", "notes": "; ".join(record.notes) or "none", "when": _when(record),
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }  # fmt: skip


def _search(record: Record) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in record.totals.items())
    end = ENDS.get(record.stopped, record.stopped)
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
    if (resources := record.resources) is None:
        return "not known"
    return (
        f"{resources.registers} registers, {resources.spill_bytes} bytes spilled, {resources.shared_bytes} bytes shared"
    )


def nothing_found(which: str | None, cache_dir: str | None) -> str:
    """The message for a `which` without records."""
    return f"there are no records{f' of {which}' if which else ''} in {folder_of(cache_dir)}"


def tell_nothing(facts: Facts, which: str | None, cache_dir: str | None) -> Facts:
    """Facts that also say that there are no records, and which command makes them."""
    facts.code = ExitCode.NO_RECORD
    return facts.tell(f"{nothing_found(which, cache_dir)}; `triton-ops tune` makes them")


_MISSES_HEADER = ("id", "count", "expected ms", "kernel", "device", "last", "problem")
_MISSES_NUMBERS = ("count", "expected ms")


def remove_command(
    which: Which = None,
    everything: Annotated[bool, option("--all", "Remove every record.")] = False,
    cache_dir: str | None = None,
) -> Facts:
    """Remove records; files that are not ours stay.

    Only records that this version can read are removed. The start of several ids is refused.
    """
    records = _to_remove(which, everything, cache_dir)
    ids: list[str] = []
    if records:
        store = open_store(folder_of(cache_dir))
        ids = [record.id for record in records if store.remove(record.id)]
    facts = Facts("removed records", {"removed": ids}).lines(f"{len(ids)} removed")
    return facts if records else tell_nothing(facts, which, cache_dir)


def path_command(cache_dir: str | None = None) -> Facts:
    """Print the folder of records.

    It need not exist.
    """
    folder = folder_of(cache_dir)
    Folder(folder).check_home()
    return Facts("folder of records", {"path": str(folder)}).lines(str(folder))


def export_command(
    file: Annotated[str, option("FILE", "Where to, a file or a URL; what is there is replaced.")],
    which: Which = None,
    sign: Annotated[Path | None, option("--sign", "Sign it by the Ed25519 private key in this file.", "KEY")] = None,
    cache_dir: str | None = None,
) -> Facts:
    """Write records to one file with a checksum.

    To a URL such as s3://bucket/winners.json if its kind can be written. What URLs serve is used elsewhere if it is
    signed.
    """
    records = matching(which, folder_of(cache_dir))
    if not records:  # an export without records would replace a good file
        raise CacheError(nothing_found(which, cache_dir), hint="`triton-ops cache show` lists what there is")
    count = export_records(records, file, sign)
    facts = Facts("exported records", {"exported": count, "file": shown(file)})
    text = f"{counted(count, 'record')} to {shown(file)}"
    to_stdout = not is_url(file) and not StoredFile(file).exists
    return facts.tell(text) if to_stdout else facts.lines(text)  # stdout may be where the records went


def import_command(
    file: Annotated[str, option("FILE", "A file of `cache export`, or its URL.")],
    replace: Annotated[bool, option("--replace", "Replace records that are there for the same key.")] = False,
    cache_dir: str | None = None,
) -> Facts:
    """Take in the records of an exported file.

    A record that is there for the same key stays, unless --replace is given. A record that this version cannot read
    is skipped, and a file that was changed after the export is refused whole. So is what a URL serves, unless a key of
    TRITON_OPS_TRUSTED_KEYS has signed it or the URL ends in #sha256= and its digest. Records of other devices are
    taken, and a line names the device.
    """
    store = open_store(folder_of(cache_dir))
    if not store.writable:
        raise CacheError(f"{folder_of(cache_dir)} cannot be written", hint="name another folder with --cache-dir")
    imported = import_records(file, store, replace=replace)
    return Facts("imported records", vars(imported)).lines(
        str(imported),
        *(f"  {entry}: {reason}" for entry, reason in imported.skipped.items()),
        *_places(imported.devices.values()),
    )  # fmt: skip


def _to_remove(which: str | None, everything: bool, cache_dir: str | None) -> list[Record]:
    if (which is None) != everything:
        message = "cache rm takes either KERNEL|ID or --all"
        raise SettingsError(message, hint="`triton-ops cache show` lists the records")
    records = matching(which, folder_of(cache_dir))
    by_id = which is not None and all(record.key.kernel != which for record in records)
    if by_id and len(records) > 1:
        ids = ", ".join(record.id[:ID_SHOWN] for record in records)
        raise SettingsError(f"{len(records)} ids start with {which}: {ids}", hint="write more of the one you mean")
    return records


def _places(devices: Iterable[str]) -> list[str]:
    """For each device with records that were taken, how many these are, and whether the device is found here."""
    names = {device.probe("cpu").name, *(spec.name for spec in device.gpus_without_torch())}
    return [
        f"  {counted(count, 'record')} for {name}" + ("" if name in names else ", which is not found here")
        for name, count in Counter(devices).items()
    ]


def misses_command(
    clear: Annotated[bool, option("--clear", "Empty the list.")] = False, cache_dir: str | None = None
) -> Facts:
    """List the problems that nothing answered, those first that cost most; `tune --from-misses` tunes them.

    `expected ms` is the time that one launch is expected to take. A problem leaves the list when its winner is
    stored. Calls with objects such as tuples, and those of a space of more than 256 configs, are listed, but
    --from-misses cannot tune them. It makes up the tensors: uniform in [-1, 1], or 0 to 127 where they are integers.
    """
    folder = folder_of(cache_dir)
    Folder(folder).check_home()
    # To clear takes a lock in the folder, which may not exist.
    misses = Misses(folder).clear() if clear and folder.is_dir() else Misses(folder).read()
    facts = Facts("misses", [miss.as_json for miss in misses])
    rows = [
        [
            miss.key.id[:ID_SHOWN], str(miss.count), "-" if miss.expected_ms is None else f"{miss.expected_ms:.4g}",
            miss.key.kernel, str(miss.key.device.get("name", "-")), miss.last.replace("+00:00", "Z"),
            miss.key.label or "-",
        ]
        for miss in misses
    ]  # fmt: skip
    facts.table(_MISSES_HEADER, rows, _MISSES_NUMBERS)
    if not misses:
        facts.tell(f"there are no misses in {folder}")
    return facts.tell(f"{len(misses)} removed") if clear else facts
