"""Files of records: their form, damaged files, foreign files, and killed writers."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import ENVIRONMENT, record, run_python
from triton_ops.base import Folder, Sealed
from triton_ops.records import RECORDS, DirectoryStore, Record


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore[Record]:
    return DirectoryStore(tmp_path / "cache", RECORDS)


# What a file looks like


def test_an_entry_is_one_readable_file_named_by_its_id(store: DirectoryStore[Record]) -> None:
    store.put(record())
    path = store.folder / f"{record().id}.record.json"
    assert store.path_of(record().id) == path
    text = path.read_text(encoding="utf-8")
    content = json.loads(text)
    assert list(content)[:3] == ["kind", "schema_version", "id"]
    assert content["id"] == record().id
    assert content["key"]["problem"] == {"M": 4096}
    assert "4096 × 64" in text
    assert '\n  "winner": {\n    "BLOCK": 64\n' in text


def test_a_second_listing_reads_only_what_has_changed(store: DirectoryStore[Record]) -> None:
    first, other = record(), record("other")
    store.put(first)
    store.put(other)
    before = {each.id: each for each in store}
    store.put(replace(first, created="2026-02-03T04:05:06+00:00"))
    store.path_of(other.id).touch()
    after = {each.id: each for each in store}
    assert after[other.id] is before[other.id]
    assert (after[first.id].created, before[first.id].created) == ("2026-02-03T04:05:06+00:00", first.created)
    store.remove(other.id)
    assert [each.id for each in store] == [first.id]


@pytest.mark.processes
def test_the_cache_imports_no_gpu_stack() -> None:
    script = "import sys, triton_ops.records; print([m for m in ('torch', 'triton') if m in sys.modules])"
    assert run_python("-c", script).stdout.strip() == "[]"


# Files that are not entries


def content_with(**changes: Any) -> str:
    return json.dumps({**RECORDS.contents(record()), **changes})


BAD = {
    "empty": "",
    "torn": RECORDS.dumps(record())[:100],
    "a list": "[1, 2]",
    "another kind": content_with(kind="triton-ops config"),
    "no kind": json.dumps({"BLOCK": 64}),
    "newer": content_with(schema_version=99),
    "no version": content_with(schema_version=None),
    "ill-typed": content_with(timing="fast"),
    "a field is missing": json.dumps(
        {name: value for name, value in RECORDS.contents(record()).items() if name != "winner"}
    ),
    "edited id": content_with(id="0" * 32),
    "edited key": content_with(key={**RECORDS.contents(record())["key"], "kernel": "softmax"}),
    "another entry": RECORDS.dumps(record("softmax")),
    "NaN": RECORDS.dumps(record()).replace("0.9", "NaN"),
    "nested without end": "[" * 200_000,
}


def test_a_field_that_an_older_record_lacks_is_written_with_its_default():
    contents = RECORDS.contents(record())
    older = {name: value for name, value in contents.items() if name not in ("failures", "checksum")}
    assert RECORDS.contents(RECORDS.loads(json.dumps(Sealed(older)))) == contents


@pytest.mark.parametrize("text", BAD.values(), ids=list(BAD))
def test_a_bad_file_is_a_miss_and_one_warning_and_stays(
    store: DirectoryStore[Record], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.path_of(record().id)
    path.write_text(text, encoding="utf-8")
    for _ in range(3):
        assert store.get(record().id) is None
        assert list(store) == []
    assert store.clear() == 0
    assert not store.remove(record().id)
    assert path.read_text(encoding="utf-8") == text
    [warning] = caplog.records
    assert warning.name == "triton_ops"
    assert warning.levelno == logging.WARNING
    assert str(path) in warning.getMessage()


def test_records_of_an_earlier_version_are_misses_and_stay(
    store: DirectoryStore[Record], caplog: pytest.LogCaptureFixture
) -> None:
    older = {store.path_of(f"{number:032x}"): content_with(schema_version=1, mode="graph-cold") for number in range(3)}
    for path, text in older.items():
        path.write_text(text, encoding="utf-8")
    assert store.get(f"{0:032x}") is None
    assert list(store) == []
    assert store.clear() == 0
    assert {path: path.read_text(encoding="utf-8") for path in older} == older
    assert len(caplog.records) == len(older)
    for warning in caplog.records:
        assert "schema version 1; this triton-ops reads 2" in warning.getMessage()
        assert warning.getMessage().endswith("(hint: tune again)")


def test_bytes_that_are_no_text_are_a_miss(store: DirectoryStore[Record]) -> None:
    store.path_of(record().id).write_bytes(b"\xff\xfe\x00{")
    assert store.get(record().id) is None


def test_a_folder_under_an_entrys_name_is_a_miss_and_put_survives_it(
    store: DirectoryStore[Record], caplog: pytest.LogCaptureFixture
) -> None:
    store.path_of(record().id).mkdir()
    assert store.get(record().id) is None
    assert not store.try_put(record())
    assert store.path_of(record().id).is_dir()
    assert len(caplog.records) == 2


@pytest.mark.parametrize("kind", ["another kind", "newer"])
def test_put_does_not_replace_files_of_another_kind_or_a_newer_version(
    store: DirectoryStore[Record], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.path_of(record().id)
    path.write_text(BAD[kind], encoding="utf-8")
    for _ in range(3):
        assert not store.try_put(record())
    assert path.read_text(encoding="utf-8") == BAD[kind]
    assert ["is not replaced" in result.getMessage() for result in caplog.records] == [True]


@pytest.mark.parametrize("kind", sorted({*BAD} - {"another kind", "newer"}))
def test_put_replaces_a_damaged_entry(store: DirectoryStore[Record], kind: str) -> None:
    store.path_of(record().id).write_text(BAD[kind], encoding="utf-8")
    assert store.try_put(record())
    assert store.get(record().id) == record()


def test_damage_is_reported_again_once_it_was_repaired(
    store: DirectoryStore[Record], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        store.path_of(record().id).write_text("", encoding="utf-8")
        store.get(record().id)
        store.put(record())
    assert len(caplog.records) == 2


@pytest.mark.parametrize("entry_id", ["", "../secret", "x" * 32, "0" * 31, f"{'0' * 32}\n"])
def test_a_text_that_is_no_id_is_a_miss(store: DirectoryStore[Record], entry_id: str) -> None:
    (store.folder.parent / "secret.record.json").write_text(RECORDS.dumps(record()))
    assert store.get(entry_id) is None
    assert not store.remove(entry_id)


# Removing


def test_clear_and_remove_touch_only_entries(store: DirectoryStore[Record], caplog: pytest.LogCaptureFixture) -> None:
    strangers = ["foreign.json", "notes.record.json", f"{'a' * 32}.json", f"{'b' * 32}.config.json"]
    for name in strangers:
        (store.folder / name).write_text("{}", encoding="utf-8")
    for name in ("one", "two", "three"):
        store.put(record(name))
    assert store.remove(record("one").id)
    assert not store.remove(record("one").id)
    assert store.get(record("one").id) is None
    assert store.clear() == 2
    assert sorted(path.name for path in store.folder.iterdir() if path.name != ".lock") == sorted(strangers)
    assert caplog.records == []


def test_clear_removes_temporary_files_of_killed_writers(store: DirectoryStore[Record]) -> None:
    store.put(record())
    orphan = store.folder / f".{record().id}.record.json-0123456789abcdef.tmp"
    other = store.folder / f".{record().id}.config.json-0123456789abcdee.tmp"
    orphan.write_text("{")
    other.write_text("{")
    os.utime(orphan, (0, 0))
    store.clear()
    assert not orphan.exists()
    assert other.exists()


# Killed writers

WRITER = """
import itertools, sys
from dataclasses import replace
from triton_ops.records import RECORDS, DirectoryStore
from triton_ops.space import Config
store = DirectoryStore(sys.argv[1], RECORDS)
given = RECORDS.loads(sys.stdin.read())
print("ready", flush=True)
for n in itertools.count():
    store.put(replace(given, winner=Config(n=n, copies=(n,) * 2000)))
"""


@pytest.mark.processes
def test_a_killed_writer_leaves_no_torn_entry_and_no_lock(
    store: DirectoryStore[Record], caplog: pytest.LogCaptureFixture
) -> None:
    for round_ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.folder)],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write(RECORDS.dumps(record()))
            writer.stdin.close()
            assert writer.stdout.readline() == "ready\n"
            while not store.path_of(record().id).exists():
                time.sleep(0.01)
            time.sleep(0.05 + 0.017 * round_)
            writer.send_signal(signal.SIGKILL)
        result = store.get(record().id)
        assert result is not None
        assert result.winner["copies"] == (result.winner["n"],) * 2000
    assert store.try_put(record())
    store.clear()
    Folder(store.folder).sweep(now_s=time.time() + 7200)
    assert [path.name for path in store.folder.iterdir()] == [".lock"]
    assert caplog.records == []


FIRST_CONVERSIONS = """
import dataclasses
import threading
from triton_ops.base import Sealed

begun, goes_on, values = threading.Event(), threading.Event(), []

def slow():
    begun.set()
    goes_on.wait()
    return int

@dataclasses.dataclass
class Inner:
    x: "slow()"

@dataclasses.dataclass
class Outer:
    inner: Inner
    name: str

def convert():
    values.append(Sealed.typed({"inner": {"x": 1}, "name": "n"}, Outer))

threads = [threading.Thread(target=convert) for _ in range(2)]
threads[0].start()
begun.wait()
threads[1].start()
threads[1].join(0.3)  # in which it would meet what the first one has begun
goes_on.set()
for thread in threads:
    thread.join()
print(values == [Outer(Inner(1), "n")] * 2)
"""


@pytest.mark.processes
def test_two_threads_convert_to_a_dataclass_for_the_first_time() -> None:
    done = run_python("-c", FIRST_CONVERSIONS)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
