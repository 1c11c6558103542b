"""Tunes of several processes on one device: each holds its turn while it measures, and for nothing else."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from tests.limits import ENOUGH_S
from triton_ops.evaluation.questions import StationStep
from triton_ops.processes import WorkerLostError, WorkerProcess

pytestmark = pytest.mark.processes

PROGRAM = """
import json, os, sys, time
from triton_ops import FunctionKernel, tune
from triton_ops.device import Turns
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.timing import Rounds
trace = open(sys.argv[1], "a", buffering=1)

def note(what):
    trace.write(json.dumps([os.getpid(), what]) + "\\n")

def noted(owner, name, what):
    original = getattr(owner, name)
    def wrapped(*args, **kwargs):
        note(what)
        return original(*args, **kwargs)
    setattr(owner, name, wrapped)

Turns.key_of = staticmethod(lambda *_: "GPU-7")
noted(Rounds, "_in_turn", "sample")
noted(Rounds, "_counts", "sample")
noted(FunctionKernel, "compile", "compile")
enter = Turns.turn

import contextlib
@contextlib.contextmanager
def turn(self, key):
    with enter(self, key):
        note("begin")
        yield
        note("end")
Turns.turn = turn

def work(n, *, ms):
    time.sleep(ms / 1e3)
    return n

def check(result, expected):
    note("check")
    return result == expected

result = tune(work, (3,), space=[{"ms": 1.5}, {"ms": 1.0}, {"ms": 2.0}], check=check, device="cpu",
              reference=lambda n: n, keep=False, budget_s=20)
assert result.best_config == {"ms": 1.0}, result.best_config
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_LOCK_DIR", str(tmp_path / "locks"))


def test_two_tunes_hold_their_turns_while_they_measure_and_compile_and_check_outside(tmp_path):
    trace = tmp_path / "trace"
    both = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(trace)]) for _ in range(2)]
    assert [process.wait(ENOUGH_S) for process in both] == [0, 0]
    events = [tuple(json.loads(line)) for line in trace.read_text().splitlines()]
    inside = {pid: [] for pid, _ in events}
    held = None
    for pid, what in events:
        if what == "begin":
            assert held is None  # two turns never overlap
            held = pid
        elif what == "end":
            assert held == pid
            held = None
        else:
            inside[pid].append((what, held == pid))
    for each in inside.values():
        assert {what for what, _ in each} == {"sample", "compile", "check"}
        assert all(in_turn is (what == "sample") for what, in_turn in each)


def test_seconds_in_which_a_worker_waits_for_others_are_no_part_of_its_limits():
    worker = WorkerProcess(program="tests.waiting_worker")
    limits_s = {StationStep.TURN: math.inf, StationStep.LAUNCH: 20.0}
    try:
        assert worker.ask([], 60.0, limits_s, "start") == "done"
        assert worker.ask([("wait", 1.6), ("launch", 0.0)], 1.5, limits_s, "start") == "done"
        with pytest.raises(WorkerLostError, match=r"its trial did not end within 0\.5 s") as caught:
            worker.ask([("wait", 0.0), ("launch", 20.0)], 0.5, limits_s, "start")
        assert caught.value.hung
    finally:
        worker.kill()
