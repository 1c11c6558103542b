"""Rules of files, folders, values and packages: what is read, kept, refused, and how a reason is said."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.base import Sealed, StoredFile, host, plain
from triton_ops.base import code_folders as folders_of_code
from triton_ops.base.code_folders import TemporaryFolder, _open_to_others, _safe_folder, _way, sweep_temporary
from triton_ops.base.files import LARGEST_LOG_BYTES, _make_like, read_all
from triton_ops.base.plain import DamagedError, Frozen

contents = st.binary(max_size=300)


@given(contents, st.integers(0, 300))
def test_a_file_is_read_whole_or_refused_if_it_is_larger_than_the_limit(tmp_path_factory, content, limit):
    file = StoredFile(tmp_path_factory.mktemp("files") / "file")
    file.replace(content)
    assert file.holds(content)
    assert not file.holds(content + b"x")
    assert not content or not file.holds(content[:-1])
    assert file.read() == content
    if len(content) <= limit:
        assert file.read(limit) == content
    else:
        with pytest.raises(OSError, match=f"larger than {limit} bytes"):
            file.read(limit)


@given(st.lists(contents, max_size=5), st.integers(1, 300))
def test_a_descriptor_that_tells_no_size_is_read_to_its_end_or_to_the_limit(parts, limit):
    reader, writer = os.pipe()
    try:
        content = b"".join(parts)
        os.write(writer, content)
        os.close(writer)
        if len(content) <= limit:
            assert read_all(reader, limit) == content
        else:
            with pytest.raises(OSError, match=f"larger than {limit} bytes"):
                read_all(reader, limit)
    finally:
        os.close(reader)


@given(st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=6), st.booleans())
def test_the_last_line_is_the_last_whole_one_that_is_not_empty(tmp_path_factory, lines, torn):
    file = StoredFile(tmp_path_factory.mktemp("files") / "file")
    file.replace(b"".join(line + b"\n" for line in lines) + (b"torn" if torn else b""))
    assert file.last_line() == next((line for line in reversed(lines) if line), b"")
    assert list(file.lines()) == [line for line in lines if line]
    assert StoredFile(file.path.with_name("none")).last_line() == b""


def test_a_new_file_has_the_permissions_and_where_it_may_the_owner_of_another(tmp_path, monkeypatch):
    file, asked = tmp_path / "file", []
    file.touch(mode=0o600)
    like = os.stat_result((stat.S_IFREG | 0o640, 1, 1, 1, 1011, 1022, 0, 0, 0, 0))
    descriptor = os.open(file, os.O_RDWR)
    try:
        monkeypatch.setattr(os, "fchown", lambda *given: asked.append(given))
        _make_like(descriptor, like)
        assert asked == [(descriptor, 1011, 1022)]
        assert stat.S_IMODE(file.stat().st_mode) == 0o640

        def refuse(*given):
            raise PermissionError

        monkeypatch.setattr(os, "fchown", refuse)
        _make_like(descriptor, os.stat_result((stat.S_IFREG | 0o444, 1, 1, 1, 1011, 1022, 0, 0, 0, 0)))
        assert stat.S_IMODE(file.stat().st_mode) == 0o444
    finally:
        os.close(descriptor)


def test_a_folder_of_an_ended_process_is_swept_and_one_that_is_held_stays(tmp_path):
    held, left = (tmp_path / f"triton-ops-run-{digit * 16}" for digit in "ab")
    assert TemporaryFolder.make(held)
    assert not TemporaryFolder.make(held), "it is another process's"
    left.mkdir(mode=0o700)
    (left / "file").touch()
    before = len([*Path("/dev/fd").iterdir()])
    sweep_temporary(tmp_path, now_s=left.stat().st_mtime + 1e6)
    assert [path.name for path in tmp_path.iterdir()] == [held.name]
    assert len([*Path("/dev/fd").iterdir()]) == before
    TemporaryFolder.discard(held)
    other = tmp_path / "somebody's"
    other.mkdir()
    TemporaryFolder.discard(other)
    assert [path.name for path in tmp_path.iterdir()] == ["somebody's"]


@pytest.mark.parametrize(("count", "follows"), [(40, True), (41, False)])
def test_as_many_links_are_followed_as_linux_follows(tmp_path, count, follows):
    (tmp_path / "0").mkdir()
    for number in range(count):
        (tmp_path / str(number + 1)).symlink_to(str(number))
    if follows:
        assert list(_way(tmp_path / str(count)))[-1] == tmp_path / "0"
    else:
        with pytest.raises(OSError, match="symbolic links") as refused:
            list(_way(tmp_path / str(count)))
        assert refused.value.errno == errno.ELOOP


def test_a_way_goes_up_and_along_links_of_both_kinds(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "relative").symlink_to("a/b")
    (tmp_path / "absolute").symlink_to(tmp_path / "a")
    for path, end in (("relative", "a/b"), ("absolute/b", "a/b"), ("a/b/..", "a"), ("relative/../b", "a/b")):
        assert list(_way(tmp_path / path))[-1] == tmp_path / end


@pytest.mark.parametrize(
    ("mode", "sticky", "is_open"),
    [(0o700, True, False), (0o777, True, True), (0o1777, True, False), (0o1777, False, True), (0o755, True, False)],
)
def test_a_folder_is_open_to_others_who_may_write_it(mode, sticky, is_open):
    status = SimpleNamespace(st_mode=stat.S_IFDIR | mode, st_gid=os.getgid())
    assert _open_to_others(status, sticky=sticky) == is_open


def test_a_folder_that_others_may_write_is_refused_and_a_missing_one_is_made(tmp_path):
    assert _safe_folder(tmp_path / "new" / "one") == tmp_path / "new" / "one"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="another user could write or replace it"):
        _safe_folder(tmp_path / "open" / "folder")
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o666)
    assert _safe_folder(tmp_path / "file") == tmp_path / "file", "a file's permissions say nothing of its folder"
    assert folders_of_code.MOST_LINKS == 40


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def refuses(change):
    with pytest.raises(TypeError):
        change()


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_a_frozen_mapping_is_equal_to_its_content_and_nothing_in_it_can_be_changed(content):
    frozen = Frozen(content)
    assert frozen == content == copy.deepcopy(frozen) == pickle.loads(pickle.dumps(frozen))
    refuses(lambda: frozen.update(a=1))
    pending = [frozen]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            assert type(value) is Frozen
            refuses(lambda value=value: value.__setitem__("a", 1))
            pending += value.values()
        elif isinstance(value, list):
            refuses(lambda value=value: value.append(1))
            pending += value


@given(st.dictionaries(st.text(max_size=3), st.integers(-9, 9) | st.text(max_size=3), max_size=4), st.data())
def test_a_sealed_text_is_read_as_it_was_written_and_not_if_one_letter_is_another(content, data):
    import json

    text = json.dumps(Sealed(content))
    expected = {name: value for name, value in content.items() if name != Sealed.CHECKSUM}
    if expected == content:
        assert Sealed.read(text) == content
        assert Sealed.read(text.encode()) == content
    at = data.draw(st.integers(0, len(text) - 1))
    other = text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
    try:
        again = Sealed.read(other)
    except DamagedError:
        return
    assert again == content, "a letter that is no part of the content"


@pytest.mark.parametrize("text", ["", "[]", "3", '{"a": NaN}', b"\xff", '{"a": 1', '{"a": 1}'])
def test_what_is_no_sealed_object_is_damaged(text):
    with pytest.raises(DamagedError):
        Sealed.read(text)


def test_a_text_of_too_many_parts_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(plain, "_MOST_CONTAINERS", 5)
    assert Sealed.parsed('{"a": [[], []]}')
    with pytest.raises(DamagedError):
        Sealed.parsed('{"a": [[], [], [], [], []]}')


@pytest.mark.parametrize(("tasks", "has_openmp", "threaded"), [(0, True, False), (1, True, True), (1, False, False)])
def test_threads_of_openmp_that_python_has_not_begun_are_noted_before_a_fork(monkeypatch, tasks, has_openmp, threaded):
    monkeypatch.setattr(host, "_threaded", [])
    monkeypatch.setattr(host, "_has_openmp_threads", lambda: has_openmp)
    monkeypatch.setattr(host, "Process", lambda pid: SimpleNamespace(tasks=threading.active_count() + tasks))
    host.note_threads()
    assert host._threaded == ([os.getpid()] if threaded else [])


@pytest.mark.parametrize(
    ("error", "why", "how"),
    [
        (ModuleNotFoundError("no", name="ray"), "is not installed", "pip install"),
        (ModuleNotFoundError("no", name="ray.samplers"), "is not installed", "pip install"),
        (
            ModuleNotFoundError("no", name="other"),
            "cannot be imported: ModuleNotFoundError: no",
            "install ray again",
        ),
        (RuntimeError("broken"), "cannot be imported: RuntimeError: broken", "install ray again"),
    ],
)
def test_a_package_that_is_not_there_and_one_that_is_broken_have_other_reasons(error, why, how):
    reason, step = host._failure("ray", error)
    assert reason == why
    assert step.startswith(how)


@pytest.mark.parametrize(
    ("files", "url", "published"),
    [
        ([("whole.py", True)], None, True), ([("whole.py", True), ("changed.py", False)], None, False),
        ([("whole.py", True)], "{}", False), ([], None, False),
    ],
)  # fmt: skip
def test_a_package_is_as_published_with_the_files_of_an_index(monkeypatch, files, url, published):
    from importlib import metadata

    noted = [SimpleNamespace(parts=("pack", name), hash="sha256", whole=whole) for name, whole in files]
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(files=noted, read_text=lambda file: url))
    monkeypatch.setattr(host, "_is_as_noted", lambda file: file.whole)
    host.is_as_published.cache_clear()
    assert host.is_as_published("pack") == published
    host.is_as_published.cache_clear()


def test_a_file_larger_than_any_log_is_not_read(monkeypatch, tmp_path):
    assert LARGEST_LOG_BYTES >= 1 << 20
    assert sys.maxsize > LARGEST_LOG_BYTES
    file = StoredFile(tmp_path / "file")
    file.replace(b"a\nb\n")
    with pytest.raises(OSError, match="larger than 3 bytes"):
        list(file.lines(3))
    assert list(file.lines(4)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("value", "positive"),
    [(0, False), (0.0, False), (1e-9, True), (3, True), (-1, False), (float("inf"), False), (float("nan"), False)],
)
def test_a_positive_number_is_above_0_and_finite(value, positive):
    assert plain.is_positive(value) == positive
