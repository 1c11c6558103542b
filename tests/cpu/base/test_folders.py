"""Folders, their locks and what is left in them: who may write there, who holds what, and what goes away with whom."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.base import Folder, TemporaryFolder, code_folders, folders
from triton_ops.base.code_folders import CodeFolder, sweep_temporary
from triton_ops.base.folders import open_regular
from triton_ops.exceptions import CacheError

LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's list of open files")
NAME = "triton-ops-run-0123456789abcdef"


def test_in_a_folder_that_others_may_write_nothing_is_written_to_a_file_of_two_names(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    for mode, names, writes, allowed in (
        (0o700, 2, True, True), (0o770, 2, True, False), (0o777, 2, True, False), (0o770, 2, False, True),
        (0o770, 1, True, True),
    ):  # fmt: skip
        (tmp_path / "second").unlink(missing_ok=True)
        if names == 2:
            (tmp_path / "second").hardlink_to(path)
        tmp_path.chmod(mode)
        try:
            if allowed:
                os.close(open_regular(path, os.O_RDWR if writes else os.O_RDONLY))
            else:
                with pytest.raises(PermissionError, match="it has 2 hard links"):
                    open_regular(path, os.O_RDWR)
        finally:
            tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("owner", "folder_owner", "mode", "believed"),
    [
        (7, 8, 0o1777, False), (8, 8, 0o1777, True), (0, 8, 0o1777, True), (None, 8, 0o1777, True),
        (7, 8, 0o770, True), (7, 8, 0o700, True),
    ],
)  # fmt: skip
def test_in_a_folder_of_everybody_a_file_is_this_users_roots_or_the_folders_owners(
    monkeypatch, owner, folder_owner, mode, believed
):
    monkeypatch.setattr(folders, "user", lambda: 9)
    status = SimpleNamespace(st_uid=9 if owner is None else owner, st_mode=stat.S_IFREG, st_nlink=1)
    folder = SimpleNamespace(st_uid=folder_owner, st_mode=stat.S_IFDIR | mode)
    if believed:
        folders._judge(status, folder, writes=True)
    else:
        with pytest.raises(PermissionError, match="belongs to user 7"):
            folders._judge(status, folder, writes=False)


def test_folders_between_two_are_judged_and_links_among_them_in_folders_of_others_are_refused(tmp_path):
    inner = tmp_path / "a" / "b"
    assert Folder(inner).within(tmp_path) == inner
    inner.mkdir(parents=True)
    assert Folder(inner).is_within(tmp_path)
    assert Folder(tmp_path).is_within(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert Folder(tmp_path / "link" / "b").is_within(tmp_path)
    tmp_path.chmod(0o770)
    assert not Folder(tmp_path / "link" / "b").is_within(tmp_path)
    assert Folder(inner).is_within(tmp_path)
    tmp_path.chmod(0o700)
    (inner / "file").touch()
    assert not Folder(inner / "file" / "x").is_within(tmp_path)


@pytest.mark.parametrize("made", [True, False])
def test_a_missing_folder_is_made_with_all_above_it_each_on_disk(tmp_path, monkeypatch, made):
    asked = []
    monkeypatch.setattr(folders, "sync_folder", asked.append)
    path = tmp_path / "a" / "b" / "c"
    if made:
        (tmp_path / "a").mkdir()
    assert Folder(path).ensure() == path
    assert path.is_dir()
    assert {*asked} == {tmp_path / "a" / "b", tmp_path / "a"} | (set() if made else {tmp_path})
    asked.clear()
    assert Folder(path).ensure(tmp_path) == path
    assert asked == []
    (path / "file").touch()
    with pytest.raises(CacheError, match="is a file"):
        Folder(path / "file").ensure()
    with pytest.raises(CacheError, match="no home folder"):
        Folder(Path(os.devnull) / "x").ensure()


def test_a_lock_of_one_process_is_not_waited_for_longer_than_is_said(tmp_path, caplog):
    calls, begin = [], time.monotonic()
    with Folder(tmp_path).locked("one") as first, Folder(tmp_path).locked("two") as other:
        assert first
        assert other
        with Folder(tmp_path).locked("one", wait_s=0.05, poll_s=0.01, waiting=lambda: calls.append(1)) as second:
            assert not second
    assert calls == [1]
    assert time.monotonic() - begin >= 0.05
    assert "has held it for 0.05 s): going on without the lock" in caplog.text
    with Folder(tmp_path).locked("one", wait_s=0.0) as again:
        assert again
    assert sorted(path.name for path in tmp_path.iterdir()) == [".one", ".two"]


def test_a_lock_that_is_let_go_is_taken_by_a_thread_that_waits(tmp_path):
    order = []

    def wait():
        with Folder(tmp_path).locked(poll_s=0.001) as held:
            order.append(held)

    with Folder(tmp_path).locked():
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.02)
        order.append("first")
    thread.join()
    assert order == ["first", True]
    assert not folders._lock_files


def test_only_a_folder_of_its_own_name_is_discarded(tmp_path):
    for name in (NAME, NAME + "0", "triton-ops-run-0123456789abcdeg", "other"):
        (tmp_path / name / "inner").mkdir(parents=True)
        TemporaryFolder.discard(tmp_path / name)
        assert (tmp_path / name).exists() == (name != NAME)


def test_a_folder_that_cannot_be_removed_is_tried_for_five_seconds(tmp_path, monkeypatch):
    (tmp_path / NAME).mkdir()
    clock, tried, slept = [0.0], [], []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += 2.0

    monkeypatch.setattr(code_folders.shutil, "rmtree", lambda path, ignore_errors: tried.append(path))
    monkeypatch.setattr(code_folders, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    TemporaryFolder.discard(tmp_path / NAME)
    assert len(tried) == 4, "at 0, 2, 4 and 6 seconds"
    assert len(slept) == 3


def test_a_temporary_folder_is_made_by_its_process_and_removed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(code_folders.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(code_folders, "_own_locks", [])
    folder = TemporaryFolder()
    path = folder.path
    assert path.parent == tmp_path
    assert not path.exists()
    assert TemporaryFolder.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert len(code_folders._own_locks) == 1, "its lock is held"
    assert not TemporaryFolder.make(path), "it is there"
    old = time.time() + 1000
    sweep_temporary(tmp_path, old)
    assert path.exists(), "its process lives"
    os.close(code_folders._own_locks.pop())
    (path / "file").touch()
    os.utime(path, (old - 1059, old - 1059))
    sweep_temporary(tmp_path, old - 1000)
    assert path.exists(), "it is not a minute old"
    sweep_temporary(tmp_path, old - 998)
    assert not path.exists()
    folder.remove()
    assert folder.path is None
    folder.remove()
    own = TemporaryFolder.own()
    assert own.is_dir()
    os.close(code_folders._own_locks.pop())
    monkeypatch.setattr(TemporaryFolder, "make", staticmethod(lambda path: False))
    monkeypatch.setattr(code_folders.tempfile, "mkdtemp", lambda prefix: prefix)
    assert TemporaryFolder.own() == Path("triton-ops-")


def test_where_no_folder_can_be_made_there_is_no_path(tmp_path, monkeypatch):
    monkeypatch.setattr(code_folders.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(code_folders.os, "access", lambda path, mode: False)
    folder = TemporaryFolder()
    assert folder.path is None
    folder.remove()


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """A folder of caches that only this user may write."""
    monkeypatch.setattr(code_folders.platformdirs, "user_cache_dir", lambda name: str(tmp_path / "caches"))
    code_folders.warn_once.cache_clear()
    return tmp_path / "caches"


def test_code_is_loaded_from_a_folder_that_others_cannot_write_and_else_from_one_in_the_caches(
    tmp_path, caches, caplog
):
    here = tmp_path / "code"
    assert CodeFolder(here).trusted("name") == here
    assert not here.exists(), "who uses it makes it"
    here.mkdir()
    assert CodeFolder(here).trusted("name") == here
    for mode, why in ((0o777, "could write or replace it"), (0o1777, "could write it")):
        here.chmod(mode)
        assert CodeFolder(here).trusted("name") == caches / "name"
        reason = f"{here}: another user {why}: no code is loaded from {here}, and {caches / 'name'} is used instead"
        assert reason in caplog.text
    missing = here / "inner"
    assert CodeFolder(missing).trusted("name") == missing
    assert missing.is_dir(), "it is made where another user could make it first"
    assert CodeFolder(tmp_path / "private").private() == tmp_path / "private"
    with pytest.raises(PermissionError, match="could write it"):
        CodeFolder(here).private()


def test_without_a_folder_of_caches_the_temporary_one_holds_code_and_without_both_there_is_an_error(
    tmp_path, monkeypatch
):
    def none(name):
        raise RuntimeError("no home")

    monkeypatch.setattr(code_folders.platformdirs, "user_cache_dir", none)
    monkeypatch.setattr(code_folders, "_own_temporary", lambda: tmp_path)
    assert code_folders._substitute("name") == tmp_path / "name"
    (tmp_path / "name").chmod(0o777)
    with pytest.raises(CacheError, match="only this user can write"):
        code_folders._substitute("name")


@pytest.mark.parametrize(
    ("first", "name", "members", "own"),
    [
        (5, "me", [], True), (5, "me", ["me"], True), (5, "me", ["me", "you"], False), (5, "we", [], False),
        (6, "me", [], False), (5, None, [], False),
    ],
)  # fmt: skip
def test_a_group_without_other_members_is_the_users_own(monkeypatch, first, name, members, own):
    def group(number):
        if name is None:
            raise KeyError(number)
        return SimpleNamespace(gr_name=name, gr_mem=members)

    monkeypatch.setattr(code_folders.pwd, "getpwuid", lambda user: SimpleNamespace(pw_gid=first, pw_name="me"))
    monkeypatch.setattr(code_folders.grp, "getgrgid", group)
    assert code_folders._is_own_group(5) == own


@pytest.mark.parametrize(
    ("name", "kind", "age_s", "owner", "left"),
    [
        ("a1", "file", 101.0, 0, True), ("a1", "file", 99.0, 0, False), ("b1", "file", 101.0, 0, False),
        ("a1x", "file", 101.0, 0, False), ("a1", "folder", 101.0, 0, False), ("a1", "file", 101.0, 1, False),
        ("a1", "link", 101.0, 0, False),
    ],
)  # fmt: skip
def test_what_is_left_behind_is_this_users_of_the_kind_and_the_name_and_old(
    tmp_path, monkeypatch, name, kind, age_s, owner, left
):
    path, now_s = tmp_path / name, 1e9
    if kind == "link":
        path.symlink_to(tmp_path)
    else:
        path.mkdir() if kind == "folder" else path.touch()
    os.utime(path, (now_s - age_s, now_s - age_s), follow_symlinks=False)
    monkeypatch.setattr(folders, "user", lambda: os.getuid() + owner)
    paths = folders.left_behind(tmp_path, re.compile("a[0-9]"), stat.S_ISREG, 100.0, now_s)
    assert [*paths] == ([path] if left else [])
    assert [*folders.left_behind(tmp_path / "none", re.compile("."), stat.S_ISREG, 1.0, None)] == []


@pytest.mark.parametrize(("lock", "threads"), [(threading.Lock, 1), (threading.RLock, 2)])
def test_a_lock_that_is_forgotten_is_free(lock, threads):
    guard = folders.ForkSafeLock(lock)
    guard.__enter__()
    folders._free_in_child()
    with guard:
        assert guard._lock.acquire(blocking=False) == (threads == 2)
    with guard:
        pass


def test_a_child_closes_the_locks_of_its_parent_and_forgets_who_waits(tmp_path):
    with Folder(tmp_path).locked("one"), Folder(tmp_path).locked("two"):
        several = list(folders._lock_files)
        assert len(several) == 2
        assert len(folders._turns) == 2
        folders._let_go_in_child()
        assert not folders._lock_files
        assert not folders._turns
        assert not any(file.held for file in several)


@LINUX
def test_no_file_stays_open_that_is_refused_after_it_was_opened(tmp_path, monkeypatch, none_left_open):
    path, pipe, held = tmp_path / "file", tmp_path / ".lock", tmp_path / NAME
    path.write_bytes(b"abc")
    os.mkfifo(pipe)
    held.mkdir()
    os.utime(held, (1, 1))
    lock = code_folders._lock(held)
    for _ in range(3):
        folders.sync_folder(tmp_path)
        with Folder(tmp_path).locked() as taken:
            assert not taken, "a FIFO is no lock"
        sweep_temporary(tmp_path)
        assert held.exists(), "it is held"
    os.close(lock)
    judged = []

    def judge(*several):
        judged.append(several)
        if len(judged) % 2 == 0:  # it was replaced meanwhile
            raise PermissionError(errno.EPERM, "replaced")

    monkeypatch.setattr(folders, "_judge", judge)
    for _ in range(3):
        with pytest.raises(PermissionError, match="replaced"):
            open_regular(path)
    assert not folders._lock_files
