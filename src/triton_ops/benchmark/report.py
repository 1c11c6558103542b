"""Results of benchmarks, and `PerformanceReport`, which writes them as text and JSON."""

from __future__ import annotations

import datetime
import json
import math
import os
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any

from triton_ops._files import atomic_write
from triton_ops.exceptions import SettingsError
from triton_ops.hardware import probe
from triton_ops.results.record import versions
from triton_ops.trial import KernelMetrics

FORMATS = ("text", "json")


@dataclass(frozen=True)
class BenchmarkResult:
    """The time of one kernel at one problem, after its result was found right.

    Attributes:
        kernel_name: The kernel.
        problem_size: Extents of the problem, as the caller names them.
        metrics: Latency, throughput and bandwidth.
        config: What the caller says of the kernel's config; empty if nothing.
        mode: The clock and the state of the cache, such as `host` or `graph-cold`.
        samples: How many samples were taken.
    """

    kernel_name: str
    problem_size: tuple[Any, ...]
    metrics: KernelMetrics
    _: KW_ONLY
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    mode: str = "host"
    samples: int = 0


@dataclass(frozen=True)
class ComparisonResult:
    """A kernel beside a baseline, timed in turn, after their results were found to agree.

    Attributes:
        kernel_name: The kernel.
        problem_size: Extents of the problem, as the caller names them.
        triton: Metrics of the kernel.
        pytorch: Metrics of the baseline.
        speedup: The baseline's time divided by the kernel's.
        interval: 95 % interval of the speedup, by resampling rounds.
        verdict: `faster`, `slower` or `not distinguishable`.
        confidence: `ok`, or in words why the verdict should not be relied on.
        config: What the caller says of the kernel's config; empty if nothing.
        mode: The clock and the state of the cache.
        rounds: In how many rounds both were measured.
    """

    kernel_name: str
    problem_size: tuple[Any, ...]
    triton: KernelMetrics
    pytorch: KernelMetrics
    _: KW_ONLY
    speedup: float
    interval: tuple[float, float]
    verdict: str
    confidence: str = "ok"
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    mode: str = "host"
    rounds: int = 0


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
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SettingsError(f"metadata {key!r} cannot be written as JSON: {error}") from error
        self.metadata[key] = value

    def generate_text_report(self) -> str:
        """The report for people: environment, results, comparisons."""
        head = [self.title, "=" * len(self.title), *(f"{k}: {v}" for k, v in self._environment().items()), ""]
        rows = [_row(result) for result in self.results] + [_comparison_row(found) for found in self.comparisons]
        return "\n".join([*head, *(rows or ["no results"]), ""])

    def generate_json_report(self) -> str:
        """The report for programs: an object with `title`, `environment`, `results` and `comparisons`."""
        document = {
            "title": self.title,
            "environment": self._environment(),
            "results": [asdict(result) for result in self.results],
            "comparisons": [asdict(found) for found in self.comparisons],
        }
        return json.dumps(_plain(document), indent=2, allow_nan=False)

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
        atomic_write(path, content)

    def _environment(self) -> dict[str, Any]:
        known = {name: version for name, version in versions().items() if version}
        date = self._now().isoformat(timespec="seconds")
        return {"date": date, "device": probe(None).name, **known, **self.metadata}


def _row(result: BenchmarkResult) -> str:
    config = f" ({_config(result.config)})" if result.config else ""
    return f"{result.kernel_name} {_size(result.problem_size)}: {result.metrics}{config}, {result.mode}"


def _comparison_row(found: ComparisonResult) -> str:
    low, high = found.interval
    doubt = "" if found.confidence == "ok" else f"; low confidence: {found.confidence}"
    config = f" ({_config(found.config)})" if found.config else ""
    return (
        f"{found.kernel_name} {_size(found.problem_size)}: {found.triton.latency_ms:.4g} ms, baseline "
        f"{found.pytorch.latency_ms:.4g} ms, {found.speedup:.3f} times as fast ({low:.3f} to {high:.3f}), "
        f"{found.verdict}{config}, {found.rounds} rounds, {found.mode}{doubt}"
    )


def _config(config: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


def _size(extents: tuple[Any, ...]) -> str:
    return "x".join(map(str, extents))


def _check_kind(given: Any, kind: type) -> None:
    if not isinstance(given, kind):
        raise SettingsError(f"a {type(given).__name__} was added; it must be a {kind.__name__}")


def _plain(value: Any) -> Any:
    """The value with what JSON does not have as text."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
