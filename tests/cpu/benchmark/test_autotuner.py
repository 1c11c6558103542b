"""`TritonAutoTuner` as documented: calls, winners, cache, failures, and the caller's tensors.

Where times decide, the clock is simulated and the kernels spend its time; the tuner, its timer and its cache are real.
"""

import contextlib
import gc
import importlib.util
import inspect
import itertools
import logging
import os
import pickle
import random
import statistics
import subprocess
import sys
import weakref
from collections import Counter
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

import triton_ops
from triton_ops import (
    ConfigCache,
    ConfigCollisionError,
    ConfigValueError,
    EmptySpaceError,
    KernelMetrics,
    KernelTypeError,
    PerformanceProfile,
    SettingsError,
    SpaceError,
    Status,
    TritonAutoTuner,
    TuningFailedError,
    TuningResult,
    UnknownTunableError,
)
from triton_ops.timing import HostTimer

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[3]
MS = 1_000_000  # nanoseconds
SPACE = {"BLOCK_SIZE": [64, 128], "num_warps": [4, 8]}
LABEL = {"problem_size": (1024,), "device": "cuda:0", "kernel_type": "spy"}


class Kernel:
    """A kernel that keeps what it was called with, and spends `cost_ms[BLOCK_SIZE]` of a clock of its own."""

    def __init__(self, cost_ms=None, broken=()):
        self.now = 0
        self.cost_ms = cost_ms or {}
        self.broken = set(broken)
        self.calls = []

    def __call__(self, *args, BLOCK_SIZE=64, num_warps=4, **kwargs):
        self.calls.append((args, kwargs, (BLOCK_SIZE, num_warps)))
        if BLOCK_SIZE in self.broken:
            raise RuntimeError(f"no {BLOCK_SIZE}")
        self.now += int(self.cost_ms.get(BLOCK_SIZE, 1.0) * MS)

    def per_config(self):
        counts = Counter(config for _, _, config in self.calls)
        self.calls.clear()
        return dict(counts)

    def tuner(self, space=None, warmup_runs=2, benchmark_runs=5, **more):
        tuner = TritonAutoTuner(self, SPACE if space is None else space, warmup_runs, benchmark_runs, **more)
        tuner.timer = HostTimer(lambda: self.now)
        return tuner


# The documented names and signature


def test_the_constructor_is_the_documented_one():
    parameters = inspect.signature(TritonAutoTuner).parameters
    empty = inspect.Parameter.empty
    assert [(name, parameter.default) for name, parameter in parameters.items()] == [
        ("kernel_fn", empty),
        ("config_space", empty),
        ("warmup_runs", 10),
        ("benchmark_runs", 100),
        ("cache_dir", None),
    ]
    assert all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters.values())


def test_the_methods_are_the_documented_ones():
    tune = inspect.signature(TritonAutoTuner.tune).parameters
    assert [name for name in tune if name != "self"] == [
        "args", "problem_size", "device", "kernel_type", "performance", "kwargs",
    ]  # fmt: skip
    assert (tune["problem_size"].default, tune["device"].default, tune["kernel_type"].default) == (
        None,
        None,
        "unknown",
    )
    result = inspect.signature(TritonAutoTuner.get_cached_config).parameters
    assert list(result) == ["self", "problem_size", "device", "kernel_type"]
    assert result["kernel_type"].default == "unknown"
    assert list(inspect.signature(TritonAutoTuner.clear_cache).parameters) == ["self"]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("triton_ops", "TritonAutoTuner ConfigCache TuningResult KernelMetrics TuningFailedError"),
        ("triton_ops", "RMSNORM_ROPE_CONFIGS GATED_MLP_CONFIGS FP8_GEMM_CONFIGS"),
        ("triton_ops", "generate_configs filter_valid_configs get_default_config"),
        ("triton_ops", "compute_gemm_metrics compute_elementwise_metrics"),
        ("triton_ops.benchmark.auto_tuner", "TritonAutoTuner TuningResult KernelMetrics"),
        ("triton_ops.benchmark.auto_tuner", "compute_gemm_metrics compute_elementwise_metrics"),
        ("triton_ops.benchmark.plain_configs", "RMSNORM_ROPE_CONFIGS GATED_MLP_CONFIGS FP8_GEMM_CONFIGS"),
        ("triton_ops.benchmark.plain_configs", "generate_configs filter_valid_configs get_default_config"),
        ("triton_ops.benchmark.plain_configs", "ConfigCache"),
        ("triton_ops.autotuner", "TritonAutoTuner ConfigCache TuningResult KernelMetrics"),
        ("triton_ops.autotuner", "RMSNORM_ROPE_CONFIGS compute_gemm_metrics PerformanceProfile generate_configs"),
        ("triton_ops.autotuner.configs", "RMSNORM_ROPE_CONFIGS GATED_MLP_CONFIGS FP8_GEMM_CONFIGS"),
        ("triton_ops.autotuner.configs", "generate_configs filter_valid_configs get_default_config"),
        ("triton_ops.autotuner.tuner", "TritonAutoTuner TuningResult KernelMetrics PerformanceProfile"),
        ("triton_ops.autotuner.tuner", "compute_gemm_metrics compute_elementwise_metrics"),
    ],
)
def test_names_are_where_the_document_has_them(module, names):
    result = importlib.import_module(module)
    for name in names.split():
        same = getattr(triton_ops, name)
        assert getattr(result, name) is same


def test_a_tuner_keeps_its_arguments_as_attributes(tmp_path):
    kernel, space = Kernel(), {"BLOCK_SIZE": [64, 128], "num_warps": [4]}
    tuner = TritonAutoTuner(kernel, space, 1, 2, str(tmp_path))
    assert tuner.kernel_fn is kernel
    assert tuner.config_space is space
    assert (tuner.warmup_runs, tuner.benchmark_runs) == (1, 2)
    assert isinstance(tuner.cache, ConfigCache)
    assert tuner.all_configs == [{"BLOCK_SIZE": 64, "num_warps": 4}, {"BLOCK_SIZE": 128, "num_warps": 4}]
    assert kernel.calls == []


def test_the_documented_figures():
    metrics = triton_ops.compute_gemm_metrics(4096, 4096, 4096, 0.45, peak_bandwidth_gbps=2039.0)
    assert metrics.throughput_tflops == pytest.approx(305.42, abs=0.005)
    assert metrics.bandwidth_gbps == pytest.approx(223.70, abs=0.005)
    assert metrics.bandwidth_utilization == pytest.approx(10.97, abs=0.005)
    metrics = triton_ops.compute_elementwise_metrics(4096**2, 0.1, peak_bandwidth_gbps=2039.0)
    assert metrics.bandwidth_gbps == pytest.approx(671.09, abs=0.005)
    assert metrics.bandwidth_utilization == pytest.approx(32.91, abs=0.005)


# The document's example


def test_the_documents_example_runs():
    path = ROOT / "examples" / "document_example.py"
    spec = importlib.util.spec_from_file_location("document_example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    result = example.main("cpu")
    assert isinstance(result, TuningResult)
    space = [{"BLOCK_SIZE": block, "num_warps": warps} for block in (64, 128) for warps in (4, 8)]
    assert result.best_config in space
    assert [config for config, _ in result.all_results] == space
    assert (result.problem_size, result.device, result.from_cache) == ((1024,), "cuda:0", False)
    assert result.metrics.latency_ms == min(metrics.latency_ms for _, metrics in result.all_results)
    assert result.metrics.latency_ms > 0


def test_a_result_has_the_documented_fields_and_texts():
    assert [field.name for field in fields(TuningResult)][:5] == [
        "best_config", "metrics", "all_results", "problem_size", "device",
    ]  # fmt: skip
    assert [field.name for field in fields(KernelMetrics)][:4] == [
        "latency_ms", "throughput_tflops", "bandwidth_gbps", "bandwidth_utilization",
    ]  # fmt: skip
    metrics = KernelMetrics(0.45, 156.2, 890.5, 43.7)
    text = "Latency: 0.450 ms, Throughput: 156.20 TFLOPS, Bandwidth: 890.5 GB/s (43.7%)"
    assert str(metrics) == text
    result = TuningResult({"BLOCK_SIZE": 64, "num_warps": 4}, metrics)
    assert str(result) == f"Best config: {{BLOCK_SIZE=64, num_warps=4}}\n{text}"
    assert (result.all_results, result.problem_size, result.device) == ([], None, None)
    with pytest.raises(FrozenInstanceError):
        result.device = "cpu"


# Calls and arguments


@pytest.mark.parametrize(
    ("warmup_runs", "benchmark_runs"), [(2, 5), (0, 1), (0, 7), (1, 10), (3, 19), (1, 25), (2, 100), (0, 107)]
)
def test_every_config_is_called_exactly_as_often_as_asked(warmup_runs, benchmark_runs):
    kernel = Kernel()
    tuner = kernel.tuner(warmup_runs=warmup_runs, benchmark_runs=benchmark_runs)
    result = tuner.tune(1, **LABEL)
    each = warmup_runs + benchmark_runs
    assert kernel.per_config() == dict.fromkeys(itertools.product([64, 128], [4, 8]), each)
    assert all(len(trial.measurement.samples_ms) == benchmark_runs for trial in result.trials)
    hit = tuner.tune(1, **LABEL)
    assert hit.from_cache
    assert kernel.per_config() == {(64, 4): each}


def test_calls_are_as_exact_with_the_real_clock_and_tensors():
    kernel = Kernel()
    tuner = TritonAutoTuner(kernel, SPACE, warmup_runs=2, benchmark_runs=13)
    tuner.tune(torch.ones(3))
    assert set(kernel.per_config().values()) == {15}


def test_warm_up_calls_are_not_timed():
    kernel = Kernel()
    seen = Counter()

    def slow_at_first(BLOCK_SIZE):
        seen[BLOCK_SIZE] += 1
        kernel.now += (500 if seen[BLOCK_SIZE] <= 3 else BLOCK_SIZE) * MS

    tuner = TritonAutoTuner(slow_at_first, {"BLOCK_SIZE": [64, 32]}, 3, 4)
    tuner.timer = HostTimer(lambda: kernel.now)
    result = tuner.tune()
    assert [trial.measurement.samples_ms for trial in result.trials] == [(64.0,) * 4, (32.0,) * 4]


def test_arguments_are_the_callers_own_objects_and_config_values_are_keywords():
    kernel = Kernel()
    x, marker, nested = torch.arange(4.0), object(), {"scale": [torch.ones(1)]}
    kernel.tuner().tune(x, None, marker, nested=nested, flag=False, **LABEL)
    for args, kwargs, _ in kernel.calls:
        assert all(given is own for given, own in zip(args, (x, None, marker), strict=True))
        assert kwargs.keys() == {"nested", "flag"}  # and none of problem_size, device, kernel_type
        assert kwargs["nested"] is nested
        assert kwargs["flag"] is False


@pytest.mark.parametrize("values", [[(1, 2), (3, 4)], ["a", "b"], [True, False], [None, 2], [0.5, 1.5]])
def test_config_values_reach_the_callable_with_their_types(values):
    seen = []
    result = TritonAutoTuner(lambda knob: seen.append(knob), {"knob": values}, 0, 1).tune()
    assert sorted(map(repr, seen)) == sorted(map(repr, values))
    assert [config["knob"] for config, _ in result.all_results] == values


def test_a_tuple_survives_the_cache(tmp_path):
    seen = []

    def kernel(tile):
        seen.append(tile)

    for expected in (False, True):
        tuner = TritonAutoTuner(kernel, {"tile": [(64, 32)]}, 0, 1, cache_dir=str(tmp_path))
        result = tuner.tune(problem_size=1, device="cpu")
        assert result.from_cache is expected
        assert result.best_config == {"tile": (64, 32)}
    assert seen == [(64, 32)] * 2


# Who wins


def test_the_lowest_latency_wins_and_every_config_is_reported_in_order():
    kernel = Kernel({64: 3.0, 128: 2.0, 256: 4.0})
    result = kernel.tuner({"BLOCK_SIZE": [64, 128, 256]}).tune(problem_size="p", device="d")
    assert result.best_config == {"BLOCK_SIZE": 128}
    assert result.metrics.latency_ms == 2.0
    assert [(config["BLOCK_SIZE"], m.latency_ms) for config, m in result.all_results] == [
        (64, 3.0),
        (128, 2.0),
        (256, 4.0),
    ]
    assert (result.problem_size, result.device, result.stopped) == ("p", "d", "complete")
    assert (result.metrics.throughput_tflops, result.metrics.bandwidth_gbps) == (0.0, 0.0)
    assert result.elapsed_s > 0


@pytest.mark.parametrize("order", [[64, 128, 256], [256, 128, 64]])
def test_among_equals_the_first_in_product_order_wins(order):
    kernel = Kernel({64: 2.0, 128: 2.0, 256: 2.0})
    result = kernel.tuner({"num_warps": [8, 4], "BLOCK_SIZE": order}).tune()
    assert result.best_config == {"num_warps": 8, "BLOCK_SIZE": order[0]}


class Machine:
    """A clock on which call number n takes `cost · speed(n)`; `speed` is what disturbs."""

    def __init__(self, speed):
        self.now, self.count, self.speed = 0, 0, speed

    def run(self, ms):
        self.now += int(ms * MS * self.speed(self.count))
        self.count += 1

    def tune(self, costs, order, runs=100):
        tuner = TritonAutoTuner(lambda name: self.run(costs[name]), {"name": order}, 1, runs)
        tuner.timer = HostTimer(lambda: self.now)
        return tuner.tune()


@pytest.mark.parametrize("order", [["slower", "faster"], ["faster", "slower"]])
@pytest.mark.parametrize("slope", [0.002, -0.002])
def test_a_clock_that_drifts_favours_no_config(order, slope):
    costs = {"slower": 1.03, "faster": 1.0}

    def speed(count):
        return 1 + slope * count

    assert Machine(speed).tune(costs, order).best_config == {"name": "faster"}
    one_by_one = Machine(speed)
    alone = [one_by_one.tune(costs, [name]).metrics.latency_ms for name in order]
    # What this test is about: measured one after the other, the position decides and not the config.
    assert alone.index(min(alone)) == (0 if slope > 0 else 1)


def test_one_outlier_does_not_decide():
    kernel, seen = Kernel(), Counter()

    def call(BLOCK_SIZE):
        seen[BLOCK_SIZE] += 1
        interrupted = BLOCK_SIZE == 128 and seen[128] == 50
        kernel.now += (2_000 if interrupted else 11 if BLOCK_SIZE == 64 else 10) * MS

    tuner = TritonAutoTuner(call, {"BLOCK_SIZE": [64, 128]}, 1, 100)
    tuner.timer = HostTimer(lambda: kernel.now)
    result = tuner.tune()
    assert result.best_config == {"BLOCK_SIZE": 128}
    assert [metrics.latency_ms for _, metrics in result.all_results] == [11.0, 10.0]
    means = [statistics.mean(trial.measurement.samples_ms) for trial in result.trials]
    assert means[1] > 2 * means[0]  # by the mean, the other one would have won


def test_latency_is_the_median_with_its_fifths():
    times = iter([9.0, 1.0, 2.0, 3.0, 4.0, 100.0, 5.0])  # the first is the warm-up
    kernel = Kernel()

    def call(BLOCK_SIZE):
        kernel.now += int(next(times) * MS)

    tuner = TritonAutoTuner(call, {"BLOCK_SIZE": [1]}, 1, 6)
    tuner.timer = HostTimer(lambda: kernel.now)
    metrics = tuner.tune().metrics
    assert (metrics.latency_ms, metrics.p20_ms, metrics.p80_ms) == (3.5, 2.0, 5.0)


def test_a_profile_fills_in_the_metrics():
    kernel = Kernel({64: 0.45, 128: 0.9})
    profile = PerformanceProfile.gemm(4096, 4096, 4096)
    tuner = kernel.tuner({"BLOCK_SIZE": [64, 128]})
    result = tuner.tune(performance=profile, **LABEL)
    assert result.metrics.throughput_tflops == pytest.approx(305.42, abs=0.005)
    assert result.metrics.bandwidth_gbps == pytest.approx(223.70, abs=0.005)
    assert result.metrics.bandwidth_utilization > 0
    assert (result.metrics.p20_ms, result.metrics.p80_ms) == (0.45, 0.45)
    fast, slow = (metrics.throughput_tflops for _, metrics in result.all_results)
    assert fast == pytest.approx(2 * slow)
    assert tuner.tune(performance=profile, **LABEL).metrics == result.metrics  # a hit's are filled in as well


# The cache


@pytest.mark.parametrize(
    ("named", "cached"),
    [
        ({}, False),
        ({"problem_size": (8,)}, False),
        ({"device": "cuda:0"}, False),
        ({"problem_size": (8,), "device": "cuda:0"}, True),
        ({"problem_size": (), "device": "cuda:0"}, False),
        ({"problem_size": (8,), "device": ""}, False),
    ],
)
def test_caching_needs_both_a_problem_size_and_a_device(named, cached, tmp_path):
    kernel = Kernel()
    tuner = kernel.tuner(cache_dir=str(tmp_path))
    first = tuner.tune(kernel_type="k", **named)
    assert not first.from_cache
    assert len(tuner.cache) == len(list(tmp_path.glob("*.config.json"))) == cached
    assert tuner.tune(kernel_type="k", **named).from_cache is cached
    assert (first.problem_size, first.device) == (named.get("problem_size"), named.get("device"))


def test_a_hit_measures_the_winner_again_and_searches_nothing():
    kernel = Kernel({64: 2.0, 128: 1.0})
    tuner = kernel.tuner({"BLOCK_SIZE": [64, 128]})
    searched = tuner.tune(**LABEL)
    kernel.cost_ms[128] = 7.0  # slower today: a hit reports what is true now
    hit = tuner.tune(**LABEL)
    assert (searched.from_cache, hit.from_cache) == (False, True)
    assert hit.best_config == searched.best_config == {"BLOCK_SIZE": 128}
    assert hit.metrics.latency_ms == 7.0
    assert (hit.all_results, hit.trials, hit.stopped) == ([], (), "cached")
    assert (hit.problem_size, hit.device) == ((1024,), "cuda:0")


@pytest.mark.parametrize(
    "other", [{"problem_size": (2048,)}, {"device": "cuda:1"}, {"device": "NVIDIA H200"}, {"kernel_type": "other"}]
)
def test_each_part_of_the_label_separates_entries(other):
    tuner = Kernel().tuner()
    tuner.tune(**LABEL)
    assert not tuner.tune(**{**LABEL, **other}).from_cache
    assert tuner.tune(**LABEL).from_cache
    assert len(tuner.cache) == 2


def test_a_list_and_a_tuple_name_the_same_problem():
    tuner = Kernel().tuner()
    tuner.tune(problem_size=(4, 8), device="cuda:0")
    assert tuner.tune(problem_size=[4, 8], device="cuda:0").from_cache


def test_a_torch_device_is_its_text():
    tuner = Kernel().tuner()
    tuner.timer = None
    tuner.tune(problem_size=4, device=torch.device("cpu"))
    assert tuner.tune(problem_size=4, device="cpu").from_cache


def test_a_cached_config_that_fails_is_searched_for_again_and_replaced(caplog):
    kernel = Kernel({64: 1.0, 128: 2.0})
    tuner = kernel.tuner({"BLOCK_SIZE": [64, 128]})
    tuner.tune(**LABEL)
    kernel.per_config()
    kernel.broken = {64}
    with caplog.at_level(logging.WARNING, "triton_ops"):
        again = tuner.tune(**LABEL)
    assert "cached config (BLOCK_SIZE=64) failed" in caplog.text
    assert (again.from_cache, again.best_config) == (False, {"BLOCK_SIZE": 128})
    assert kernel.per_config() == {(64, 4): 2, (128, 4): 7}  # 64 failed at its first call, twice
    assert tuner.get_cached_config((1024,), "cuda:0", "spy") == {"BLOCK_SIZE": 128}
    assert tuner.tune(**LABEL).from_cache


@pytest.mark.parametrize(
    "foreign",
    [
        {"BLOCK_SIZE": 512},
        {"BLOCK_SIZE": 64.0},
        {"BLOCK_SIZE": True},
        {"BLOCK_SIZE": 64, "num_warps": 4},
        {"OTHER": 64},
        {"BLOCK_SIZE": {"nested": 64}},
        {"BLOCK_SIZE": [64]},
        {"BLOCK_SIZE": -(2**70)},
        {},
    ],
    ids=str,
)
def test_a_cached_config_outside_the_space_is_searched_for_again_and_replaced(foreign):
    kernel = Kernel({64: 2.0, 128: 1.0})
    tuner = kernel.tuner({"BLOCK_SIZE": [64, 128]})
    tuner.cache.set("spy", (1024,), "cuda:0", foreign)
    result = tuner.tune(**LABEL)
    assert (result.from_cache, result.best_config) == (False, {"BLOCK_SIZE": 128})
    assert kernel.per_config() == {(64, 4): 7, (128, 4): 7}  # the foreign one was not called
    assert tuner.get_cached_config((1024,), "cuda:0", "spy") == {"BLOCK_SIZE": 128}


def test_the_cached_config_can_be_asked_for_and_forgotten(tmp_path):
    kernel = Kernel({64: 2.0, 128: 1.0})
    tuner = kernel.tuner({"BLOCK_SIZE": [64, 128]}, cache_dir=str(tmp_path))
    assert tuner.get_cached_config((1024,), "cuda:0") is None
    tuner.tune(problem_size=(1024,), device="cuda:0")
    kernel.per_config()
    result = tuner.get_cached_config((1024,), "cuda:0")
    assert result == tuner.get_cached_config([1024], "cuda:0", "unknown") == {"BLOCK_SIZE": 128}
    assert kernel.calls == []
    result["BLOCK_SIZE"] = 0  # the caller's own copy
    assert tuner.get_cached_config((1024,), "cuda:0") == {"BLOCK_SIZE": 128}
    assert TritonAutoTuner(kernel, SPACE, cache_dir=str(tmp_path)).get_cached_config((1024,), "cuda:0") == {
        "BLOCK_SIZE": 128
    }
    (tmp_path / "foreign.json").write_text("{}")
    tuner.clear_cache()
    assert tuner.get_cached_config((1024,), "cuda:0") is None
    assert [path.name for path in tmp_path.glob("*.json")] == ["foreign.json"]
    assert not tuner.tune(problem_size=(1024,), device="cuda:0").from_cache


def test_a_problem_size_that_cannot_be_stored_is_refused_before_any_call():
    kernel = Kernel()
    with pytest.raises(ConfigValueError, match="problem_size"):
        kernel.tuner().tune(problem_size=(object(),), device="cuda:0")
    assert kernel.calls == []


OTHER_PROCESS = """
import sys
from triton_ops import TritonAutoTuner

def kernel(BLOCK_SIZE):
    calls.append(BLOCK_SIZE)

calls = []
tuner = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64]}, 1, 3, cache_dir=sys.argv[1])
result = tuner.tune(problem_size=(1024,), device="here", kernel_type="shared")
print(result.from_cache, len(calls))
"""


def in_another_process(*argv):
    path = os.pathsep.join([str(ROOT / "src"), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def said_by(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.strip()


@pytest.mark.processes
def test_processes_share_a_cache_folder(tmp_path):
    together = [in_another_process(OTHER_PROCESS, str(tmp_path)) for _ in range(2)]
    first = [said_by(process) for process in together]
    assert set(first) <= {"False 4", "True 4"}  # whoever came second may have found the entry already
    assert "False 4" in first
    assert len(list(tmp_path.glob("*.config.json"))) == 1
    kernel = Kernel()
    tuner = kernel.tuner({"BLOCK_SIZE": [64, 128]}, cache_dir=str(tmp_path))
    hit = tuner.tune(problem_size=(1024,), device="here", kernel_type="shared")
    assert (hit.from_cache, hit.best_config) == (True, {"BLOCK_SIZE": 64})
    tuner.clear_cache()
    assert said_by(in_another_process(OTHER_PROCESS, str(tmp_path))) == "False 4"


# Failures


class OutOfResources(Exception):  # noqa: N818 - Triton's name
    pass


class CompilationError(Exception):
    pass


class PTXASError(Exception):
    pass


class UnfamiliarError(Exception):
    pass


@pytest.mark.parametrize("call", [1, 3], ids=["in the warm-up", "while timed"])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("device-side assert\n\nmore"), Status.RUNTIME),
        (OSError("no such file"), Status.RUNTIME),
        (TypeError("wrong"), Status.RUNTIME),
        (AssertionError(), Status.RUNTIME),
        (StopIteration(), Status.RUNTIME),
        (UnfamiliarError("what"), Status.RUNTIME),
        (MemoryError("2 GiB"), Status.RESOURCES),
        (OutOfResources("shared memory, Required: 262144, Hardware limit: 232448"), Status.RESOURCES),
        (torch.OutOfMemoryError("CUDA out of memory"), Status.RESOURCES),
        (CompilationError("at 3:4"), Status.COMPILE),
        (PTXASError("ptxas exited with 255"), Status.COMPILE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_any_exception_ends_one_config_with_a_status(error, status, call, caplog):
    seen = Counter()

    def kernel(BLOCK_SIZE):
        seen[BLOCK_SIZE] += 1
        if BLOCK_SIZE == 128 and seen[128] >= call:
            raise error

    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128, 256]}, 2, 5).tune()
    assert seen == {64: 7, 128: call, 256: 7}
    assert [trial.status for trial in result.trials] == [Status.OK, status, Status.OK]
    assert [config["BLOCK_SIZE"] for config, _ in result.all_results] == [64, 256]
    (failure,) = result.failures
    assert dict(failure.config) == {"BLOCK_SIZE": 128}
    assert failure.error.startswith(type(error).__name__)
    assert "\n" not in failure.error
    assert "config (BLOCK_SIZE=128) failed" in caplog.text


def test_when_every_config_fails_the_error_holds_every_reason():
    def kernel(BLOCK_SIZE):
        if BLOCK_SIZE == 64:
            raise OutOfResources("too much")
        raise RuntimeError(f"bad {BLOCK_SIZE}")

    tuner = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, 1, 2)
    with pytest.raises(TuningFailedError, match="none of 2 configs ran") as caught:
        tuner.tune(problem_size=(8, 8), device="cuda:0")
    error = caught.value
    assert (error.problem_size, error.configs_tried) == ((8, 8), 2)
    assert error.failures == [
        ({"BLOCK_SIZE": 64}, "resources: OutOfResources: too much"),
        ({"BLOCK_SIZE": 128}, "runtime: RuntimeError: bad 128"),
    ]
    assert error.last_error == "runtime: RuntimeError: bad 128"
    assert error.last_error in str(error)
    assert "failures" in error.hint
    assert tuner.get_cached_config((8, 8), "cuda:0") is None
    assert pickle.loads(pickle.dumps(error)).failures == error.failures


def test_a_tuner_without_configs_left_says_so():
    tuner = Kernel().tuner()
    tuner.all_configs = []
    with pytest.raises(TuningFailedError, match="none of 0 configs ran") as caught:
        tuner.tune()
    assert (caught.value.configs_tried, caught.value.last_error, caught.value.failures) == (0, None, [])


class Unusual(BaseException):
    """An exception that is no `Exception`."""


@pytest.mark.parametrize("error", [SystemExit, Unusual])
@pytest.mark.parametrize("call", [1, 9], ids=["in the warm-up", "while timed"])
def test_an_exit_ends_one_config_and_the_others_are_timed(error, call):
    calls = []

    def kernel(BLOCK_SIZE):
        calls.append(BLOCK_SIZE)
        if len(calls) == call:
            raise error("enough")

    result = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, 2, 5).tune()
    (failed,) = result.failures
    assert failed.config["BLOCK_SIZE"] == calls[call - 1]
    assert failed.error.endswith(f"{error.__name__}: enough")
    assert result.best_config != dict(failed.config)


def test_a_tune_reports_the_noise_of_its_rounds():
    now = [0]

    def kernel(BLOCK_SIZE):
        now[0] += round(1_000_000 * (1 + 0.01 * random.Random(now[0]).gauss(0, 1)))

    tuner = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128, 256]}, 2, 105)
    tuner.timer = HostTimer(lambda: now[0])
    assert 0.001 < tuner.tune().noise < 0.02
    alone = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64]}, 2, 105)
    alone.timer = tuner.timer
    assert alone.tune().noise == 0.0


def noisy(times_ms, seed=5):
    """A tuner of a kernel whose calls take the times of a list, by index, and 2 % more or less of them."""
    rng, now = random.Random(seed), [0]

    def kernel(which):
        now[0] += int(times_ms[which] * rng.uniform(0.98, 1.02) * MS)

    tuner = TritonAutoTuner(kernel, {"which": list(range(len(times_ms)))}, 0, 50)
    tuner.timer = HostTimer(lambda: now[0])
    return tuner


def test_the_confidence_is_low_where_noise_hides_the_order():
    result = [noisy([1.0, 1.0, 1.0], seed).tune() for seed in range(20)]
    assert all(each.metrics.latency_ms == min(speed.latency_ms for _, speed in each.all_results) for each in result)
    low = [
        each for each in result if each.confidence.startswith("low: noise hides whether the winner is faster than (")
    ]
    assert len(low) >= 18
    assert all(len(each.ties) > 1 and dict(each.ties[0]) == each.best_config for each in low)


def test_the_confidence_is_ok_where_it_does_not():
    result = noisy([1.3, 1.0, 1.3]).tune()
    assert (result.best_config, result.confidence, len(result.ties)) == ({"which": 1}, "ok", 1)
    result = Kernel().tuner({"BLOCK_SIZE": [64, 128]}).tune()  # equal to the nanosecond
    assert (result.confidence, len(result.ties)) == ("ok", 2)


def test_one_round_tells_no_noise_and_a_cached_winner_is_compared_with_nothing():
    assert Kernel().tuner(benchmark_runs=1).tune().confidence == "low: too few timed calls to know the noise"
    tuner = Kernel().tuner()
    tuner.tune(**LABEL)
    again = tuner.tune(**LABEL)
    assert (again.from_cache, again.confidence[:4], again.ties) == (True, "low:", ())


@pytest.mark.parametrize("error", [KeyboardInterrupt])
@pytest.mark.parametrize("call", [1, 9], ids=["in the warm-up", "while timed"])
def test_an_interrupt_ends_the_tune_and_the_tensors_are_restored(error, call):
    x, calls = torch.zeros(3), []

    def kernel(x, BLOCK_SIZE):
        calls.append(None)
        x.add_(1)
        if len(calls) == call:
            raise error

    tuner = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, 2, 5)
    with pytest.raises(error):
        tuner.tune(x, problem_size=3, device="cpu")
    assert len(calls) == call
    assert not x.any()
    assert tuner.get_cached_config(3, "cpu") is None
    assert gc.isenabled()


def test_a_failed_config_keeps_nothing_that_it_had_allocated():
    class Buffer:
        pass

    made, alive_later = [], []

    def kernel(BLOCK_SIZE):
        if BLOCK_SIZE == 64:
            buffer = Buffer()
            made.append(weakref.ref(buffer))
            raise MemoryError
        alive_later.append(made[0]() is not None)

    TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, 1, 2).tune()
    assert alive_later == [False] * 3


PTXAS_DUMP = """

================================================================
Internal Triton PTX codegen error

.version 8.4
================================================================
please share the reproducer above with Triton project.
"""


def test_the_dump_of_a_failing_ptxas_is_not_printed(capsys):
    def kernel(BLOCK_SIZE):
        if BLOCK_SIZE == 64:
            print(PTXAS_DUMP)  # noqa: T201 - as Triton does
            raise PTXASError("ptxas died")
        print("hello", BLOCK_SIZE)  # noqa: T201

    for warmup_runs in (0, 1):
        TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, warmup_runs, 1).tune()
        assert capsys.readouterr().out == "hello 128\n" * (warmup_runs + 1)


# The caller's tensors


def in_place(x, BLOCK_SIZE):
    x.add_(BLOCK_SIZE)


def in_place_then_raises(x, BLOCK_SIZE):
    x.zero_()
    raise RuntimeError("late")


def in_place_at_one_config(x, BLOCK_SIZE):
    if BLOCK_SIZE == 128:
        x.fill_(float("nan"))


@pytest.mark.parametrize("warmup_runs", [0, 1, 3])
@pytest.mark.parametrize("kernel", [in_place, in_place_then_raises, in_place_at_one_config])
def test_tensors_are_restored_after_a_tune(kernel, warmup_runs):
    x = torch.arange(6.0)
    before, where = x.clone(), x.data_ptr()
    tuner = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, warmup_runs, 4)
    for _ in range(2):  # a search, and then a hit
        expected = pytest.raises(TuningFailedError) if kernel is in_place_then_raises else contextlib.nullcontext()
        with expected:
            tuner.tune(x, problem_size=6, device="cpu")
        assert x.equal(before)
    assert x.data_ptr() == where


@pytest.mark.parametrize("warmup_runs", [0, 2])
def test_every_timed_call_finds_the_arguments_as_given(warmup_runs):
    x, seen = torch.zeros(4), []

    def kernel(x, BLOCK_SIZE):
        seen.append(x[0].item())
        x.add_(1)

    TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, warmup_runs, 12).tune(x)
    assert seen[2 * warmup_runs :] == [0.0] * 24
    assert not x.any()


def test_views_shared_memory_and_nested_tensors_are_restored():
    base = torch.arange(12.0)
    whole = base.clone()
    left, right, transposed = base[:6], base[4:10], base.view(3, 4).t()
    other = torch.ones(2, 2, dtype=torch.int64)
    gaps = torch.zeros(6)[::2]

    def kernel(left, transposed, *, extra, BLOCK_SIZE):
        left.mul_(BLOCK_SIZE)
        transposed.add_(1)
        extra["right"][0].neg_()
        extra["other"].zero_()
        extra["gaps"].add_(1)

    TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, 1, 3).tune(
        left, transposed, extra={"right": [right], "other": other, "gaps": gaps}
    )
    assert base.equal(whole)
    assert other.equal(torch.ones(2, 2, dtype=torch.int64))
    assert not gaps.any()


def test_memory_shared_with_numpy_is_restored():
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(8, dtype=numpy.float32)
    # Two storages that begin at one address: torch knows nothing of the array below them.
    short, whole = torch.from_numpy(array[:2]), torch.from_numpy(array)

    def kernel(a, b, BLOCK_SIZE):
        a.add_(1)
        b.add_(1)

    for given in ((whole, short), (short, whole)):
        TritonAutoTuner(kernel, {"BLOCK_SIZE": [64]}, 1, 2).tune(*given)
        assert array.tolist() == list(range(8))


def test_a_parameter_that_needs_gradients_is_restored():
    weight = torch.nn.Parameter(torch.ones(3))

    def step(weight, BLOCK_SIZE):
        with torch.no_grad():
            weight.sub_(0.1)

    TritonAutoTuner(step, {"BLOCK_SIZE": [64, 128]}, 1, 2).tune(weight)
    assert weight.equal(torch.ones(3))


@pytest.mark.parametrize("before", [None, 5.0])
def test_gradients_of_arguments_are_those_of_before(before):
    weight = torch.ones(3, requires_grad=True)
    weight.grad = held = None if before is None else torch.full((3,), before)
    TritonAutoTuner(lambda weight, BLOCK_SIZE: weight.sum().backward(), {"BLOCK_SIZE": [64, 128]}, 1, 2).tune(weight)
    assert weight.grad is held
    assert before is None or held.eq(before).all()


# What is refused before any call


def test_a_tensor_without_strides_is_refused():
    kernel = Kernel()
    with pytest.raises(KernelTypeError, match=r"an argument is of layout torch\.sparse_coo"):
        TritonAutoTuner(kernel, SPACE, 1, 1).tune(torch.eye(3).to_sparse())
    assert kernel.calls == []


def test_a_tunable_that_is_passed_as_well_is_refused():
    kernel = Kernel()

    def named(x, BLOCK_SIZE=64):
        kernel(x)

    with pytest.raises(ConfigCollisionError, match="'BLOCK_SIZE'"):
        TritonAutoTuner(named, {"BLOCK_SIZE": [64]}).tune(x=1, BLOCK_SIZE=64)
    with pytest.raises(ConfigCollisionError, match="'BLOCK_SIZE'"):
        TritonAutoTuner(named, {"BLOCK_SIZE": [64]}).tune(1, 64)
    with pytest.raises(ConfigCollisionError, match="'x'"):
        TritonAutoTuner(named, {"x": [1], "BLOCK_SIZE": [64]}).tune(1)
    assert kernel.calls == []


def test_a_tunable_that_the_kernel_does_not_take_is_refused():
    calls = []

    def kernel(x, BLOCK=64):
        calls.append(x)

    with pytest.raises(UnknownTunableError, match=r"no keyword 'BLOCK_SIZE'; it takes x, BLOCK"):
        TritonAutoTuner(kernel, {"BLOCK_SIZE": [64]}).tune(1)
    assert calls == []


@pytest.mark.parametrize(
    ("space", "error"),
    [
        ({}, EmptySpaceError),
        ({"BLOCK": []}, EmptySpaceError),
        ({"BLOCK": [[64, 128]]}, ConfigValueError),
        ({"BLOCK": [float("nan")]}, ConfigValueError),
        ({"BLOCK": [float("inf")]}, ConfigValueError),
        ({"BLOCK": [{"a": 1}]}, ConfigValueError),
        ({"BLOCK": [...]}, ConfigValueError),
        ({"BLOCK": [64, 64]}, ConfigValueError),
        ({"BLOCK": 64}, ConfigValueError),
        ({"BLOCK": "64"}, ConfigValueError),
        ({1: [64]}, ConfigValueError),
        ([{"BLOCK": 64}], SpaceError),
    ],
    ids=str,
)
def test_an_invalid_config_space_is_refused(space, error):
    with pytest.raises(error) as caught:
        TritonAutoTuner(lambda **config: None, space)
    assert isinstance(caught.value, SpaceError)
    assert caught.value.hint


@pytest.mark.parametrize("thing", [None, 3, "kernel", [print]])
def test_an_object_that_is_not_callable_is_refused(thing):
    with pytest.raises(KernelTypeError, match="not callable"):
        TritonAutoTuner(thing, SPACE)


@pytest.mark.triton
def test_a_triton_kernel_itself_is_refused_with_the_way_out():
    triton = pytest.importorskip("triton")

    def copy_kernel(x_ptr, BLOCK_SIZE: triton.language.constexpr):
        pass

    jitted = triton.jit(copy_kernel)
    for kernel in (jitted, triton.autotune([triton.Config({"BLOCK_SIZE": 64})], key=[])(jitted)):
        with pytest.raises(KernelTypeError, match="launched with a grid") as caught:
            TritonAutoTuner(kernel, {"BLOCK_SIZE": [64]})
        assert "kernel[grid]" in caught.value.hint


@pytest.mark.parametrize(
    "runs",
    [
        {"warmup_runs": -1},
        {"warmup_runs": 1.0},
        {"warmup_runs": True},
        {"benchmark_runs": 0},
        {"benchmark_runs": "5"},
        {"benchmark_runs": None},
    ],
    ids=str,
)
def test_numbers_of_runs_are_whole_numbers(runs):
    with pytest.raises(SettingsError, match=next(iter(runs))) as caught:
        TritonAutoTuner(Kernel(), SPACE, **runs)
    assert isinstance(caught.value, ValueError)


def test_a_cache_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(triton_ops.CacheError):
        TritonAutoTuner(Kernel(), SPACE, cache_dir=str(tmp_path / "file"))


@pytest.mark.parametrize("folder", ["", 3, "a\0b"])
def test_a_cache_folder_that_is_no_path_is_refused(folder):
    with pytest.raises(triton_ops.CacheError, match="it must be a folder"):
        TritonAutoTuner(Kernel(), SPACE, cache_dir=folder)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"performance": 3}, SettingsError, "performance is 3; it must be a PerformanceProfile"),
        ({"problem_size": object(), "device": "cpu"}, ConfigValueError, "problem_size is <object"),
        ({"problem_size": torch.tensor([4, 8]), "device": "cpu"}, ConfigValueError, "problem_size is tensor"),
    ],
)
def test_what_could_not_be_used_after_the_calls_is_refused_before_them(given, error, said):
    kernel = Kernel()
    with pytest.raises(error, match=said):
        TritonAutoTuner(kernel, SPACE, 1, 1).tune(1, **given)
    assert kernel.calls == []


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    tuner = TritonAutoTuner(Kernel(), SPACE, numpy.int64(0), numpy.int32(1))
    tuner.tune(1, problem_size=(numpy.int64(4), 8), device="cpu")
    assert tuner.get_cached_config((4, 8), "cpu") is not None


# Shipped kernels


def test_the_device_0_is_a_label_as_others():
    tuner = Kernel().tuner()
    first = tuner.tune(problem_size=(1024,), device=0)
    again = tuner.tune(problem_size=(1024,), device=0)
    assert (first.from_cache, again.from_cache) == (False, True)
    assert tuner.get_cached_config((1024,), 0) == first.best_config
