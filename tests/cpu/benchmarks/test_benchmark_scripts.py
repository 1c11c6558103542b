"""Every benchmark and every test for a GPU can be imported, and every benchmark tells how it is used."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.correctness import random_shapes
from benchmarks.tuning import bucket_regret

from tests.bounded import bounded
from triton_ops import device as hardware

ROOT = Path(__file__).parents[3]


def modules(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    return [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.stem != "__init__"]


def _asks_for_more(main):
    return any(each.default is each.empty for each in inspect.signature(main).parameters.values())


@pytest.mark.processes
def test_every_benchmark_is_imported_and_every_one_with_options_tells_them(monkeypatch, capsys):
    told = []
    for name in modules("benchmarks"):
        module = importlib.import_module(name)
        main = getattr(module, "main", None)
        if not (hasattr(module, "argparse") or hasattr(module, "parser_of")) or main is None or _asks_for_more(main):
            continue
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit) as ended:
            main()
        message = capsys.readouterr()
        assert (ended.value.code, message.err) == (0, ""), name
        assert message.out.startswith("usage: "), name
        told.append(name)
    assert len(told) >= 45


def test_what_tests_for_a_gpu_import_where_there_is_one_is_there(monkeypatch):
    monkeypatch.setattr(hardware, "gpu_missing", lambda: None)
    tested = {}
    for name in modules("tests/gpu"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name, raising=False)
        if name.rpartition(".")[2].startswith("test_"):
            tested[name] = [each for each in vars(module) if each.startswith("test_")]
    assert len(tested) >= 10
    assert [name for name, tests in tested.items() if not tests] == []


@pytest.mark.processes
def test_a_process_that_does_not_end_is_ended_with_those_that_keep_its_pipes():
    program = "import subprocess; print('begun', flush=True); subprocess.run(['sleep', '600'])"
    ended = bounded("-c", program, limit_s=0.5)
    assert (ended.code, ended.told) == (None, "")
    assert bounded("-c", "print('begun'); raise SystemExit(3)", limit_s=60).code == 3


def test_a_fault_that_torch_raises_is_one_wrong_case(monkeypatch):
    def faulty(*_given):
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(random_shapes, "wrong", faulty)
    asked = {"device": "cpu", "shapes": 2, "seed": 1, "parts": 1, "limit_s": 0.0}
    result = random_shapes.judged("softmax", 0, asked)
    assert [each["how"] for each in result.wrong] == ["RuntimeError: an illegal memory access"] * 2


def test_tunes_before_a_measurement_leave_it_half_of_the_time(monkeypatch):
    asked = []
    monkeypatch.setattr(bucket_regret, "tune", lambda *_given, budget_s, **_more: asked.append(budget_s))
    monkeypatch.setattr(bucket_regret, "recall", lambda *_given, **_more: "a record")
    monkeypatch.setattr(bucket_regret.time, "monotonic", lambda: 100.0)
    assert bucket_regret.tuned([16, 64], "cpu", "", 15.0, 120.0) == ["a record"] * 2
    bucket_regret.tuned([16], "cpu", "", 15.0, 500.0)
    assert asked == [5.0, 5.0, 15.0]
