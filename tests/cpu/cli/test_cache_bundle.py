"""Records exported to one file and imported from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.records import full_disk, record
from triton_ops.exceptions import CacheError
from triton_ops.records import RECORDS, DirectoryStore, MemoryStore
from triton_ops.records.bundle import export_records, import_records
from triton_ops.records.store import open_store
from triton_ops.space import Config


def test_exported_records_can_be_imported_unchanged(tmp_path: Path) -> None:
    store = MemoryStore(RECORDS)
    for name in ("one", "two", "three"):
        store.put(record(name))
    path = tmp_path / "winners.json"
    assert export_records([*store, record("one")], path) == 3
    content = json.loads(path.read_text(encoding="utf-8"))
    assert list(content) == ["kind", "schema_version", "records", "checksum"]
    assert content["kind"] == "triton-ops export"
    target = open_store(tmp_path / "cache")
    done = import_records(path, target)
    assert sorted(done.added) == sorted(result.id for result in store)
    assert str(done) == "3 added, 0 replaced, 0 skipped"
    assert list(target) == list(store)
    again = tmp_path / "again.json"
    export_records(target, again)
    assert again.read_bytes() == path.read_bytes()


def test_an_import_keeps_records_of_the_store_unless_told_to_replace_them(tmp_path: Path) -> None:
    path = tmp_path / "winners.json"
    export_records([record(winner=Config(BLOCK=1)), record("same"), record("new")], path)
    store = DirectoryStore(tmp_path / "cache", RECORDS)
    store.put(record(winner=Config(BLOCK=2)))
    store.put(record("same"))
    done = import_records(path, store)
    assert done.added == (record("new").id,)
    assert done.skipped == {
        record().id: "the store has another record for this key",
        record("same").id: "already there",
    }
    assert store.get(record().id) == record(winner=Config(BLOCK=2))
    done = import_records(path, store, replace=True)
    assert done.replaced == (record().id,)
    assert not done.added
    assert store.get(record().id) == record(winner=Config(BLOCK=1))


def change(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda content: content["records"][0]["winner"].update(BLOCK=1), "checksum"),
        (lambda content: content["records"].pop(), "checksum"),
        (lambda content: content.update(kind="triton-ops record"), "kind"),
        (lambda content: content.update(schema_version=99), "schema version 99"),
        (lambda content: content.update(records={}), "no list of records"),
        (lambda content: content.pop("checksum"), "no checksum"),
    ],
)
def test_no_record_of_a_changed_export_is_imported(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = tmp_path / "winners.json"
    export_records([record(), record("two")], path)
    change(path, edit)
    store = MemoryStore(RECORDS)
    with pytest.raises(CacheError, match=message) as caught:
        import_records(path, store)
    assert caught.value.hint
    assert list(store) == []


def test_a_record_of_a_newer_version_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "winners.json"
    future = msgspec.structs.replace(RECORDS, encode=lambda given: {**RECORDS.encode(given), "schema_version": 99})
    with monkeypatch.context() as patched:
        patched.setattr("triton_ops.records.bundle.RECORDS", future)
        export_records([record()], path)
    done = import_records(path, MemoryStore(RECORDS))
    assert list(done.skipped) == [record().id]
    assert "schema version 99" in done.skipped[record().id]


def test_an_import_names_records_that_the_store_did_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "winners.json"
    export_records([record()], path)
    store = DirectoryStore(tmp_path / "cache", RECORDS)
    monkeypatch.setattr("triton_ops.records.store.StoredFile.replace", full_disk)
    done = import_records(path, store)
    assert not done.added
    assert "did not take the record" in done.skipped[record().id]


def test_exports_that_cannot_be_read_or_written_say_so(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read"):
        import_records(tmp_path / "missing.json", MemoryStore(RECORDS))
    with pytest.raises(CacheError, match="cannot be written"):
        export_records([record()], tmp_path / "no folder" / "winners.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(CacheError, match="is no export"):
        import_records(tmp_path / "bad.json", MemoryStore(RECORDS))
