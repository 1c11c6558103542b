"""`BenchmarkSuite` and `PerformanceReport` on a CPU: correctness before times, rows of kernels, text, JSON, files."""

import datetime
import json
import math

import pytest
import torch

from tests.near import drawn
from triton_ops.benchmark import BenchmarkSuite, PerformanceProfile, PerformanceReport
from triton_ops.benchmark.suite import BenchmarkResult, ComparisonResult
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError, WrongResultError
from triton_ops.values import KernelMetrics


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
