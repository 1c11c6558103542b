"""The documented ConfigCache on a folder: files, other processes, the older layout, and many at once."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.records import full_disk, run_python
from triton_ops.benchmark import ConfigCache
from triton_ops.exceptions import CacheError

HAMMER = Path(__file__).parents[3] / "benchmarks" / "robustness" / "cache_kills.py"
KEY = ("fp8_gemm", (4096, 4096, 4096), "cuda:0")
CONFIG = {"BLOCK_M": 128, "num_warps": 8}


def own_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.config.json"))


def test_without_a_folder_there_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = ConfigCache()
    cache.set(*KEY, CONFIG)
    cache.get(*KEY)
    cache.clear()
    assert cache.cache_dir is None
    assert list(tmp_path.iterdir()) == []


def test_an_entry_is_a_readable_file_with_its_key_inside(tmp_path: Path) -> None:
    cache = ConfigCache(str(tmp_path))
    cache.set(*KEY, CONFIG)
    [path] = own_files(tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "kind": "triton-ops config",
        "schema_version": 1,
        "id": cache.get_all_keys()[0],
        "key": {"kernel_type": "fp8_gemm", "problem_size": [4096, 4096, 4096], "device": "cuda:0"},
        "config": CONFIG,
        "checksum": json.loads(path.read_text())["checksum"],
    }
    assert path.name == f"{cache.get_all_keys()[0]}.config.json"
    assert len(path.read_text().splitlines()) > 10
    assert ConfigCache(tmp_path).get(*KEY) == CONFIG


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = ConfigCache("~/tuned/configs")
    cache.set(*KEY, CONFIG)
    assert cache.cache_dir == tmp_path / "tuned" / "configs"
    assert len(own_files(tmp_path / "tuned" / "configs")) == 1


def test_a_cache_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CacheError, match="is a file") as caught:
            ConfigCache(str(path))
        assert caught.value.hint
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: "",
        lambda content: "not JSON",
        lambda content: "[]",
        lambda content: json.dumps(CONFIG),
        lambda content: json.dumps({**content, "kind": "triton-ops record"}),
        lambda content: json.dumps({**content, "schema_version": 2}),
        lambda content: json.dumps({**content, "config": [1]}),
        lambda content: json.dumps({**content, "config": None}),
        lambda content: json.dumps({**content, "id": "0" * 32}),
        lambda content: json.dumps({**content, "key": {**content["key"], "device": "cuda:1"}}),
        lambda content: json.dumps({**content, "key": {**content["key"], "kernel_type": 5}}),
        lambda content: json.dumps({name: value for name, value in content.items() if name != "key"}),
    ],
)
def test_a_bad_file_is_a_miss_and_a_warning_and_stays(
    tmp_path: Path, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ConfigCache(tmp_path)
    cache.set(*KEY, CONFIG)
    [path] = own_files(tmp_path)
    text = change(json.loads(path.read_text()))
    path.write_text(text)
    for _ in range(3):
        assert cache.get(*KEY) is None
        assert KEY not in cache
        assert cache.get_all_keys() == []
    assert len(caplog.records) == 1
    assert str(path) in caplog.text
    cache.clear()
    assert path.read_text() == text


def test_clear_removes_other_processes_entries_and_no_foreign_files(tmp_path: Path) -> None:
    other = ConfigCache(tmp_path)
    other.set("other", 1, "cpu", CONFIG)
    strangers = ["foreign.json", f"{hashlib.md5(b'x').hexdigest()}.json", f"{'a' * 32}.record.json"]
    for name in strangers:
        (tmp_path / name).write_text('{"mine": 1}')
    cache = ConfigCache(tmp_path)
    cache.set(*KEY, CONFIG)
    cache.clear()
    assert own_files(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lock") == sorted(strangers)
    assert other.get("other", 1, "cpu") is None
    assert len(other) == 0


def test_processes_see_each_others_entries(tmp_path: Path) -> None:
    one, two = ConfigCache(tmp_path), ConfigCache(tmp_path)
    one.set(*KEY, {"n": 1})
    assert two.get(*KEY) == {"n": 1}
    two.set(*KEY, {"n": 2})
    assert one.get(*KEY) == {"n": 2}
    assert one.get_all_keys() == two.get_all_keys()


def test_memory_answers_for_entries_that_the_disk_did_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ConfigCache(tmp_path)
    monkeypatch.setattr("triton_ops.records.store.StoredFile.replace", full_disk)
    cache.set(*KEY, CONFIG)
    cache.set("other", 1, "cpu", CONFIG)
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert cache.get(*KEY) == CONFIG
    assert len(cache) == 2
    assert own_files(tmp_path) == []
    cache.clear()
    assert len(cache) == 0


def test_memory_answers_when_the_folder_is_gone(tmp_path: Path) -> None:
    cache = ConfigCache(tmp_path / "cache")
    cache.set(*KEY, CONFIG)
    shutil.rmtree(tmp_path / "cache")
    assert cache.get(*KEY) == CONFIG
    cache.set("other", 1, "cpu", CONFIG)
    assert ConfigCache(tmp_path / "cache").get("other", 1, "cpu") == CONFIG


READ_ONLY = """
import json, logging, os, sys  # a warning imports logging, which the other user may not be able to read
from triton_ops.benchmark import ConfigCache
from triton_ops.exceptions import CacheError
if os.getuid() == 0:
    os.setuid(65534)
cache = ConfigCache(sys.argv[1])
before = cache.get("k", 1, "cpu")
cache.set("k", 2, "cpu", {"n": 2})
after = cache.get("k", 2, "cpu")
try:
    cache.clear()
except CacheError as error:
    refused = error.hint != ""
else:
    refused = False
print(json.dumps([before, after, len(cache), refused]))
"""


@pytest.mark.processes
def test_a_read_only_folder_is_read_and_memory_keeps_the_rest() -> None:
    folder = Path(tempfile.mkdtemp())  # not tmp_path, which other users cannot enter
    try:
        ConfigCache(folder).set("k", 1, "cpu", {"n": 1})
        folder.chmod(0o555)
        done = run_python("-c", READ_ONLY, str(folder))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [{"n": 1}, {"n": 2}, 1, True]
        assert done.stderr.count("takes no new entries") == 1
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


# Many at once


@pytest.mark.processes
def test_processes_and_threads_lose_and_tear_nothing() -> None:
    """4 processes × 200 operations; 32 threads × 200 in memory, × 20 on a folder to save fsyncs."""
    words = ["--unharmed", "--processes", "4", "--ops", "200", "--thread-ops", "200", "--folder-thread-ops", "20"]
    done = run_python(str(HAMMER), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert {name: run["ops"] for name, run in figures.items()} == {
        "processes": 800,
        "threads": 640,
        "threads_memory_only": 6_400,
    }
    assert figures["processes"]["clears"] > 5
    for run in figures.values():
        assert (run["lost"], run["torn"], run["errors"]) == (0, 0, 0)
