"""Processes that this package starts: what they import is Python's own, and nothing outlives their parent."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import triton_ops
from tests.limits import eventually
from triton_ops.exceptions import DeviceError
from triton_ops.processes import Surroundings
from triton_ops.processes.child import command, search_path

SOURCE = Path(__file__).parents[3] / "src"


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ran(script, folder, **environment):
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TRITON_OPS_CACHE_DIR": str(folder / "cache"), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


ISOLATED = """
import json, pathlib, sys
from triton_ops import tune

def doubled(x, *, n):
    import beside
    return beside.double(x)

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "late"))
    sys.path.insert(0, pathlib.Path("no text"))
    sys.path.insert(0, "")
    result = tune(doubled, (2,), space={"n": [1]}, reference=lambda x: 4, isolate=True)
    print(result.place, result.trials[0].status)
"""


@pytest.mark.processes
@pytest.mark.parametrize("safe", ["", "1"], ids=["", "safe-path"])
def test_a_worker_finds_what_its_parent_finds_and_imports_pythons_own_first(tmp_path, safe):
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "json.py").write_text("raise ImportError('not the one')")
    (tmp_path / "late" / "beside.py").write_text("def double(x):\n    return x * 2\n")
    script = tmp_path / "script.py"
    script.write_text(ISOLATED)
    assert ran(script, tmp_path, PYTHONSAFEPATH=safe) == "in a process of its own ok\n"


def test_the_search_path_holds_from_any_folder_and_is_text(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/a", Path("/b")])
    assert search_path() == [str(tmp_path), "/a"]


def test_a_relative_entry_stays_the_folder_in_which_modules_were_found(monkeypatch, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name / "lib").mkdir(parents=True)
    (tmp_path / "first" / "lib" / "found_by_a_relative_entry.py").write_text("")
    monkeypatch.setattr(sys, "path", ["lib", "other", *sys.path])
    monkeypatch.delitem(sys.path_importer_cache, "lib", raising=False)
    monkeypatch.chdir(tmp_path / "first")
    assert search_path()[:2] == [str(tmp_path / "first" / name) for name in ("lib", "other")]
    importlib.import_module("found_by_a_relative_entry")
    monkeypatch.chdir(tmp_path / "second")
    assert search_path()[0] == str(tmp_path / "first" / "lib")
    del sys.modules["found_by_a_relative_entry"], sys.path_importer_cache["lib"]


def test_children_find_this_package_where_a_program_has_taken_its_folder_from_the_search_path(monkeypatch, tmp_path):
    home = str(Path(triton_ops.__file__).parents[1])
    for before in ([str(tmp_path)], [home, str(tmp_path)]):
        monkeypatch.setattr(sys, "path", before)
        path = json.loads(command("any")[-1])["path"]
        assert sorted(path) == sorted({home, str(tmp_path)})
        assert Surroundings.here().path == tuple(before), "the user's code finds what it did before"


def test_surroundings_are_taken_over(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/a"])
    monkeypatch.setattr(sys, "argv", ["script", "word"])
    monkeypatch.setattr(sys, "pycache_prefix", "/c")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    here = Surroundings.here()
    assert here == Surroundings(("/a",), ("script", "word"), ("/c", True))
    monkeypatch.setattr(sys, "path", ["/b"])
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    here.take()
    assert (sys.path, sys.argv) == (["/a"], ["script", "word"])
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == ("/c", True)


def test_a_process_without_an_executable_python_cannot_start_a_child(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(DeviceError, match="no further Python process"):
        command("triton_ops.evaluation.worker")


FAMILY = """
import os, subprocess, sys, time
from triton_ops.processes.child import die_with

if sys.argv[1] == "parent":
    child = subprocess.Popen([sys.executable, __file__, str(os.getpid())], start_new_session=True)
    child.wait()
else:
    die_with(int(sys.argv[1]))
    started = subprocess.Popen(["sleep", "600"])
    print(os.getpid(), started.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread watches")
@pytest.mark.parametrize("who", ["parent", "child"])
def test_children_of_a_process_end_with_it_and_with_its_parent(tmp_path, who):
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, script, "parent"], stdout=subprocess.PIPE, text=True, env=environment
    ) as top:
        child, started = map(int, top.stdout.readline().split())
        group = os.getpgid(child)
        assert {str(child), str(started)} <= set(members(group)), "the group is there before"
        os.kill(top.pid if who == "parent" else child, signal.SIGKILL)
        eventually(lambda: not alive(child) and not alive(started) and not members(group))
    assert members(group) == []
    assert not alive(started), "not in another group either"


def members(group):
    """Processes of a group that live, the guard among them."""
    return [path.name for path in Path("/proc").glob("[0-9]*") if alive(path.name) and _group(path.name) == group]


def _group(pid):
    try:
        return os.getpgid(int(pid))
    except OSError:
        return None
