"""What the benchmark of packages' tests says of a small package."""

import time

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.tuning.package_tests import Suite, beside, compared, gpus_of, run_of, summary

PACKAGE = """
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, 1.0, mask=offsets < n)
"""
TESTS = """
import pytest
from package import fill

@pytest.mark.parametrize("place", [0, 1])
def test_configs(place):
    assert len(fill.configs) == 2

def test_whose_it_is():
    assert type(fill).__module__.startswith("triton.")
"""


@pytest.mark.processes
@pytest.mark.parametrize(("at_once", "shards"), [(False, 1), (True, 2)])
def test_tests_of_a_package_run_with_both_tuners_and_what_differs_is_named(tmp_path, at_once, shards):
    (tmp_path / "tests").mkdir()
    (tmp_path / "package.py").write_text(PACKAGE)
    (tmp_path / "tests/test_fill.py").write_text(TESTS)
    suite = Suite("", ("tests",), "", warm=False)
    (row,) = compared(suite, tmp_path, tmp_path / "caches", time.perf_counter() + 60, at_once, shards)
    cold = row["cold"]
    assert cold["counts"] == {"triton": {"passed": 3}, "ours": {"passed": 2, "failed": 1}}
    assert cold["unequal"] == {"tests/test_fill.py::test_whose_it_is": ["passed", "failed"]}
    assert cold["whole"] == {"triton": True, "ours": True}
    notes = [(tmp_path / f"caches/ours/notes-{shard}.jsonl").read_text() for shard in range(shards)]
    assert ["test_configs[1]" in each for each in notes] == [False] * (shards - 1) + [True]
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


@pytest.mark.parametrize(
    ("at_once", "shards", "cards", "gpus"),
    [
        (False, 1, 2, {"triton": [""], "ours": [""]}),
        (False, 2, 2, {"triton": ["0", "1"], "ours": ["0", "1"]}),
        (True, 2, 0, {"triton": ["", ""], "ours": ["", ""]}),
        (True, 2, 1, {"triton": ["0", "0"], "ours": ["0", "0"]}),
        (True, 2, 2, {"triton": ["0", "0"], "ours": ["1", "1"]}),
        (True, 2, 8, {"triton": ["0", "2"], "ours": ["1", "3"]}),
    ],
)
def test_cards_are_dealt_to_the_processes_that_run_at_once(at_once, shards, cards, gpus):
    assert {mode: gpus_of(mode, at_once, shards, cards) for mode in gpus} == gpus


def test_a_run_is_whole_when_each_of_its_shards_has_an_end():
    ends = [{"rungs": {"cached": 1}, "launches": 1}, {"rungs": {"cached": 2, "tuned": 1}, "launches": 3}]
    assert [run_of(ends[:count], shards=2)["whole"] for count in (1, 2)] == [False, True]
    assert run_of(ends, shards=2)["rungs"] == {"cached": 3, "tuned": 1}


def test_only_tests_that_both_have_reached_are_compared():
    whole = run_of([phase("a", "call", "passed"), phase("b", "call", "passed"), {"rungs": {}, "launches": 0}])
    cut = run_of([phase("a", "call", "passed")])
    both = beside({**whole, "seconds": 2.0, "code": 0}, {**cut, "seconds": 3.0, "code": -9})
    assert (both["ratio"], both["unequal"], both["only_in_one"]) == (1.5, {}, 1)
    assert both["tests_s"] == {"triton": 0.5, "ours": 0.5}
    assert summary({"suite": {"cold": both}})["cut_off"] == ["suite, cold"]
