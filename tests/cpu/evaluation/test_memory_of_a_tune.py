"""The memory that a tune takes, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_MIB = 64  # of the one argument, and of the result
_PROGRAM = """
import gc, re, sys
import numpy, torch
import triton_ops

library, bound, judged = sys.argv[2:]

def scale(x, *, chunk):
    out = x * 0
    for at in range(0, len(x), chunk):
        out[at : at + chunk] = x[at : at + chunk] * 1.5
    return out

def status(name):
    with open("/proc/self/status") as file:
        return int(re.search(name + r":\\s+(\\d+)", file.read())[1]) << 10

x = numpy.ones(int(sys.argv[1]) << 18, dtype=numpy.float32)
x = torch.from_numpy(x) if library == "torch" else x
options = {"space": [{"chunk": 1 << 14}, {"chunk": 1 << 16}], "keep": False, "effort": "race"}
options["reference"] = (lambda x: x * 1.5) if judged == "judged" else None
triton_ops.tune(scale, (x[:1000],), **options)  # has imported all that a tune needs
gc.disable()
before = status("VmRSS")
most = int(float(bound) * x.nbytes) if bound != "-" else None
try:
    result = triton_ops.tune(scale, (x,), memory_bytes=most, **options)
    assert len(result.trials) == 2 and all(trial.ok for trial in result.trials)
except triton_ops.UntunedError as error:
    print(error, file=sys.stderr)
    print("untuned")
print((status("VmHWM") - before) / x.nbytes, (status("VmRSS") - before) / x.nbytes)
"""


def _peak(library: str, bound: str, judged: str = "") -> tuple[float, float, bool]:
    """The most that a tune takes and what it leaves, in units of its argument, and whether it was tuned."""
    words = [sys.executable, "-c", _PROGRAM, str(_MIB), library, bound, judged]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = subprocess.run(words, env=environment, text=True, capture_output=True, check=False)
    assert program.returncode == 0, program.stderr
    peak, left = map(float, program.stdout.split()[-2:])
    return peak, left, "untuned" not in program.stdout


@pytest.mark.processes
def test_a_function_of_numpy_takes_four_copies_of_what_it_takes_and_gives_and_none_is_left_afterwards() -> None:
    peak, left, _ = _peak("numpy", "-")
    # A private copy, what inputs are compared with, the result that is right, and the one that is compared with it.
    assert 3.9 < peak < 4.3
    assert left < 0.2


@pytest.mark.processes
@pytest.mark.parametrize("judged", ["", "judged"])
@pytest.mark.parametrize(("library", "bound"), [("numpy", 5.2), ("torch", 7.5)])  # torch's is also what `malloc` keeps
def test_a_tune_on_a_cpu_keeps_its_bound(library: str, bound: float, judged: str) -> None:
    peak, _, tuned = _peak(library, str(bound), judged)
    assert tuned
    assert peak <= bound


@pytest.mark.processes
def test_a_tune_of_too_little_memory_ends_before_results_are_copied() -> None:
    peak, _, tuned = _peak("numpy", "3.5")
    assert not tuned
    assert peak < 3.5
