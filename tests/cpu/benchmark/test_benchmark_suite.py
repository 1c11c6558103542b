"""`BenchmarkSuite` and `PerformanceReport` on a CPU: correctness before times, rows of kernels, text, JSON, files."""

import datetime
import json
import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.near import drawn
from triton_ops import Config, FunctionKernel, Operation, TensorSpec, tune
from triton_ops.benchmark import BenchmarkSuite, PerformanceProfile, PerformanceReport
from triton_ops.benchmark.suite import BenchmarkResult, ComparisonResult
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError, TuningFailedError, WrongResultError
from triton_ops.records.store import open_store
from triton_ops.values import KernelMetrics
from triton_ops_kernels import load, names
from triton_ops_kernels import rivals as benchmarked
from triton_ops_kernels.rivals import (
    KernelRun,
    _gradients,
    plain_attention,
    plain_gated_mlp,
    plain_rmsnorm_rope,
    problem_rows,
    rivals_of,
    rows_of,
)


def doubled(x, factor=2.0):
    return x * factor


def added(x, factor=2.0):
    return x + x * (factor - 1)


@pytest.fixture
def suite(steady_clock):
    return BenchmarkSuite(warmup_runs=1, benchmark_runs=8)


def test_kernel_is_timed_after_it_was_found_right(suite):
    profile = PerformanceProfile.elementwise(1000, 4)
    result = suite.benchmark_kernel(
        doubled,
        added,
        "double",
        (1000,),
        drawn(1000),
        config={"BLOCK": 64},
        compute_metrics_fn=profile.metrics,
        factor=3.0,
    )
    assert (result.kernel_name, result.problem_size, result.samples) == ("double", (1000,), 8)
    assert result.metrics.latency_ms > 0
    assert result.metrics.bandwidth_gbps > 0
    assert result.config == {"BLOCK": 64}
    assert suite.report.results == [result]


def test_wrong_kernel_is_not_timed(suite, monkeypatch):
    monkeypatch.setattr("triton_ops.benchmark.suite.counted_times", lambda *a, **k: pytest.fail("timed"))
    monkeypatch.setattr("triton_ops.benchmark.suite.compare", lambda *a, **k: pytest.fail("timed"))
    for benchmark in (suite.benchmark_kernel, suite.compare_with_pytorch):
        with pytest.raises(ValueError, match="double gives a wrong result: ") as raised:
            benchmark(lambda x: x * 2.01, doubled, "double", (1000,), drawn(1000))
        assert isinstance(raised.value, WrongResultError)
    assert not suite.report.results


def test_a_result_within_the_tolerances_is_right_too(steady_clock):
    rough = BenchmarkSuite(warmup_runs=0, benchmark_runs=2, rtol=0.1)
    assert rough.benchmark_kernel(lambda x: x * 2.01, doubled, "double", (10,), drawn(10)).samples == 2


def test_the_arguments_stay_as_they_are(suite):
    def in_place(x):
        return x.mul_(2)

    x = drawn(64)
    before = x.clone()
    suite.compare_with_pytorch(in_place, lambda x: x * 2, "double", (64,), x)
    assert torch.equal(x, before)


def test_comparison_has_a_speedup_with_its_interval(suite):
    result = suite.compare_with_pytorch(doubled, added, "double", (1000,), drawn(1000))
    assert result.interval[0] <= result.speedup <= result.interval[1]
    assert result.verdict in ("faster", "slower", "not distinguishable")
    assert result.rounds == 6
    assert suite.report.comparisons == [result]


@pytest.mark.parametrize("bad", [{"warmup_runs": -1}, {"benchmark_runs": 0}, {"benchmark_runs": 2.5}, {"rtol": -1.0}])
def test_numbers_out_of_range_are_refused(bad):
    with pytest.raises(SettingsError):
        BenchmarkSuite(**bad)


def test_what_cannot_be_called_is_refused(suite):
    with pytest.raises((SettingsError, KernelTypeError)):
        suite.benchmark_kernel(None, doubled, "double", (1,), drawn(1))


def report():
    made = PerformanceReport("Kernels", lambda: datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc))
    made.add_result(BenchmarkResult("a", (2, 3), KernelMetrics(0.5, 1.0, 2.0, 3.0), config={"B": 1}, samples=4))
    made.add_comparison(
        ComparisonResult(
            "b", (4,), KernelMetrics(0.5), KernelMetrics(1.0), speedup=2.0, interval=(1.9, math.inf), verdict="faster",
            confidence="noisy", rounds=6,
        )
    )  # fmt: skip
    made.set_metadata("branch", "main")
    return made


def test_text_report_has_environment_results_and_comparisons():
    lines = report().generate_text_report().splitlines()
    assert lines[:3] == ["Kernels", "=======", "date: 2026-01-02T03:04:05+00:00"]
    assert "branch: main" in lines
    assert "a 2x3: Latency: 0.500 ms, Throughput: 1.00 TFLOPS, Bandwidth: 2.0 GB/s (3.0%) (B=1), host" in lines
    assert lines[-1] == (
        "b 4: 0.5 ms, baseline 1 ms, 2.000 times as fast (1.900 to inf), faster, 6 rounds, host; low confidence: noisy"
    )


def test_json_report_is_strict_and_whole():
    document = json.loads(report().generate_json_report(), parse_constant=pytest.fail)
    assert document["title"] == "Kernels"
    assert document["environment"]["branch"] == "main"
    assert document["environment"]["device"]
    assert document["results"][0]["metrics"]["latency_ms"] == 0.5
    assert document["comparisons"][0]["interval"] == [1.9, "inf"]


def test_report_is_saved_in_either_form(tmp_path):
    report().save(tmp_path / "new" / "report.txt")
    assert (tmp_path / "new" / "report.txt").read_text().startswith("Kernels\n=======")
    report().save(str(tmp_path / "report.json"), "json")
    assert json.loads((tmp_path / "report.json").read_text())["title"] == "Kernels"


def test_another_format_is_refused(suite, tmp_path):
    for ask in (suite.generate_report, lambda form: suite.save_report(tmp_path / "x", form)):
        with pytest.raises(SettingsError, match="format is 'xml'; it must be 'text' or 'json'"):
            ask("xml")
    assert not (tmp_path / "x").exists()


def test_metadata_that_json_cannot_hold_is_refused():
    with pytest.raises(SettingsError, match="metadata 'x'"):
        report().set_metadata("x", object())


def test_an_empty_report_says_so():
    assert "no results" in PerformanceReport().generate_text_report()


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


def rows_on_cpu(cache_dir, shape=(4, 100), **changes):
    """One small problem of two kernels, tuned; torch's compiler takes minutes on a CPU and is left out."""
    problems = {"small": (shape, "float32")}
    benchmarked.load = lambda name: replace(load(name), device="any", problems=problems)
    asked = {"kernels": ("softmax", "layer_norm"), "rivals": ("eager", "default"), "tune_s": 1.5, **changes}
    run = KernelRun(**asked, seconds=0.1, device="cpu", cache_dir=cache_dir)
    return [(row.kernel, row.rival, row.origin, row.verdict, row.speedup is not None) for row in rows_of(run)]


@pytest.mark.triton
def test_rows_of_kernels_are_tuned_checked_and_compared(interpreted, tmp_path):
    rows = interpreted(rows_on_cpu, str(tmp_path))
    assert {row[:2] for row in rows} >= {("softmax", "eager"), ("layer_norm", "eager")}
    assert all(row[2] == "tuned now" and row[4] for row in rows)


def scaled(x, out, *, n):
    out.copy_(x * 2)


def rescaled(x, **_rest):
    return x + x


DOUBLING = Operation(
    "doubling", FunctionKernel(scaled, outputs=("out",)), [{"n": 1}, {"n": 2}],
    lambda rows: {"x": TensorSpec((rows,), "float32"), "out": TensorSpec((rows,), "float32")},
    reference=lambda x, out: x * 2, device="any",
)  # fmt: skip


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize(("asked", "rivals"), [
    ((), ["default", "eager", "library"]), (("default",), ["default"]), (("eager", "default"), ["default", "eager"]),
    (("library",), ["library"]), (("compile",), []),
])  # fmt: skip
@pytest.mark.parametrize("n", [1, 2])
def test_a_kernel_meets_the_rivals_that_are_asked_for_and_else_all(asked, rivals, n, monkeypatch):
    monkeypatch.setattr(benchmarked, "rivals_of", lambda *_: {"eager": rescaled, "library": rescaled})
    monkeypatch.setattr(benchmarked, "_winner", lambda *_: (Config(n=n), "recorded winner"))
    run = KernelRun(rivals=asked, seconds=0.1, device="cpu")
    rows = list(problem_rows(run, DOUBLING, "small", (64,), None))
    assert [row.rival for row in rows] == [rival for rival in rivals if n == 2 or rival != "default"]
    assert all((row.config, row.is_default, row.confidence) == ({"n": n}, n == 1, "ok") for row in rows)
    assert all(row.verdict == "not distinguishable" for row in rows)


def untuned_rows(cache_dir):
    """Without a tune: before there is a record, with it, and for a problem nearby."""
    asked = {"kernels": ("softmax",), "rivals": ("eager",)}
    before = rows_on_cpu(cache_dir, tune_s=0.0, **asked)
    tune(benchmarked.load("softmax"), shape=SIZES[0], dtype="float32", device="cpu", cache_dir=cache_dir, trials=3)
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


def test_unknown_kernels_and_seconds_are_refused():
    with pytest.raises(SettingsError, match="there is no kernel softmaxx"):
        KernelRun(kernels=("softmaxx",))
    with pytest.raises(SettingsError, match="tune_s is -1"):
        KernelRun(tune_s=-1)


@pytest.mark.parametrize("error", [TuningFailedError("nothing ran"), RuntimeError("out of memory")])
def test_a_problem_that_fails_ends_no_run(monkeypatch, error):
    def failed(*_args):
        raise error

    monkeypatch.setattr(benchmarked, "_winner", failed)
    rows = list(rows_of(KernelRun(kernels=("softmax",), device="cpu")))
    assert len(rows) == len(load("softmax").problems)
    assert all(row.verdict.startswith("not measured: ") and row.speedup is None for row in rows)


def test_a_device_that_is_not_there_ends_a_run(monkeypatch):
    def failed(*_args):
        raise DeviceError("there is none")

    monkeypatch.setattr(benchmarked, "_winner", failed)
    with pytest.raises(DeviceError):
        list(rows_of(KernelRun(kernels=("softmax",), device="cpu")))
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


def twice(x):
    return x * 2


WRONG_CALLS = {
    "extents that are a number": {"problem_size": 64},
    "extents that are a text": {"problem_size": "64"},
    "no extents": {"problem_size": None},
    "a name that is no text": {"name": 3},
    "a config that is a list": {"config": [1]},
    "metrics that are a number": {"compute_metrics_fn": 3},
    "a kernel that is none": {"kernel_fn": None},
}


@pytest.mark.parametrize("method", ["benchmark_kernel", "compare_with_pytorch"])
@pytest.mark.parametrize("wrong", WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_wrong_arguments_are_refused_before_anything_is_called(method, wrong):
    called = []
    given = {"kernel_fn": called.append, "name": "n", "problem_size": (64,), **wrong}
    function = given.pop("kernel_fn")
    call = getattr(BenchmarkSuite(1, 2), method)
    with pytest.raises(SettingsError):
        call(function, called.append, given.pop("name"), given.pop("problem_size"), torch.ones(2), **given)
    assert called == []


def test_a_kernel_without_a_result_passes_no_check():
    with pytest.raises(WrongResultError, match="returns None: there is no result to compare"):
        BenchmarkSuite(1, 2).benchmark_kernel(lambda x: None, lambda x: None, "n", (1,), torch.ones(2))


def test_metrics_must_be_metrics(suite):
    with pytest.raises(SettingsError, match="it must return KernelMetrics"):
        suite.benchmark_kernel(twice, twice, "n", (1,), torch.ones(2), compute_metrics_fn=lambda ms: ms)


@pytest.mark.parametrize("sizes", [None, 3, [(1, 2)], [3], ["abcd"]])
@pytest.mark.parametrize("family", ["rmsnorm_rope", "gated_mlp", "fp8_gemm"])
def test_families_refuse_what_are_no_problems(family, sizes):
    with pytest.raises(SettingsError, match="it must be a list of problems"):
        getattr(BenchmarkSuite(1, 2), f"benchmark_{family}")(sizes, device="cpu")


def test_families_say_which_device_there_is_not():
    with pytest.raises(DeviceError):
        BenchmarkSuite(1, 2).benchmark_fp8_gemm([(16, 16, 16)], device="tpu")


def test_a_report_takes_results_texts_and_paths_only(tmp_path):
    report = PerformanceReport()
    for wrong in (
        lambda: report.add_result(None), lambda: report.add_comparison(report), lambda: report.save(None),
        lambda: PerformanceReport(None), lambda: report.set_metadata(3, 1),
    ):  # fmt: skip
        with pytest.raises(SettingsError):
            wrong()
    assert (report.results, report.comparisons, report.metadata) == ([], [], {})


def test_json_has_a_text_for_what_it_cannot_hold(suite):
    config = {"t": torch.float16, "x": math.inf}
    suite.benchmark_kernel(twice, twice, "n", (torch.float16,), torch.ones(2), config=config)
    (result,) = json.loads(suite.generate_report("json"))["results"]
    assert result["problem_size"] == ["torch.float16"]
    assert result["config"] == {"t": "torch.float16", "x": "inf"}


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
    monkeypatch.setattr("triton_ops_kernels.rivals.time_ms", lambda *_args, **_more: next(times))
    rival = rivals_of(name, values, ("library",))["library"]
    right = _gradients(torch, plain, values) if name.endswith("backward") else plain
    torch.testing.assert_close(rival(**values), right(**values))
    assert "CUDNN_ATTENTION is left out, since its result is wrong" in caplog.text
