"""Bytecode for child processes: kept where Python keeps none, taken from nobody else, and for nothing of the user's."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.processes import bytecode

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def heavy(tmp_path, monkeypatch):
    """The package that takes its time, in a folder of its own, without bytecode."""
    origin = tmp_path / "site" / "heavy" / "__init__.py"
    origin.parent.mkdir(parents=True)
    origin.write_text("")
    found = SimpleNamespace(origin=str(origin), cached=str(origin.with_suffix(".pyc")))
    monkeypatch.setattr(bytecode, "find_spec", lambda _: found)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    bytecode.folder.cache_clear()
    yield found
    bytecode.folder.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of another platform")
def test_it_is_kept_where_python_keeps_none_for_this_user_alone(heavy, tmp_path):
    kept = bytecode.folder()
    assert kept == tmp_path / "home" / "triton-ops" / "bytecode"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_not_where_python_has_it(heavy):
    Path(heavy.cached).write_bytes(b"")
    assert bytecode.folder() is None


def test_not_where_the_first_import_keeps_it(heavy, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert bytecode.folder() is None


def test_not_without_the_package(monkeypatch, heavy):
    monkeypatch.setattr(bytecode, "find_spec", lambda _: None)
    assert bytecode.folder() is None


def test_not_where_its_folder_cannot_be_made(heavy, tmp_path):
    (tmp_path / "home").write_text("a file")
    assert bytecode.folder() is None


def test_not_from_a_folder_of_another_user(heavy, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert bytecode.folder() is None


CHILD = """
import json, sys
from triton_ops.processes.child import Surroundings, import_heavy

def main():
    import_heavy(["colorsys"], "a test")
    kept = sys.pycache_prefix, sys.modules["colorsys"].__spec__.cached
    Surroundings(tuple(sys.path), tuple(sys.argv), (None, True)).take()
    import mine
    print(json.dumps([*kept, sys.pycache_prefix, sys.dont_write_bytecode]))
"""
PARENT = """
import colorsys, subprocess, time
from importlib.util import cache_from_source
from triton_ops.processes import bytecode
from triton_ops.processes.child import command

bytecode._HEAVY = "colorsys"
print(bytecode.folder())
with bytecode.being_filled():
    until = time.monotonic() + 30
    while not list(bytecode.folder().rglob("colorsys.*.pyc")) and time.monotonic() < until:
        time.sleep(0.01)
print(len(list(bytecode.folder().rglob("colorsys.*.pyc"))))
print(subprocess.run(command("shown"), capture_output=True, text=True, check=True).stdout)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of another platform")
def test_a_child_takes_what_was_compiled_for_it_and_keeps_nothing_of_the_users(tmp_path):
    (tmp_path / "shown.py").write_text(CHILD)
    (tmp_path / "mine.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", PARENT], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={
            **os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{tmp_path}", "XDG_CACHE_HOME": str(tmp_path / "home"),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(tmp_path / "nothing"),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder, compiled, said = done.stdout.splitlines()[:3]
    assert folder == str(tmp_path / "home" / "triton-ops" / "bytecode")
    assert compiled == "1"
    prefix, taken, afterwards, dont_write = json.loads(said)
    assert prefix == folder
    assert taken.startswith(folder)
    assert Path(taken).is_file()
    assert (afterwards, dont_write) == (None, True)
    assert not list(Path(folder).rglob("mine.*.pyc"))
    assert not (tmp_path / "nothing").exists()
