"""Advice on keys: what never changed the winner, what did, and what is not in a key that should be."""

import json

import pytest

from triton_ops.cli.app import main
from triton_ops.cli.key_advice import MeasuredRegret, advise, fields_of
from triton_ops.records import Record, Timing
from triton_ops.records.store import open_store
from triton_ops.space import Config
from triton_ops.values import Key

H200 = {"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "units": 132, "driver": None}


def record(rows, columns, block, *, dtype="float16", ties=(), kernel="softmax"):
    tensor = {"shape": [rows, columns], "dtype": dtype, "stride": [columns, 1], "aligned": True}
    key = Key(
        kernel=kernel, problem={"x": tensor, "rows": rows, "COLUMNS": columns, "eps": 0.5}, identity={"source": "1"},
        device=H200, cache_state="cold",
    )  # fmt: skip
    return Record(
        key=key, winner=Config(BLOCK=block), timing=Timing(1.0, 1.0, 1.0, 3), elapsed_s=2.0,
        ties=tuple(Config(BLOCK=each) for each in ties),
    )  # fmt: skip


def unmeasured(_record, _config):
    return None


SOFTMAX = [record(rows, columns, block=columns) for rows in (64, 512, 4096) for columns in (128, 1024)]


def parts(records, regret=unmeasured, **options):
    (result,) = advise(records, regret, **options)
    return result, {part.names[0]: part for part in result.parts}


def test_rows_of_a_softmax_never_matter_and_columns_do():
    result, by_name = parts(SOFTMAX)
    assert (result.records, result.winners, result.elapsed_s) == (6, 2, 12.0)
    assert list(by_name) == ["COLUMNS", "rows"]
    assert by_name["COLUMNS"].names == ("COLUMNS", "x[1]", "x.stride")
    assert (by_name["COLUMNS"].verdict, by_name["COLUMNS"].compared) == ("matters", 3)
    rows = by_name["rows"]
    assert (rows.verdict, rows.values, rows.compared, rows.regret, rows.spared_s) == ("never mattered", 3, 6, 0.0, 8.0)
    assert rows.advice == "may be left out of the key"


def test_a_field_that_is_not_in_the_key_and_matters_is_named():
    _, by_name = parts(SOFTMAX, key=["rows"])
    assert by_name["COLUMNS"].advice == "belongs into the key"
    assert by_name["rows"].advice == "may be left out of the key"
    _, by_name = parts(SOFTMAX, key=["COLUMNS"])
    assert (by_name["COLUMNS"].advice, by_name["rows"].advice) == ("", "")


def test_winners_that_tie_do_not_matter():
    _, by_name = parts([record(64, 128, 1, ties=(1, 2)), record(512, 128, 3, ties=(2, 3))])
    assert by_name["rows"].verdict == "never mattered"


@pytest.mark.parametrize(("loss", "verdict"), [(0.01, "never mattered"), (0.03, "matters")])
def test_a_small_measured_loss_does_not_matter(loss, verdict):
    _, by_name = parts([record(64, 128, 1), record(512, 128, 3)], lambda _record, _config: loss)
    assert (by_name["rows"].verdict, by_name["rows"].regret) == (verdict, loss)


def test_what_never_changed_alone_is_not_known():
    _, by_name = parts([record(64, 128, 1), record(512, 256, 3, dtype="float32")])
    assert len(by_name) == 1  # no record tells rows, columns and dtype apart
    _, by_name = parts([record(64, 128, 1), record(512, 128, 1), record(512, 256, 3)])
    assert {name: part.verdict for name, part in by_name.items()} == {"rows": "never mattered", "COLUMNS": "matters"}


def test_a_single_record_and_several_kernels():
    assert [each.parts for each in advise([record(1, 2, 3)], unmeasured)] == [()]
    assert [each.kernel for each in advise([record(1, 2, 3), record(1, 2, 3, kernel="add")], unmeasured)] == [
        "add", "softmax",
    ]  # fmt: skip


def test_fields_are_told_by_name():
    fields = fields_of(record(64, 128, 1).key.problem)
    assert fields["x[0]"] == fields["rows"] == "64"
    assert (fields["x.dtype"], fields["eps"]) == ('"float16"', "0.5")


WORK = """
from triton_ops import operation

@operation(space={"step": [1, 2, 3]}, arguments=lambda n=64, m=1: {"n": n, "m": m})
def add_up(n, m, step):
    return sum(sum(range(at, n, step)) for at in range(step))
"""


def test_losses_are_read_from_run_logs(tmp_path, monkeypatch, steady_clock, capsys):
    (tmp_path / "advised_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    for n in (8, 64):
        assert main(["tune", "advised_work.py:add_up", "--shape", f"{n}x1", "--device", "cpu"]) == 0
    measured = MeasuredRegret(tmp_path / "cache")
    for result in open_store(tmp_path / "cache"):
        assert measured(result, result.winner) == 0.0
        assert measured(result, Config(step=9)) is None
        assert all(measured(result, Config(step=step)) is not None for step in (1, 2, 3))
    capsys.readouterr()
    assert main(["lock", "keys", "--key", "m", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["items"]
    assert [part["names"] for part in told["parts"]] == [["n"]]
    assert main(["lock", "keys"]) == 0
    assert "2 problems" in capsys.readouterr().out
    assert main(["lock", "keys", "--key", "n,rows"]) == 2
    assert "--key names rows, which no recorded problem has (hint: fields are n, " in capsys.readouterr().err


def test_what_cannot_be_advised_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    assert main(["lock", "keys"]) == 4
    assert "there are no records" in capsys.readouterr().err
    assert main(["lock", "keys", "--key", "M,"]) == 2
    assert "empty name" in capsys.readouterr().err
