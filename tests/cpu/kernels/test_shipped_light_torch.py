"""Shipped kernels are read and compiled with little of torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
import triton_ops_kernels as kernels  # noqa: E402
from tests import kinds  # noqa: E402
from triton_ops.backend import LauncherKernel  # noqa: E402
from triton_ops.backend.launcher import REFERENCES  # noqa: E402


def mean_after(x, BLOCK):
    kinds.sum_in_two(x, x.mean(0), BLOCK)


def test_only_a_function_that_names_what_needs_them_has_torchs_reference_implementations_imported():
    assert LauncherKernel(mean_after).compile_imports == REFERENCES
    for name in ("layer_norm_backward", "rmsnorm_rope_backward", "attention_backward"):
        assert kernels.load(name).kernel.compile_imports == "torch"


PROGRAM = """
import sys
import triton_ops_kernels as kernels
from triton_ops.backend import Arguments
from triton_ops.backend.launcher import dry_run, launches_taken
from triton_ops.backend.offline import pretending
from triton_ops.device import Target
import triton.runtime.jit as jit
launched = []
jit.JITFunction.run = lambda *args, **kwargs: launched.append(args[0])
for name, shape in (("layer_norm_backward", (64, 128)), ("rmsnorm_rope_backward", None), ("attention_backward", None)):
    operation = kernels.load(name)
    problem = operation.problem(shape, None)
    given = Arguments(keyword=dict(problem.arguments)).described()
    with pretending(Target.named("sm_90")):
        for config in list(operation.space_for(problem))[::16]:
            dry_run(lambda **all: operation.kernel.launch(**all, **config), given)
print(len(launched) > 20, "sympy" in sys.modules)
"""


@pytest.mark.processes
def test_shipped_gradients_are_read_and_compiled_without_what_torchs_reference_implementations_import():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["True", "False"], ran.stderr
