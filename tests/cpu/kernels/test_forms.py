"""Kernels of several forms: the config names the form, and each form takes the part that it has parameters for."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from triton_ops import (  # noqa: E402
    ConfigSpace,
    ConfigValueError,
    Constraint,
    KernelTypeError,
    TensorSpec,
    UnknownTunableError,
    tune,
)
from triton_ops.backend import Arguments, Packed, TritonCompiler, TritonKernel, matrix_descriptor  # noqa: E402
from triton_ops.device import DeviceSpec, Target  # noqa: E402
from triton_ops.space import Choice, Config  # noqa: E402
from triton_ops.values import Resources  # noqa: E402
from triton_ops_kernels import FormsKernel  # noqa: E402
from triton_ops_kernels.fp8_gemm import operation as fp8_gemm  # noqa: E402
from triton_ops_kernels.fp8_gemm import problems as fp8_problems  # noqa: E402
from triton_ops_kernels.fp8_gemm.problems import gluon_forms  # noqa: E402

pytestmark = pytest.mark.triton


@triton.jit
def one_by_one(x, out, n, factor, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n) * factor, mask=place < n)


@triton.jit
def walking(x, out, n, factor, WIDE: tl.constexpr):
    for first in range(tl.program_id(0) * WIDE, n, tl.num_programs(0) * WIDE):
        place = first + tl.arange(0, WIDE)
        tl.store(out + place, tl.load(x + place, mask=place < n) * factor, mask=place < n)


@triton.jit
def off_by_one(x, out, n, WIDE: tl.constexpr):
    place = tl.arange(0, WIDE)
    tl.store(out + place, tl.load(x + place, mask=place < n) * 2 + 1, mask=place < n)


def blocks(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def two(_meta):
    return (2,)


SPACE = [
    {"FORM": "plain", "BLOCK": 64, "WIDE": 0},
    {"FORM": "walks", "BLOCK": 0, "WIDE": 32},
    {"FORM": "wrong", "BLOCK": 0, "WIDE": 256},
]


def three_forms():
    return FormsKernel({
        "plain": TritonKernel(one_by_one, blocks, outputs=("out",)),
        "walks": TritonKernel(walking, two, outputs=("out",)),
        "wrong": TritonKernel(off_by_one, two, outputs=("out",)),
    })  # fmt: skip


def tuned(folder):
    """Statuses by form, and what was computed by name and by position, with each form of the kernel."""
    kernel = three_forms()
    given = {"x": torch.arange(200.0), "out": torch.empty(200), "n": 200, "factor": 2.0}
    space = ConfigSpace(
        {"FORM": Choice(list(kernel.forms)), "BLOCK": Choice([0, 64]), "WIDE": Choice([0, 32, 256])},
        [
            Constraint(
                "form", lambda FORM, BLOCK, WIDE: [FORM, BLOCK, WIDE] in map(list, map(dict.values, SPACE)), "none"
            )
        ],
        SPACE[0],
    )
    result = tune(
        kernel, kwargs=given, space=space, reference=lambda x, out, n, factor: x * factor, device="cpu",
        cache_dir=folder,
    )  # fmt: skip
    sums = []
    for config in SPACE[:2]:
        for arguments in (Arguments(keyword=given), Arguments(tuple(given.values()))):
            kernel.compile(Config(config), arguments).launch(arguments)
            sums.append(float(given["out"].sum()))
    return {trial.config["FORM"]: trial.status.value for trial in result.trials if trial.status != "constraint"}, sums


def test_a_tune_tries_each_form_and_finds_the_wrong_one(interpreted, tmp_path):
    result, sums = interpreted(tuned, str(tmp_path))
    assert {name: result[name] for name in ("plain", "walks", "wrong")} == {
        "plain": "ok",
        "walks": "ok",
        "wrong": "wrong",
    }
    assert sums == [200.0 * 199] * 4


@triton.jit
def doubled_rows(x, out, x_rows, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    tl.store(out + row + tl.arange(0, BLOCK), x_rows.load([row, 0]))


def rows_of_x(meta):
    return {"x_rows": matrix_descriptor(meta["x"], (meta["BLOCK"], 16))}


def test_parameters_that_a_function_fills_need_no_default_and_others_are_still_missed():
    kernel = TritonKernel(doubled_rows, two, outputs=("out",), made=rows_of_x)
    x, out = TensorSpec((64, 16), "float16"), TensorSpec((64,), "float16")
    given = Arguments(keyword={"x": x, "out": out})
    for tunables in (Config(BLOCK=32), ConfigSpace({"BLOCK": Choice([32, 64])}).tunables, ["BLOCK"]):
        kernel.check(tunables, given)
    for known, tunables, missing in (
        ({"out": out}, Config(BLOCK=32), "x"),
        ({"x": x}, Config(BLOCK=32), "out"),
        ({"x": x, "out": out}, {}, "BLOCK"),
        ({"x": x, "out": out}, [], "BLOCK"),
    ):
        with pytest.raises(KernelTypeError, match=f"doubled_rows needs a value for {missing} "):
            kernel.check(tunables, Arguments(keyword=known))
    other = TritonKernel(doubled_rows, two, outputs=("out",), made=lambda meta: {"rows": meta["x"]})
    with pytest.raises(KernelTypeError, match="needs a value for x_rows"):
        other.check(Config(BLOCK=32), given)
    faulty = TritonKernel(doubled_rows, two, outputs=("out",), made=lambda meta: {}[meta["BLOCK"]])
    faulty.check(Config(BLOCK=32), given)  # its launches say what is wrong


def test_forms_in_gluon_are_checked_with_the_descriptors_that_they_make():
    own = [config for config in fp8_gemm.space_for(PROBLEM) if config["FORM"] == "gluon"]
    fp8_gemm.kernel.check(own[0], GIVEN)
    fp8_gemm.kernel.check(fp8_gemm.space_for(PROBLEM).tunables, GIVEN)
    without = Arguments(keyword={name: value for name, value in GIVEN.keyword.items() if name != "b"})
    with pytest.raises(KernelTypeError, match="gluon_fp8_kernel needs a value for b "):
        fp8_gemm.kernel.check(own[0], without)


OWN = ("FORM", "BUFFERS", "APART")  # tunables that the form in Triton does not take
PROBLEM = fp8_gemm.problem((256, 256, 256, 1), "bfloat16")
GIVEN = Arguments(keyword=dict(PROBLEM.arguments))
FORMS = {
    form: next(config for config in fp8_gemm.space_for(PROBLEM) if config["FORM"] == form and config["BLOCK_M"] == 128)
    for form in ("triton", "gluon")
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_compiled_without_torch_in_another_process(form):
    kernel = Packed.loaded(Packed.of(fp8_gemm.kernel).content)
    assert not kernel.compile_imports
    assert kernel.cache_key == fp8_gemm.kernel.cache_key
    ahead = TritonCompiler(kernel, GIVEN.described(light=True), Target.named("sm_90"))
    (built,) = ahead.built(FORMS[form])
    assert built.metadata["name"] == ("gluon_fp8_kernel" if form == "gluon" else "fp8_gemm_kernel")
    assert "wgmma" in built.assembly


def test_a_program_is_named_by_its_form():
    light, made = GIVEN.described(light=True), Resources(binary="same", shared_bytes=1)
    keys = [fp8_gemm.kernel.program_key(config, light, made) for config in FORMS.values()]
    own = fp8_gemm.kernel.forms["triton"]
    taken = Config({name: value for name, value in FORMS["triton"].items() if name not in OWN})
    assert keys[0] == own.program_key(taken, light, made)
    assert keys[1] is None, "its grid follows the device's multiprocessors, which nothing here tells"


def test_identity_and_names_are_those_of_the_first_and_change_with_every_form():
    kernel = fp8_gemm.kernel
    first = kernel.forms["triton"]
    assert dict(kernel.identity).items() > dict(first.identity).items()
    assert (kernel.name, kernel.outputs, kernel.parameter_names) == (first.name, ("c",), first.parameter_names)
    assert kernel.parsed is None
    other = FormsKernel({"triton": first, "gluon": first})
    assert other.identity["form gluon"] != kernel.identity["form gluon"]


def test_the_space_has_the_form_in_gluon_where_it_can_compute():
    for name, most in (("8192", 6), ("llama-70b-down-chunk", 2), ("8192-fast", 0), ("odd", 0)):
        space = fp8_gemm.space_for(fp8_gemm.problem(*fp8_gemm.problems[name]))
        own = [config for config in space if config["FORM"] == "gluon"]
        assert len(own) == most, name
        assert space.default_config["FORM"] == "triton"
    (buffers,) = {config["BUFFERS"] for config in fp8_gemm.space_for(WIDE) if config["FORM"] == "gluon"}
    assert buffers == 3, "of a float32 result half a tile takes twice the room"


STEPS = {
    ((48, 4096, 4096, 1), "bfloat16"): 32, ((200, 2048, 7168, 2), "float16"): 64,
    ((100, 1001, 1280, 1), "float32"): 16,
}  # fmt: skip


@pytest.mark.parametrize(("given", "columns"), STEPS.items())
def test_few_rows_have_the_form_of_steps_untuned_on_hopper(monkeypatch, given, columns):
    monkeypatch.setattr(fp8_problems, "probe", lambda: DeviceSpec.named("NVIDIA H200"))
    problem = fp8_gemm.problem(*given)
    space = fp8_gemm.space_for(problem)
    config = space.default_config
    assert (config["FORM"], config["BLOCK_N"], space.why_not(config)) == ("steps", columns, None)
    ahead = TritonCompiler(
        fp8_gemm.kernel, Arguments(keyword=dict(problem.arguments)).described(), Target.named("sm_90")
    )
    resources = ahead.compile(config).resources
    assert (resources.mma, resources.spill_bytes, resources.serialised) == ("wgmma", 0, False)
    monkeypatch.setattr(fp8_problems, "probe", lambda: DeviceSpec.named("NVIDIA A100-SXM4-80GB"))
    assert fp8_gemm.space_for(problem).default_config["FORM"] == "triton"


@pytest.mark.parametrize(
    ("shape", "form", "sides"),
    [
        ((16, 768, 4096, 1), "parts", (16, 8, 1024)),
        ((4, 2048, 896, 2), "parts", (16, 16, 512)),
        ((16, 2048, 4096, 1), "parts", (16, 16, 1024)),
        ((4, 4096, 2944, 1), "parts", (16, 16, 512)),
        ((2, 3072, 896, 1), "swapped", (64, 16, 128)),
        ((4, 5632, 1792, 1), "swapped", (64, 16, 128)),
        ((16, 12288, 2944, 4), "swapped", (64, 16, 128)),
        ((25, 5632, 5760, 1), "swapped", (64, 32, 128)),
    ],
)
def test_up_to_16_rows_have_several_sums_untuned_where_columns_are_few_and_sums_long(shape, form, sides):
    space = fp8_gemm.space_for(fp8_gemm.problem(shape, "bfloat16"))
    config = space.default_config
    assert (config["FORM"], config["SWAPPED"]) == (("parts", False) if form == "parts" else ("triton", True))
    assert tuple(config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")) == sides
    assert space.why_not(config) is None


@pytest.mark.parametrize("shape", [(64, 2944, 976, 1), (128, 14_336, 4096, 1), (32, 4096, 4096, 1)])
def test_short_sums_and_more_tiles_than_one_wave_have_no_form_of_steps_untuned(monkeypatch, shape):
    monkeypatch.setattr(fp8_problems, "probe", lambda: DeviceSpec.named("NVIDIA H200"))
    assert fp8_gemm.space_for(fp8_gemm.problem(shape, "bfloat16")).default_config["FORM"] == "triton"


@pytest.mark.parametrize("shape", [(513, 2048, 512, 1), (64, 512, 512, 3), (64, 512, 512, 4), (64, 512, 520, 1)])
def test_the_form_of_steps_is_for_few_rows_promoted_sums_and_descriptors(shape):
    space = fp8_gemm.space_for(fp8_gemm.problem(shape, "bfloat16"))
    assert not any(config["FORM"] == "steps" for config in space)


WIDE = fp8_gemm.problem((256, 256, 256, 2), "float32")


@pytest.mark.parametrize("given", [{}, {"bias": TensorSpec((256,), "float32")}])
def test_the_form_in_gluon_fits_with_a_bias_and_a_float32_result(given):
    config = next(config for config in fp8_gemm.space_for(WIDE) if config["FORM"] == "gluon")
    arguments = Arguments(keyword={**dict(WIDE.arguments), **given}).described(light=True)
    built = TritonCompiler(fp8_gemm.kernel, arguments, Target.named("sm_90")).built(config)[0]
    assert built.metadata["shared"] <= Target.named("sm_90").shared_bytes_per_block


@pytest.mark.parametrize("target", ["sm_100", "gfx942"])
def test_the_form_in_gluon_is_refused_for_other_devices_with_the_reason(target):
    ahead = TritonCompiler(fp8_gemm.kernel, GIVEN.described(light=True), Target.named(target))
    with pytest.raises(Exception, match=r"for compute capability 9\.0"):
        ahead.built(FORMS["gluon"])


def test_a_triton_without_gluon_has_the_other_form_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton_ops_kernels.fp8_gemm.gluon_kernel", None)
    assert gluon_forms() == {}
    alone = replace(fp8_gemm.kernel, forms={"triton": fp8_gemm.kernel.forms["triton"]})
    with pytest.raises(ConfigValueError, match=r"FORM is 'gluon'; it must be one of triton"):
        alone.executable(FORMS["gluon"])
    alone.check(FORMS["triton"], GIVEN)
    space = fp8_gemm.space_for(PROBLEM)
    alone.check(space.tunables, GIVEN)
    assert {config["FORM"] for config in space} == {"triton"}
    assert "without Gluon" in space.why_not(FORMS["gluon"])


def test_a_config_that_names_no_form_is_of_the_default_one():
    kernel, config = fp8_gemm.kernel, {name: value for name, value in FORMS["triton"].items() if name not in OWN}
    kernel.check(Config(config), GIVEN)
    kernel.check(list(config), GIVEN)
    light, made = GIVEN.described(light=True), Resources(binary="same", shared_bytes=1)
    assert kernel.program_key(Config(config), light, made) == kernel.program_key(FORMS["triton"], light, made)


def test_what_no_form_can_be_is_told_before_any_work():
    plain = TritonKernel(one_by_one, blocks, outputs=("out",))
    with pytest.raises(KernelTypeError, match="one at least"):
        FormsKernel({})
    with pytest.raises(KernelTypeError, match="the default form is 'fast'; there are plain"):
        FormsKernel({"plain": plain}, default="fast")
    with pytest.raises(KernelTypeError, match=r"writes x, and the first one out"):
        FormsKernel({"plain": plain, "other": TritonKernel(walking, two, outputs=("x",))})
    with pytest.raises(KernelTypeError, match="has a parameter WIDE, which names the form"):
        FormsKernel({"walks": TritonKernel(walking, two), "plain": TritonKernel(one_by_one, blocks)}, tunable="WIDE")
    kernel = three_forms()
    given = Arguments(keyword={"x": 1.0, "out": 1.0, "n": 2, "factor": 1.0}).described()
    with pytest.raises(UnknownTunableError, match=r"has several forms, and the space has no FORM"):
        kernel.check(["BLOCK", "WIDE"], given)
    with pytest.raises(UnknownTunableError, match=r"no form of .* has a parameter TALL"):
        kernel.check(["FORM", "BLOCK", "WIDE", "TALL"], given)
    with pytest.raises(KernelTypeError, match="needs a value for WIDE"):
        kernel.check(Config(FORM="walks", BLOCK=64), given)
    with pytest.raises(KernelTypeError, match="needs a value for WIDE"):
        kernel.check(["FORM", "BLOCK"], given)
    with pytest.raises(ConfigValueError, match=r"FORM is 'fast'; it must be one of plain, walks, wrong"):
        kernel.executable(Config(FORM="fast"))
    with pytest.raises(ConfigValueError, match="FORM is None"):
        kernel.lowered(Config(BLOCK=64), given)
