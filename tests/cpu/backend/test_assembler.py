"""ptxas: which one is in use, which are installed, a fault of some versions, and verdicts that name it."""

import json
import os
import sys
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_ops
from triton_ops.backend import Executable, triton_process, use_ptxas
from triton_ops.backend.triton_process import Assembler, assembler_in_use, installed_assemblers, suspicion
from triton_ops.cli import doctor
from triton_ops.exceptions import SettingsError
from triton_ops.values import Status

pytestmark = pytest.mark.triton

VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def program(path, version):
    """A program that tells a version as ptxas does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    release = ".".join(version.split(".")[:2])
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def own(monkeypatch, tmp_path):
    """An environment that names no ptxas, and a machine that has none beside Triton's."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # restored at the end, whatever a test sets
    monkeypatch.setattr(triton_process, "_TOOLKIT", tmp_path / "toolkit" / "ptxas")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(triton_process, "find_spec", lambda _name: None)


@pytest.fixture
def wheels(monkeypatch, tmp_path):
    """A folder of NVIDIA's packages with two of them."""
    folder = tmp_path / "nvidia"
    program(folder / "cuda_nvcc/bin/ptxas", "12.9.86")
    program(folder / "cu13/bin/ptxas", "13.4.59")
    spec = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr(triton_process, "find_spec", lambda _name: spec)
    return folder


def test_tritons_own_is_in_use_and_knows_its_version():
    result = assembler_in_use()
    assert result.origin == "Triton's own"
    assert result.numbers > (11, 0)
    assert result.faulty == (result.numbers < (13, 3))


def test_the_environment_names_another(tmp_path, monkeypatch):
    path = program(tmp_path / "ptxas", "13.4.59")
    for name in VARIABLES:
        monkeypatch.setenv(name, str(path))
    assert assembler_in_use() == Assembler(str(path), "13.4.59", "named by the environment")
    assert not assembler_in_use().faulty


@pytest.mark.parametrize(
    ("version", "faulty"), [("12.8.93", True), ("13.2.1", True), ("13.3", False), ("14.0.1", False)]
)
def test_versions_before_13_3_have_the_fault(version, faulty):
    assert Assembler("ptxas", version, "").faulty is faulty


def test_programs_of_packages_of_the_toolkit_and_of_the_path_are_found_the_newest_first(wheels, tmp_path):
    program(tmp_path / "toolkit/ptxas", "13.0.88")
    program(tmp_path / "path/ptxas", "12.0.1")
    (wheels / "broken/bin").mkdir(parents=True)
    (wheels / "broken/bin/ptxas").write_text("no program")
    result = installed_assemblers()
    assert [each.version for each in result] == ["13.4.59", "13.0.88", "12.9.86", "12.0.1"]
    assert result[0].origin == "of the package nvidia/cu13"


def test_one_that_is_found_twice_is_listed_once(tmp_path, monkeypatch):
    program(tmp_path / "path/ptxas", "13.0.88")
    monkeypatch.setattr(triton_process, "_TOOLKIT", tmp_path / "path/ptxas")
    assert [each.origin for each in installed_assemblers()] == ["of the CUDA toolkit"]


def test_the_newest_is_taken_in_this_process_and_in_its_children(wheels):
    taken = use_ptxas()
    assert taken.version == "13.4.59"
    assert assembler_in_use().version == "13.4.59"
    assert {os.environ[name] for name in VARIABLES} == {str(wheels / "cu13/bin/ptxas")}


def test_a_program_is_taken_by_its_path(tmp_path):
    path = program(tmp_path / "ptxas", "13.1.80")
    assert use_ptxas(path).path == str(path)
    assert assembler_in_use().path == str(path)


def test_what_is_no_ptxas_is_refused_and_changes_nothing(tmp_path):
    with pytest.raises(SettingsError, match="pip install nvidia-cuda-nvcc"):
        use_ptxas()
    (tmp_path / "text").write_text("")
    for path in (tmp_path / "text", tmp_path / "missing", tmp_path):
        with pytest.raises(SettingsError, match="does not tell the version"):
            use_ptxas(path)
    assert {os.environ[name] for name in VARIABLES} == {""}


def test_without_triton_there_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.backends.nvidia.compiler", None)
    assert assembler_in_use() is None


@triton.jit
def product(a, b, c, K: tl.constexpr, SCALED: tl.constexpr):
    row, inner = tl.arange(0, 64)[:, None], tl.arange(0, 64)
    left = tl.load(a + row * K + inner[None, :])
    if SCALED:  # computed, and so in registers
        left = (left.to(tl.float32) * 0.5).to(tl.bfloat16)
    right = tl.load(b + inner[:, None] * 64 + tl.arange(0, 64)[None, :])
    tl.store(c + row * 64 + tl.arange(0, 64)[None, :], tl.dot(left, right))


def compiled(scaled, arch=90):
    signature = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "K": "constexpr", "SCALED": "constexpr"}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(3)}
    source = ASTSource(product, signature=signature, constexprs={(3,): 64, (4,): scaled}, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 4})


def in_use(monkeypatch, version):
    monkeypatch.setattr(triton_process, "assembler_in_use", lambda: Assembler("ptxas", version, "Triton's own"))


def test_products_from_registers_on_hopper_are_suspected_under_an_old_assembler(monkeypatch):
    from_registers, from_memory = compiled(True), compiled(False)
    in_use(monkeypatch, "12.8.93")
    assert "ptxas 12.8.93 can break products whose left factor is in registers" in suspicion([from_registers])
    assert suspicion([from_memory, from_registers])
    assert suspicion([from_memory]) == ""
    in_use(monkeypatch, "13.4.59")
    assert suspicion([from_registers]) == ""


def of_ptx(text, arch=90):
    return SimpleNamespace(metadata=SimpleNamespace(target=SimpleNamespace(arch=arch)), asm={"ptx": text})


@pytest.mark.parametrize(
    ("masks", "version", "told"), [(16, "12.8.93", True), (15, "12.8.93", False), (16, "13.5.37", False)]
)
def test_many_masks_that_turns_of_a_loop_hand_on_are_suspected(monkeypatch, masks, version, told):
    in_use(monkeypatch, version)
    text = "\n".join(f"mov.pred \t%p{place}, %p{place + 16};" for place in range(masks))
    result = suspicion([of_ptx("ret;"), of_ptx(text)])
    assert ("may lose masks of loads that run ahead, as here; ptxas 13.5 does not" in result) == told
    assert bool(result) == told
    assert suspicion([of_ptx(text, 80)]) == ""


def test_code_that_two_faults_may_break_names_both(monkeypatch):
    in_use(monkeypatch, "12.8.93")
    masks = of_ptx("mov.pred %p1, %p2;\n" * 16)
    result = suspicion([compiled(True), masks])
    assert "break products whose left factor is in registers and may lose masks" in result
    assert "ptxas 13.5 does not" in result


def test_another_architecture_is_not_suspected(monkeypatch):
    in_use(monkeypatch, "12.8.93")
    assert suspicion([compiled(True, 80)]) == ""
    assert suspicion([SimpleNamespace(metadata=SimpleNamespace(), asm={"amdgcn": ""})]) == ""


class Broken:
    """A kernel whose config 2 gives a wrong result, and whose code the compiler may have broken."""

    name, outputs, identity = "broken", (), {"source": "broken"}

    def check(self, tunables, arguments):
        """Takes anything."""

    def compile(self, config, arguments):
        def bind(given):
            return lambda: given.keyword["x"] * (2.5 if config["way"] == 2 else 2)

        return Executable(config=config, bind=bind, suspect=lambda: "it may be the assembler's fault")


def test_a_wrong_verdict_names_the_fault(steady_clock):
    result = triton_ops.tune(
        Broken(), kwargs={"x": torch.ones(8)}, space={"way": [1, 2]}, reference=lambda x: x * 2, device="cpu"
    )
    wrong = {trial.config["way"]: trial.error for trial in result.trials if trial.status == Status.WRONG}
    assert list(wrong) == [2]
    assert wrong[2].endswith("; it may be the assembler's fault")


def test_doctor_says_which_is_in_use_and_where_a_newer_one_is(cli, wheels, monkeypatch):
    in_use_here = Assembler("/opt/ptxas", "12.8.93", "Triton's own")
    monkeypatch.setattr(doctor, "assembler_in_use", lambda: in_use_here)
    (part,) = [each for each in json.loads(cli("doctor", "--json").out)["items"] if each["name"] == "ptxas"]
    assert part["found"] == "12.8.93, Triton's own"
    assert f"use_ptxas() takes 13.4.59, {wheels / 'cu13/bin/ptxas'}" in part["means"]
    monkeypatch.setattr(doctor, "assembler_in_use", lambda: use_ptxas())
    (part,) = [each for each in json.loads(cli("doctor", "--json").out)["items"] if each["name"] == "ptxas"]
    assert "part of every record's key" in part["means"]
