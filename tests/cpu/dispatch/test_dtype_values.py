"""Dtypes of torch and of Triton as values of tunables: names in configs and files, dtypes where a user's code runs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import dtype_kernels as kernels  # noqa: E402
from tests.torchless import Mode  # noqa: E402
from triton_ops import Config, ConfigSpace, TensorSpec, TritonAutoTuner, autotune, operation  # noqa: E402
from triton_ops.dispatch.triton_autotuner import from_triton, to_triton  # noqa: E402
from triton_ops.exceptions import ConfigValueError  # noqa: E402
from triton_ops.report.run_facts import paste_lines, value_source  # noqa: E402
from triton_ops.space.config import member_named  # noqa: E402

tl = triton.language
pytestmark = pytest.mark.triton


def test_configs_hold_names_and_give_dtypes_back():
    space = ConfigSpace({"kind": [torch.float16, torch.float32], "acc": [tl.float32, (tl.int8, 2)]})
    assert [config["kind"] for config in space] == ["torch:float16", "torch:float16", "torch:float32", "torch:float32"]
    assert space.tunables["acc"].values == ("triton.language:fp32", ("triton.language:int8", 2))
    given = space.default_config.with_members(space.members)
    assert dict(given) == {"kind": torch.float16, "acc": tl.float32}
    assert dict(pickle.loads(pickle.dumps(given))) == dict(space.default_config)
    assert Config(kind=torch.float16, acc=tl.float32) in space
    assert space.with_values({"kind": ["float32"], "acc": ["fp32"]}).size.valid == 1
    assert space.fingerprint == ConfigSpace(dict(space.tunables)).fingerprint


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn, tl.bfloat16, tl.float8e4nv, tl.int1, tl.uint64])
def test_a_dtype_is_found_again_by_its_name(kind):
    name = Config(kind=kind)["kind"]
    assert member_named(name) == kind
    assert Config(kind=name) == Config(kind=kind)


@pytest.mark.parametrize("text", ["torch:float17", "torch:nn", "triton.language:sum", "json:loads", "torch:", ":", "x"])
def test_a_text_that_names_no_dtype_names_nothing(text):
    assert member_named(text) is None


def test_types_of_pointers_and_blocks_are_no_values():
    with pytest.raises(ConfigValueError, match="tunable 'kind' has the value"):
        ConfigSpace({"kind": [tl.pointer_type(tl.float32)]})


def test_the_documented_tuner_calls_with_dtypes(tmp_path):
    called = set()

    def total(x, kind):
        called.add(kind)
        return x.to(kind).sum()

    tuner = TritonAutoTuner(total, {"kind": [torch.float16, torch.float32]}, 1, 1, str(tmp_path))
    result = tuner.tune(torch.ones(4), problem_size=(4,), device="cpu")
    assert called == {torch.float16, torch.float32} == {config["kind"] for config in tuner.all_configs}
    assert tuner.get_cached_config((4,), "cpu") == result.best_config
    assert '"torch:float' in "".join(path.read_text() for path in Path(tmp_path).glob("*.json"))
    assert tuner.tune(torch.ones(4), problem_size=(4,), device="cpu").from_cache


def test_a_call_of_an_operation_is_given_members_and_dtypes():
    called = []

    def shapes(n, *, dtype):
        return {"x": TensorSpec((n,), dtype)}

    @operation(space={"mode": [Mode.SLOW], "kind": [torch.float64]}, arguments=shapes, device="cpu", dtypes=("fp32",))
    def converted(x, mode, kind):
        called.append((mode, kind))
        return x.to(kind)

    assert converted(torch.ones(4)).dtype is torch.float64
    assert called == [(Mode.SLOW, torch.float64)]


def test_the_config_of_a_decorator_is_found_by_what_a_record_holds():
    for one in kernels.CONFIGS:
        held = from_triton(one)
        assert to_triton(held, kernels.CONFIGS) is one
        assert held["ACC"].startswith("triton.language:")
    space = ConfigSpace(kernels.SPACE)
    made = to_triton(space.default_config, members=space.members)
    assert made.kwargs == {"BLOCK": 64, "ACC": tl.float16}


def errors_and_rungs(folder):
    """The error of row sums with each kind of decorator, and where its config is from, in one interpreted process."""
    x = torch.rand(3, 100)
    result = []
    for number, configs in enumerate((kernels.CONFIGS, ConfigSpace(kernels.SPACE))):
        for on_miss in ("default", "tune"):
            out, own = torch.empty(3), f"{folder}/{number}"
            kernel = autotune(configs, key=["columns"], on_miss=on_miss, cache_dir=own)(kernels.row_sums)
            kernel[lambda meta: (3,)](x, out, 100)
            (decision,) = kernel.decisions
            kind = type(decision.config.kwargs["ACC"]).__name__
            result.append(((out - x.sum(1)).abs().max().item() < 0.5, decision.found.rung, kind))
    return result


def test_a_decorated_kernel_is_launched_with_dtypes(interpreted, tmp_path):
    expected = [(True, rung, "dtype") for rung in ("default", "tuned", "default", "tuned")]
    assert interpreted(errors_and_rungs, str(tmp_path)) == expected


@pytest.mark.parametrize(
    "kind", [tl.float16, tl.bfloat16, tl.float64, tl.float8e4nv, tl.float8e5, tl.int1, tl.uint64, torch.float8_e4m3fn]
)
def test_the_source_of_a_dtype_is_the_dtype(kind):
    assert eval(value_source(Config(kind=kind)["kind"]), {"tl": tl, "torch": torch}) == kind


def test_lines_to_paste_have_members_and_dtypes():
    config = Config(ACC=tl.float32, kind=(torch.int8, 1), mode=Mode.FAST, drive="C:/x.y", num_warps=4)
    assert paste_lines(config, None)["triton.Config"] == (
        "triton.Config({'ACC': tl.float32, 'kind': (torch.int8, 1), 'mode': Mode.FAST, 'drive': 'C:/x.y'}, num_warps=4)"
    )
    assert value_source((1,)) == "(1,)"
