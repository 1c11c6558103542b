"""The memory that a tune takes, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_MIB = 64  # of the one argument, and of the result
_PROGRAM = """
import gc, re, sys
import numpy as np
import triton_ops

def scale(x, *, chunk):
    out = np.empty_like(x)
    for at in range(0, len(x), chunk):
        np.multiply(x[at : at + chunk], 1.7, out=out[at : at + chunk])
    return out

def status(name):
    with open("/proc/self/status") as file:
        return int(re.search(name + r":\\s+(\\d+)", file.read())[1]) << 10

x = np.ones(int(sys.argv[1]) << 18, dtype=np.float32)
chunks = [{"chunk": 1 << 14}, {"chunk": 1 << 16}]
triton_ops.tune(scale, (x[:1000],), space=chunks, keep=False, effort="race")  # has imported all that a tune needs
gc.disable()
before = status("VmRSS")
result = triton_ops.tune(scale, (x,), space=chunks, keep=False, effort="race")
assert len(result.trials) == 2 and all(trial.ok for trial in result.trials)
print((status("VmHWM") - before) / x.nbytes, (status("VmRSS") - before) / x.nbytes)
"""


@pytest.mark.processes
def test_a_function_of_numpy_takes_four_copies_of_what_it_takes_and_gives_and_none_is_left_afterwards() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(_MIB)], env=environment, text=True, capture_output=True, check=False
    )
    assert program.returncode == 0, program.stderr
    peak, left = map(float, program.stdout.split()[-2:])
    # A private copy, what inputs are compared with, the result that is right, and the one that is compared with it.
    assert 3.9 < peak < 4.3
    assert left < 0.2
