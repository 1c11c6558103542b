"""A file that names a shipped kernel gives a compiler no files."""

import json
import sys
from pathlib import Path

import pytest

import triton_ops_kernels as kernels
from tests.cpu.cli.test_trust import here as here
from triton_ops.cli.app import main
from triton_ops.device import DeviceSpec, probe
from triton_ops.many import RunOptions
from triton_ops.records import Lockfile, LockPlan, Misses, Record, Timing, lock_of
from triton_ops.records.misses import Harvest
from triton_ops.request import Effort, TuneOptions
from triton_ops.ship import prepare
from triton_ops.ship.command_loading import tune_misses
from triton_ops.ship.targets import Targets, kernel_in
from triton_ops.space import Config
from triton_ops.typed import TypedTarget
from triton_ops.values import Key, Problem, TensorSpec

LOADING = {"ir_override": "evil.ptx", "ptx_options": "-o mark"}
KERNEL = """
import triton, triton.language as tl
from triton_ops import TritonKernel

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

kernel = TritonKernel(double, lambda meta: (1,), outputs=("x",))
"""


@pytest.mark.triton
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("option", LOADING)
@pytest.mark.parametrize(
    "where", ["an argument of a shipped kernel", "a class of one", "a config without a space", "its default"]
)
def test_a_file_gives_a_compiler_no_files(where, option, capsys):
    pytest.importorskip("triton")
    Path("double.py").write_text(KERNEL)
    Path("evil.ptx").write_text("no code")
    softmax, double = kernels.load("softmax"), TypedTarget("double.py:kernel").object()
    added = {f"{option}:class" if "class" in where else option: LOADING[option]}
    if where in ("an argument of a shipped kernel", "a class of one"):
        target, problem = softmax, {**dict(softmax.problem((64, 512)).arguments), **added}
        default = config = dict(softmax.space_for(softmax.problem((64, 512))).default_config)
    else:
        target, problem = double, {"x": TensorSpec((64,), "float32"), "n": 64}
        default, config = {"BLOCK": 64}, {"BLOCK": 64}
        (config if "config" in where else default).update(added)
    key = Key.of(Problem(target.name, tuple(problem.items())), kernel_in(target).identity, DeviceSpec.named("H100"))
    record = Record(key=key, winner=Config(config), default=Config(default), timing=Timing(1.0, 1.0, 1.0, 3))
    lock_of([record], LockPlan())[0].write("lock.json")
    assert main(["lock", "verify", "lock.json", "--static", "--json", "--kernels", "double.py"]) == 5
    (verdict,) = json.loads(capsys.readouterr().out)["items"]
    assert (verdict["outcome"], f"{option} of a file is not used" in verdict["reason"]) == ("invalid", True)
    device = Lockfile.read("lock.json").devices[0].alias
    assert f"{option} of a file is not used" in prepare("lock.json", targets=[double], alias=device).failed[0][1]
    sys.modules.pop("double", None)


@pytest.mark.triton
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("option", LOADING)
def test_a_miss_gives_a_compiler_no_files(option):
    pytest.importorskip("triton")
    softmax = kernels.load("softmax")
    problem = {**dict(softmax.problem((64, 512)).arguments), option: LOADING[option]}
    key = Key.of(Problem("softmax", tuple(problem.items())), softmax.kernel.identity, probe("cpu"))
    harvest = Harvest(Path("cache"))
    harvest.note(key)
    harvest.flush()
    (served,), _ = tune_misses(
        Misses(Path("cache")).read(),
        Targets(),
        RunOptions(each=TuneOptions(effort=Effort.named("quick"), cache_dir="cache")),
    )
    assert f"{option} of a file is not used" in served.reason
