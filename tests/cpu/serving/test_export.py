"""Tables written from a lockfile: what changes, found by the engine's own rule, and put back."""

import errno
import json

import pytest

from tests.cpu.serving.engines import MOE_MODULE
from tests.cpu.serving.test_model import MIXTRAL, QWEN
from tests.cpu.serving.test_tables import H200, ROW, engines, model_file, write_table
from triton_ops.base import Sealed

__all__ = ["engines"]
NAME = "E=8,N=14336,device_name=NVIDIA_H200.json"
OTHER = {**ROW, "BLOCK_SIZE_M": 64}


@pytest.fixture
def pinned(tmp_path, cli):
    """A lockfile with rows for 16 and 64 tokens, the second of which is as the engine's own."""
    table, lock = write_table(tmp_path / NAME, [16, 64]), tmp_path / "lock.json"
    table.write_text(json.dumps({"16": OTHER, "64": ROW}))
    assert cli("exchange", "import", "vllm-moe", table, "--kernel", "vllm-moe", "--lockfile", lock).code == 0
    return lock


def export(cli, folder, model, lock, *words):
    return cli("engine", "export", "vllm", folder, "--model", model, *H200, "--lockfile", lock, *words)


def test_rows_are_written_beside_those_of_the_engine_and_put_back(engines, pinned, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, MIXTRAL), tmp_path / "own"
    write_table(engines / MOE_MODULE.replace("fused_moe.py", f"configs/{NAME}"), [1, 16, 64])
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    shown = export(cli, own, model, pinned, "--dry-run", "--markdown")
    assert not own.exists()
    ran = export(cli, own, model, pinned, "--markdown")
    assert (ran.code, ran.out) == (0, shown.out)
    assert ran.out.count("\n| ") == 2  # the heads, and the one row that changes
    assert "| 16 |" in ran.out
    assert json.loads((own / NAME).read_text()) == {"1": ROW, "16": OTHER, "64": ROW}
    pinned.write_text("{torn")
    shown = export(cli, own, model, pinned, "--undo", "--dry-run")
    assert len(list(own.iterdir())) == 2
    assert (ran := export(cli, own, model, pinned, "--undo")).code == 0
    assert ran.out == shown.out
    assert list(own.iterdir()) == []
    ran = export(cli, own, model, pinned, "--undo")
    assert (ran.code, f"engine export vllm {own} --model {model}" in ran.err) == (4, True)


def test_the_table_that_was_there_comes_back_as_it_was(engines, pinned, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, MIXTRAL), tmp_path / "own"
    before = write_table(own / NAME, [16], triton_version="3.4.0").read_bytes()
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    document = json.loads(export(cli, own, model, pinned, "--json").out)
    assert [(each["row"], bool(each["was"])) for each in document["changes"]] == [(16, True), (64, False)]
    assert (own / NAME).read_bytes() != before
    assert export(cli, own, model, pinned, "--undo").code == 0
    assert (own / NAME).read_bytes() == before


def test_rows_of_a_table_where_the_engine_does_not_look_stay(engines, pinned, tmp_path, cli):
    table = write_table(tmp_path / "review" / NAME, [1, 16])
    assert export(cli, table.parent, model_file(tmp_path, MIXTRAL), pinned).code == 0
    assert json.loads(table.read_text()) == {"1": ROW, "16": OTHER, "64": ROW}


NEWER = json.dumps(Sealed({"before": {"rows": []}, "exported": ""})).encode()


def test_a_table_in_a_folder_that_cannot_be_written_is_not_put_back(engines, pinned, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, MIXTRAL), tmp_path / "own"
    assert export(cli, own, model, pinned).code == 0

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(type(own), "unlink", refused)
    ran = export(cli, own, model, pinned, "--undo")
    assert (ran.code, f"{NAME} cannot be put back: Permission denied" in ran.err) == (4, True)
    assert (own / NAME).exists()


@pytest.mark.parametrize("backup", [None, b"", b"{}", NEWER])
def test_a_table_that_is_not_the_exported_one_is_neither_replaced_nor_removed(
    engines, pinned, tmp_path, cli, monkeypatch, backup
):
    model, own = model_file(tmp_path, MIXTRAL), tmp_path / "own"
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    assert export(cli, own, model, pinned).code == 0
    if backup is None:  # somebody has written the table anew
        write_table(own / NAME, [128])
    else:
        (own / f"{NAME}.before").write_bytes(backup)
    table = (own / NAME).read_bytes()
    ran = export(cli, own, model, pinned, "--undo")
    assert ran.code == 4
    assert f"{NAME}.before" in ran.err
    assert (own / NAME).read_bytes() == table


def test_a_lockfile_without_rows_for_the_model_is_an_error(engines, pinned, tmp_path, cli):
    ran = export(cli, tmp_path / "own", model_file(tmp_path, QWEN), pinned)
    assert (ran.code, (tmp_path / "own").exists()) == (4, False)
    assert "has no row for this model on NVIDIA H200" in ran.err


def test_a_second_export_changes_nothing_and_keeps_what_undo_needs(engines, pinned, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, MIXTRAL), tmp_path / "own"
    before = write_table(own / NAME, [16]).read_bytes()
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    assert export(cli, own, model, pinned).code == 0
    again = export(cli, own, model, pinned)
    assert (again.code, again.out, again.err) == (0, "", "note: the tables of vllm have these rows already\n")
    assert export(cli, own, model, pinned, "--undo").code == 0
    assert (own / NAME).read_bytes() == before


def test_a_table_that_ends_the_engine_fails_a_check_whatever_is_pinned(engines, pinned, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, MIXTRAL), tmp_path / "own"
    write_table(own / NAME, [16]).write_text("{torn")
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    ran = cli("engine", "check", "vllm", "--model", model, *H200, "--lockfile", pinned)
    assert (ran.code, "is no table" in ran.out) == (5, True)
    (own / NAME).unlink()
    long = model_file(tmp_path, {**MIXTRAL, "num_local_experts": 10**300})  # no system has a file of this name
    ran = cli("engine", "check", "vllm", "--model", long, *H200)
    assert (ran.code, "missing" in ran.out) == (5, True)
    assert export(cli, own, long, pinned, "--undo").code == 4
    model = model_file(tmp_path, MIXTRAL)
    ran = export(cli, own / NAME / "folder", model, write_table(own / NAME, [16]) and pinned)
    assert (ran.code, "cannot be written: Not a directory" in ran.err) == (4, True)


def test_lockfiles_of_ranks_are_merged_by_their_vote(engines, tmp_path, cli, monkeypatch):
    model, own, locks = model_file(tmp_path, MIXTRAL), tmp_path / "own", []
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    for rank, rows in enumerate(({"16": ROW, "64": ROW}, {"16": OTHER, "64": OTHER}, {"16": OTHER})):
        table, lock = write_table(tmp_path / str(rank) / NAME), tmp_path / f"{rank}.json"
        table.write_text(json.dumps(rows))
        assert cli("exchange", "import", "vllm-moe", table, "--kernel", "vllm-moe", "--lockfile", lock).code == 0
        locks += ["--lockfile", lock]
    ran = cli("engine", "export", "vllm", own, "--model", model, *H200, *locks)
    assert ran.code == 0, ran.err
    assert json.loads((own / NAME).read_text()) == {"16": OTHER, "64": ROW}  # of two that are equal, the first
