"""Files: a kill at any moment leaves the old content or the new, and never a mixture."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import ENOUGH_S
from triton_ops.base import AppendedFile, Folder, NamedFile, StoredFile
from triton_ops.base import folders as syncing
from triton_ops.base.files import append_line
from triton_ops.exceptions import CacheError


def lines_of(path):
    """The whole lines of a file as text."""
    return [line.decode(errors="replace") for line in StoredFile(path).lines()]


_lines = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1),
    max_size=5,
)

REWRITE = """
import pathlib, sys
from triton_ops.base import StoredFile
path, n = pathlib.Path(sys.argv[1]), 0
while True:
    n += 1
    StoredFile(path).replace(str(n % 10) * 300_000)
    if n == 3:
        print("ready", flush=True)
"""
APPEND = """
import pathlib, sys
from triton_ops.base.files import append_line
n = 0
while True:
    n += 1
    append_line(pathlib.Path(sys.argv[1]), f"{n:08d} " + "x" * 50_000)
    print(n, flush=True)
"""
HOLD = """
import pathlib, sys, time
from triton_ops.base import Folder
with Folder(pathlib.Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def started(code, path):
    """A process running `code`, once it has said its first line."""
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline()
    return process


def killed(process):
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()
    process.stdout.close()
    process.wait()
    return rest


# Folders


def test_ensure_folder_makes_all_of_it_and_expands_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Folder("~/a/b").ensure() == tmp_path / "a" / "b"
    assert Folder(tmp_path / "a" / "b").ensure().is_dir()
    assert Folder(tmp_path / "a" / "b").writable
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_where_the_folder_should_be(tmp_path):
    file = tmp_path / "taken"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(CacheError, match="is a file") as caught:
            Folder(path).ensure()
        assert caught.value.hint
    assert file.read_text() == "mine"


def test_a_folder_that_cannot_be_made():
    with pytest.raises(CacheError, match="cannot be made") as caught:
        Folder("/proc/nothing/here").ensure()
    assert "TRITON_OPS_CACHE_DIR" in caught.value.hint


def test_writable_says_no_without_raising(tmp_path):
    assert not Folder(tmp_path / "absent").writable
    assert not Folder(type(tmp_path)("/proc")).writable


# Whole files


def test_atomic_write_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "record.json"
    for text in ("one", "", "µ\n" * 1000):
        StoredFile(path).replace(text)
        assert path.read_text(encoding="utf-8") == text
    assert [result.name for result in tmp_path.iterdir()] == ["record.json"]


def test_files_may_be_read_by_whom_the_umask_lets(tmp_path):
    for mask, mode in [(0o022, 0o644), (0o077, 0o600)]:
        before = os.umask(mask)
        try:
            StoredFile(tmp_path / "record.json").replace("x")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "record.json").stat().st_mode) == mode


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "record.json"
    StoredFile(path).replace("old")
    with pytest.raises(UnicodeEncodeError):
        StoredFile(path).replace("new \ud800")
    with pytest.raises(FileNotFoundError):
        StoredFile(tmp_path / "absent" / "record.json").replace("new")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        StoredFile(folder).replace("new")
    assert path.read_text() == "old"
    assert sorted(result.name for result in tmp_path.iterdir()) == ["folder", "record.json"]


@pytest.mark.processes
@pytest.mark.parametrize("wait_s", [0.0, 0.013, 0.05])
def test_kill_during_atomic_write_leaves_a_whole_file(tmp_path, wait_s):
    path = tmp_path / "record.json"
    process = started(REWRITE, path)
    seen = set()
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        seen.add(path.read_text())
    killed(process)
    seen.add(path.read_text())
    for text in seen:
        assert len(text) == 300_000
        assert len(set(text)) == 1
    leftover = [result.name for result in tmp_path.iterdir() if result != path]
    assert all(name.startswith(".record.json-") and name.endswith(".tmp") for name in leftover)
    StoredFile(path).replace("after")
    assert path.read_text() == "after"


# Lines


@given(_lines)
def test_lines_read_back_as_appended(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "run.jsonl"
    assert lines_of(path) == []
    for line in lines:
        append_line(path, line)
    assert lines_of(path) == lines


def test_a_line_break_in_a_line_is_refused(tmp_path):
    with pytest.raises(ValueError, match="line break"):
        append_line(tmp_path / "run.jsonl", "a\nb")
    assert not (tmp_path / "run.jsonl").exists()


@given(_lines, st.integers(0, 200), st.text(st.characters(categories=["L"]), min_size=1))
def test_a_torn_last_line_is_ignored_and_costs_no_later_line(tmp_path_factory, lines, cut, later):
    path = tmp_path_factory.mktemp("lines") / "run.jsonl"
    for line in lines:
        append_line(path, line)
    whole = path.read_bytes() if lines else b""
    torn = whole[: min(cut, len(whole))]  # a kill may cut anywhere, also inside a character
    path.write_bytes(torn)
    kept = torn.count(b"\n")
    assert lines_of(path) == lines[:kept]
    append_line(path, later)
    result = lines_of(path)
    assert result[:kept] == lines[:kept]
    assert result[-1] == later
    assert len(result) <= kept + 2  # the torn piece stands on a line of its own


@pytest.mark.processes
@pytest.mark.parametrize("wait_s", [0.0, 0.02])
def test_kill_during_append_loses_only_the_line_in_flight(tmp_path, wait_s):
    path = tmp_path / "run.jsonl"
    process = started(APPEND, path)
    time.sleep(wait_s)
    message = killed(process).split()
    last = int(message[-1]) if message else 1
    lines = lines_of(path)
    assert len(lines) in (last, last + 1)  # the kill may come between the append and its report
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    append_line(path, "after")
    assert lines_of(path)[-1] == "after"


# Locks


def taken(folder, name="lock"):
    """Whether the lock could be taken at once."""
    with Folder(folder).locked(name, wait_s=0) as held:
        return held


@pytest.mark.processes
def test_a_lock_keeps_threads_and_processes_out(tmp_path):
    process = started(HOLD, tmp_path)
    assert not taken(tmp_path)
    assert taken(tmp_path, "other")  # another name is another lock
    killed(process)
    with Folder(tmp_path).locked(wait_s=5) as held:  # its holder died: nothing to clean up
        assert held
        outcome = []
        thread = threading.Thread(target=lambda: outcome.append(taken(tmp_path)))
        thread.start()
        thread.join()
        assert outcome == [False]
    assert taken(tmp_path)


@pytest.mark.processes
def test_who_waits_for_a_lock_says_so_and_gets_it(tmp_path):
    process, message = started(HOLD, tmp_path), []

    def waiting():
        message.append("waiting")
        killed(process)

    with Folder(tmp_path).locked(waiting=waiting, poll_s=0.001) as held:
        assert held
    assert message == ["waiting"]


def test_a_thread_that_waits_for_a_lock_comes_before_one_that_takes_it_again_and_again(tmp_path):
    waits, has_it, turns = threading.Event(), threading.Event(), 0

    def wait():
        with Folder(tmp_path).locked(waiting=waits.set, poll_s=60) as held:
            assert held
            has_it.set()

    with Folder(tmp_path).locked():
        thread = threading.Thread(target=wait)
        thread.start()
        assert waits.wait(ENOUGH_S)
    while not has_it.is_set() and turns < 1_000:
        with Folder(tmp_path).locked(poll_s=0.001):
            time.sleep(0.002)
        turns += 1
    assert has_it.is_set()
    thread.join()


FORKED = """
import os, pathlib, sys, threading, time
from triton_ops.base import Folder
folder, held, forked = pathlib.Path(sys.argv[1]), threading.Event(), threading.Event()
def hold():
    with Folder(folder).locked():
        held.set()
        forked.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    with Folder(folder).locked(wait_s=0) as taken:
        os.write(1, b"the parent holds it\\n" if not taken else b"taken\\n")
    while "released" not in os.listdir(folder):
        time.sleep(0.001)
    with Folder(folder).locked(wait_s=20, poll_s=0.001) as taken:
        os.write(1, b"taken\\n" if taken else b"never freed\\n")
    os._exit(0)
forked.set()
thread.join()
with Folder(folder).locked(wait_s=20):
    pass
(folder / "released").touch()
os.waitpid(child, 0)
"""


@pytest.mark.processes
def test_a_fork_while_a_thread_holds_a_lock_leaves_no_lock_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() in (["the parent holds it", "taken"], ["taken", "taken"])


@pytest.mark.processes
def test_a_lock_serialises_processes(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    code = (
        "import pathlib, sys\n"
        "from triton_ops.base import Folder\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "for _ in range(50):\n"
        "    with Folder(path.parent).locked(poll_s=0.001):\n"
        "        path.write_text(str(int(path.read_text()) + 1))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(counter)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert counter.read_text() == "150"


# What killed processes leave behind


def test_old_half_written_files_are_swept_and_nothing_else(tmp_path):
    left = [".record.json-0123456789abcdef.tmp"]
    kept = [
        "record.json",
        ".lock",
        ".mine.tmp",
        ".record.json-0123456789abcdef",
        "record.json-0123456789abcdef.tmp",
        ".record.json-mine.tmp",
    ]
    for name in left + kept:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    new, folder, link = (f".record.json-{letter * 16}.tmp" for letter in "abc")
    (tmp_path / new).touch()
    (tmp_path / folder).mkdir()
    os.utime(tmp_path / folder, (0, 0))
    (tmp_path / link).symlink_to(tmp_path / "record.json")
    Folder(tmp_path).sweep()
    assert {path.name for path in tmp_path.iterdir()} == {*kept, new, folder, link}
    Folder(tmp_path).sweep(now_s=time.time() + 7200)
    assert not (tmp_path / new).exists()
    Folder(tmp_path / "absent").sweep()


def test_writing_a_file_that_a_user_names_sweeps_its_own_half_written_forms_alone(tmp_path):
    kept = [".notes-0123456789abcdef.tmp", ".page.html-mine.tmp", "page.html"]
    for name in (*kept, ".page.html-0123456789abcdef.tmp"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    NamedFile(tmp_path / "page.html").write("new")
    assert {path.name for path in tmp_path.iterdir()} == {*kept}


@pytest.fixture
def on_disk(monkeypatch, waits_for_the_disk):
    """What was written to disk, in order, with the names that a folder had at that moment."""
    done, real = [], os.fsync

    def noted(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append((path.name, sorted(result.name for result in path.iterdir()) if path.is_dir() else None))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return done


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's list of open files")
def test_what_was_written_survives_a_power_loss_with_its_name_and_its_folder(tmp_path, on_disk, monkeypatch):
    folder = Folder(tmp_path / "a" / "b").ensure()
    assert on_disk == [("a", ["b"]), (tmp_path.name, ["a"])]
    on_disk.clear()
    StoredFile(folder / "file").replace("text")
    (content, none), renamed = on_disk
    assert content.startswith(".file-")
    assert none is None, "the content comes before the name"
    assert renamed == ("b", ["file"])
    on_disk.clear()
    append_line(folder / "log", "first")
    append_line(folder / "log", "second")
    append_line(folder / "log", "third", durable=False)
    assert on_disk == [("log", None), ("b", ["file", "log"]), ("log", None)]
    on_disk.clear()
    size = (folder / "log").stat().st_size
    assert not AppendedFile.append_at(folder / "log", size - 1, b"lost\n")
    assert not AppendedFile.append_at(folder / "absent", 0, b"lost\n")
    assert AppendedFile.append_at(folder / "log", size, b"fourth\n")
    assert on_disk == [("log", None)]
    assert list(StoredFile(folder / "log").lines()) == [b"first", b"second", b"third", b"fourth"]
    on_disk.clear()
    monkeypatch.setattr(syncing, "_no_syncs", False)  # and is again after this test
    Folder.skip_syncs()
    StoredFile(folder / "file").replace("copy")
    append_line(folder / "log", "copy")
    assert on_disk == []
