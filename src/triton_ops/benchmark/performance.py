"""Throughput and bandwidth from a latency, for elementwise operations, matrix products and gated MLPs.

The figures are derived from the least bytes and operations of the work; the traffic of a real kernel may be larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from triton_ops.device import probe
from triton_ops.exceptions import SettingsError
from triton_ops.values import KernelMetrics, Work

SHORTEST_MS = 1e-9  # used for a latency of 0, which only a clock too coarse for the kernel can report
A100_BANDWIDTH_GBPS = 2039.0  # of 80 GB by datasheet: assumed where no device is known
_UNKNOWN = Work()


@dataclass(frozen=True)
class PerformanceProfile:
    """The work of one call, which turns a latency into metrics.

    Attributes:
        work: Operations and bytes per call; zeros where they are not known.
        name: The kind of work, such as `gemm`.
    """

    work: Work = _UNKNOWN
    name: str = "latency_only"

    @classmethod
    def latency_only(cls) -> PerformanceProfile:
        """A profile without known work, which gives throughput and bandwidth of 0."""
        return cls()

    @classmethod
    def elementwise(cls, numel: int, bytes_per_element: int = 2) -> PerformanceProfile:
        """One tensor of `numel` elements read, one written: 2 · numel · bytes; no operations.

        Raises:
            SettingsError: A number is not a positive integer; it is a ValueError as well.
        """
        count, size = _positive("numel", numel), _positive("bytes_per_element", bytes_per_element)
        return cls(Work(bytes=2.0 * count * size), "elementwise")

    @classmethod
    def gemm(cls, M: int, N: int, K: int, bytes_per_element: int = 2) -> PerformanceProfile:
        """[M, K] times [K, N]: 2·M·N·K operations, (M·K + K·N + M·N) elements moved.

        Raises:
            SettingsError: A number is not a positive integer; it is a ValueError as well.
        """
        m, n, k, size = _sizes(M, N, K, bytes_per_element)
        return cls(Work(2.0 * m * n * k, float((m * k + k * n + m * n) * size)), "gemm")

    @classmethod
    def gated_mlp(cls, M: int, N: int, K: int, bytes_per_element: int = 2) -> PerformanceProfile:
        """activation(x·gate) · (x·up) with x [M, K] and two [K, N] weights: 4·M·N·K operations.

        Elements moved: M·K + 2·K·N + M·N. The activation's own operations are not counted.

        Raises:
            SettingsError: A number is not a positive integer; it is a ValueError as well.
        """
        m, n, k, size = _sizes(M, N, K, bytes_per_element)
        return cls(Work(4.0 * m * n * k, float((m * k + 2 * k * n + m * n) * size)), "gated_mlp")

    def metrics(self, latency_ms: float, peak_bandwidth_gbps: float | None = None) -> KernelMetrics:
        """The metrics of a call that took `latency_ms`.

        Args:
            latency_ms: Milliseconds per call; 0 counts as 1e-9.
            peak_bandwidth_gbps: 10^9 bytes per second that count as 100 %. None takes the datasheet figure of the
                present GPU; without a GPU, or with one whose figure is not known, it is 2039 GB/s, that of an A100 80
                GB.

        Raises:
            SettingsError: A number is negative, NaN, infinite, or no number; it is a ValueError as well.

        Cost: the first call without a peak looks for a GPU, which imports torch where it is installed.
        """
        latency = _latency(latency_ms)
        peak = _peak("peak_bandwidth_gbps", peak_bandwidth_gbps)
        gbps = self.work.gbps(latency)
        percent = gbps / (peak or _live_bandwidth_gbps()) * 100 if gbps else 0.0
        return KernelMetrics(latency, self.work.tflops(latency), gbps, bandwidth_utilization=percent)


def compute_gemm_metrics(
    M: int,
    N: int,
    K: int,
    latency_ms: float,
    peak_tflops: float | None = None,
    peak_bandwidth_gbps: float | None = None,
    bytes_per_element: int = 2,
) -> KernelMetrics:
    """Metrics of a matrix product [M, K] · [K, N].

    TFLOP/s = 2·M·N·K / (ms · 10^9); GB/s = (M·K + K·N + M·N) · bytes_per_element / (ms · 10^6); utilisation = GB/s as
    percent of the peak bandwidth.

    Args:
        M: Rows of the result.
        N: Columns of the result.
        K: Length of the inner products.
        latency_ms: Milliseconds per call; 0 counts as 1e-9.
        peak_tflops: Checked, and without effect: no field of the result is relative to it.
        peak_bandwidth_gbps: As in `PerformanceProfile.metrics`: None is the peak of the present GPU, else 2039 GB/s.
            That figure, like 312 TFLOP/s, is an A100's; on an H200 it would overstate the utilisation by 2.4.
        bytes_per_element: Bytes of an element of any of the three matrices.

    Raises:
        SettingsError: A size is not a positive integer, or another number is negative, NaN or infinite; it is a
            ValueError as well.
    """
    _peak("peak_tflops", peak_tflops)
    return PerformanceProfile.gemm(M, N, K, bytes_per_element).metrics(latency_ms, peak_bandwidth_gbps)


def compute_elementwise_metrics(
    numel: int, latency_ms: float, bytes_per_element: int = 2, peak_bandwidth_gbps: float | None = None
) -> KernelMetrics:
    """Metrics of an operation that reads one tensor and writes one of the same size.

    GB/s = 2 · numel · bytes_per_element / (ms · 10^6); TFLOP/s is 0, since bandwidth is the limit.

    Args:
        numel: Elements of the tensor.
        latency_ms: Milliseconds per call; 0 counts as 1e-9.
        bytes_per_element: Bytes of an element of input and output.
        peak_bandwidth_gbps: As in `PerformanceProfile.metrics`.

    Raises:
        SettingsError: A size is not a positive integer, or another number is negative, NaN or
            infinite; it is a ValueError as well.
    """
    return PerformanceProfile.elementwise(numel, bytes_per_element).metrics(latency_ms, peak_bandwidth_gbps)


def _live_bandwidth_gbps() -> float:
    return probe().bandwidth_gbps or A100_BANDWIDTH_GBPS


def _sizes(M: Any, N: Any, K: Any, bytes_per_element: Any) -> tuple[int, int, int, int]:
    return (_positive("M", M), _positive("N", N), _positive("K", K), _positive("bytes_per_element", bytes_per_element))


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise SettingsError(f"{name} is {value!r}; it must be a positive integer", hint=f"pass int({name})")
    return int(value)


def _latency(value: Any) -> float:
    return _finite("latency_ms", value, "0 or more, in milliseconds", least=0.0) or SHORTEST_MS


def _peak(name: str, value: Any) -> float | None:
    least = math.nextafter(0.0, 1.0)
    return None if value is None else _finite(name, value, "positive, or None for the device's own", least)


def _finite(name: str, value: Any, words: str, least: float) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < least:
        raise SettingsError(
            f"{name} is {value!r}; it must be a finite number, {words}", hint=f"check where {name} comes from"
        )
    return float(value)
