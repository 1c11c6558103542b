"""Environment variables: read when asked for, explicit beats environment, errors name the variable."""

import inspect
import os
import re
import subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from triton_ops import settings
from triton_ops.base import Folder
from triton_ops.compile_modes.compiled_files import CacheContent
from triton_ops.dispatch import LaunchedConfig
from triton_ops.dispatch.decision import _tell
from triton_ops.exceptions import SettingsError
from triton_ops.records import Lockfile, cache_folder


def test_cache_dir_is_read_when_asked_for(monkeypatch, tmp_path):
    for name in ("one", "two"):
        monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / name))
        assert settings.cache_dir() == tmp_path / name
    assert not (tmp_path / "two").exists()


def test_cache_dir_expands_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", "~/kept")
    assert settings.cache_dir() == tmp_path / "kept"


@pytest.mark.parametrize("blank", ["", "  "])
def test_blank_cache_dir_counts_as_not_set(monkeypatch, tmp_path, blank):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", blank)
    named = settings.cache_dir()
    monkeypatch.delenv("TRITON_OPS_CACHE_DIR")
    assert named == settings.cache_dir()
    assert named.name == "triton-ops"
    assert Path(tmp_path) in named.parents


def test_effort_defaults_to_quick():
    assert settings.effort() == "quick"


@pytest.mark.parametrize("word", settings.EFFORTS)
def test_effort_from_the_environment(monkeypatch, word):
    monkeypatch.setenv("TRITON_OPS_EFFORT", f" {word} ")
    assert settings.effort() == word


def test_wrong_effort_names_variable_value_and_choices(monkeypatch):
    monkeypatch.setenv("TRITON_OPS_EFFORT", "max")
    with pytest.raises(SettingsError, match=r"TRITON_OPS_EFFORT is 'max'; allowed are expected, race, quick, full"):
        settings.effort()


def test_wrong_effort_given_in_code_names_its_source():
    with pytest.raises(ValueError, match="effort is 'Quick'"):
        settings.one_of(settings.EFFORTS, "Quick", "effort")


@pytest.mark.parametrize(
    ("text", "columns"), [("80", 80), (" 140 ", 140), ("", None), ("0", None), ("-5", None), ("x", None)]
)
def test_columns_are_a_number_of_1_or_more_or_not_asked_for(monkeypatch, text, columns):
    monkeypatch.setenv("COLUMNS", text)
    assert settings.columns() == columns


@pytest.mark.parametrize(
    ("variables", "colours"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": "0"}, False),
     ({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False)],
)  # fmt: skip
def test_any_no_color_and_a_dumb_terminal_take_the_colours_away(monkeypatch, variables, colours):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert settings.colours() is colours


def test_a_misspelt_variable_is_told_with_the_one_that_is_meant(monkeypatch):
    for name in ("TRITON_OPS_ON_MIS", "TRITON_OPS_LOCK_FILE", "TRITON_OPS_CACHEDIR", "TRITON_OPS_SOMETHING_ELSE"):
        monkeypatch.setenv(name, "x")
    assert settings.misspelt() == {
        "TRITON_OPS_ON_MIS": "TRITON_OPS_ON_MISS",
        "TRITON_OPS_LOCK_FILE": "TRITON_OPS_LOCKFILE",
        "TRITON_OPS_CACHEDIR": "TRITON_OPS_CACHE_DIR",
    }


def test_every_variable_that_is_read_is_known_by_name():
    read = set(re.findall(r'"(TRITON_OPS_[A-Z_]+)"', inspect.getsource(settings)))
    assert read == {f"TRITON_OPS_{name}" for name in settings._NAMES}


@pytest.mark.parametrize("name", ["CACHE_DIR", "LOCK_DIR", "LOCKFILE", "REPLAY", "SHARED_DIRS"])
def test_the_home_folder_of_nobody_is_a_typed_error_that_names_the_variable(monkeypatch, name):
    monkeypatch.setenv(f"TRITON_OPS_{name}", "~nosuchuser/x")
    with pytest.raises(SettingsError, match=f"TRITON_OPS_{name} is '~nosuchuser/x': ~nosuchuser has no home folder"):
        getattr(settings, name.lower())()


def test_paths_of_callers_with_the_home_folder_of_nobody_are_typed_errors(monkeypatch, caplog):
    for call in (
        cache_folder,
        lambda path: Folder(path).ensure(),
        Lockfile.read,
        LaunchedConfig.read_report,
        CacheContent.of,
    ):
        with pytest.raises(SettingsError, match="~nosuchuser has no home folder here"):
            call("~nosuchuser/x")
    monkeypatch.setenv("TRITON_OPS_REPORT", "~nosuchuser/%p.json")
    _tell(os.getpid())
    assert "~nosuchuser has no home folder here" in caplog.text


@pytest.mark.parametrize("part", [pytest.param("a", marks=pytest.mark.processes), "abcd"])
def test_a_path_of_two_thousand_folders_is_made_or_a_typed_error(cli, tmp_path, monkeypatch, part):
    target = tmp_path / "returned.py"
    target.write_text("def returned(*, a):\n    return 0\n")
    folder = tmp_path / "/".join([part] * 1900)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(folder))
    ran = cli("tune", f"{target}:returned", "--space", "a=1,2", "--device", "cpu")
    shown = cli("cache", "show")
    subprocess.run(["rm", "-rf", tmp_path / part], check=True)  # too deep for what removes the folders of tests
    if len(str(folder)) < 4000:
        assert (ran.code, shown.code) == (0, 0), ran.err
        assert "returned" in shown.out
    else:
        assert (ran.code, shown.code) == (0, 4)  # a tune goes on, and keeps nothing
        assert "winners are found, and not kept" in ran.err
        assert "File name too long" in ran.err + shown.err


@pytest.mark.processes
def test_what_multiprocessing_has_started_is_one_of_several_processes(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", settings.FAMILY):
        monkeypatch.delenv(name, raising=False)
    assert not settings.one_of_several()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(settings.one_of_several).result(60)
