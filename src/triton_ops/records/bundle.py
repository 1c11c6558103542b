"""Export and import of records as one file, for example from the machine that tuned to those that serve.

The file is readable text. Equal records give equal bytes, and a checksum shows damage and edits by hand. The file is no
store: it is written and read as a whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_ops._paths import expanded
from triton_ops.base import DamagedError, read_named, sealed, unsealed, write_named
from triton_ops.exceptions import CacheError
from triton_ops.records.record import Record
from triton_ops.records.store import RECORDS, Store, parse_object

KIND = "triton-ops export"
SCHEMA_VERSION = 1
_LARGEST_BYTES = 64 << 20  # 15,000 records


@dataclass(frozen=True)
class Imported:
    """The result of an import, record by record.

    Attributes:
        added: Ids that the store did not have.
        replaced: Ids whose record in the store was replaced by the one in the file.
        skipped: The reason for each record that was not taken, by id, or by position in the file if it has no id.
        devices: The name of the device for which each record holds that was added or replaced, by id.
    """

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = len(self.added), len(self.replaced), len(self.skipped)
        return "{} added, {} replaced, {} skipped".format(*counts)


def export_records(records: Iterable[Record], path: str | os.PathLike[str]) -> int:
    """Write `records`, for example a whole store, to one file in the order of their ids, and return their number.

    Of several records with one id the first is written. An existing file is replaced, and keeps its permissions; of a
    link, the file at its end is. A pipe that is being read and a character device such as `/dev/stdout` are written to.

    Raises:
        CacheError: The file cannot be written, or a record has no JSON form.
    """
    by_id: dict[str, Record] = {}
    for record in records:
        by_id.setdefault(record.id, record)
    # The records are turned into text and back, since the checksum must be that of what a reader will see.
    contents = [parse_object(RECORDS.dumps(by_id[record_id])) for record_id in sorted(by_id)]
    bundle = sealed({"kind": KIND, "schema_version": SCHEMA_VERSION, "records": contents})
    target = expanded(path)
    try:
        write_named(target, json.dumps(bundle, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise CacheError(
            f"{target} cannot be written: {error.strerror or error}",
            hint="name a file in a folder that can be written",
        ) from error
    return len(contents)


def import_records(path: str | os.PathLike[str], store: Store[Record], *, replace: bool = False) -> Imported:
    """Put the records of an exported file into `store`.

    A record that this version cannot read is skipped, with the reason; the others are taken.

    Args:
        path: A file that `export_records` wrote.
        store: The store that takes the records.
        replace: Whether a record of the file replaces another one for the same key; otherwise the store's is kept.

    Raises:
        CacheError: The file cannot be read, is no export, or was changed after it was written.
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
        bundle = parse_object(read_named(path, _LARGEST_BYTES))
    except OSError as error:
        raise CacheError(f"{path} cannot be read: {error.strerror or error}", hint="name an exported file") from error
    except CacheError as error:
        raise CacheError(f"{path} is no export: {error}", hint="export it again") from error
    if bundle.get("kind") != KIND:
        raise CacheError(
            f"{path} is no export: its kind is {bundle.get('kind')!r}, not {KIND!r}",
            hint="check the path",
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
        unsealed(bundle)
    except DamagedError as error:
        hint = "export it again, or take the file from where it was exported"
        raise CacheError(f"{path} was changed after it was exported: {error}", hint=hint) from error
    return contents
