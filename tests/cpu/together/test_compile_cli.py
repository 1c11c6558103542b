"""`triton-ops compile`: a table of a whole space without a GPU."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import plain_product
from tests.cpu.cli.test_cli import PINNED
from triton_ops import Config, Status
from triton_ops.device import gpu_missing
from triton_ops.terminal import Facts
from triton_ops.values import Compiled, Resources
from triton_ops_kernels import load
from triton_ops_lab.command_compile import _first_problem, side_by_side

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

FIELDS = [
    "config", "target", "status", "reason", "trace", "registers", "spill_bytes", "shared_bytes", "mma",
    "serialised", "binary", "compile_s", "program", "expected_ms", "lower_bound_ms", "limited_by",
]  # fmt: skip
AXES = ["BM=64,128", "BN=256", "BK=32", "num_warps=4", "num_stages=2,10"]
SPACE = [*(word for axis in AXES for word in ("--space", axis)), "--jobs", "2"]
PRODUCT = f"{Path(plain_product.__file__)}:operation"
SMALL = ["--space", "BLOCK_SIZE=64", "--space", "num_warps=2,4", "--space", "num_stages=1"]

REFUSED = """
import triton
import triton.language as tl
from triton_ops import Operation, TensorSpec, TritonKernel

@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.static_assert(BLOCK < 50, "too large")
    tl.store(x + at, 0.0, mask=at < n)

def given(n, *, dtype):
    return {"x": TensorSpec((n,), dtype), "n": n}

problems = {"small": ((64,), "float32")}
kernel = TritonKernel(kernel, lambda meta: (1,))
refused = Operation("refused", kernel, {"BLOCK": [64]}, given, dtypes=("float32",), problems=problems)
"""


def blurred(text):
    text = re.sub(r" +\d+\.\d\d  (?=BM)", "  TIME  ", text)
    return re.sub(r"\d+\.\d(?= s$)", "N", re.sub(r" {2,}s  config", "  TIME  config", text), flags=re.MULTILINE)


@pytest.mark.skipif(
    f"triton=={version('triton')}\n" not in PINNED.read_text(), reason="another Triton, other registers"
)
def test_table(cli, golden):
    ran = cli("compile", PRODUCT, "--gpu", "sm_90", "--shape", "4096x4096x4096", *SPACE)
    assert (ran.code, ran.err) == (0, "")
    golden("compile.txt", blurred(ran.out))


def test_json_has_every_config_of_the_space(cli):
    ran = cli("compile", PRODUCT, "--gpu", "sm_90", "--shape", "4096x4096x4096", *SPACE, "--json")
    assert (ran.code, ran.err) == (0, "")
    result = json.loads(ran.out)["items"]
    assert all(list(entry) == FIELDS for entry in result)
    configs = [(e["config"]["BM"], e["config"]["num_stages"]) for e in result]
    assert configs == [(64, 2), (64, 10), (128, 2), (128, 10)]
    assert [entry["status"] for entry in result] == ["ok", "ok", "deferred", "resources"]
    for entry in result:
        fits = entry["status"] in ("ok", "deferred")
        assert fits == (entry["registers"] is not None) == (entry["shared_bytes"] <= 232448)
        assert bool(entry["reason"]) == (entry["status"] != "ok")
        assert (entry["status"] == "deferred") == ((entry["spill_bytes"] or 0) > 256)
        assert entry["mma"] == ("wgmma" if fits else None)
        assert (entry["binary"] is not None) == fits
        assert entry["compile_s"] > 0
    binaries = [entry["binary"] for entry in result if entry["binary"] is not None]
    assert len(set(binaries)) == len(binaries), "each config is a program of its own"
    assert {entry["shared_bytes"] for entry in result if entry["status"] == "resources"} == {245760}


def test_several_targets_stand_side_by_side():
    space = [Config(BLOCK=64), Config(BLOCK=128), Config(BLOCK=256)]

    def row(number, spilled=0, status=Status.OK):
        return Compiled(space[number], status, resources=Resources(registers=99, spill_bytes=spilled))

    result = {
        "sm_90": [row(0), row(1), row(2)],
        "sm_80": [row(0), row(1, spilled=1480), row(2, status=Status.RESOURCES)],
    }
    assert side_by_side(Facts("compile"), "a product", result, 1.25).printed(None) == [
        "a product for sm_90, sm_80: registers and spilled bytes per thread",
        "sm_90  sm_80             config",
        "99     99                BLOCK=64",
        "99     99, spills 1,480  BLOCK=128",
        "99     resources         BLOCK=256",
        "sm_90: 3 without spills, 0 spill, 0 cannot run",
        "sm_80: 1 without spills, 1 spill, 1 cannot run",
        "of those without spills on sm_90, 1 spill on sm_80, and 1 cannot run there",
        "3 configs on 2 targets, 1.2 s",
    ]


def test_every_target_that_is_named_is_compiled_for(cli):
    asked = ["--space", "BLOCK_SIZE=64", "--space", "num_warps=4", "--shape", "1x64x128x64", "--dtype", "fp32"]
    asked += ["--space", "num_stages=1"]
    ran = cli("compile", "rmsnorm_rope", "--gpu", "sm_90", "--gpu", "gfx942", "--gpu", "sm_90", *asked)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("rmsnorm_rope 1x64x128x64 float32 for sm_90, gfx942: registers")
    ran = cli("compile", "rmsnorm_rope", "--gpu", "sm_90", "--gpu", "gfx942", *asked, "--json")
    assert [entry["target"] for entry in json.loads(ran.out)["items"]] == ["sm_90", "gfx942"]
    ran = cli("compile", "rmsnorm_rope", "--gpu", "sm_90", "--gpu", "sm_9", *asked)
    assert (ran.code, ran.out) == (3, "")


def test_verbose_shows_what_the_compiler_raised(cli, tmp_path):
    (tmp_path / "refused.py").write_text(REFUSED)
    ran = cli("compile", str(tmp_path / "refused.py:refused"), "--gpu", "sm_90", "--jobs", "1", "-v")
    assert ran.code == 1, ran.err
    assert "CompileTimeAssertionFailure: at 3:4: … too large" in ran.out
    first, *trace = ran.err.splitlines()[1:]
    assert first == "(BLOCK=64) compile: CompileTimeAssertionFailure: at 3:4: … too large"
    assert '        tl.static_assert(BLOCK < 50, "too large")' in trace


def test_another_vendor_and_no_shape(cli):
    ran = cli("compile", "rmsnorm_rope", "--gpu", "gfx942", *SMALL, "--dtype", "fp32")
    assert ran.code == 0
    assert ran.err == "no --shape: compiling for 2x2048x4096x32 float32\n"
    assert ran.out.startswith(
        "rmsnorm_rope 2x2048x4096x32 float32 for gfx942: 65,536 bytes of shared memory per block\n"
    )
    assert "2 configs: 2 ok; 2 different binaries" in ran.out.splitlines()[-1]


def test_nothing_that_compiles_is_a_failure(cli):
    impossible = ["--space", "BM=256", "--space", "BN=256", "--space", "BK=64", "--space", "num_stages=5"]
    ran = cli("compile", PRODUCT, "--gpu", "sm_90", "--shape", "4096x4096x4096", *impossible)
    assert ran.code == 1
    assert "2 configs: 2 resources; 0 different binaries" in ran.out


def test_values_that_no_valid_config_has_are_told_with_the_rule_that_refuses_them(cli):
    few = ["BM=64", "BN=64", "BK=32", "num_warps=4", "num_stages=2", "ALGORITHM=tiles", "LOADS=pointers"]
    asked = ["compile", "matmul", "--gpu", "sm_90", "--shape", "512x512x512", "--jobs", "1"]
    asked += [word for values in few for word in ("--space", values)]
    ran = cli(*asked, "--space", "SWAPPED=false,true")
    assert ran.code == 0
    assert ran.err.startswith("no valid config has SWAPPED=True: swapped: swapped operands are for up to 64 rows")
    assert ran.err.count("\n") == 1
    ran = cli(*asked, "--space", "SWAPPED=true")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: no config is valid; SWAPPED=True: swapped: swapped operands are for up to")


def test_bad_input(cli, tmp_path):
    target = tmp_path / "plain.py"
    target.write_text("def plain(x):\n    pass\n")
    refused = [
        (["matmul", "--gpu", "sm_9"], 3, "target 'sm_9' is not known; close are sm_90"),
        (["matmul", "--gpu", "H500"], 3, "target 'H500' is not known; close are H200, H100 (hint"),
        (["matmul", "--gpu", "sm_90", "--jobs", "0"], 2, "--jobs is 0"),
        (["matmul", "--gpu", "sm_90", "--timeout", "0"], 2, "--timeout is 0"),
        (["matmul", "--gpu", "sm_90", "--timeout", "nan"], 2, "--timeout is nan"),
        (["matmul", "--gpu", "sm_90", "--dtype", "int3"], 2, "dtype 'int3' is not known"),
        (["matmul", "--gpu", "sm_90", "--shape", "8x8"], 2, "matmul takes 3 extents"),
        (["matmul", "--gpu", "sm_90", "--space", "XX=1"], 2, "no tunable XX"),
        (["nosuch", "--gpu", "sm_90"], 2, "there is no kernel 'nosuch'"),
        ([f"{target}:plain", "--gpu", "sm_90"], 2, "is a function, so there is nothing to compile"),
    ]
    if gpu_missing():
        refused.append((["matmul"], 3, "name one: --gpu 'NVIDIA H200'"))
    for words, code, message in refused:
        ran = cli("compile", *words)
        assert (ran.code, ran.out) == (code, ""), words
        assert message in ran.err
        assert ran.err.startswith("error: ")
        assert ran.err.count("\n") == 1


def test_the_first_problem_is_of_the_dtype_that_is_asked_for():
    operation = load("matmul")
    assert _first_problem(operation, None) == ([(1024, 1024, 1024)], "bfloat16")
    assert _first_problem(operation, "fp8") == ([(8192, 8192, 8192)], "fp8")
    assert _first_problem(operation, "fp16") == ([(1000, 777, 515)], "fp16")
