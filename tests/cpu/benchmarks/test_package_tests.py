"""What the benchmark of packages' tests says of a small package."""

import time

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.tuning.package_tests import Suite, beside, compared, run_of, summary

PACKAGE = """
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, 1.0, mask=offsets < n)
"""
TESTS = """
from package import fill

def test_configs():
    assert len(fill.configs) == 2

def test_whose_it_is():
    assert type(fill).__module__.startswith("triton.")
"""


@pytest.mark.parametrize("at_once", [False, True])
def test_tests_of_a_package_run_with_both_tuners_and_what_differs_is_named(tmp_path, at_once):
    (tmp_path / "tests").mkdir()
    (tmp_path / "package.py").write_text(PACKAGE)
    (tmp_path / "tests/test_fill.py").write_text(TESTS)
    suite = Suite("", ("tests",), "", warm=False)
    (row,) = compared(suite, tmp_path, tmp_path / "caches", time.perf_counter() + 60, at_once)
    cold = row["cold"]
    assert cold["counts"] == {"triton": {"passed": 2}, "ours": {"passed": 1, "failed": 1}}
    assert cold["unequal"] == {"tests/test_fill.py::test_whose_it_is": ["passed", "failed"]}
    assert cold["whole"] == {"triton": True, "ours": True}
    assert summary({"small": row})["unequal"] == ["small, cold"]


def phase(test, phase, outcome, why="", printed=""):
    return {"test": test, "phase": phase, "outcome": outcome, "seconds": 0.5, "printed": printed, "why": why}


def test_a_test_ends_as_its_worst_phase_and_a_run_without_an_end_is_not_whole():
    notes = [
        phase("a", "setup", "passed"), phase("a", "call", "passed"), phase("a", "teardown", "failed", "left open"),
        phase("b", "setup", "skipped"), phase("b", "teardown", "passed"),
        phase("c.py", "collect", "failed", "no module"),
    ]  # fmt: skip
    run = run_of(notes)
    assert run["ends"] == {"a": "error", "b": "skipped", "c.py": "error"}
    assert run["reasons"] == {"a": "left open", "c.py": "no module"}
    assert (run["whole"], run["test_s"]["a"]) == (False, 1.5)


def test_only_tests_that_both_have_reached_are_compared():
    whole = run_of([phase("a", "call", "passed"), phase("b", "call", "passed"), {"rungs": {}, "launches": 0}])
    cut = run_of([phase("a", "call", "passed")])
    both = beside({**whole, "seconds": 2.0, "code": 0}, {**cut, "seconds": 3.0, "code": -9})
    assert (both["ratio"], both["unequal"], both["only_in_one"]) == (1.5, {}, 1)
    assert summary({"suite": {"cold": both}})["cut_off"] == ["suite, cold"]
