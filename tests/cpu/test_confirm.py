"""Finalists measured again in fresh processes, and where those find the operation."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import pytest

from triton_ops import Config, Operation, operation, tune
from triton_ops.evaluation.confirm import Job, levels_elsewhere
from triton_ops.processes.locate import Location, load, locate


@operation(name="sleep", space={"delay_us": [300, 600, 601]}, arguments=lambda: {}, device="cpu")
def sleep(*, delay_us):
    time.sleep(delay_us * 1e-6)


def job(**changes) -> Job:
    values = {
        "location": locate(sleep), "shape": None, "dtype": None, "device": "cpu", "mode": "host",
        "configs": [{"delay_us": 600}, {"delay_us": 300}], "rounds": 4, "seed": 0,
    }  # fmt: skip
    return Job(**{**values, **changes})


def test_a_modules_operation_is_found_and_loaded():
    where = locate(sleep)
    assert where == Location(__name__, str(Path(__file__).resolve()), "sleep")
    assert load(where) is sleep


def test_a_scripts_operation_is_loaded_from_its_file(tmp_path):
    script = tmp_path / "some_script.py"
    script.write_text(
        "from triton_ops import operation\n"
        "@operation(space={'n': [1]}, arguments=lambda: {}, device='cpu')\n"
        "def nothing(*, n):\n    return None\n"
    )
    found = load(Location("some_script", str(script), "nothing"))
    assert isinstance(found, Operation)
    assert locate(found) == Location("some_script", str(script), "nothing")
    del sys.modules["some_script"]


def test_what_stands_in_no_module_is_not_found():
    inner = operation(space={"n": [1]}, arguments=lambda: {}, device="cpu")(lambda *, n: n)
    assert locate(inner) is None


def test_levels_come_from_other_processes():
    levels = levels_elsewhere(job(), 2)
    assert len(levels) == 2
    for slow, fast in levels:
        assert slow - fast == pytest.approx(0.6, abs=0.35)  # log(600 / 300) less what a sleep adds to both


def test_a_process_that_fails_is_left_out_and_said(caplog):
    with caplog.at_level(logging.WARNING, "triton_ops"):
        assert levels_elsewhere(job(location=Location("gone", "/nowhere/gone.py", "sleep")), 1) == []
    assert "should confirm the winner failed" in caplog.text


def test_a_tie_is_confirmed_and_the_default_stays(caplog):
    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = tune(sleep, space={"delay_us": [600, 601]}, effort="exhaustive")
    assert result.best_config == {"delay_us": 600}
    assert Config(delay_us=600) in result.ties
    assert caplog.text == ""
