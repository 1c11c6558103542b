"""Shipped kernels beside their rivals: rows, what is refused, and rivals that compute the same."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.near import drawn
from triton_ops import tune
from triton_ops.benchmark import BenchmarkSuite, RivalRun
from triton_ops.exceptions import DeviceError, TuningFailedError
from triton_ops.records.store import open_store
from triton_ops_kernels import load, names
from triton_ops_kernels import rivals as benchmarked
from triton_ops_kernels.rivals import (
    _gradients,
    plain_attention,
    plain_gated_mlp,
    plain_rmsnorm_rope,
    rivals_of,
)


def rows_on_cpu(cache_dir, shape=(4, 100), kernels=("softmax", "layer_norm"), **changes):
    """One small problem of two kernels, tuned; torch's compiler takes minutes on a CPU and is left out."""
    problems = {"small": (shape, "float32")}
    asked = {"rivals": ("eager", "default"), "tune_s": 1.5, **changes}
    run = RivalRun(rivals_of=rivals_of, **asked, seconds=0.1, device="cpu", cache_dir=cache_dir)
    operations = [replace(load(name), device="any", problems=problems) for name in kernels]
    return [(row.kernel, row.rival, row.origin, row.verdict, row.speedup is not None) for row in run.rows(operations)]


@pytest.mark.triton
def test_rows_of_kernels_are_tuned_checked_and_compared(interpreted, tmp_path):
    rows = interpreted(rows_on_cpu, str(tmp_path))
    assert {row[:2] for row in rows} >= {("softmax", "eager"), ("layer_norm", "eager")}
    assert all(row[2] == "tuned now" and row[4] for row in rows)


def untuned_rows(cache_dir):
    """Without a tune: before there is a record, with it, and for a problem nearby."""
    asked = {"kernels": ("softmax",), "rivals": ("eager",)}
    before = rows_on_cpu(cache_dir, tune_s=0.0, **asked)
    tune(
        replace(load("softmax"), device="any"),
        shape=SIZES[0],
        dtype="float32",
        device="cpu",
        cache_dir=cache_dir,
        trials=3,
    )
    for record in (store := open_store(cache_dir)):
        store.put(replace(record, confidence="ok"))  # noise may leave it undecided, and such winners are not borrowed
    after = [rows_on_cpu(cache_dir, shape, tune_s=0.0, cold=cold, **asked) for shape in SIZES for cold in (True, False)]
    return [row[2] for rows in (before, *after) for row in rows]


SIZES = ((4, 100), (4, 104))


@pytest.mark.triton
def test_rows_without_a_tune_take_the_config_that_a_call_would_run(interpreted, tmp_path):
    recorded, borrowed = ["recorded winner"] * 2, ["borrowed winner"] * 2
    assert interpreted(untuned_rows, str(tmp_path)) == ["default config", *recorded, *borrowed]


SHAPES = {
    "attention": (2, 4, 2, 5, 9, 8, 8, 2), "fp8_dequantize": (5, 300, 1, 128), "gated_mlp": (4, 6, 8),
    "rmsnorm_rope": (2, 3, 96, 2), "rmsnorm_rope_backward": (2, 3, 96, 2),
}  # fmt: skip


@pytest.mark.triton
@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "softmax",
        "layer_norm",
        "rmsnorm_rope",
        "gated_mlp",
        "softmax_backward",
        "gated_mlp_backward",
        "layer_norm_backward",
        "rmsnorm_rope_backward",
        "fp8_dequantize",
    ],
)
def test_eager_rival_computes_what_the_reference_does(name):
    operation = load(name)
    shape = SHAPES.get(name, (4, 96))
    values = operation.materialise(operation.problem(shape, "float32"), "cpu").keyword
    result = rivals_of(name, values, ("eager",))["eager"](**values)
    torch.testing.assert_close(result, operation.reference(**values), rtol=1e-4, atol=1e-5)


def test_plain_functions_take_the_arguments_of_the_public_ones():
    x, weight = drawn(1, 2, 8), drawn(6, 8)
    assert plain_gated_mlp(x, weight, weight).shape == (1, 2, 6)
    assert plain_rmsnorm_rope(x, drawn(8), drawn(2, 4), drawn(2, 4)).shape == x.shape


def test_plain_rmsnorm_rope_compiles_to_one_graph():
    explanation = torch._dynamo.explain(plain_rmsnorm_rope)(drawn(1, 2, 8), drawn(8), drawn(2, 4), drawn(2, 4))
    assert explanation.graph_break_count == 0


@pytest.mark.parametrize("error", [TuningFailedError("nothing ran"), RuntimeError("out of memory")])
def test_a_problem_that_fails_ends_no_run(monkeypatch, error):
    def failed(*_args):
        raise error

    monkeypatch.setattr(RivalRun, "_winner", failed)
    rows = list(RivalRun(rivals_of=rivals_of, device="cpu").rows([load("softmax")]))
    assert len(rows) == len(load("softmax").problems)
    assert all(row.verdict.startswith("not measured: ") and row.speedup is None for row in rows)


def test_a_device_that_is_not_there_ends_a_run(monkeypatch):
    def failed(*_args):
        raise DeviceError("there is none")

    monkeypatch.setattr(RivalRun, "_winner", failed)
    with pytest.raises(DeviceError):
        list(RivalRun(rivals_of=rivals_of, device="cpu").rows([load("softmax")]))
    assert len(names()) == 15


@pytest.mark.triton
def test_fused_gradients_are_those_of_the_reference(steady_clock):
    operation = load("attention_backward")
    values = operation.materialise(operation.problem((1, 4, 2, 6, 6, 8, 8, 2), "float32"), "cpu").keyword
    result = rivals_of("attention_backward", values, ("library",))["library"](**values)
    torch.testing.assert_close(result, operation.reference(**values), rtol=1e-4, atol=1e-5)


@pytest.mark.triton
def test_loop_of_products_is_the_library_of_the_grouped_product():
    operation = load("grouped_matmul")
    values = operation.materialise(operation.problem((50, 6, 8, 16, 2), "float32"), "cpu").keyword
    result = rivals_of("grouped_matmul", values, ("library",))["library"](**values)
    torch.testing.assert_close(result, operation.reference(**values))


@pytest.mark.triton
@pytest.mark.parametrize("shape", [(2, 4, 2, 5, 9, 8, 8, 2), (1, 2, 2, 6, 6, 8, 8, 2), (1, 2, 1, 1, 7, 8, 8, 1)])
def test_fastest_fused_attention_is_one_that_takes_the_problem(steady_clock, shape):
    operation = load("attention")
    values = operation.materialise(operation.problem(shape, "float32"), "cpu").keyword
    torch.testing.assert_close(
        rivals_of("attention", values, ("library",))["library"](**values), operation.reference(**values)
    )


@pytest.mark.triton
def test_what_torch_warns_of_while_backends_are_tried_is_told_to_nobody(steady_clock, monkeypatch):
    by_backend = benchmarked._by_backend

    def warns(*arguments):
        warnings.warn("this backend does not take the problem", stacklevel=1)
        return by_backend(*arguments)

    monkeypatch.setattr(benchmarked, "_by_backend", warns)
    operation = load("attention")
    values = operation.materialise(operation.problem((1, 2, 1, 1, 7, 8, 8, 1), "float32"), "cpu").keyword
    result = rivals_of("attention", values, ("library",))["library"](**values)
    torch.testing.assert_close(result, operation.reference(**values))


@pytest.mark.triton
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_a_wrong_backend_of_attention_is_no_rival_however_fast(name, monkeypatch, caplog):
    operation = load(name)
    values = operation.materialise(operation.problem((1, 2, 2, 8, 8, 8, 8, 2), "float32"), "cpu").keyword
    plain = plain_attention(torch)
    calls = {"CUDNN_ATTENTION": lambda *args, **rest: plain(*args, **rest) * 1.01, "FLASH_ATTENTION": plain}
    monkeypatch.setattr("triton_ops_kernels.rivals._BACKENDS", tuple(calls))
    monkeypatch.setattr("triton_ops_kernels.rivals._by_backend", lambda _torch, one, _values: calls[one.name])
    times = iter([SimpleNamespace(median_ms=1.0), SimpleNamespace(median_ms=2.0)])
    monkeypatch.setattr("triton_ops.benchmark.rivals.time_ms", lambda *_args, **_more: next(times))
    rival = rivals_of(name, values, ("library",))["library"]
    right = _gradients(torch, plain, values) if name.endswith("backward") else plain
    torch.testing.assert_close(rival(**values), right(**values))
    assert "CUDNN_ATTENTION is left out, since its result is wrong" in caplog.text


def family_results():
    suite = BenchmarkSuite(warmup_runs=0, benchmark_runs=1)
    result = [
        *suite.benchmark_rmsnorm_rope([(1, 2, 96, 48)], "float32", "cpu"),
        *suite.benchmark_gated_mlp([(1, 2, 32, 48)], "float32", "cpu"),
    ]
    return [(each.kernel_name, each.problem_size, each.rounds) for each in result]


@pytest.mark.triton
def test_families_are_compared_with_eager_pytorch(interpreted):
    assert interpreted(family_results) == [
        ("fused_rmsnorm_rope", (1, 2, 96, 48), 6),
        ("fused_gated_mlp", (1, 2, 32, 48), 6),
    ]
