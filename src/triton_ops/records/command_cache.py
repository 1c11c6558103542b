"""Commands on the content of a cache folder: `triton-ops cache` on records, `misses` on problems without one.

An exported file is readable text. Equal records give equal bytes, and a checksum shows damage and edits by hand. It is
no store: it is written and read as a whole.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops import device
from triton_ops.base import DamagedError, Folder, NamedFile, Sealed, StoredFile, counted
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records.command_show import ID_SHOWN, Which, matching, nothing_found, tell_nothing
from triton_ops.records.misses import Misses
from triton_ops.records.record import Record
from triton_ops.records.store import RECORDS, Store, open_store, parse_object
from triton_ops.settings import expanded
from triton_ops.terminal import CacheDir, Facts, folder_of, option

KIND = "triton-ops export"
SCHEMA_VERSION = 1
_LARGEST_BYTES = 64 << 20  # 15,000 records


@dataclass(frozen=True)
class Imported:
    """The outcome of an import by ids of records, or by the place in the file of one that is skipped without an id."""

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)  # with the reason
    devices: Mapping[str, str] = field(default_factory=dict)  # the name of the device of each record that was taken

    def __str__(self) -> str:
        counts = len(self.added), len(self.replaced), len(self.skipped)
        return "{} added, {} replaced, {} skipped".format(*counts)


def export_records(records: Iterable[Record], path: str | os.PathLike[str]) -> int:
    """Write records to one file in the order of their ids, of several with one id the first, and return their number.

    An existing file is replaced, and keeps its permissions; of a link, the file at its end is. A pipe that is being
    read and a character device such as `/dev/stdout` are written to. CacheError: the file cannot be written, or a
    record has no JSON form.
    """
    by_id: dict[str, Record] = {}
    for record in records:
        by_id.setdefault(record.id, record)
    # The records are turned into text and back, since the checksum must be that of what a reader will see.
    contents = [parse_object(RECORDS.dumps(by_id[record_id])) for record_id in sorted(by_id)]
    bundle = Sealed({"kind": KIND, "schema_version": SCHEMA_VERSION, "records": contents})
    target = expanded(path)
    try:
        NamedFile(target).write(json.dumps(bundle, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise CacheError(
            f"{target} cannot be written: {error.strerror or error}", hint="name a file in a folder that can be written"
        ) from error
    return len(contents)


def import_records(path: str | os.PathLike[str], store: Store[Record], *, replace: bool = False) -> Imported:
    """Put the records of an exported file into `store`; one that this version cannot read is skipped, with the reason.

    A record that the store has for the same key stays, unless `replace` is set. CacheError: the file cannot be read, is
    no export, or was changed after it was written.
    """
    additions: list[str] = []
    replaced: list[str] = []
    reasons: dict[str, str] = {}
    devices: dict[str, str] = {}
    for position, content in enumerate(_contents(expanded(path))):
        try:
            record = RECORDS.convert(content)
        except CacheError as error:
            reasons[str(content.get("id") or f"record {position}")] = str(error)
            continue
        present = store.get(record.id)
        if present is not None and (present == record or not replace):
            reasons[record.id] = "already there" if present == record else "the store has another record for this key"
            continue
        store.put(record)
        if store.get(record.id) != record:
            reasons[record.id] = "the store did not take the record: see its warning"
        else:
            (additions if present is None else replaced).append(record.id)
            devices[record.id] = str(record.key.device.get("name", "a device of no known name"))
    return Imported(tuple(additions), tuple(replaced), reasons, devices)


def _contents(path: Path) -> list[dict[str, Any]]:
    """The records of an exported file as JSON objects, after the file was checked for damage."""
    try:
        bundle = parse_object(NamedFile(path).read(_LARGEST_BYTES))
    except OSError as error:
        raise CacheError(f"{path} cannot be read: {error.strerror or error}", hint="name an exported file") from error
    except CacheError as error:
        raise CacheError(f"{path} is no export: {error}", hint="export it again") from error
    if bundle.get("kind") != KIND:
        raise CacheError(
            f"{path} is no export: its kind is {bundle.get('kind')!r}, not {KIND!r}", hint="check the path"
        )
    version = bundle.get("schema_version")
    if version != SCHEMA_VERSION:
        raise CacheError(
            f"{path} has schema version {version!r}; this triton-ops reads {SCHEMA_VERSION}",
            hint="upgrade triton-ops, or export it again with this version",
        )
    contents = bundle.get("records")
    if not isinstance(contents, list) or not all(isinstance(content, dict) for content in contents):
        raise CacheError(f"{path} has no list of records", hint="export it again")
    try:
        Sealed.opened(bundle)
    except DamagedError as error:
        hint = "export it again, or take the file from where it was exported"
        raise CacheError(f"{path} was changed after it was exported: {error}", hint=hint) from error
    return contents


_MISSES_HEADER = ("id", "count", "expected ms", "kernel", "device", "last", "problem")
_MISSES_NUMBERS = ("count", "expected ms")


def remove_command(
    which: Which = None,
    everything: Annotated[bool, option("--all", "Remove every record.")] = False,
    cache_dir: CacheDir = None,
) -> Facts:
    """Remove records; files that are not ours stay."""
    records = _to_remove(which, everything, cache_dir)
    ids: list[str] = []
    if records:
        store = open_store(folder_of(cache_dir))
        ids = [record.id for record in records if store.remove(record.id)]
    facts = Facts("removed records", {"removed": ids}).lines(f"{len(ids)} removed")
    return facts if records else tell_nothing(facts, which, cache_dir)


def path_command(cache_dir: CacheDir = None) -> Facts:
    """Print the folder of records."""
    folder = folder_of(cache_dir)
    Folder(folder).check_home()
    return Facts("folder of records", {"path": str(folder)}).lines(str(folder))


def export_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; an existing file is replaced.")],
    which: Which = None,
    cache_dir: CacheDir = None,
) -> Facts:
    """Write records to one file with a checksum."""
    records = matching(which, cache_dir)
    if not records:  # an export without records would replace a good file
        raise CacheError(nothing_found(which, cache_dir), hint="`triton-ops cache show` lists what there is")
    count = export_records(records, file)
    facts = Facts("exported records", {"exported": count, "file": str(file)})
    text = f"{counted(count, 'record')} to {file}"
    return facts.lines(text) if StoredFile(file).exists else facts.tell(text)  # stdout may be where the records went


def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `cache export`.")],
    replace: Annotated[bool, option("--replace", "Let the file's records take the place of others.")] = False,
    cache_dir: CacheDir = None,
) -> Facts:
    """Take in the records of an exported file."""
    store = open_store(folder_of(cache_dir))
    if not store.writable:
        raise CacheError(f"{folder_of(cache_dir)} cannot be written", hint="name another folder with --cache-dir")
    imported = import_records(file, store, replace=replace)
    return Facts("imported records", {
        "added": list(imported.added), "replaced": list(imported.replaced), "skipped": dict(imported.skipped),
        "devices": dict(imported.devices),
    }).lines(
        str(imported),
        *(f"  {entry}: {reason}" for entry, reason in imported.skipped.items()),
        *_places(imported.devices.values()),
    )  # fmt: skip


def _to_remove(which: str | None, everything: bool, cache_dir: str | None) -> list[Record]:
    if (which is None) != everything:
        raise SettingsError(
            "cache rm takes either KERNEL|ID or --all", hint="`triton-ops cache show` lists the records"
        )
    records = matching(which, cache_dir)
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
    clear: Annotated[bool, option("--clear", "Empty the list.")] = False,
    cache_dir: CacheDir = None,
) -> Facts:
    """List the problems that nothing answered, those first that cost most; `tune --from-misses` tunes them."""
    folder = folder_of(cache_dir)
    Folder(folder).check_home()
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
