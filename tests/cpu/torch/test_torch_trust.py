"""Compile modes take no code from folders of other users."""

import os
import stat

import pytest

from tests.cpu.cli.test_trust import NOBODY, folder_of_everybody, planted_by_link, root_only
from triton_ops.exceptions import CacheError
from triton_ops_torch import CompileMode
from triton_ops_torch.compiled_files import run_folder


def planted_by_another(place, _):
    (place / "KEY" / "default").mkdir(parents=True)
    for each in (place, *place.rglob("*")):
        os.chown(each, NOBODY, NOBODY)


def planted_inside(place, _):
    place.mkdir()
    (place / "KEY").mkdir()
    os.chown(place / "KEY", NOBODY, NOBODY)


def planted_link_inside(place, victim):
    place.mkdir()
    planted_by_link(place / "KEY", victim)


def open_to_all(place, _):
    (place / "KEY").mkdir(parents=True)
    place.chmod(0o777)


@root_only
@pytest.mark.parametrize(
    "plant", [planted_by_link, planted_by_another, planted_inside, planted_link_inside, open_to_all]
)
def test_compile_modes_take_no_code_from_a_folder_of_another_user(tmp_path, plant, caplog):
    root, victim = folder_of_everybody(tmp_path / "root"), tmp_path / "victim"
    (victim / "KEY").mkdir(parents=True)
    (victim / "KEY" / "mine").touch()
    plant(root / "compile-modes", victim)
    before = sorted(tmp_path.rglob("*"))
    with run_folder(root, "KEY", resume=False) as result:
        assert result.path.is_dir(), "a folder that is made anew has no lock, and another process would remove it"
        used = result.of(CompileMode("default"))
        assert root not in used.parents
        assert (used.stat().st_uid, stat.S_IMODE(used.stat().st_mode)) == (os.getuid(), 0o700)
        result.remove()
    assert sorted(tmp_path.rglob("*")) == before
    assert not used.exists()
    assert ["keeps no compiled code" in each.getMessage() for each in caplog.records] == [True]


@root_only
def test_a_folder_that_another_user_gets_during_a_comparison_is_used_no_more(tmp_path):
    with run_folder(tmp_path, "KEY", resume=True) as result:
        assert result.of(CompileMode("default")).is_relative_to(tmp_path)
        os.chown(tmp_path / "compile-modes", NOBODY, NOBODY)
        with pytest.raises(CacheError, match="is not used for compiled code"):
            result.of(CompileMode("default"))
    os.chown(tmp_path / "compile-modes", 0, 0)


def test_in_a_folder_of_everybody_compile_modes_are_kept_where_nobody_else_may_look(tmp_path):
    root = folder_of_everybody(tmp_path / "root")
    with run_folder(root, "KEY", resume=True) as result:
        assert result.path == root / "compile-modes" / "KEY"
        for path in (result.path, result.path.parent, result.of(CompileMode("default"))):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
