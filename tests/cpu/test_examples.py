"""The example of an operation: what it computes, and that its configs compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


from tests.garbage import ENDS_UNSEARCHED
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.device import Target
from triton_ops.typed import TypedTarget
from triton_ops.values import Status

PROJECT = Path(__file__).parents[2]
pytestmark = pytest.mark.triton

INTERPRETED = """
import sys
import torch
from triton_ops.typed import TypedTarget

softmax = TypedTarget(sys.argv[1]).load()
for shape in ((5, 1000), (3, 128), (2, 1)):
    problem = softmax.problem(shape)
    given = softmax.materialise(problem, "cpu")
    right = softmax.reference(**given.keyword)
    for config in list(softmax.space_for(problem))[::4]:
        given.keyword["out"].fill_(float("nan"))
        softmax.kernel.compile(config, given).launch(given)
        assert (given.keyword["out"] - right).abs().max() < 1e-6, (shape, config)

from vector_add import CONFIGS, main, vec_add, with_config

for n in (1, 128, 1000, 1025):
    x, y = torch.randn(n), torch.randn(n)
    assert torch.equal(vec_add(x, y), x + y), n
    assert all(torch.equal(with_config(x, y, config), x + y) for config in CONFIGS.values()), n
main()
"""


@pytest.mark.processes
def test_softmax_and_the_sum_of_vectors_are_right(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDS_UNSEARCHED + INTERPRETED, f"{PROJECT}/examples/softmax.py:softmax"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "TRITON_OPS_CACHE_DIR": str(tmp_path),
             "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT / "examples"), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["config", "128/4", "256/8"]
    assert done.stdout.splitlines()[4].startswith("128/4 ")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_default_config_of_softmax_compiles_without_spills(dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    softmax = TypedTarget(f"{PROJECT}/examples/softmax.py:softmax").load()
    problem = softmax.problem((8192, 4096), dtype)
    arguments = Arguments(keyword=dict(problem.arguments)).described()
    ahead = TritonCompiler(softmax.kernel, arguments, Target.named("sm_90"))
    result = ahead.compile(softmax.space_for(problem).default_config)
    assert result.status is Status.OK, result.reason
    assert result.resources.spill_bytes == 0
    assert softmax.work(problem).bytes == problem["x"].nbytes * 2
