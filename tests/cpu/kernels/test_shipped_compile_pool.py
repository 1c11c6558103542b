"""Shipped kernels compiled by other processes, which have no torch, and end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
from tests.cpu.compilation.test_compile_pool import PROJECT, TARGET, children, gone  # noqa: E402
from tests.cpu.compilation.test_compile_pool import started as started  # noqa: E402
from tests.limits import ENOUGH_S, eventually  # noqa: E402
from triton_ops.backend import Arguments, TritonCompiler  # noqa: E402
from triton_ops.compilation import CompilePool  # noqa: E402
from triton_ops_kernels import load  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]


def test_compilers_of_a_kernel_that_needs_no_torch_have_none(started):
    operation = load("matmul")
    arguments = Arguments(keyword=dict(operation.problem((64, 64, 64), "float16").arguments))
    space = list(operation.space_for(operation.problem((64, 64, 64), "float16")))
    with CompilePool(TritonCompiler(operation.kernel, arguments, TARGET), workers=2) as pool:
        assert [pool.submit(config).result().launchable for config in space[:2]] == [True, True]
        mapped = [Path(f"/proc/{pid}/maps").read_text() for pid in started()]
    assert any("libtriton" in text for text in mapped)
    assert not any("libtorch" in text for text in mapped)


PARENT = """
import signal
import sys
from tests.planted_kernels import grid, planted
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend import TritonCompiler
from triton_ops.compilation import CompilePool
from triton_ops.device import Target
from triton_ops.space import Config
from triton_ops.values import TensorSpec

TARGET = Target.named("sm_90")
signal.signal(signal.SIGINT, signal.default_int_handler)  # heard where the tests themselves run in the background too

if sys.argv[1] == "hang":
    kernel, arguments = TritonKernel(planted, grid, outputs=("x",)), Arguments((TensorSpec((1000,), "float32"), 1000))
    configs = [Config(KIND="hang", BLOCK=block) for block in (128, 256)]
else:
    from triton_ops_kernels import load

    operation = load("matmul")
    kernel, arguments = operation.kernel, Arguments(keyword=dict(operation.problem((4096,) * 3, "bf16").arguments))
    configs = [Config(BM=256, BN=256, BK=bk, GROUP_M=8, num_warps=4, num_stages=2) for bk in (64, 32)]
with CompilePool(TritonCompiler(kernel, arguments, TARGET), workers=1) as pool:
    futures = [pool.submit(given, anyway=True) for given in configs]
    print("begun", flush=True)
    futures[0].result()
"""


@pytest.mark.parametrize(
    ("how", "work"),
    [(signal.SIGKILL, "heavy"), (signal.SIGTERM, "hang"), (signal.SIGINT, "heavy")],
    ids=["killed-in-llvm", "terminated", "interrupted-in-llvm"],
)
def test_processes_end_with_their_parent(how, work, tmp_path):
    path = f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, work], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    with parent:
        assert parent.stdout.readline() == "begun\n"
        eventually(lambda: len(children(parent.pid)) >= 2)
        time.sleep(1.5 if work == "heavy" else 0.5)  # into the compilers, past the imports
        started = children(parent.pid)
        parent.send_signal(how)
        parent.wait(ENOUGH_S)
        gone(started)
        message = parent.stderr.read()
    if how is signal.SIGINT:
        assert message.count("KeyboardInterrupt\n") == 1, "the processes say nothing of it"
    else:
        assert message == ""
