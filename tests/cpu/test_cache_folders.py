"""Every folder that is made below a cache folder: what another user puts there in a folder of everybody is not used."""

import ast
import contextlib
import os
import re
from pathlib import Path

import pytest

from triton_ops.device import Calibration
from triton_ops.exceptions import CacheError
from triton_ops.many.ray_engine import Piece, apply, files_of_problem
from triton_ops.records import Quarantine
from triton_ops.report.run_choice import run_named
from triton_ops.space import Config
from triton_ops.tuner.tuning import _make_folder
from triton_ops.values import Status, Trial
from triton_ops_torch.compiled_files import run_folder

PROJECT = Path(__file__).parents[2]
NOBODY = 65534
KEY, RUN = "0" * 32, "20261122T023209775370-149f1127"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")


def crash(folder):
    Quarantine(folder / "quarantine" / "key.jsonl", folder).add(Trial(Config({}), Status.CRASH, error="it crashed"))


def compare_modes(folder):
    with run_folder(folder, "KEY", resume=False):
        pass


WRITERS = {
    "runs": [
        lambda folder: _make_folder(folder, folder / "runs"),
        lambda folder: apply(folder, [Piece(f"runs/{KEY}/{RUN}.jsonl", 0, b"{}")]),
    ],
    "quarantine": [crash],
    "calibration": [lambda folder: Calibration("a GPU").save(folder)],
    "compile-modes": [compare_modes],
}


def test_every_folder_that_the_page_shows_has_a_writer_here():
    page = (PROJECT / "docs" / "reference" / "files.md").read_text()
    assert set(re.findall(r"^([a-z-]+)/", page, re.MULTILINE)) == set(WRITERS)


CHOSEN = {
    "backend/triton_process.py": "Triton's own cache folder",
    "benchmark/suite.py": "a file that the user names",
    "compile_modes/compiled_files.py": "a folder that the user names, or the cache folder itself",
    "compile_modes/comparing_modes.py": "a folder that the user names",
    "device/machine.py": "the cache folder itself",
    "device/probing.py": "the folder of the locks",
    "dispatch/ladder.py": "the cache folder itself",
    "many/ray_engine.py": "the cache folder itself",
    "many/session.py": "the cache folder itself",
    "records/sources.py": "the cache folder itself",
    "records/store.py": "the cache folder itself",
    "ship/table.py": "a file that the user names",
    "tuner/tuning.py": "the cache folder itself",
    "base/code_folders.py": "what judges such folders",
    "base/files.py": "the cache folder itself, or a folder that the user names",
    "base/folders.py": "what judges such folders",
}


def test_a_folder_below_another_is_made_only_after_the_way_to_it_was_judged():
    source, makers = PROJECT / "src" / "triton_ops", set()
    for path in source.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", "")
            if (name == "ensure" and not call.args) or name in ("mkdir", "makedirs"):
                makers.add(path.relative_to(source).as_posix())
                owner = call.func.value
                below = isinstance(owner, ast.Call) and any("/" in ast.unparse(one) for one in owner.args)
                assert not below or path.name == "compiled_files.py", f"{path}:{call.lineno} says no `below`"
    assert makers <= set(CHOSEN)


def folder_of_everybody(place):
    place.mkdir()
    place.chmod(0o1777)
    return place


def plant_link(place, victim):
    place.symlink_to(victim)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)


def plant_folder(place, _victim):
    place.mkdir()
    place.chmod(0o777)
    os.chown(place, NOBODY, NOBODY)


@pytest.mark.processes
@root_only
@pytest.mark.parametrize("plant", [plant_link, plant_folder])
@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_where_another_user_has_put_the_folder(tmp_path, monkeypatch, name, plant):
    for number, write in enumerate(WRITERS[name]):
        (place := tmp_path / str(number)).mkdir()
        cache, victim = folder_of_everybody(place / "cache"), place / "victim"
        victim.mkdir(0o700)
        plant(cache / name, victim)
        monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(cache))
        with contextlib.suppress(CacheError, OSError):
            write(cache)
        assert list(victim.iterdir()) == []
        assert list((cache / name).iterdir()) == []


@pytest.mark.processes
@pytest.mark.parametrize("name", WRITERS)
def test_what_a_user_has_put_into_an_own_folder_is_written(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    WRITERS[name][-1](tmp_path / "cache")
    assert (tmp_path / "cache" / name).is_dir()


@root_only
def test_runs_and_configs_that_crash_of_another_user_are_not_taken_for_own_ones(tmp_path):
    cache = folder_of_everybody(tmp_path / "cache")
    apply(cache, [Piece(f"runs/{KEY}/{RUN}.jsonl", 0, b"{}\n")])
    crash(cache)
    assert run_named(RUN, cache).exists()
    assert [one.path for one in files_of_problem(cache, KEY)]
    for name in ("runs", "quarantine"):
        for one in (cache / name, *(cache / name).rglob("*")):
            os.chown(one, NOBODY, NOBODY)
    with pytest.raises(Exception, match="has no run"):
        run_named(RUN, cache)
    assert not files_of_problem(cache, KEY)
    assert not len(Quarantine(cache / "quarantine" / "key.jsonl", cache))
