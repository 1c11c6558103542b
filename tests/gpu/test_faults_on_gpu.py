"""Faults planted among good Triton configs: each ends one trial in its status, and this process keeps its GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.compilation import CompilePool
from triton_ops.device import Target, gpu_missing, probe
from triton_ops.space import Config

SOURCE = Path(__file__).parents[2] / "src"

pytestmark = pytest.mark.gpu

if gpu_missing() is None:
    import torch
    from benchmarks.robustness.faults import PATIENCE, planted_run
    from benchmarks.robustness.planted import product, product_space
    from benchmarks.robustness.process_faults import workers_of

    import triton_ops_kernels as kernels
    from triton_ops import Status, release_processes, tune


def test_every_fault_ends_in_its_status_and_the_winner_stays(tmp_path, capfd):
    result = planted_run("cuda", tmp_path)
    assert {row["fault"]: row["status"] for row in result["faults"]} == {
        row["fault"]: row["expected"] for row in result["faults"]
    }
    assert result["good_configs_ok"]
    assert result["same_winner"]
    assert result["quarantined_next_time"] == 3  # the loop, what was killed, and what ended its compiler
    assert float((torch.ones(8, device="cuda") * 2).sum()) == 16
    release_processes()
    assert workers_of(os.getpid()) == []
    assert ".visible .entry" not in "".join(capfd.readouterr())


def test_a_triton_kernel_is_isolated_unless_asked_otherwise(tmp_path):
    result = tune(product, cache_dir=tmp_path, patience=PATIENCE)
    assert result.place == "in a process of its own"
    assert result.verified.startswith("the reference")
    inline = tune(product, cache_dir=tmp_path, force=True, isolate=False)
    assert inline.place == "inline, as asked"
    binaries = {trial.config: trial.resources.binary for trial in result.trials}
    assert {trial.config: trial.resources.binary for trial in inline.trials} == binaries


def test_the_callers_tensors_reach_the_worker_and_the_same_code_is_measured_once(tmp_path):
    given = product.materialise(product.problem((256, 256, 256)), "cuda").keyword
    before = {name: value.clone() for name, value in given.items() if isinstance(value, torch.Tensor)}
    space = [dict(config) for config in product_space([])]
    space.append({**space[2], "FAULT": 99})  # which the kernel does not ask for: the code is the same
    result = tune(product, kwargs=given, space=space, cache_dir=tmp_path)
    assert all(torch.equal(given[name], value) for name, value in before.items())
    assert {trial.status for trial in result.trials} == {Status.OK}
    (same,) = [trial for trial in result.trials if trial.same_code_as is not None]
    assert dict(same.same_code_as)["BM"] == 64


def test_what_was_compiled_ahead_is_found_by_the_process_that_launches(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "compiled"))
    operation = kernels.load("matmul")
    few = operation.space_for(operation.problem((512, 512, 512), None)).take(8)  # so few that none is only looked at
    result = tune(operation, shape=(512, 512, 512), space=[dict(config) for config in few], cache_dir=tmp_path)
    assert len(result.trials) == 8
    assert all(trial.compile_s > 0 for trial in result.trials if trial.ok)
    assert 0 <= result.waited_s <= result.elapsed_s
    folders = [path for path in (tmp_path / "compiled").iterdir() if list(path.glob("*.cubin"))]
    compiled = [t.config for t in result.trials if t.resources is not None and t.resources.binary]
    odd = 1  # the default config on odd extents, where the same code serves them
    assert len(folders) <= len(compiled) + odd, "the process that launches compiles nothing again"


def test_what_launches_kernels_is_built_by_a_compiling_process(tmp_path, monkeypatch):
    operation = kernels.load("matmul")
    problem = operation.problem((512, 512, 512), "float16")
    config = operation.space_for(problem).default_config
    for launches in (False, True):
        folder = tmp_path / str(launches)
        monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
        arguments = Arguments(keyword=dict(problem.arguments))
        ahead = TritonCompiler(operation.kernel, arguments, Target.of(probe("cuda")))
        with CompilePool(ahead, workers=1, launches=launches) as pool:
            assert pool.submit(config).result(60).launchable
            assert pool.submit(Config({**config, "num_stages": 1})).result(60).launchable  # after the launcher, if any
        built = any("launcher" in path.name for path in folder.rglob("*.so"))
        assert built == (launches and metadata.version("triton").startswith("3.6"))


BY_SHAPE = """
import sys
from triton_ops import tune
import triton_ops_kernels as kernels
result = tune(kernels.load("matmul"), shape=(512, 512, 512), trials=8)
print(result.place, "torch" in sys.modules)
"""


def test_the_process_that_tunes_by_shape_does_without_torch(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BY_SHAPE], capture_output=True, text=True, check=False,
        env={
            **os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path]),
            "TRITON_OPS_CACHE_DIR": str(tmp_path),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "in a process of its own False\n"
