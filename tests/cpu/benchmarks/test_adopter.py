"""What the benchmark of a package before and after its patch reads of the package's tests."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.tuning.adopter import ROOT, ends_beside, ends_of, run_in


def test_the_end_of_each_test_is_read_of_what_pytest_prints():
    printed = "tests/test_a.py::test_sizes[1] PASSED [ 33%]\ntests/test_a.py::test_sizes[a b] FAILED [ 66%]\nnoise\n"
    ends = {"tests/test_a.py::test_sizes[1]": "passed", "tests/test_a.py::test_sizes[a b]": "failed"}
    assert ends_of(f"{printed}tests/test_a.py::test_hangs ") == ends


def test_a_package_sees_its_tree_and_no_module_of_this_project(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT}/src:")
    assert run_in(tmp_path, tmp_path, ["sh", "-c", "echo $PYTHONPATH"], 60) == (f"{tmp_path}:{ROOT}/src\n", True)


def test_tests_of_both_trees_are_compared_by_name():
    before = "tests/test_a.py::test_one PASSED [ 50%]\ntests/test_a.py::test_two PASSED [100%]\n"
    after = "tests/test_a.py::test_one FAILED [ 50%]\nFAILED tests/test_a.py::test_one - assert 2 == 1\n"
    summary = ends_beside(before, after)
    assert summary["ends"]["ours"] == {"failed": ["tests/test_a.py::test_one"]}
    assert summary["unequal"] == ["tests/test_a.py::test_one"]
    assert summary["only_in_one"] == ["tests/test_a.py::test_two"]
    assert summary["reasons"]["ours"] == {"tests/test_a.py::test_one": "assert 2 == 1"}


def test_a_file_that_was_not_collected_is_among_the_reasons():
    reasons = ends_beside("ERROR tests/test_a.py\n", "ERROR tests/test_a.py - ImportError: no tests\n")["reasons"]
    assert reasons == {"triton": {"tests/test_a.py": ""}, "ours": {"tests/test_a.py": "ImportError: no tests"}}
