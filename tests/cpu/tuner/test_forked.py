"""Calls in a child that was forked: threads of torch that its parent has used are not there."""

import os
import subprocess
import sys

import pytest
import torch

from tests.forked import status_of_a_child
from triton_ops import compare, time_ms, tune

ELEMENTS = 1 << 16  # twice as many as torch computes in one thread


def double(x, *, n=1):
    return x * 2


def tuned(x):
    result = tune(double, (x,), space={"n": [1, 2]}, keep=False, reference=lambda x: x + x)
    assert all(trial.status.value == "ok" for trial in result.trials)


def compared(x):
    assert compare(double, lambda x: x + x, args=(x,), rounds=6).verdict != "wrong"


def timed(x):
    assert time_ms(double, args=(x,), rep_ms=1).median_ms > 0


def in_a_child(call):
    """Call a function in a child of a program whose computations have used two threads."""
    torch.set_num_threads(2)
    x = torch.ones(ELEMENTS)

    def called():
        globals()[call](x)
        assert torch.get_num_threads() == 1

    assert status_of_a_child(called) == 0
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("call", ["tuned", "compared", "timed"])
def test_a_call_in_a_forked_child_computes_in_one_thread_and_says_so(call):
    code = f"from tests.cpu.tuner import test_forked; test_forked.in_a_child({call!r})"
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=100)
    assert (ran.returncode, "computes in one thread" in ran.stderr) == (0, True), ran.stderr
