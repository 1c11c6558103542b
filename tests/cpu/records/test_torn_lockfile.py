"""Lockfiles that are being written when they are read, and by several writers at once."""

import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import triton_ops
from tests.cpu.records.test_lockfile import H200, entry, lock
from triton_ops import operation
from triton_ops.base import StoredFile
from triton_ops.dispatch import decision as decisions
from triton_ops.dispatch import ladder as sources
from triton_ops.exceptions import LockfileError, UntunedError
from triton_ops.records import FollowedLockfile, Lockfile, LockfileInUse, lock_of, share_lockfile

MOST_S = 600


@operation(space={"step": [1, 2, 3]}, arguments=lambda n=8: {"n": n})
def add_steps(n, step):
    return step


@pytest.fixture(autouse=True)
def _own_sources(monkeypatch):
    monkeypatch.setattr(LockfileInUse, "NOW", None)
    monkeypatch.setattr(FollowedLockfile, "SHARED", {})
    decisions.forget_decisions()
    yield
    sources._sources.ladders.clear()
    decisions.forget_decisions()


@pytest.fixture
def pinned(steady_clock):
    """The text of a lockfile that pins another config than the default."""
    triton_ops.tune(add_steps, device="cpu")
    (made, _) = lock_of([triton_ops.recall(add_steps, device="cpu")])
    (one,) = made.entries
    return Lockfile(made.devices, (replace(one, config=triton_ops.Config(step=3)),)).text


def becomes(wanted, ask):
    """Ask until the answer is the wanted one."""
    until = time.monotonic() + MOST_S
    while (answer := ask()) != wanted:
        assert time.monotonic() < until, answer
        time.sleep(0.01)


def torn(path, text):
    path.write_text(text[: len(text) // 2])


@pytest.mark.parametrize("beginning", [torn, lambda path, text: None, lambda path, text: path.write_text("")])
@pytest.mark.parametrize("name", ["TRITON_OPS_LOCKFILE", "TRITON_OPS_REPLAY"])
def test_known_launches_take_a_lockfile_that_was_torn_or_missing_at_first_once_it_is_whole(
    name, beginning, pinned, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "no records"))
    monkeypatch.setenv(name, str(tmp_path / "lock.json"))
    beginning(tmp_path / "lock.json", pinned)
    assert [add_steps(n=8), add_steps(n=8)] == [1, 1]
    assert f"{name} names is not used" in caplog.text
    (tmp_path / "new").write_text(pinned)
    (tmp_path / "new").replace(tmp_path / "lock.json")
    becomes(3, lambda: add_steps(n=8))
    assert f"{name} names is used now" in caplog.text


def test_a_file_that_stays_refused_is_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "no records"))
    monkeypatch.setenv("TRITON_OPS_LOCKFILE", str(tmp_path / "lock.json"))
    (tmp_path / "lock.json").write_text("{")
    for n in range(5):
        add_steps(n=n)
    assert caplog.text.count("names is not used") == 1


def test_a_strict_replay_of_a_torn_lockfile_raises_says_why_and_goes_on_when_it_is_whole(pinned, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_REPLAY", str(tmp_path / "lock.json"))
    torn(tmp_path / "lock.json", pinned)
    with triton_ops.on_miss("error"):
        with pytest.raises(UntunedError, match=r"lock\.json: it is no lockfile"):
            add_steps(n=8)
        (tmp_path / "lock.json").write_text(pinned)

        def launched():
            try:
                return add_steps(n=8)
            except UntunedError:
                return None

        becomes(3, launched)


@pytest.mark.processes
def test_a_forked_child_follows_a_torn_lockfile_by_itself(pinned, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_LOCKFILE", str(tmp_path / "lock.json"))
    torn(tmp_path / "lock.json", pinned)
    with triton_ops.on_miss("default"):
        add_steps(n=7)
    child = forked(lambda: becomes(3, lambda: add_steps(n=8)), begins=lambda: add_steps(n=8))
    (tmp_path / "lock.json").write_text(pinned)
    assert child() == 0


def forked(work, begins):
    """Forks a child that begins, and then works; gives what waits for its exit code, when it has begun."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the thread that follows the lockfile is what this is about
        pid = os.fork()
    if not pid:
        try:
            begins()
            os.write(writing, b"begun")
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.read(reading, 5) == b"begun"
    for descriptor in (reading, writing):
        os.close(descriptor)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_after_a_replay_within_it_a_torn_lockfile_is_still_followed(pinned, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_REPLAY", str(tmp_path / "lock.json"))
    torn(tmp_path / "lock.json", pinned)
    add_steps(n=8)
    with triton_ops.replaying(Lockfile()):
        assert add_steps(n=8) == 1
        (tmp_path / "lock.json").write_text(pinned)
        assert add_steps(n=8) == 1
    becomes(3, lambda: add_steps(n=8))


def test_a_lockfile_of_a_package_that_was_torn_is_read_when_it_is_whole(tmp_path, caplog):
    path = tmp_path / "lock.json"
    torn(path, lock(entry()).text)
    share_lockfile(path)
    assert [FollowedLockfile.shared(), FollowedLockfile.shared()] == [(), ()]
    assert caplog.text.count("a package's lockfile is not used") == 1
    lock(entry()).write(path)
    (result,) = FollowedLockfile.shared()
    assert result == lock(entry())
    path.unlink()
    assert FollowedLockfile.shared() == (result,)


# Rewrites the file in place without end, slowly enough that most readers meet a part.
WRITER = """
import sys, time
path, text = sys.argv[1], open(sys.argv[2]).read()
while True:
    with open(path, "w") as file:
        for at in range(0, len(text), len(text) // 4 + 1):
            file.write(text[at : at + len(text) // 4 + 1])
            file.flush()
            time.sleep(0.002)
    time.sleep(0.004)
"""
REMOVER = """
import os, sys, time
path, text = sys.argv[1], open(sys.argv[2]).read()
while True:
    os.unlink(path)
    time.sleep(0.004)
    open(path + "~", "w").write(text)
    os.rename(path + "~", path)
    time.sleep(0.004)
"""


@pytest.mark.processes
@pytest.mark.parametrize("program", [WRITER, REMOVER])
def test_a_lockfile_that_is_rewritten_again_and_again_is_read_whole(program, tmp_path, monkeypatch):
    monkeypatch.setattr("triton_ops.records.lockfile._STILL_S", 1.0)  # the writer may wait for a CPU
    whole, path = tmp_path / "whole.json", tmp_path / "lock.json"
    for each in (whole, path):
        lock(entry(32), entry(64)).write(each)
    with subprocess.Popen([sys.executable, "-S", "-c", program, path, whole]) as writer:
        try:
            begun = StoredFile(path).state
            becomes(True, lambda: StoredFile(path).state != begun)
            for _ in range(20):
                time.sleep(0.003)
                assert triton_ops.use_lockfile(path) == lock(entry(32), entry(64))
        finally:
            writer.kill()
            triton_ops.use_lockfile(None)


def test_a_missing_file_is_empty_only_where_that_is_asked_for(tmp_path):
    assert Lockfile.read(tmp_path / "none.json", or_empty=True) == Lockfile()
    with pytest.raises(LockfileError, match="cannot be read"):
        Lockfile.read(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(LockfileError, match="is no lockfile"):
        Lockfile.read(tmp_path / "torn.json", or_empty=True)


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # so that it may be written, and keeps the text
    (tmp_path / "pipe").write_text(lock(entry()).text)
    assert Lockfile.read(tmp_path / "pipe") == lock(entry())
    os.close(reader)


@pytest.mark.processes
def test_threads_and_processes_that_edit_one_lockfile_lose_no_entry(tmp_path):
    path = tmp_path / "lock.json"
    program = (
        f"import sys\nsys.path[:0] = {[*map(str, sys.path)]!r}\n"
        "from tests.cpu.records.test_torn_lockfile import added\n"
        "for turn in range(6):\n    added(sys.argv[1], int(sys.argv[2]), turn)\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", program, path, str(who)]) for who in range(2)]
    threads = [threading.Thread(target=lambda who=who: [added(path, who, turn) for turn in range(6)]) for who in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in others] == [0, 0]
    assert len(Lockfile.read(path).entries) == 24
    assert [each.name for each in tmp_path.iterdir()] == ["lock.json"]


def added(path, who, turn):
    """Add an entry to the lockfile, whose folder others may write meanwhile."""
    with Lockfile.editing(path):
        before = Lockfile.read(path, or_empty=True)
        Lockfile.merged([before, lock(entry(1000 * who + turn + 1))]).write(path)


def test_a_link_to_a_lockfile_and_the_file_have_one_lock(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "there" / "lock.json")
    order = []
    with Lockfile.editing(tmp_path / "link.json"):
        other = threading.Thread(target=lambda: edited(tmp_path / "there" / "lock.json", order))
        other.start()
        other.join(0.2)
        order.append("first")
    other.join()
    assert order == ["first", "second"]


def edited(path, order):
    with Lockfile.editing(path):
        order.append("second")


def test_where_the_folder_cannot_be_locked_editing_goes_on_with_a_warning(tmp_path, monkeypatch, caplog):
    from triton_ops.base import folders

    def refuses(_descriptor):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(folders, "_try", refuses)
    with caplog.at_level(logging.WARNING), Lockfile.editing(tmp_path / "lock.json"):
        lock(entry()).write(tmp_path / "lock.json")
    assert "going on without the lock" in caplog.text
    assert Lockfile.read(tmp_path / "lock.json") == lock(entry(), devices=(H200,))


def test_a_folder_that_stands_where_a_locks_file_belongs_is_no_lock(tmp_path, caplog):
    from triton_ops.base import Folder

    Path(tmp_path / ".lock").mkdir()
    with Folder(tmp_path).locked() as held:
        assert not held
    assert "cannot be locked" in caplog.text
