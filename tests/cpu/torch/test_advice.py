"""What to do about a model's speed: a truth table of profiles, and real profiles of small models."""

from __future__ import annotations

import json

import pytest
import torch

from tests.compiled_models import Gated
from triton_ops import SettingsError, advise
from triton_ops.benchmark.call_profile import CallProfile, OpShare
from triton_ops.device import gpu_missing
from triton_ops_torch.call_profile import kind_of


def profile(product=0.0, fusable=0.0, scattered=0.0, **more):
    shares = {"product": ("addmm", product), "fusable": ("mul", fusable), "scattered": ("sort", scattered)}
    ops = [OpShare(name, share, 1, kind) for kind, (name, share) in shares.items() if share]
    return CallProfile(call_ms=1.0, ops=tuple(sorted(ops, key=lambda op: -op.share)), **more)


@pytest.mark.parametrize(
    ("given", "tried", "way", "said"),
    [
        (profile(fusable=0.9), [], "torch.compile", "90% goes to operators that a compiler fuses: mul"),
        (profile(product=0.9, idle=0.5), [], "torch.compile", "waits for the host in 50%"),
        (profile(product=0.9, fusable=0.1), [], "library", "90% goes to products"),
        (profile(product=0.9, fusable=0.1, of_peak=0.8), [], "library", "at 80% of the device's peak"),
        (profile(product=0.9, of_peak=0.3, arch="sm_90"), [], "Triton", "products run at 30%"),
        (profile(product=0.9, of_peak=0.3, arch="sm_90"), ["Triton"], "CUDA", "peak of sm_90"),
        (profile(product=0.9, of_peak=0.3, arch="sm_100a"), ["Triton"], "CUDA", "peak of sm_100a"),
        (profile(product=0.9, of_peak=0.3, arch="sm_80"), ["Triton"], "skip", "addmm, takes 90%"),
        (profile(scattered=0.6, product=0.4), [], "Triton", "sort takes 60%"),
        (profile(fusable=0.6, scattered=0.4), ["torch.compile"], "Triton", "sort takes 40%"),
        (profile(fusable=0.9), ["torch.compile"], "skip", "mul, takes 90%"),
        (profile(product=0.9), ["library"], "skip", "no further way"),
        (profile(), [], "skip", "nothing was measured"),
    ],
)
def test_the_decision_follows_from_shares_and_from_what_was_tried(given, tried, way, said):
    result = given.advice(tried)
    assert result.way == way
    assert said in str(result)


def test_a_kernel_of_another_library_is_not_said_to_fuse():
    ops = (OpShare("mylib::scan", 0.85, 1, kind_of("mylib::scan")), OpShare("mul", 0.15, 1, "fusable"))
    advice = CallProfile(call_ms=1.0, ops=ops).advice()
    assert (advice.way, "fuses" in str(advice)) == ("skip", False)
    assert "mylib::scan takes 85%, and nothing is known of what would make it faster" in str(advice)


def test_operators_that_take_next_to_nothing_are_not_named():
    ops = (OpShare("gelu", 0.6, 1, "fusable"), OpShare("addmm", 0.398, 2, "product"), OpShare("t", 0.002, 2, "fusable"))
    (reason,) = CallProfile(call_ms=1.0, ops=ops).advice().reasons
    assert reason.endswith("fuses: gelu")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("product", ["addmm", "mm", "bmm", "convolution", "_scaled_mm", "_scaled_dot_product_flash_attention_for_cpu"]),
        ("scattered", ["sort", "topk", "scatter_add_", "index_select", "cumsum", "embedding", "_index_put_impl_"]),
        ("unknown", ["mylib::fused_norm", "vllm::unified_attention", "mylib::mm"]),
        ("fusable", ["add", "mul", "relu", "native_layer_norm", "softmax", "copy_", "mean"]),
    ],
)
def test_operators_are_products_scattered_or_fusable(kind, names):
    assert {name: kind_of(name) for name in names} == dict.fromkeys(names, kind)


def test_a_real_chain_of_elementwise_operators_is_to_be_compiled():
    result = advise(lambda x: torch.sigmoid(x * 2 + 1) * x.exp(), torch.ones(64, 1024))
    assert result.way == "torch.compile"
    assert {"sigmoid", "exp", "mul"} <= {op.name for op in result.profile.ops}
    assert result.profile.call_ms > 0
    assert sum(op.share for op in result.profile.ops) == pytest.approx(1)


def test_a_training_step_is_profiled_too():
    result = advise(Gated(), torch.ones(4, 16), training=True)
    assert any("backward" in op.name for op in result.profile.ops)


def test_bad_input_is_refused():
    with pytest.raises(SettingsError, match="no way to make a model faster"):
        advise(Gated(), torch.ones(4, 16), tried=["prayer"])
    with pytest.raises(SettingsError, match="the text 'Triton'; a list"):
        advise(Gated(), torch.ones(4, 16), tried="Triton")
    with pytest.raises(SettingsError, match="a function of the model's output"):
        advise(Gated(), torch.ones(4, 16), training=True, loss=3)
    with pytest.raises(SettingsError, match="not a factory"):
        advise(Gated())


def test_the_command_prints_its_reasons(cli):
    ran = cli("torch", "advise", "tests.compiled_models:gated", "--json")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert result["way"] in ("skip", "library", "torch.compile", "Triton", "CUDA")
    assert result["reasons"]
    text = cli("torch", "advise", "tests.compiled_models:gated", "--tried", "torch.compile")
    assert (text.code, "ms a call" in text.out) == (0, True)
    if gpu_missing():  # then no GPU is said to wait
        assert result["profile"]["idle"] is None
        assert text.out.splitlines()[0].endswith("ms a call")
