"""`BenchmarkSuite`: kernels checked first, then timed, alone or in turn with a baseline."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from triton_ops._faces import Upward
from triton_ops.backend import Arguments
from triton_ops.base import Host, StoredFile
from triton_ops.benchmark.auto_tuner import PerformanceProfile, metrics_of
from triton_ops.benchmark.comparing import compare
from triton_ops.benchmark.correctness import CorrectnessVerifier
from triton_ops.benchmark.judging import judged_call
from triton_ops.benchmark.timing import counted_times
from triton_ops.device import TorchDevice, probe
from triton_ops.exceptions import SettingsError, WrongResultError
from triton_ops.request import device_of
from triton_ops.timing import DuelPolicy
from triton_ops.values import KernelMetrics

FORMATS = ("text", "json")


@dataclass(frozen=True)
class BenchmarkResult:
    """The time of one kernel at one problem, after its result was found right.

    Attributes:
        config: What the caller says of the kernel's config; empty if nothing.
    """

    kernel_name: str  # the kernel
    problem_size: tuple[Any, ...]  # extents of the problem, as the caller names them
    metrics: KernelMetrics  # latency, throughput and bandwidth
    _: KW_ONLY
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    mode: str = "host"  # the clock and the state of the cache, such as `host` or `graph-cold`
    samples: int = 0  # how many samples were taken


@dataclass(frozen=True)
class ComparisonResult:
    """A kernel beside a baseline, timed in turn, after their results were found to agree.

    Attributes:
        config: What the caller says of the kernel's config; empty if nothing.
    """

    kernel_name: str  # the kernel
    problem_size: tuple[Any, ...]  # extents of the problem, as the caller names them
    triton: KernelMetrics  # metrics of the kernel
    pytorch: KernelMetrics  # metrics of the baseline
    _: KW_ONLY
    speedup: float  # the baseline's time divided by the kernel's
    interval: tuple[float, float]  # 95 % interval of the speedup, by resampling rounds
    verdict: str  # `faster`, `slower` or `not distinguishable`
    confidence: str = "ok"  # `ok`, or in words why the verdict should not be relied on
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    mode: str = "host"  # the clock and the state of the cache
    rounds: int = 0  # in how many rounds both were measured


class PerformanceReport:
    """Collects results, and writes them with the environment that they were taken in.

    Args:
        title: The report's first line.
        now: Gives the time of the report; None is the system's clock.

    Attributes:
        results: The results, in the order in which they were added.
        comparisons: The comparisons, likewise.
        metadata: What `set_metadata` was given.

    Raises:
        SettingsError: The title is no text.
    """

    def __init__(self, title: str = "Performance", now: Any = None) -> None:
        if not isinstance(title, str):
            raise SettingsError(f"title is {title!r}; it must be a text")
        self.title = title
        self.results: list[BenchmarkResult] = []
        self.comparisons: list[ComparisonResult] = []
        self.metadata: dict[str, Any] = {}
        self._now = now or (lambda: datetime.datetime.now(datetime.timezone.utc))

    def add_result(self, result: BenchmarkResult) -> None:
        """Add a result.

        Raises:
            SettingsError: It is no `BenchmarkResult`.
        """
        _check_kind(result, BenchmarkResult)
        self.results.append(result)

    def add_comparison(self, comparison: ComparisonResult) -> None:
        """Add a comparison.

        Raises:
            SettingsError: It is no `ComparisonResult`.
        """
        _check_kind(comparison, ComparisonResult)
        self.comparisons.append(comparison)

    def set_metadata(self, key: str, value: Any) -> None:
        """Say something about the run, such as a branch; the value must be one that JSON can hold.

        Raises:
            SettingsError: JSON cannot hold it, or the key is no text.
        """
        if not isinstance(key, str):
            raise SettingsError(f"the key of metadata is {key!r}; it must be a text")
        with SettingsError.when(f"metadata {key!r} cannot be written as JSON", "", TypeError, ValueError):
            json.dumps(value, allow_nan=False)
        self.metadata[key] = value

    def generate_text_report(self) -> str:
        """The report for people: environment, results, comparisons."""
        head = [self.title, "=" * len(self.title), *(f"{k}: {v}" for k, v in self._environment().items()), ""]
        rows = [f"{_head(one)}: {one.metrics}{_config(one)}, {one.mode}" for one in self.results]
        rows += map(_comparison_row, self.comparisons)
        return "\n".join([*head, *(rows or ["no results"]), ""])

    def generate_json_report(self) -> str:
        """The report for programs: an object with `title`, `environment`, `results` and `comparisons`."""
        rows = {"results": [*map(asdict, self.results)], "comparisons": [*map(asdict, self.comparisons)]}
        document = {"title": self.title, "environment": self._environment(), **rows}
        plain = json.loads(json.dumps(document, default=str), parse_constant=lambda text: repr(float(text)))
        return json.dumps(plain, indent=2, allow_nan=False)  # what JSON does not have is a text

    def generate(self, format: str = "text") -> str:
        """The report as `text` or `json`.

        Raises:
            SettingsError: The format is neither.
        """
        if format not in FORMATS:
            raise SettingsError(f"format is {format!r}; it must be {' or '.join(map(repr, FORMATS))}")
        return self.generate_text_report() if format == "text" else self.generate_json_report() + "\n"

    def save(self, filepath: str | Path, format: str = "text") -> None:
        """Write the report to a file; folders that are missing are made.

        Raises:
            SettingsError: The format is neither `text` nor `json`, or `filepath` is no path.
            OSError: The file cannot be written.
        """
        if not isinstance(filepath, (str, os.PathLike)):
            raise SettingsError(f"filepath is {filepath!r}; it must be a path")
        content, path = self.generate(format), Path(filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        StoredFile(path).replace(content)

    def _environment(self) -> dict[str, Any]:
        software = {name: version for name, version in Host.versions().items() if version}
        date = self._now().isoformat(timespec="seconds")
        return {"date": date, "device": probe(None).name, **software, **self.metadata}


def _comparison_row(comparison: ComparisonResult) -> str:
    low, high = comparison.interval
    doubt = "" if comparison.confidence == "ok" else f"; low confidence: {comparison.confidence}"
    return (
        f"{_head(comparison)}: {comparison.triton.latency_ms:.4g} ms, baseline {comparison.pytorch.latency_ms:.4g} ms, "
        f"{comparison.speedup:.3f} times as fast ({low:.3f} to {high:.3f}), {comparison.verdict}{_config(comparison)}, "
        f"{comparison.rounds} rounds, {comparison.mode}{doubt}"
    )


def _head(result: BenchmarkResult | ComparisonResult) -> str:
    return f"{result.kernel_name} {'x'.join(map(str, result.problem_size))}"


def _config(result: BenchmarkResult | ComparisonResult) -> str:
    texts = [f"{name}={value}" for name, value in result.config.items()]
    return f" ({' '.join(texts)})" if texts else ""


def _check_kind(entry: Any, kind: type) -> None:
    if not isinstance(entry, kind):
        raise SettingsError(f"a {type(entry).__name__} was added; it must be a {kind.__name__}")


Metrics = Callable[[float], KernelMetrics]
_Case = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]
_WORK: dict[str, Callable[..., PerformanceProfile]] = {
    "fused_rmsnorm_rope": lambda item, *extents: PerformanceProfile.elementwise(math.prod(extents[:3]), item),
    "fused_gated_mlp": lambda item, batch, seq, k, n: PerformanceProfile.gated_mlp(batch * seq, n, k, item),
    "fp8_gemm": lambda item, m, n, k: PerformanceProfile.gemm(m, n, k, item),
}
"""The work of each documented kernel by the bytes of an element and its extents."""
_CASE = Upward[Callable[[str, tuple[int, ...], str, str], _Case]]("a benchmark of a shipped kernel")
_metrics = partial(metrics_of, name="compute_metrics_fn")
_ROUNDS = 24  # of a comparison with the default number of runs


class BenchmarkSuite:
    """Benchmarks that check results before they take times, and remember what they found for a report.

    A result is right if it is by the rule for verdicts, as in a tune, or if every element is within the tolerances.

    Args:
        warmup_runs: Untimed calls before the timed ones, 0 or more.
        benchmark_runs: Timed samples, 1 or more. A comparison takes its own number of rounds from it: a quarter, and
            from 6 to 24.
        rtol: Relative error that an element may have.
        atol: Error that an element may have whatever its size.

    Attributes:
        report: What was found so far.
        verifier: Compares results.

    Raises:
        SettingsError: A number is out of range.
    """

    def __init__(
        self, warmup_runs: int = 10, benchmark_runs: int = 100, rtol: float = 1e-3, atol: float = 1e-5
    ) -> None:
        self.warmup_runs = int(SettingsError.checked("warmup_runs", warmup_runs, 0, whole=True))
        self.benchmark_runs = int(SettingsError.checked("benchmark_runs", benchmark_runs, 1, whole=True))
        self.verifier = CorrectnessVerifier(rtol, atol)
        self.report = PerformanceReport("Benchmarks")

    def benchmark_kernel(
        self,
        kernel_fn: Callable[..., Any],
        reference_fn: Callable[..., Any],
        name: str,
        problem_size: Iterable[Any],
        *args: Any,
        config: Mapping[str, Any] | None = None,
        compute_metrics_fn: Metrics | None = None,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Check a kernel against a reference, time it, and check it again.

        Args:
            kernel_fn: Called as `kernel_fn(*args, **kwargs)`; returns its result.
            reference_fn: Called likewise.
            name: The kernel's name in the report.
            problem_size: Extents for the report.
            *args: Positional arguments of both.
            config: What the report says of the kernel's config; it is not passed on.
            compute_metrics_fn: From milliseconds to metrics; None gives the latency alone.
            **kwargs: Keyword arguments of both.

        Raises:
            SettingsError: An argument of this method does not fit; nothing was called.
            WrongResultError: The result is wrong, or there is none to compare. It is a ValueError as well.
            Exception: Whatever the kernel or the reference raises.

        Cost: twice the check's calls and copies, and `warmup_runs + benchmark_runs` samples.
        """
        size = _report_size(name, problem_size, config, compute_metrics_fn)
        self._check(name, kernel_fn, reference_fn, Arguments(args, kwargs))
        measurement = counted_times(kernel_fn, args, kwargs, warmup_runs=self.warmup_runs, runs=self.benchmark_runs)
        self._check(name, kernel_fn, reference_fn, Arguments(args, kwargs))  # some go wrong only later
        result = BenchmarkResult(
            name, size, _metrics(measurement, compute_metrics_fn),
            config=dict(config or {}), mode=measurement.mode, samples=len(measurement.samples_ms),
        )  # fmt: skip
        self.report.add_result(result)
        return result

    def compare_with_pytorch(
        self,
        kernel_fn: Callable[..., Any],
        pytorch_fn: Callable[..., Any],
        name: str,
        problem_size: Iterable[Any],
        *args: Any,
        config: Mapping[str, Any] | None = None,
        compute_metrics_fn: Metrics | None = None,
        **kwargs: Any,
    ) -> ComparisonResult:
        """Check a kernel against a baseline, time both in turn, in rounds of random order, and check it again.

        Args:
            kernel_fn: Called as `kernel_fn(*args, **kwargs)`; returns its result.
            pytorch_fn: The baseline, called likewise.
            name: The kernel's name in the report.
            problem_size: Extents for the report.
            *args: Positional arguments of both.
            config: What the report says of the kernel's config; it is not passed on.
            compute_metrics_fn: From milliseconds to metrics, for both; None gives latencies alone.
            **kwargs: Keyword arguments of both.

        Raises:
            SettingsError: An argument of this method does not fit; nothing was called.
            WrongResultError: The results differ, or there is none to compare. It is a ValueError as well.
            Exception: Whatever one of them raises.

        Cost: twice the check's calls and copies, and the times of `compare`.
        """
        size = _report_size(name, problem_size, config, compute_metrics_fn)
        self._check(name, kernel_fn, pytorch_fn, Arguments(args, kwargs))
        rounds = min(_ROUNDS, max(DuelPolicy.LEAST_ROUNDS, self.benchmark_runs // 4))
        names = (name, "baseline")
        comparison = compare(kernel_fn, pytorch_fn, args=args, kwargs=kwargs, names=names, rounds=rounds, check=False)
        self._check(name, kernel_fn, pytorch_fn, Arguments(args, kwargs))
        result = ComparisonResult(
            name, size, *(_metrics(times, compute_metrics_fn) for times in (comparison.a, comparison.b) if times),
            speedup=comparison.speedup, interval=comparison.speedup_interval, verdict=comparison.verdict,
            confidence=comparison.confidence, config=dict(config or {}), mode=comparison.mode, rounds=comparison.rounds,
        )  # fmt: skip
        self.report.add_comparison(result)
        return result

    def benchmark_rmsnorm_rope(
        self, sizes: Iterable[tuple[int, int, int, int]], dtype: str = "float16", device: str = "cuda"
    ) -> list[ComparisonResult]:
        """Compare `fused_rmsnorm_rope` with eager PyTorch at problems of (batch, seq, hidden, head size).

        Raises:
            SettingsError, DeviceError: The problems have other extents, or the device is not there.
        """
        return self._beside("fused_rmsnorm_rope", sizes, 4, dtype, device)

    def benchmark_gated_mlp(
        self, sizes: Iterable[tuple[int, int, int, int]], dtype: str = "float16", device: str = "cuda"
    ) -> list[ComparisonResult]:
        """Compare `fused_gated_mlp` with eager PyTorch at problems of (batch, seq, hidden, intermediate).

        Raises:
            SettingsError, DeviceError: The problems have other extents, or the device is not there.
        """
        return self._beside("fused_gated_mlp", sizes, 4, dtype, device)

    def benchmark_fp8_gemm(self, sizes: Iterable[tuple[int, int, int]], device: str = "cuda") -> list[ComparisonResult]:
        """Compare `fp8_gemm` with `torch._scaled_mm`, both with promoted sums, at problems of (M, N, K).

        Raises:
            SettingsError, DeviceError: The problems have other extents, or the device is not there.
        """
        return self._beside("fp8_gemm", sizes, 3, "float8_e4m3fn", device)

    def generate_report(self, format: str = "text") -> str:
        """The report as `text` or `json`.

        Raises:
            SettingsError: The format is neither.
        """
        return self.report.generate(format)

    def save_report(self, filepath: str | Path, format: str = "text") -> None:
        """Write the report to a file.

        Raises:
            SettingsError: The format is neither `text` nor `json`.
            OSError: The file cannot be written.
        """
        self.report.save(filepath, format)

    def _beside(self, name: str, sizes: Any, extents: int, dtype: str, device: str) -> list[ComparisonResult]:
        """The public function of a shipped kernel beside a plain one, at each problem of so many extents."""
        problems = list(sizes) if isinstance(sizes, Iterable) else None
        if problems is None or any(not isinstance(each, (tuple, list)) or len(each) != extents for each in problems):
            raise SettingsError(f"sizes is {sizes!r}; it must be a list of problems, each of {extents} extents")
        if problems:
            probe(device)
        comparisons = []
        for size in problems:
            kernel, plain, tensors = _CASE.function(name, size, dtype, device)
            profile = _WORK[name](next(iter(tensors.values())).element_size(), *size)
            comparisons.append(
                self.compare_with_pytorch(kernel, plain, name, size, compute_metrics_fn=profile.metrics, **tensors)
            )
        return comparisons

    def _check(
        self, name: str, kernel_fn: Callable[..., Any], reference_fn: Callable[..., Any], arguments: Arguments
    ) -> None:
        for function in (kernel_fn, reference_fn):
            if not callable(function):
                raise SettingsError(f"{function!r} is not callable")
        with TorchDevice(device_of(arguments, None)).current():
            results, how = judged_call(kernel_fn, reference_fn, arguments)
            if results == [None]:
                message = f"{name} returns None: there is no result to compare"
                raise WrongResultError(message, hint="return the tensor that it writes")
            if not how:
                return
            others, _ = judged_call(reference_fn, None, arguments)
        near = len(results) == len(others) and all(
            hasattr(a, "shape") and hasattr(b, "shape") and self.verifier.verify_allclose(a, b)
            for a, b in zip(results, others, strict=True)
        )
        if not near:
            raise WrongResultError(f"{name} gives a wrong result: {how}", hint="no time counts; correct it first")


def _report_size(name: Any, problem_size: Any, config: Any, compute: Any) -> tuple[Any, ...]:
    """The extents for the report, if everything that is only for the report fits."""
    if not isinstance(name, str):
        raise SettingsError(f"name is {name!r}; it must be a text")
    if isinstance(problem_size, (str, bytes)) or not isinstance(problem_size, Iterable):
        raise SettingsError(f"problem_size is {problem_size!r}; it must be extents", hint="such as (4096, 4096)")
    if config is not None and not isinstance(config, Mapping):
        raise SettingsError(f"config is {config!r}; it must be a mapping from names to values")
    if compute is not None and not callable(compute):
        raise SettingsError(f"compute_metrics_fn is {compute!r}; it must be a function from milliseconds to metrics")
    return tuple(problem_size)
