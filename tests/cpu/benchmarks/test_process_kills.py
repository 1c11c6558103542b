"""The program that ends commands again and again attacks commands that work, or says so."""

import random

import pytest
from benchmarks.robustness import process_kills

pytestmark = pytest.mark.processes


def test_a_command_that_fails_undisturbed_is_told_and_not_attacked(tmp_path, monkeypatch):
    monkeypatch.setattr(process_kills, "COMPILED", ["BM=7"])
    with pytest.raises(RuntimeError, match="compile does not get through undisturbed, and was not attacked"):
        process_kills.ended_often("compile", tmp_path, ["KILL"], random.Random(0))
