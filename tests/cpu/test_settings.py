"""Environment variables: read when asked for, explicit beats environment, errors name the variable."""

import inspect
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops import settings
from triton_ops.base import Folder
from triton_ops.dispatch import LaunchedConfig
from triton_ops.dispatch.decision import _tell
from triton_ops.exceptions import SettingsError
from triton_ops.records import Lockfile
from triton_ops.settings import cache_folder
from triton_ops_torch.compiled_files import CacheContent


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


@pytest.mark.usefixtures("steady_clock")
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


@pytest.fixture
def whole_environment():
    """Tests may change all of the environment."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(
    ("text", "threads"), [("4", 4), (" 1 ", 1), ("4,2", 4), ("0", None), ("", None), ("-2", None), ("a", None)]
)
def test_the_threads_of_openmp_are_a_number_of_1_or_more(monkeypatch, text, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert settings.openmp_threads() == threads
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert (settings.openmp_threads(), settings.openmp_text()) == (None, None)


@pytest.mark.parametrize(
    ("variable", "ask", "words", "first"),
    [
        ("TRITON_OPS_EFFORT", settings.effort, dict(zip(settings.EFFORTS, settings.EFFORTS, strict=True)), "quick"),
        ("TRITON_OPS_RANKS", settings.ranks, {"agree": "agree", "off": "off"}, "agree"),
        ("TRITON_OPS_PROGRESS", settings.progress, {"on": True, "off": False}, True),
        ("TRITON_OPS_SERVING", settings.serving, {"on": True, "off": False}, True),
        ("TRITON_OPS_ON_MISS", settings.on_miss, dict(zip(settings.ON_MISS, settings.ON_MISS, strict=True)), None),
    ],
)
def test_a_word_of_the_environment_is_one_of_those_that_are_allowed(monkeypatch, variable, ask, words, first):
    monkeypatch.delenv(variable, raising=False)
    assert ask() == first
    for text, value in words.items():
        monkeypatch.setenv(variable, f" {text} ")
        assert ask() == value
    monkeypatch.setenv(variable, "no such word")
    with pytest.raises(SettingsError, match=f"{variable} is 'no such word'; allowed are {', '.join(words)}"):
        ask()


def test_ptxas_is_torchs_where_torch_alone_has_named_it(monkeypatch):
    import torch

    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert (settings.torchs_ptxas(), settings.triton_program("ptxas")) == (None, None)
    own = str(Path(torch.__file__).parent / "bin" / "ptxas")
    monkeypatch.setenv("TRITON_PTXAS_PATH", own)
    assert (settings.torchs_ptxas(), settings.triton_program("ptxas")) == (own, None)
    assert "TRITON_PTXAS_PATH" not in settings.for_child({}, "mark")
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", own)
    assert (settings.torchs_ptxas(), settings.triton_program("ptxas")) == (None, own)
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/usr/bin/ptxas")
    assert (settings.torchs_ptxas(), settings.triton_program("ptxas")) == (None, "/usr/bin/ptxas")
    assert settings.for_child({}, "mark")["TRITON_PTXAS_PATH"] == "/usr/bin/ptxas"


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)])
def test_no_ptxas_is_torchs_where_there_is_no_torch(monkeypatch, spec):
    monkeypatch.setattr(settings, "find_spec", lambda name: spec)
    settings._came_with_torch.cache_clear()
    assert not settings._came_with_torch("/torch/bin/ptxas")
    settings._came_with_torch.cache_clear()


def test_a_variable_is_set_or_removed_and_cupti_is_kept_unless_somebody_has_said_so(monkeypatch):
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    settings.keep_cupti()
    assert os.environ["TEARDOWN_CUPTI"] == "0"
    settings.set_variable("TEARDOWN_CUPTI", "1")
    settings.keep_cupti()
    assert os.environ["TEARDOWN_CUPTI"] == "1"
    settings.set_variable("TEARDOWN_CUPTI", None)
    settings.set_variable("TEARDOWN_CUPTI", None)
    assert "TEARDOWN_CUPTI" not in os.environ


def test_the_environment_is_made_what_it_was(whole_environment):
    before = dict(os.environ)
    os.environ["OF_A_TEST"] = "1"
    os.environ["PATH"] = "elsewhere"
    settings.restore_environment(before)
    assert dict(os.environ) == before


def test_other_variables_leave_the_process_and_its_children(whole_environment):
    os.environ.update({"OF_A_TEST": "kept", "OF_A_TEST_TOO": "kept", "SECRET_OF_A_TEST": "gone"})
    taken = settings.leave_variables(["OF_A_TEST", "PATH"], ("OF_A_TEST_",))
    assert taken == dict(os.environ)
    assert {name: value for name, value in taken.items() if "OF_A_TEST" in name} == {
        "OF_A_TEST": "kept", "OF_A_TEST_TOO": "kept"
    }  # fmt: skip
    if Path("/bin/sh").exists():
        shown = subprocess.run(["/bin/sh", "-c", "echo $OF_A_TEST $OF_A_TEST_TOO $SECRET_OF_A_TEST"],
                               capture_output=True, text=True, check=True)  # fmt: skip
        assert shown.stdout == "kept kept\n"


def test_a_process_of_a_job_is_one_of_several(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", settings.FAMILY):
        monkeypatch.delenv(name, raising=False)
    for name in ("RANK", "LOCAL_RANK", settings.FAMILY):
        with monkeypatch.context() as patch:
            patch.setenv(name, "0")
            assert settings.one_of_several()
    assert not settings.one_of_several()
    monkeypatch.delitem(sys.modules, "multiprocessing.process", raising=False)
    assert settings.one_of_several() is False


def test_a_child_has_the_marks_of_all_above_it_and_the_changes(monkeypatch, tmp_path):
    monkeypatch.setenv(settings.FAMILY, "a.12")
    child = settings.for_child({"OF_A_TEST": "1"}, "b.34", tmp_path)
    assert (child[settings.FAMILY], child["OF_A_TEST"], child["TMPDIR"]) == ("a.12 b.34", "1", str(tmp_path))
    monkeypatch.setenv(settings.FAMILY, child[settings.FAMILY] + " strange c.x")
    assert settings.starters() == [12, 34]
    monkeypatch.setenv("SECRET_OF_A_TEST", "1")
    assert "SECRET_OF_A_TEST" in settings.for_child({}, "b")
    assert "SECRET_OF_A_TEST" not in settings.for_child({}, "b", starting=True)


def test_folders_of_compiled_code_are_those_that_hold_now(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    assert settings.code_folders() == {
        "TRITON_CACHE_DIR": (tmp_path / "triton", "triton"),
        "TORCHINDUCTOR_CACHE_DIR": (tmp_path / "inductor", "inductor"),
    }
    monkeypatch.delenv("TRITON_CACHE_DIR")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert settings.code_folders()["TRITON_CACHE_DIR"][0] == tmp_path / ".triton" / "cache"


def test_shared_folders_come_in_their_order_without_blanks(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", os.pathsep.join(["/b", " ", " /a "]))
    assert settings.shared_dirs() == (Path("/b"), Path("/a"))
    monkeypatch.delenv("TRITON_OPS_SHARED_DIRS")
    assert settings.shared_dirs() == ()


def test_a_user_without_a_home_folder_keeps_nothing(monkeypatch):
    def fail(name):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TRITON_OPS_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", fail)
    assert settings.cache_dir() == Path(os.devnull) / "triton-ops"


def test_sizes_are_numbers_of_bytes_or_have_units_as_people_write_them(monkeypatch):
    sizes = {
        "2 GiB": 2 << 30,
        "2GiB": 2 << 30,
        "1.5g": 1_500_000_000,
        "512 MB": 512_000_000,
        "64kib": 65_536,
        "4096": 4096,
        ".5 TB": 500_000_000_000,
        "100 B": 100,
    }
    for text, count in sizes.items():
        monkeypatch.setenv("TRITON_OPS_MEMORY", text)
        assert settings.memory_bytes() == settings.memory_bytes(text) == count
        assert settings.memory_bytes(77) == 77
    monkeypatch.setenv("TRITON_OPS_MEMORY", " ")
    assert settings.memory_bytes() is None
    for wrong in ("2 apples", "-1 GB", "GB", "0", "0.1 B", "1e9", "", 0, 1.5, True):
        with pytest.raises(SettingsError, match=r"memory_bytes is .*write a number of bytes, or a text such as 2 GiB"):
            settings.memory_bytes(wrong)
    monkeypatch.setenv("TRITON_OPS_MEMORY", "much")
    with pytest.raises(SettingsError, match="TRITON_OPS_MEMORY is 'much'"):
        settings.memory_bytes()
