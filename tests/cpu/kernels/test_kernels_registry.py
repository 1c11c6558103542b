"""The registry of shipped kernels: names, operations, and what an import costs."""

import json
import subprocess
import sys

import pytest

import triton_ops_kernels as kernels
from triton_ops.backend import Arguments, Operation
from triton_ops.backend.origins import Home
from triton_ops.backend.reader import Reader
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import MissingDependencyError, TargetError


def test_names():
    assert kernels.names() == (
        "attention",
        "attention_backward",
        "fp8_dequantize",
        "fp8_gemm",
        "fp8_quantize",
        "gated_mlp",
        "gated_mlp_backward",
        "grouped_matmul",
        "layer_norm", "layer_norm_backward", "matmul", "rmsnorm_rope", "rmsnorm_rope_backward", "softmax",
        "softmax_backward",
    )  # fmt: skip


@pytest.mark.parametrize("name", kernels.names())
def test_loaded_operation_has_the_name_it_was_asked_for(name):
    operation = kernels.load(name)
    assert isinstance(operation, Operation)
    assert operation.name == name
    assert kernels.load(name) is operation


def test_unknown_name_is_told_the_known_ones():
    with pytest.raises(TargetError, match="'matmull'; there are "):
        kernels.load("matmull")


@pytest.mark.parametrize("name", kernels.names())
def test_named_problem_has_its_default_in_its_space_and_fits_the_kernel(name):
    operation = kernels.load(name)
    for shape, dtype in operation.problems.values():
        problem = operation.problem(shape, dtype)
        space = operation.space_for(problem)
        assert space.why_not(space.default_config) is None
        assert all(value in space.tunables[tunable] for tunable, value in space.default_config.items())
        operation.kernel.check(space.tunables, Arguments(keyword=dict(problem.arguments)))


def members(kernel):
    """The kernels of one launch that a kernel is made of; itself where it is one."""
    return [each for one in kernel._members for each in members(one)] if hasattr(kernel, "_members") else [kernel]


@pytest.mark.parametrize("name", kernels.names())
def test_a_kernel_is_told_from_others_with_all_that_it_runs_of_this_package(name):
    reader = Reader(Home("triton_ops_kernels", by_content=True))
    for each in members(kernels.load(name).kernel):
        reader.read("kernel", each)
    by_name = {part.rpartition(".")[2] for part, text in reader.parts.items() if text == "triton_ops"}
    assert by_name <= {"require", "ConfigValueError", "matrix_descriptor", "given[0]"}
    assert reader.unknown is None


def first_problem(operation):
    return operation.problem(*next(iter(operation.problems.values())))


@pytest.mark.parametrize("name", kernels.names())
def test_arguments_come_in_the_order_of_the_kernels_parameters(name):
    operation = kernels.load(name)
    names = [name for name, _ in first_problem(operation).arguments]
    assert names == list(operation.kernel.parameter_names)[: len(names)]


READ = {
    "attention_backward",
    "layer_norm_backward",
    "rmsnorm_rope_backward",
}  # they walk as no family of tiles does, and are read instead


@pytest.mark.parametrize("name", sorted(READ))
def test_work_of_kernels_that_are_read_declares_bytes_alone(name):
    operation = kernels.load(name)
    work = operation.work(first_problem(operation))
    assert work.bytes > 0
    assert work.tiles is None


@pytest.mark.parametrize("name", sorted(set(kernels.names()) - READ))
def test_work_knows_the_tiles_of_the_default(name):
    operation = kernels.load(name)
    problem = first_problem(operation)
    work = operation.work(problem)
    assert work.bytes > 0
    plan = work.tiles.plan(operation.space_for(problem).default_config, Machine.of(DeviceSpec.named("NVIDIA H200")))
    assert plan.schedule(plan.footprint).time_ms > 0


@pytest.mark.processes
def test_registry_imports_neither_torch_nor_triton():
    code = (
        "import sys, triton_ops_kernels as kernels; kernels.names()\n"
        "assert not {'torch', 'triton'} & set(sys.modules), sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", kernels.names())
def test_without_triton_a_kernel_says_what_is_missing(monkeypatch, name):
    folder = kernels._SHIPPED[name][0].partition(".")[0]
    for module in [m for m in sys.modules if m.startswith(f"triton_ops_kernels.{folder}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingDependencyError, match="triton is needed for the "):
        kernels.load(name)


@pytest.mark.triton
@pytest.mark.parametrize("name", kernels.names())
def test_default_compiles_for_hopper_and_hardly_spills(cli, shared_fork_server, name):
    operation = kernels.load(name)
    shape, dtype = next(iter(operation.problems.values()))
    default = operation.space_for(operation.problem(shape, dtype)).default_config
    values = [word for tunable, value in default.items() for word in ("--space", f"{tunable}={str(value).lower()}")]
    asked = ("--gpu", "sm_90", "--shape", "x".join(map(str, shape)), "--dtype", dtype, "--timeout", "600", "--json")
    ran = cli("compile", name, *asked, *values)
    assert ran.code == 0, ran.err
    (result,) = json.loads(ran.out)["items"]
    assert result["status"] == "ok"
    assert result["spill_bytes"] <= 64  # none with Triton 3.6; another compiler may need a few registers more
