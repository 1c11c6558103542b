"""Bytecode for child processes: kept where Python keeps none, taken from nobody else, and for nothing of the user's."""

from __future__ import annotations

import gc
import json
import os
import py_compile
import stat
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode
from types import SimpleNamespace

import pytest

from triton_ops.base import code_folders as private
from triton_ops.exceptions import MissingDependencyError
from triton_ops.processes import child as bytecode

SOURCE = Path(__file__).parents[3] / "src"


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the folder of another platform")


@pytest.fixture
def heavy(tmp_path, monkeypatch):
    """The package that takes its time, in a folder of its own, without bytecode."""
    origin = tmp_path / "site" / "heavy" / "__init__.py"
    origin.parent.mkdir(parents=True)
    origin.write_text("")
    result = SimpleNamespace(origin=str(origin), version="1.0")
    monkeypatch.setattr(bytecode, "find_spec", lambda _: result)
    monkeypatch.setattr(bytecode, "version", lambda _: result.version)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return result


def test_bytecode_is_kept_where_python_keeps_none_in_a_folder_of_this_user_alone(heavy, tmp_path):
    kept = bytecode.folder()
    assert kept.parent == tmp_path / "home" / "triton-ops-bytecode"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert bytecode.folder() == kept


def test_another_version_has_another_folder(heavy):
    first = bytecode.folder()
    heavy.version = "1.1"
    assert bytecode.folder() != first


@pytest.mark.parametrize("mode", PycInvalidationMode)
def test_there_is_no_folder_where_python_has_bytecode_that_it_takes(heavy, mode):
    py_compile.compile(heavy.origin, invalidation_mode=mode)
    assert bytecode.folder() is None


@pytest.mark.parametrize(
    ("mode", "taken"),
    [
        (PycInvalidationMode.TIMESTAMP, False),
        (PycInvalidationMode.CHECKED_HASH, True),
        (PycInvalidationMode.UNCHECKED_HASH, True),
    ],
)
def test_bytecode_counts_after_a_copy_without_times_only_where_python_takes_it(heavy, mode, taken):
    py_compile.compile(heavy.origin, invalidation_mode=mode)
    os.utime(heavy.origin, (1, 1))
    assert (bytecode.folder() is None) == taken


def test_bytecode_of_another_source_or_another_python_or_a_torn_one_does_not_count(heavy):
    cached = Path(py_compile.compile(heavy.origin, invalidation_mode=PycInvalidationMode.CHECKED_HASH))
    Path(heavy.origin).write_text("changed = True")
    assert bytecode.folder() is not None
    cached.write_bytes(b"abcd" + Path(py_compile.compile(heavy.origin)).read_bytes()[4:])
    assert bytecode.folder() is not None
    cached.write_bytes(b"")
    assert bytecode.folder() is not None


def test_there_is_no_folder_where_python_will_keep_bytecode(heavy, tmp_path, monkeypatch):
    assert bytecode.folder() is not None
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert bytecode.folder() is None
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    assert bytecode.folder() is None
    monkeypatch.setattr(sys, "pycache_prefix", "/proc/nowhere")
    assert bytecode.folder() is not None
    monkeypatch.setattr(sys, "flags", SimpleNamespace(optimize=1))
    assert bytecode.folder() is None


def test_there_is_no_folder_without_the_package_or_with_a_broken_one(monkeypatch, heavy):
    def broken(name):
        raise ValueError(f"{name}.__spec__ is None")

    for answer in (lambda _: None, lambda _: SimpleNamespace(origin=None), broken):
        monkeypatch.setattr(bytecode, "find_spec", answer)
        assert bytecode.folder() is None


def test_there_is_no_folder_where_none_can_be_made_or_there_is_no_home(heavy, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("a file")
    assert bytecode.folder() is None

    def homeless(_):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(bytecode.platformdirs, "user_cache_dir", homeless)
    assert bytecode.folder() is None


def test_a_folder_that_other_users_can_write_or_replace_is_not_used(heavy, tmp_path, monkeypatch):
    monkeypatch.setattr(private, "_is_own_group", lambda _: False)
    kept = bytecode.folder()
    for place in (kept, kept.parent, tmp_path / "home"):
        before = stat.S_IMODE(place.stat().st_mode)
        for mode in (0o777, 0o770, 0o702):
            place.chmod(mode)
            assert bytecode.folder() is None, (place, oct(mode))
        place.chmod(0o1777)  # there nobody can rename what is another's
        assert (bytecode.folder() is None) == (place == kept)
        place.chmod(before)
        assert bytecode.folder() == kept
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert bytecode.folder() is None


def test_under_umask_002_a_folder_is_kept_beside_a_cache_that_the_group_may_write(heavy, tmp_path, monkeypatch):
    before = os.umask(0o002)
    try:
        (tmp_path / "home" / "triton-ops").mkdir(parents=True)
        monkeypatch.setattr(private, "_is_own_group", lambda _: True)
        kept = bytecode.folder()
    finally:
        os.umask(before)
    assert [stat.S_IMODE(place.stat().st_mode) for place in (kept, kept.parent, tmp_path / "home")] == [
        0o700, 0o700, 0o775,
    ]  # fmt: skip
    kept.chmod(0o770)
    assert bytecode.folder() is None, "in the folder itself no group may write"
    kept.chmod(0o700)
    monkeypatch.setattr(private, "_is_own_group", lambda _: False)
    assert bytecode.folder() is None


@pytest.mark.parametrize(("first", "name", "members", "own"), [
    (7, "ann", [], True), (7, "ann", ["ann"], True), (7, "ann", ["ann", "bob"], False), (7, "staff", [], False),
    (8, "ann", [], False),
])  # fmt: skip
def test_a_group_is_a_users_own_if_it_bears_the_name_and_has_no_other_member(monkeypatch, first, name, members, own):
    monkeypatch.setattr(private.pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann", pw_gid=first))
    monkeypatch.setattr(private.grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_mem=members))
    assert private._is_own_group(7) == own


def test_a_link_to_a_folder_that_other_users_can_write_is_not_used(heavy, tmp_path):
    kept = bytecode.folder()
    (tmp_path / "open" / kept.name).mkdir(parents=True, mode=0o700)
    (tmp_path / "open").chmod(0o777)
    kept.rmdir()
    kept.symlink_to(tmp_path / "open" / kept.name)
    assert bytecode.folder() is None
    (tmp_path / "open").chmod(0o755)
    assert bytecode.folder() == tmp_path / "open" / kept.name, "the path that others cannot bend"


def test_a_link_by_way_of_a_folder_that_other_users_can_write_is_not_used(heavy, tmp_path):
    opened, kept = tmp_path / "open", tmp_path / "kept"
    opened.mkdir()
    kept.mkdir(mode=0o700)
    (opened / "second").symlink_to("../kept")
    (tmp_path / "home").symlink_to("open/second")  # both ends of the way are private, its middle is not
    opened.chmod(0o777)
    assert bytecode.folder() is None
    assert not list(kept.iterdir()), "nothing is made behind a link that others could have placed"
    opened.chmod(0o755)
    assert bytecode.folder().parent == kept / "triton-ops-bytecode"
    (opened / "second").unlink()
    (opened / "second").symlink_to("second")
    assert bytecode.folder() is None, "a circle"


def test_garbage_is_collected_again_where_a_package_is_missing(monkeypatch):
    monkeypatch.setattr(bytecode, "_folder_of_bytecode", lambda: None)
    with pytest.raises(MissingDependencyError, match="no_such_package is needed for a test"):
        bytecode.import_heavy(["no_such_package"], "a test")
    assert gc.isenabled()


CHILD = """
import json, sys
from triton_ops.processes import Surroundings
from triton_ops.processes.child import import_heavy

def main():
    import_heavy(["colorsys"], "a test")
    kept = sys.pycache_prefix, sys.modules["colorsys"].__spec__.cached
    user = Surroundings(tuple(sys.path), ("a script", "its option"), (None, True))
    user.take()
    import mine
    after = sys.pycache_prefix, sys.dont_write_bytecode
    import_heavy(["colorsys", "this_is_large"], "a later test")
    print(json.dumps([*kept, *after, sys.modules["this_is_large"].__spec__.cached]))
"""
PARENT = """
import mine, subprocess
from triton_ops.exceptions import MissingDependencyError
from triton_ops.processes import child as bytecode
from triton_ops.processes.child import command

bytecode._HEAVY = "colorsys"
bytecode.version = lambda _: "1"
print(bytecode.folder())
for _ in range(2):
    print(subprocess.run(command("shown"), capture_output=True, text=True, check=True).stdout, end="")
    print([file.stat().st_mtime_ns for file in bytecode.folder().rglob("colorsys.*.pyc")])
"""


@pytest.mark.processes
def test_a_child_takes_what_an_earlier_one_has_kept_and_keeps_nothing_of_the_users(tmp_path):
    (tmp_path / "shown.py").write_text(CHILD)
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "this_is_large.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", PARENT], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={
            **os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{tmp_path}", "XDG_CACHE_HOME": str(tmp_path / "home"),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(tmp_path / "nothing"),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder, first, kept, message, kept_again = done.stdout.splitlines()
    assert folder.startswith(str(tmp_path / "home" / "triton-ops-bytecode"))
    assert message == first
    assert len(json.loads(kept)) == 1
    assert kept_again == kept, "the second child has written the file anew"
    prefix, taken, afterwards, dont_write, later = json.loads(message)
    assert prefix == folder
    assert taken.startswith(folder)
    assert Path(taken).is_file()
    assert (afterwards, dont_write) == (None, True)
    assert not list(Path(folder).rglob("mine.*.pyc"))
    assert later.startswith(folder), "packages that a later task needs are kept too"
    assert Path(later).is_file()
    assert not (tmp_path / "nothing").exists()
