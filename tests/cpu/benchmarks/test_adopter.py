"""What the benchmark of a package before and after its patch reads of the package's tests."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.tuning.adopter import ends_of, run_in


def test_the_end_of_each_test_is_read_of_what_pytest_prints():
    printed = "tests/test_a.py::test_sizes[1] PASSED [ 33%]\ntests/test_a.py::test_sizes[a b] FAILED [ 66%]\nnoise\n"
    ends = {"tests/test_a.py::test_sizes[1]": "PASSED", "tests/test_a.py::test_sizes[a b]": "FAILED"}
    assert ends_of(f"{printed}tests/test_a.py::test_hangs ") == ends


def test_a_command_that_ends_by_itself_is_whole(tmp_path):
    assert run_in(tmp_path, tmp_path, ["sh", "-c", "echo $PYTHONPATH | cut -d: -f1"], 60) == (f"{tmp_path}\n", True)
