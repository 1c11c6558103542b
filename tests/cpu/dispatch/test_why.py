"""`triton-ops why`: the rung that a call's config would come from, and what a process has launched."""

from __future__ import annotations

import json
import os

import pytest

import triton_ops
from triton_ops.dispatch import decision as decisions
from triton_ops.dispatch import ladder as sources
from triton_ops.dispatch.operations import called
from triton_ops.exceptions import CacheError

TARGET = """
from triton_ops import Operation
WORK = lambda n, block=1: n
OPERATION = Operation("worked", WORK, {"block": [1, 2]}, lambda n=4: {"n": n}, device="cpu")
"""


@pytest.fixture
def target(tmp_path):
    sources._sources.ladders.clear()
    (tmp_path / "worked.py").write_text(TARGET)
    return f"{tmp_path}/worked.py:OPERATION"


def test_a_miss_names_every_rung(cli, target):
    done = cli("why", target, "--shape", "8")
    assert done.code == 0
    for part in ("worked 8", "block=1", "from", "default", "not from lockfile", "not from record", "not from borrowed"):
        assert part in done.out


def test_a_record_answers_and_another_problem_names_the_field_that_differs(cli, target, steady_clock):
    assert cli("tune", target, "--shape", "8", "--json").code == 0
    sources._sources.ladders.clear()
    result = json.loads(cli("why", target, "--shape", "8", "--json").out)
    assert (result["rung"], result["kernel"], result["problem"]) == ("record", "worked", "8")
    assert result["record"]
    near = json.loads(cli("why", target, "--shape", "9", "--json").out)
    assert near["rung"] == "borrowed"
    assert "problem.n: 9 | 8" in near["why"]
    far = json.loads(cli("why", target, "--shape", "99", "--json").out)
    assert far["rung"] == "default"
    assert any("problem.n: 99 | 8" in passed for passed in far["passed"])


def test_a_lockfile_that_cannot_be_read_is_an_error(cli, target, tmp_path):
    (tmp_path / "lock.json").write_text("{}")
    done = cli("why", target, "--lockfile", tmp_path / "lock.json")
    assert done.code != 0
    assert "lock.json" in done.err


def test_a_function_has_no_ladder(cli, tmp_path):
    (tmp_path / "plain.py").write_text("def work(n): return n")
    done = cli("why", f"{tmp_path}/plain.py:work")
    assert done.code != 0
    assert "whose calls nothing decides" in done.err


def test_a_report_is_told_and_read_again(cli, tmp_path, monkeypatch):
    operation = triton_ops.Operation("told", lambda n, block=1: n, {"block": [1, 2]}, lambda n=4: {"n": n})
    for _ in range(3):
        called(operation, (), {"n": 7})
    called(operation, (), {"n": 8})
    monkeypatch.setenv("TRITON_OPS_REPORT", str(tmp_path / "report-%p.json"))
    decisions._tell(os.getpid())
    (path,) = tmp_path.glob("report-*.json")
    assert any(row.kernel == "told" and row.launches == 3 for row in decisions.LaunchedConfig.read_report(path))
    done = cli("why", path)
    assert "told" in done.out
    assert "told 7: 3 launches of (block=1) by default" in done.out
    assert "told 8: 1 launch of (block=1) by default" in done.out
    rows = json.loads(cli("why", path, "--json").out)["launches"]
    assert [row["launches"] for row in rows if row["kernel"] == "told"] == [3, 1]
    decisions._tell(-1)  # a forked child


OTHERS = [
    "", "[]", "{}", '{"kind": "other", "schema_version": 1, "launches": []}',
    '{"kind": "triton-ops report", "schema_version": 1, "launches": [{"a": 1}]}',
]  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_other_files_are_no_reports(text, tmp_path):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(CacheError, match="is no report of launches"):
        decisions.LaunchedConfig.read_report(tmp_path / "r.json")
    with pytest.raises(CacheError, match="cannot be read"):
        decisions.LaunchedConfig.read_report(tmp_path / "missing.json")


ROW = {
    "kernel": "k", "problem": "8", "device": "cpu", "rung": "record", "config": {"BM": 64}, "why": "measured",
    "passed": ["lockfile: none"], "record": "f", "launches": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", ROW)
@pytest.mark.parametrize("value", ["three", 3, 1.5, None, True, [1], {"a": []}, {"BM": [[[[[[]]]]]]}], ids=str)
def test_a_report_with_values_of_other_types_is_a_typed_error(cli, tmp_path, name, value):
    (tmp_path / "r.json").write_text(
        json.dumps({"kind": decisions.KIND, "schema_version": 1, "launches": [{**ROW, name: value}]})
    )
    right = isinstance(value, type(ROW[name])) and (name, value) not in (("passed", [1]), ("launches", True))
    for words in (["why", tmp_path / "r.json"], ["why", tmp_path / "r.json", "--json"]):
        ran = cli(*words)
        assert ran.code == 4 or (right and ran.code == 0), ran.err
        assert (ran.code == 4) == ("is no report of launches of this version" in ran.err)


def test_a_report_on_stderr(monkeypatch, capsys):
    monkeypatch.setenv("TRITON_OPS_REPORT", "1")
    decisions._tell(os.getpid())
    assert capsys.readouterr().err.startswith("triton-ops: ")
