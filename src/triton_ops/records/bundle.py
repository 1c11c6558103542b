"""Records in one file: readable text, in which equal records have equal bytes, and a checksum shows damage and edits.

It is no store: it is written and read as a whole. What a URL serves is unpacked into a folder beside its copy.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_ops.base import DamagedError, Folder, NamedFile, Sealed
from triton_ops.exceptions import CacheError
from triton_ops.records.record import Record
from triton_ops.records.signing import signed
from triton_ops.records.sources import local_path, write_at
from triton_ops.records.store import RECORDS, Store, check_kind
from triton_ops.settings import shown

KIND = "triton-ops export"
SCHEMA_VERSION = 1
_LARGEST_BYTES = 64 << 20  # 15,000 records
_MOST_RECORDS = 50_000  # of the smallest size
_ID = re.compile(r"[0-9a-f]{32}")  # which becomes a file's name


@dataclass(frozen=True)
class Imported:
    """The outcome of an import by ids of records, or by the place in the file of one that is skipped without an id."""

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)  # with the reason
    devices: Mapping[str, str] = field(default_factory=dict)  # the name of the device of each record that was taken

    def __str__(self) -> str:
        return f"{len(self.added)} added, {len(self.replaced)} replaced, {len(self.skipped)} skipped"


def export_records(
    records: Iterable[Record], path: str | os.PathLike[str], sign: str | os.PathLike[str] | None = None
) -> int:
    """Write records to one file in the order of their ids, of several with one id the first, and return their number.

    The path may be a URL, and `sign` names the file of a private key, whose signature the file then has. An existing
    file is replaced, and keeps its permissions; of a link, the file at its end is. A pipe that is being read and a
    character device such as `/dev/stdout` are written to. CacheError: the file cannot be written, or a record has no
    JSON form. SettingsError: the key cannot be used.
    """
    by_id: dict[str, Record] = {}
    for record in records:
        by_id.setdefault(record.id, record)
    # The records are turned into text and back, since the checksum must be that of what a reader will see.
    contents = [Sealed.parsed(RECORDS.dumps(by_id[record_id])) for record_id in sorted(by_id)]
    bundle = Sealed(signed({"kind": KIND, "schema_version": SCHEMA_VERSION, "records": contents}, sign))
    with CacheError.when(f"{shown(path)} cannot be written", hint="name a file in a folder that can be written"):
        write_at(path, json.dumps(bundle, indent=2, ensure_ascii=False) + "\n")
    return len(contents)


def import_records(path: str | os.PathLike[str], store: Store[Record], *, replace: bool = False) -> Imported:
    """Put the records of an exported file into `store`; one that this version cannot read is skipped, with the reason.

    The path may be a URL, whose content is judged first. A record that the store has for the same key stays, unless
    `replace` is set. CacheError: the file cannot be read, is no export, or was changed after it was written.
    """
    additions: list[str] = []
    replaced: list[str] = []
    reasons: dict[str, str] = {}
    devices: dict[str, str] = {}
    for position, content in enumerate(_contents(local_path(path))):
        try:
            record = RECORDS.convert(content)
        except CacheError as error:
            reasons[str(content.get("id") or f"record {position}")] = str(error)
            continue
        if (present := store.get(record.id)) is not None and (present == record or not replace):
            reasons[record.id] = "already there" if present == record else "the store has another record for this key"
            continue
        store.put(record)
        if store.get(record.id) != record:
            reasons[record.id] = "the store did not take the record: see its warning"
        else:
            (additions if present is None else replaced).append(record.id)
            devices[record.id] = str(record.key.device.get("name", "a device of no known name"))
    return Imported(tuple(additions), tuple(replaced), reasons, devices)


def unpacked(copy: Path) -> Path:
    """The folder with the records of an exported file beside it, made as a whole or not at all.

    Each record is judged when it is read, as those of any folder. CacheError: the file is no export, or was changed, or
    the folder cannot be made.
    """
    folder = copy.with_suffix("")
    with CacheError.when(f"{folder} cannot be used", "set TRITON_OPS_CACHE_DIR"):
        if not Folder(Folder(folder).within(copy.parent)).exists:
            by_id = {str(content.get("id")): content for content in _contents(copy)}
            files = ((RECORDS.file_name(each), json.dumps(by_id[each])) for each in by_id if _ID.fullmatch(each))
            Folder(folder).fill(files)
    return folder


def _contents(path: Path) -> list[dict[str, Any]]:
    """The records of an exported file as JSON objects, after the file was checked for damage."""
    with CacheError.when(f"{path} cannot be read", hint="name an exported file"):
        text = NamedFile(path).read(_LARGEST_BYTES)
    with CacheError.when(f"{path} is no export", "export it again", DamagedError):
        bundle = Sealed.parsed(text)
    check_kind(bundle, KIND, SCHEMA_VERSION, "export it again with this version", what=f"{path} is no export: ")
    contents = bundle.get("records")
    if not isinstance(contents, list) or not all(isinstance(content, dict) for content in contents):
        raise CacheError(f"{path} has no list of records", hint="export it again")
    if len(contents) > _MOST_RECORDS:
        message = f"{path} has {len(contents)} records; at most {_MOST_RECORDS} are read"
        raise CacheError(message, hint="export those of fewer kernels to each file")
    hint = "export it again, or take the file from where it was exported"
    with CacheError.when(f"{path} was changed after it was exported", hint, DamagedError):
        Sealed.opened(bundle)
    return contents
