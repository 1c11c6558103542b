"""Inductor's lists of backends, which of them take part in an operation and why, and the command that says so."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from triton_ops import SettingsError
from triton_ops.device import DeviceSpec, probe
from triton_ops_torch.backends import Site, known_backends, names_in, wrong_list, wrong_lists
from triton_ops_torch.compile_mode import as_mode, refusal, variables_by_option

GEMM, CONV = "max_autotune_gemm_backends", "max_autotune_conv_backends"
EVERYTHING = "ATEN,TRITON,CPP,CUTLASS,NVGEMM,CUTEDSL,CK,CKTILE"


def site(gpu="H200", **more):
    device = probe("cpu") if gpu == "cpu" else DeviceSpec.called(gpu)
    return Site(**{"kind": "mm", "device": device, "dtype": "bfloat16", "extents": (256, 1024, 1024), **more})


@pytest.mark.parametrize("text", ["ATEN,TRITON", " aten , Triton ", "triton,,aten,", "CPP", "cutlass\t,ck"])
def test_a_list_is_read_as_torch_reads_it(text):
    with torch._inductor.config.patch({GEMM: text}):
        taken = {name for name in known_backends("mm") if torch._inductor.utils._use_autotune_backend(name)}
    assert set(names_in(text)) == taken


def test_the_backends_that_torch_asks_for_are_known():
    assert set(EVERYTHING.split(",")) <= set(known_backends("mm"))
    assert {"ATEN", "TRITON", "CK"} <= set(known_backends("conv"))
    assert "CPP" not in known_backends("conv")


def test_a_name_that_no_backend_has_is_told_with_the_one_that_is_meant():
    assert wrong_list(GEMM, " aten , tritn") == (
        f"{GEMM} has 'TRITN', which is no backend, and which torch passes over without a word; close are TRITON"
    )
    assert "known are ATEN, TRITON" in wrong_list(GEMM, "ATEN,xyzzy")
    assert "is empty" in wrong_list(GEMM, " , ")
    assert "is a text" in wrong_list(CONV, ["ATEN"])
    assert wrong_list(CONV, "CPP") != "", "a backend for products is none for convolutions"
    assert wrong_list("epilogue_fusion", "nonsense") == ""
    assert refusal(as_mode({GEMM: "aten , triton"})) == ""
    assert "close are TRITON" in refusal(as_mode({GEMM: "tritn", "max-autotune": True}))


def test_lists_in_the_environment_are_checked_under_their_variables_names():
    variables = variables_by_option()
    wrong = wrong_lists({"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATN", "OTHER": "ATN"}, variables)
    assert len(wrong) == 1
    assert wrong[0].startswith("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS has 'ATN'")
    assert wrong_lists({"TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS": "aten, Triton"}, variables) == []


@pytest.mark.parametrize(
    ("where", "name", "eligible", "said"),
    [
        (site(), "ATEN", True, "library"),
        (site(), "TRITON", True, ""),
        (site(dtype="float64"), "TRITON", False, "this is float64"),
        (site(extents=(0, 4, 4)), "TRITON", False, "no elements"),
        (site("T4"), "TRITON", False, "40 multiprocessors, 68 are needed"),
        (site("cpu"), "TRITON", False, "on a CPU"),
        (site(), "CPP", False, "for CPUs"),
        (site("cpu", dtype="float32"), "CPP", False, "freezing"),
        (site("cpu", dtype="float32", frozen=True), "CPP", True, ""),
        (site("cpu", dtype="float64", frozen=True), "CPP", False, "this is float64"),
        (site(dtype="float32"), "CUTLASS", False, "this is float32"),
        (site("MI300X"), "CUTLASS", False, "NVIDIA"),
        (site("MI300X"), "NVGEMM", False, "NVIDIA"),
        (site(), "CUTEDSL", False, "grouped"),
        (site(), "CK", False, "AMD"),
        (site("MI300X", dtype="float64"), "CKTILE", False, "this is float64"),
        (site("MI300X"), "TRITON", True, ""),
    ],
)
def test_each_backend_says_whether_it_takes_part_and_why_not(where, name, eligible, said):
    result = {choice.name: choice for choice in where.backends(EVERYTHING)}[name]
    assert (result.eligible, result.takes_part) == (eligible, eligible)
    assert said in result.reason


@pytest.mark.parametrize("gpu", ["H200", "T4", "cpu"])
@pytest.mark.parametrize("listed", ["ATEN", " triton ", "cpp,Triton"])
def test_triton_takes_part_where_torch_itself_takes_its_templates(monkeypatch, gpu, listed):
    utils = torch._inductor.utils
    monkeypatch.setattr(utils, "is_big_gpu", lambda _: site(gpu).device.units >= 68)
    for dtype in ("float16", "bfloat16", "float32", "float64", "int32"):
        place = torch.device("cpu") if gpu == "cpu" else torch.device("cuda", 0)
        with torch._inductor.config.patch({GEMM: listed, "max_autotune": True}):
            taken = utils.use_triton_template(SimpleNamespace(dtype=getattr(torch, dtype), device=place))
        result = {choice.name: choice for choice in site(gpu, dtype=dtype).backends(listed)}
        assert result["TRITON"].takes_part is taken, dtype


def test_what_is_not_listed_takes_no_part_whatever_it_could_do():
    products = {choice.name: choice for choice in site().backends("triton")}
    assert products["TRITON"].takes_part
    assert (products["ATEN"].eligible, products["ATEN"].takes_part) == (True, False)
    assert products["ATEN"].reason == f"{GEMM} does not list it"
    assert products["CK"].reason == f"{GEMM} does not list it; and it is for AMD's GPUs"
    with pytest.raises(SettingsError, match="close are TRITON"):
        site().backends("TRITN")


def test_the_list_for_products_leaves_convolutions_alone():
    with torch._inductor.config.patch({GEMM: "ATEN"}):
        products, convolutions = (
            {choice.name for choice in site(kind=kind).backends() if choice.takes_part} for kind in ("mm", "conv")
        )
    assert (products, convolutions) == ({"ATEN"}, {"ATEN", "TRITON"})


def test_the_command_says_what_takes_part(cli):
    ran = cli("torch", "backends", "mm", "--shape", "256x1024x1024", "--dtype", "bf16", "--gpu", "H200")
    assert "mm 256x1024x1024 bfloat16 on NVIDIA H200" in ran.out
    listed = json.loads(cli("torch", "backends", "conv", "--gpu", "H200", "--json").out)
    assert [(each["name"], each["takes_part"]) for each in listed["backends"]][:2] == [("ATEN", True), ("TRITON", True)]
    ran = cli("torch", "backends", "--shape", "0x4x4", "--gpu", "H200", "--list", "triton")
    assert "the product has no elements" in ran.out
    assert "no backend takes part" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pool"], 2, "mm, conv"),
        (["mm", "--shape", "4x4"], 2, "M, N and K"),
        (["mm", "--shape", "4x4x-1"], 2, "M, N and K"),
        (["conv", "--shape", "4x4x4"], 2, "a convolution needs none"),
        (["--list", "ATEN,TRITN"], 2, "close are TRITON"),
        (["--dtype", "float7"], 2, "float7"),
        (["--gpu", "Voodoo"], 3, "Voodoo"),
    ],
)
def test_bad_input_is_one_line_and_a_code(cli, words, code, said):
    ran = cli("torch", "backends", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_wrong_list_in_the_environment_is_a_warning(cli, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS", "ATEN,TRITN")
    ran = cli("torch", "options", "gemm_backends", "--json")
    assert "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS has 'TRITN'" in ran.err
    (option,) = json.loads(ran.out)["options"]
    assert option["default"] == "ATEN,TRITON,CPP"
    assert option["set_by"] == ["TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS"]
