"""From a latency to throughput, bandwidth and utilisation."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.benchmark import PerformanceProfile, compute_elementwise_metrics, compute_gemm_metrics
from triton_ops.benchmark import auto_tuner as metrics
from triton_ops.benchmark.auto_tuner import A100_BANDWIDTH_GBPS
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import SettingsError
from triton_ops.values import Work


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> dict[str, DeviceSpec]:
    """The device that is found; a CPU unless the test puts another one here."""
    result = {"is": DeviceSpec("cpu", "some CPU", "x86_64", 2)}
    monkeypatch.setattr(metrics, "probe", lambda: result["is"])
    return result


@pytest.mark.usefixtures("device")
def test_gemm_figures() -> None:
    result = compute_gemm_metrics(4096, 4096, 4096, 0.45)
    assert result.latency_ms == 0.45
    assert round(result.throughput_tflops, 2) == 305.42
    assert round(result.bandwidth_gbps, 2) == 223.70
    assert round(result.bandwidth_utilization, 2) == 10.97
    assert str(result) == "Latency: 0.450 ms, Throughput: 305.42 TFLOPS, Bandwidth: 223.7 GB/s (11.0%)"


@pytest.mark.usefixtures("device")
def test_elementwise_figures() -> None:
    result = compute_elementwise_metrics(4096**2, 0.1)
    assert result.throughput_tflops == 0.0
    assert round(result.bandwidth_gbps, 2) == 671.09
    assert round(result.bandwidth_utilization, 2) == 32.91


def test_element_size_and_peak_bandwidth_change_the_figures() -> None:
    base = compute_gemm_metrics(512, 256, 128, 1.0, 312.0, 2039.0)
    assert compute_gemm_metrics(512, 256, 128, 1.0, 990.0, 2039.0) == base
    assert compute_gemm_metrics(512, 256, 128, 1.0, peak_bandwidth_gbps=4078.0).bandwidth_utilization == pytest.approx(
        base.bandwidth_utilization / 2
    )
    wide = compute_gemm_metrics(512, 256, 128, 1.0, peak_bandwidth_gbps=2039.0, bytes_per_element=4)
    assert wide.bandwidth_gbps == pytest.approx(2 * base.bandwidth_gbps)
    assert wide.throughput_tflops == base.throughput_tflops
    assert compute_elementwise_metrics(1000, 1.0, 4, 2039.0).bandwidth_gbps == pytest.approx(0.008)


def test_the_peak_is_that_of_the_gpu_that_is_there(device: dict[str, DeviceSpec]) -> None:
    on_cpu = compute_elementwise_metrics(4096**2, 0.1)
    device["is"] = DeviceSpec("cuda", "NVIDIA H200", "sm_90", 132, bandwidth_gbps=4800.0)
    on_h200 = compute_elementwise_metrics(4096**2, 0.1)
    assert on_h200.bandwidth_utilization == pytest.approx(671.0886 / 4800 * 100)
    assert on_cpu.bandwidth_utilization / on_h200.bandwidth_utilization == pytest.approx(4800 / A100_BANDWIDTH_GBPS)
    assert compute_elementwise_metrics(4096**2, 0.1, peak_bandwidth_gbps=2039.0) == on_cpu
    device["is"] = DeviceSpec("cuda", "a GPU without a row", "sm_00", 1)
    assert compute_elementwise_metrics(4096**2, 0.1) == on_cpu


def test_a_given_peak_asks_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "probe", lambda: pytest.fail("looked for a device"))
    compute_gemm_metrics(16, 16, 16, 1.0, peak_bandwidth_gbps=1.0)
    PerformanceProfile.latency_only().metrics(1.0)


def test_profiles() -> None:
    assert PerformanceProfile.latency_only().work == Work(0.0, 0.0)
    assert PerformanceProfile.elementwise(1000, 4).work == Work(0.0, 8000.0)
    assert PerformanceProfile.gemm(2, 3, 5).work == Work(60.0, 62.0)
    assert PerformanceProfile.gated_mlp(2, 3, 5).work == Work(120.0, (10 + 30 + 6) * 2.0)
    assert PerformanceProfile.gated_mlp(2, 3, 5, bytes_per_element=1).work.bytes == 46.0
    profile = PerformanceProfile.gemm(2, 3, 5)
    assert pickle.loads(pickle.dumps(profile)) == profile
    with pytest.raises(AttributeError):
        profile.name = "other"  # type: ignore[misc]


def test_latency_only_has_no_other_figures() -> None:
    result = PerformanceProfile.latency_only().metrics(0.25, 2039.0)
    assert (result.latency_ms, result.throughput_tflops, result.bandwidth_gbps, result.bandwidth_utilization) == (
        0.25, 0.0, 0.0, 0.0,
    )  # fmt: skip


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_a_latency_of_zero_counts_as_the_shortest(zero: float) -> None:
    result = compute_gemm_metrics(16, 16, 16, zero, peak_bandwidth_gbps=2039.0)
    assert result.latency_ms == 1e-9
    assert math.isfinite(result.throughput_tflops)


BAD_NUMBERS = [-1.0, float("nan"), float("inf"), -math.inf, True, False, "1", None]


@pytest.mark.parametrize("latency", BAD_NUMBERS)
def test_a_latency_is_a_finite_number(latency: Any) -> None:
    for call in (
        lambda: compute_gemm_metrics(16, 16, 16, latency),
        lambda: compute_elementwise_metrics(16, latency),
        lambda: PerformanceProfile.latency_only().metrics(latency),
    ):
        with pytest.raises(ValueError, match="latency_ms") as caught:
            call()
        assert isinstance(caught.value, SettingsError)
        assert caught.value.hint


@pytest.mark.parametrize("peak", [number for number in [*BAD_NUMBERS, 0, 0.0] if number is not None])
def test_a_peak_is_a_positive_number(peak: Any) -> None:
    with pytest.raises(ValueError, match="peak_bandwidth_gbps"):
        compute_elementwise_metrics(16, 1.0, peak_bandwidth_gbps=peak)
    with pytest.raises(ValueError, match="peak_tflops"):
        compute_gemm_metrics(16, 16, 16, 1.0, peak_tflops=peak)


@pytest.mark.parametrize("size", [0, -1, 1.0, True, "16", None, float("nan")])
@pytest.mark.parametrize("position", range(4))
def test_sizes_are_positive_integers(size: Any, position: int) -> None:
    sizes: list[Any] = [16, 16, 16, 2]
    sizes[position] = size
    M, N, K, width = sizes
    calls = [
        lambda: compute_gemm_metrics(M, N, K, 1.0, bytes_per_element=width),
        lambda: PerformanceProfile.gemm(M, N, K, width),
        lambda: PerformanceProfile.gated_mlp(M, N, K, width),
    ]
    if position in (0, 3):
        calls += [
            lambda: compute_elementwise_metrics(M, 1.0, width),
            lambda: PerformanceProfile.elementwise(M, width),
        ]
    for call in calls:
        with pytest.raises(ValueError, match="positive whole number"):
            call()


extents = st.integers(1, 10**6)


@given(extents, extents, extents, st.floats(1e-6, 1e6), st.integers(1, 8))
def test_figures_follow_the_formulas(M: int, N: int, K: int, latency: float, width: int) -> None:
    result = compute_gemm_metrics(M, N, K, latency, peak_bandwidth_gbps=1000.0, bytes_per_element=width)
    assert result.throughput_tflops == pytest.approx(2 * M * N * K / (latency * 1e9))
    assert result.bandwidth_gbps == pytest.approx(width * (M * K + K * N + M * N) / (latency * 1e6))
    assert result.bandwidth_utilization == pytest.approx(result.bandwidth_gbps / 10)
