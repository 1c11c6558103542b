"""Kernels that run as Python: threads take turns, graphs of torch leave them out, and a misfit of versions is named."""

from __future__ import annotations

import sys
import threading
from unittest.mock import patch

import pytest
import torch

import triton_ops
from tests.tuned_kernels import add, grid
from triton_ops.backend import TritonProcess
from triton_ops.backend import triton_process as as_python


def launched(kernel, n):
    x, out = torch.arange(float(n)), torch.zeros(n)
    kernel[grid](x, x, out, n=n)
    return torch.equal(out, x + x)


def decorated():
    return triton_ops.autotune([{"BLOCK": 32}, {"BLOCK": 64}], key=["n"], on_miss="default")(add)


def right_in_threads():
    kernel, right = decorated(), []
    threads = [threading.Thread(target=lambda n=n: right.append(launched(kernel, n))) for n in range(40, 600, 80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads), right


def test_threads_take_turns(interpreted):
    count, right = interpreted(right_in_threads)
    assert right == [True] * count


def right_in_a_graph():
    """Three kernels in one graph: torch leaves the frame of the first one's launch out for the others too."""
    kernels = [decorated() for _ in range(3)]

    def doubled(x):
        for kernel in kernels:
            out = torch.empty_like(x)
            kernel[grid](x, x, out, n=x.numel())
            x = out * 1.0
        return x

    x = torch.arange(70.0)
    compiled = torch.compile(doubled, backend="eager")
    return torch.equal(compiled(x), 8 * x) and torch.equal(compiled(x), 8 * x)


def test_torch_leaves_it_out_of_its_graph(interpreted):
    assert interpreted(right_in_a_graph)


def why_of_a_miss():
    kernel = triton_ops.autotune([{"BLOCK": 32}, {"BLOCK": 64}], key=["n"], on_miss="queue")(add)
    launched(kernel, 90)
    return kernel.decisions[-1].found.why


def test_its_misses_are_not_said_to_be_queued(interpreted):
    asked = 'is tuned only where that is asked for, by on_miss="tune" or TRITON_OPS_ON_MISS=tune'
    assert interpreted(why_of_a_miss).endswith(asked)


def refusals():
    x, refused = torch.zeros(4), []
    for further in ({"x_ptr": x.numpy()}, {"count": 3}):
        try:
            triton_ops.tune(
                triton_ops.TritonKernel(add, grid, outputs=("out_ptr",)),
                kwargs={**dict(zip(("x_ptr", "y_ptr", "out_ptr", "n"), (x, x, x.clone(), 4), strict=True)), **further},
                space={"BLOCK": [32, 64]}, keep=False,
            )  # fmt: skip
        except triton_ops.TritonKernelError as error:  # noqa: PERF203 - two turns
            refused.append(str(error))
    return refused


def test_arrays_and_arguments_that_are_no_parameters_are_refused_before_any_config_is_tried(interpreted):
    array, other = interpreted(refusals)
    assert "x_ptr is a NumPy array, which is on the CPU" in array
    assert "add has no parameter count (hint: it has x_ptr, y_ptr, out_ptr, n, BLOCK)" in other


def why_without_the_extra():
    with patch.dict(sys.modules, {"scipy": None}):
        return why_of_a_miss()


def test_a_miss_that_could_not_be_tuned_names_the_extra_that_is_missing(interpreted):
    expected = "scipy is needed for a tune, and is not installed (hint: pip install 'triton-ops[tune]')"
    assert interpreted(why_without_the_extra).endswith(expected)


def test_what_numpy_refuses_the_interpreter_is_told_with_the_versions(monkeypatch):
    error = RuntimeError("TypeError('only 0-dimensional arrays can be converted to Python scalars')")
    versions = {"triton": "3.6.0", "numpy": "2.4.6"}
    monkeypatch.setattr(as_python, "_version", versions.__getitem__)
    assert TritonProcess.numpy_misfit(ValueError("another error")) is None
    told = str(TritonProcess.numpy_misfit(error))
    assert "Triton 3.6.0 does not run this kernel with NumPy 2.4.6" in told
    assert "pip install 'numpy<2.4'" in told
    for name, version in (("triton", "3.7.0"), ("triton", "3.10.0"), ("numpy", "2.3.5")):
        with monkeypatch.context() as patched:
            patched.setitem(versions, name, version)
            assert TritonProcess.numpy_misfit(error) is None, "these two fit"
    monkeypatch.setitem(versions, "numpy", "2.4.0")
    assert TritonProcess.numpy_misfit(), "asked before anything has failed"


class Kernel:
    def run(self, *args, **kwargs):
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")


def test_a_launch_that_numpy_refuses_says_so(monkeypatch):
    monkeypatch.setattr(as_python, "_version", {"triton": "3.6.0", "numpy": "2.4.0"}.__getitem__)
    monkeypatch.setattr(TritonProcess, "is_interpreted", lambda _: True)
    with pytest.raises(triton_ops.MissingDependencyError, match="does not run this kernel with NumPy"):
        TritonProcess.launcher_of(Kernel())(1)
