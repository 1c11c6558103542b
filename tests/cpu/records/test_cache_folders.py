"""Folders of records that cannot be made, read, written or locked, and stores in layers."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.records import full_disk, record, run_python
from triton_ops.base import Folder
from triton_ops.exceptions import CacheError
from triton_ops.records import RECORDS, DirectoryStore, MemoryStore, Record
from triton_ops.records import store as directory
from triton_ops.records.store import open_store
from triton_ops.space import Config


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore[Record]:
    return DirectoryStore(tmp_path / "cache", RECORDS)


# Folders


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert DirectoryStore("~/a/b", RECORDS).folder == tmp_path / "a" / "b"
    assert DirectoryStore("~/c", RECORDS, read_only=True).folder == tmp_path / "c"
    assert not (tmp_path / "c").exists()


def test_a_relative_folder_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = DirectoryStore("here", RECORDS)
    store.put(record())
    monkeypatch.chdir("/")
    assert store.get(record().id) == record()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_is_no_folder(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(CacheError, match="is a file") as caught:
        DirectoryStore(path, RECORDS, read_only=read_only)
    assert caught.value.hint
    assert path.read_text() == "mine"


def test_a_store_opened_for_reading_changes_nothing(
    store: DirectoryStore[Record], caplog: pytest.LogCaptureFixture
) -> None:
    store.put(record())
    before = sorted(store.folder.iterdir())
    reader = DirectoryStore(store.folder, RECORDS, read_only=True)
    assert not reader.writable
    assert reader.get(record().id) == record()
    reader.put(record("other"))
    reader.put(record("another"))
    with pytest.raises(CacheError, match="cannot be removed"):
        reader.clear()
    assert sorted(store.folder.iterdir()) == before
    assert len(caplog.records) == 1


READ_ONLY = """
import json, logging, os, sys, tempfile  # the last before another user, who may not read it
from triton_ops.records import RECORDS, DirectoryStore
from triton_ops.records.store import open_store
from triton_ops.records import Record
from triton_ops.exceptions import CacheError
from triton_ops.space import Config

logging.basicConfig(stream=sys.stderr, format="WARNED %(message)s")
folder, unreadable = sys.argv[1:]
if os.getuid() == 0:
    os.setuid(65534)
store = open_store(folder)
[kept] = list(store)
new = RECORDS.convert(json.loads(sys.stdin.read()))
for _ in range(3):
    store.put(new)
try:
    store.clear()
    cleared = True
except CacheError:
    cleared = False
store.put(new)
print(json.dumps({
    "writable": store.writable,
    "read": store.get(kept.id) == kept,
    "kept in memory": store.get(new.id) == new,
    "on disk": store.directory.get(new.id) is not None,
    "iterated": len(list(store)),
    "cleared": cleared,
    "unreadable": store.get(unreadable) is None,
}))
"""


@pytest.mark.processes
def test_a_read_only_folder_is_read_and_memory_keeps_new_values() -> None:
    folder = Path(tempfile.mkdtemp())  # not tmp_path, which other users cannot enter
    try:
        store = DirectoryStore(folder, RECORDS)
        store.put(record())
        locked = store.path_of(record("locked").id)
        locked.write_text(RECORDS.dumps(record("locked")))
        locked.chmod(0)
        folder.chmod(0o555)
        new = RECORDS.dumps(record("new"))
        done = run_python("-c", READ_ONLY, str(folder), record("locked").id, input=new)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {
            "writable": False,
            "read": True,
            "kept in memory": True,
            "on disk": False,
            "iterated": 2,
            "cleared": False,
            "unreadable": True,
        }
        warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNED")]
        assert len(warnings) == 2, warnings  # one for writing, one for the file that is not ours
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_full_disk_is_a_warning_and_memory_keeps_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = open_store(tmp_path), open_store(tmp_path)
    store.put(record(winner=Config(BLOCK=1)))
    monkeypatch.setattr("triton_ops.records.store.StoredFile.replace", full_disk)
    for block in (2, 3):
        store.put(record(winner=Config(BLOCK=block)))
    store.put(record("softmax"))
    [warning] = caplog.records
    assert "No space left on device" in warning.getMessage()
    assert store.get(record().id) == record(winner=Config(BLOCK=3))
    assert other.get(record().id) == record(winner=Config(BLOCK=1))
    assert len(list(store)) == 2
    monkeypatch.undo()
    store.put(record(winner=Config(BLOCK=4)))
    assert other.get(record().id) == store.get(record().id) == record(winner=Config(BLOCK=4))
    other.put(record(winner=Config(BLOCK=5)))
    assert store.get(record().id) == record(winner=Config(BLOCK=5))
    assert store.get(record("softmax").id) == record("softmax")
    assert store.remove(record("softmax").id)
    assert store.get(record("softmax").id) is None


def test_a_folder_that_cannot_be_listed_counts_as_empty(
    store: DirectoryStore[Record], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Path) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    store.put(record())
    monkeypatch.setattr(os, "listdir", refuse)
    assert list(store) == []
    assert list(store) == []
    assert len(caplog.records) == 1
    assert store.get(record().id) == record()


@pytest.mark.usefixtures("waits_for_the_disk")
def test_a_failed_write_leaves_no_file(store: DirectoryStore[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", fail)
    assert not store.try_put(record())
    assert [path.name for path in store.folder.iterdir()] == [".lock"]


def test_a_lock_that_is_never_freed_is_a_warning_and_is_gone_on_without(
    store: DirectoryStore[Record],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(directory, "_LOCK_WAIT_S", 0.05)
    store.put(record())
    with Folder(store.folder).locked() as held:
        assert held
        assert store.try_put(record("softmax"))
        assert store.get(record().id) == record()  # reading needs no lock
        assert store.remove(record().id)
    [warning] = caplog.records
    assert "held it for 0.05 s" in warning.getMessage()
    assert store.get(record("softmax").id) == record("softmax")


# Layers


def test_memory_answers_when_the_folder_is_gone_and_put_makes_it_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "cache")
    store.put(record())
    shutil.rmtree(tmp_path / "cache")
    assert store.get(record().id) == record()
    assert list(store) == [record()]
    store.put(record("softmax"))
    assert open_store(tmp_path / "cache").get(record("softmax").id) == record("softmax")


def test_memory_has_nothing_that_another_process_has_removed_before_the_folder_is_gone(tmp_path: Path) -> None:
    one, two = open_store(tmp_path / "cache"), open_store(tmp_path / "cache")
    one.put(record())
    one.put(record("softmax"))
    assert two.remove(record().id)
    assert one.get(record().id) is None
    shutil.rmtree(tmp_path / "cache")
    assert one.get(record().id) is None
    assert list(one) == [record("softmax")]


def test_processes_see_each_others_puts_and_removals(tmp_path: Path) -> None:
    one, two = open_store(tmp_path), open_store(tmp_path)
    one.put(record())
    assert two.get(record().id) == record()
    two.put(record(winner=Config(BLOCK=128)))
    assert one.get(record().id) == record(winner=Config(BLOCK=128))
    assert one.remove(record().id)
    assert two.get(record().id) is None
    two.put(record())
    assert one.clear() == 1
    assert two.get(record().id) is None
    assert list(two) == []


def test_further_stores_are_asked_last_and_never_changed(tmp_path: Path) -> None:
    shared = DirectoryStore(tmp_path / "shared", RECORDS)
    shared.put(record(winner=Config(BLOCK=1)))
    store = open_store(tmp_path / "own", tmp_path / "shared")
    assert store.get(record().id) == record(winner=Config(BLOCK=1))
    store.put(record(winner=Config(BLOCK=2)))
    assert store.get(record().id) == record(winner=Config(BLOCK=2))
    assert list(store) == [record(winner=Config(BLOCK=2))]
    assert store.clear() == 1
    assert store.get(record().id) == record(winner=Config(BLOCK=1))
    assert not store.remove(record().id)
    assert list(shared) == [record(winner=Config(BLOCK=1))]


def test_a_memory_store_removes_values() -> None:
    store = MemoryStore(RECORDS)
    store.put(record())
    store.put(record("softmax"))
    assert len(list(store)) == 2
    assert store.clear() == 2
    assert list(store) == []
