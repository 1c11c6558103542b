"""Calls in a child that was forked: threads of torch that its parent has used are not there."""

import os
import subprocess
import sys
import threading
import time

import numpy
import pytest
import torch

from tests.forked import status_of_a_child
from triton_ops import compare, time_ms, tune
from triton_ops.base import Process

pytestmark = pytest.mark.processes

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


def said(code):
    """Whether a program that ends with 0 says that it computes in one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", f"from tests.cpu.tuner import test_forked; test_forked.{code}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return "computes in one thread" in ran.stderr


@pytest.mark.parametrize("call", ["tuned", "compared", "timed"])
def test_a_call_in_a_forked_child_computes_in_one_thread_and_says_so(call):
    assert said(f"in_a_child({call!r})")


def beside_other_threads():
    """As `in_a_child`, where the parent's only threads are those of NumPy's products, which wait by now."""
    numpy.ones((600, 600)) @ numpy.ones((600, 600))
    assert Process(os.getpid()).tasks > threading.active_count()
    torch.set_num_threads(2)
    time.sleep(0.5)

    def called():
        timed(torch.ones(ELEMENTS))
        assert torch.get_num_threads() == 2

    assert status_of_a_child(called) == 0


def test_threads_of_other_libraries_leave_torch_its_own():
    assert not said("beside_other_threads()")
