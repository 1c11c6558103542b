"""What the shipped kernels must reach, and how results of several runs are put together."""

import json

import pytest
from benchmarks.pages import tables
from benchmarks.shipped import kernel_limits, kernels_gpu
from benchmarks.shipped.kernel_limits import LIMITS, MET, MISSED, NOISE, UNMEASURED, Limit, outcomes
from benchmarks.shipped.kernels_gpu import gains, kept_rows, merged

import triton_ops_kernels as kernels
from triton_ops.benchmark import RivalRow, RivalRun
from triton_ops.device import DeviceSpec


def row(speed, rival="library", problem="1024", *, kernel="matmul", width=0.01, config=None, **more):
    interval = None if speed is None else [speed - width, speed + width]
    return {
        "kernel": kernel, "problem": problem, "rival": rival, "speedup": speed, "interval": interval, "verdict": "",
        "shape": [1, 1, 1, 1], "dtype": "bfloat16", "share_of_copy": None, "config": config or {"BLOCK": 64},
        "origin": "tuned now", "is_default": False, **more,
    }  # fmt: skip


def state(limit, *rows):
    (result, *_) = outcomes({"rows": list(rows)}, [limit])
    return result.state


def test_a_mean_is_geometric_and_strict():
    limit = Limit(kernel="matmul", beside=("library",), mean=1.0)
    assert state(limit, row(2.0), row(0.5, problem="4096")) == MET
    assert state(limit, row(2.0), row(0.49, problem="4096")) == MISSED


def test_a_single_problem_misses_its_limit_with_its_whole_interval():
    limit = Limit(kernel="matmul", beside=("library",), each=0.95)
    assert state(limit, row(1.0), row(0.951, problem="4096")) == MET
    assert state(limit, row(1.0), row(0.945, problem="4096")) == NOISE
    assert state(limit, row(1.0), row(0.93, problem="4096")) == MISSED


def test_what_must_be_faster_is_not_met_by_the_same_speed():
    limit = Limit(kernel="matmul", beside=("library",), each=1.0, over=True)
    assert state(limit, row(1.0, width=0.0)) == MISSED
    assert state(limit, row(1.0)) == NOISE


def test_the_fastest_of_several_rivals_counts_where_all_were_tried():
    limit = Limit(kernel="matmul", beside=("eager", "compile"), mean=1.1)
    assert state(limit, row(1.2, "eager"), row(1.3, "compile")) == MET
    assert state(limit, row(1.2, "eager"), row(1.05, "compile")) == MISSED
    assert state(limit, row(1.2, "eager")) == UNMEASURED
    assert state(limit, row(1.2, "eager"), row(None, "compile", verdict="not compared: it raised")) == MET
    assert state(limit, row(None, "eager"), row(None, "compile")) == UNMEASURED


def test_a_share_of_bandwidth_is_that_of_the_named_problem():
    limit = Limit(kernel="matmul", each=0.92, problems=("1024",))
    assert state(limit, row(1.0, share_of_copy=0.93), row(1.0, problem="4096", share_of_copy=0.5)) == MET
    assert state(limit, row(1.0, share_of_copy=0.9)) == MISSED
    assert state(limit, row(1.0)) == UNMEASURED


def test_a_wrong_result_misses_every_limit_of_its_kernel():
    limit = Limit(kernel="matmul", beside=("library",), mean=1.0)
    wrong = row(None, "reference", "4096", verdict="wrong: nine elements")
    assert state(limit, row(2.0), wrong) == MISSED


def test_a_winner_below_the_default_is_missed():
    slower = row(0.9, "default", kernel="softmax")
    result = [each for each in outcomes({"rows": [slower]}) if each.limit.beside == ("default",)]
    assert [each.state for each in result] == [MISSED]


def test_the_table_names_kernels_and_problems_that_there_are():
    for limit in LIMITS:
        if limit.kernel in kernels.names():
            assert set(limit.problems) <= set(kernels.load(limit.kernel).problems)
            for shape, dtype in kernels.load(limit.kernel).problems.values():
                assert limit.where({"shape": shape, "dtype": dtype}) in (True, False)


@pytest.mark.parametrize(("speeds", "code"), [((1.2, 1.2), 0), ((1.2, 0.8), 1), ((1.2,), 2)])
def test_the_exit_code_says_what_is_wrong(speeds, code, tmp_path, capsys, monkeypatch):
    limits = [Limit(kernel=name, beside=("library",), mean=1.0) for name in ("matmul", "softmax")]
    rows = [row(speed, kernel=limit.kernel) for speed, limit in zip(speeds, limits, strict=False)]
    assert kernel_limits.exit_code(outcomes({"rows": rows}, limits)) == code
    (tmp_path / "kernels.json").write_text(json.dumps({"rows": rows}))
    assert kernel_limits.main([str(tmp_path / "kernels.json")]) in (1, 2)  # of the whole table most is not measured
    assert "not measured  attention beside library" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        kernel_limits.main([str(tmp_path / "none.json")])


def test_runs_are_put_together_and_rows_of_another_config_are_dropped(tmp_path):
    path = tmp_path / "kernels.json"
    assert kept_rows(path) == {}
    earlier = [
        row(1.0),
        row(1.1, "default"),
        row(1.0, problem="4096"),
        row(None, "reference", "8192", verdict="wrong: 1"),
    ]
    path.write_text(json.dumps({"rows": earlier}))
    rows = kept_rows(path)
    again = merged(rows, row(1.2))
    assert [each["speedup"] for each in again.values()] == [1.2, 1.1, 1.0, None]
    other = merged(rows, row(1.3, config={"BLOCK": 128}))
    assert [each["speedup"] for each in other.values()] == [1.0, None, 1.3]
    right_now = merged(rows, row(1.0, problem="8192"))
    assert ("matmul", "8192", "reference") not in right_now


def test_gains_have_intervals_and_are_1_where_the_default_is_the_winner():
    result = gains(
        [
            row(1.4, "default"), row(0.9), row(0.8, problem="4096", is_default=True), row(0.8, problem="8192"),
            row(0.7, kernel="x", origin="default config", is_default=True),
        ]
    )  # fmt: skip
    assert result["matmul"]["1024"]["gain"] == 1.4
    assert result["matmul"]["1024"]["interval"] == [1.39, 1.41]
    assert result["matmul"]["4096"] == {"gain": 1.0, "interval": None, "verdict": "the default is the winner"}
    assert "8192" not in result["matmul"]  # another config won, and the default was not asked for
    assert "x" not in result


def test_tables_in_the_documents_are_what_their_files_say():
    for page in tables.PAGES:
        assert tables.filled(page.read_text()) == page.read_text(), f"{page.name}: python -m benchmarks.pages.tables"


def test_the_table_of_kernels_is_made_of_results(tmp_path, monkeypatch):
    document = {
        "rows": [row(1.2)], "speedups": {"matmul / library": {"geometric_mean": 1.234, "least": 1.1, "problems": 2}},
        "versions": {"triton": "3.6.0", "torch": "2.11.0"}, "device": {"name": "NVIDIA H200", "driver": "570"},
        "date": "2026-11-22T12:00:00", "command": "python -m benchmarks.shipped.kernels_gpu",
    }  # fmt: skip
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps(document))
    monkeypatch.setattr(tables, "KERNELS", path)
    assert "| matmul | library | 2 | 1.23 | 1.10 |" in tables.kernels_table()
    assert "| matmul beside library: mean >= 1.0, each >= 0.95 | met: " in tables.limits_table()


@pytest.mark.parametrize(("speed", "code"), [(1.1, 0), (0.9, 1)])
def test_a_run_writes_its_rows_and_fails_where_a_limit_is_missed(speed, code, tmp_path, monkeypatch, capsys):
    measured = RivalRow(
        "softmax", "odd", "compile", shape=(4099, 1025), dtype="float32", config={"BLOCK_SIZE": 2048}, kernel_ms=1.0,
        rival_ms=speed, speedup=speed, interval=(speed - 0.01, speed + 0.01), verdict="faster", gbps=900.0,
    )  # fmt: skip
    monkeypatch.setattr(kernels_gpu, "probe", lambda _name: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(kernels_gpu, "copy_gbps", lambda: 1000.0)
    monkeypatch.setattr(RivalRun, "rows", lambda _run, them: [measured for each in them if each.name == "softmax"])
    out = tmp_path / "kernels.json"
    monkeypatch.setattr("sys.argv", ["kernels_gpu", "--kernels", "softmax", "--out", str(out), "--commit", "here"])
    assert kernels_gpu.main() == code
    written = json.loads(out.read_text())
    assert written["rows"][0]["share_of_copy"] == pytest.approx(0.9)
    assert written["speedups"]["softmax / compile"]["geometric_mean"] == pytest.approx(speed)
    assert written["commit"] == "here"
    told = capsys.readouterr().out
    assert ("missed  softmax beside compile" in told) == bool(code)
    assert "attention" not in told
