"""A problem of a shipped kernel by its shape needs no torch before it runs."""

import os
import subprocess
import sys

import pytest

from tests.cpu.device.test_hardware import SOURCE
from triton_ops.device import gpu_missing

BY_SHAPE = """
import importlib, sys
from triton_ops import TargetError, tune
import triton_ops_kernels as kernels
from triton_ops.device import DeviceSpec

probe = importlib.import_module("triton_ops.device.probing")
h200 = DeviceSpec(
    "cuda", "NVIDIA H200", "sm_90", 132,
    memory_bytes=150 << 30, l2_bytes=60 << 20, shared_bytes_per_block=232448, registers_per_unit=65536,
)
probe.gpus_without_torch = lambda: (h200,)
try:
    tile = dict(BM=16, BN=32, BK=32, GROUP_M=8, num_warps=4, num_stages=2)
    tune(kernels.load("matmul"), shape=(512, 512, 512), space=[tile])
except TargetError as error:  # the worker is the first to need torch, and finds no GPU
    print("ended the process" in str(error), "torch" in sys.modules)
"""


@pytest.mark.processes
@pytest.mark.triton
def test_a_problem_by_shape_needs_no_torch_but_where_it_runs(tmp_path):
    if gpu_missing() is None:
        pytest.skip("a GPU is here")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BY_SHAPE], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TRITON_OPS_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr
