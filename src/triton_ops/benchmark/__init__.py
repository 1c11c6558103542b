"""The documented benchmarks: correctness first, then times taken in turn, and reports of both."""

from triton_ops.benchmark.correctness import CorrectnessVerifier as CorrectnessVerifier
from triton_ops.benchmark.correctness import verify_fp8_accuracy as verify_fp8_accuracy
from triton_ops.benchmark.correctness import verify_nan_inf_propagation as verify_nan_inf_propagation
from triton_ops.benchmark.report import BenchmarkResult as BenchmarkResult
from triton_ops.benchmark.report import ComparisonResult as ComparisonResult
from triton_ops.benchmark.report import PerformanceReport as PerformanceReport
from triton_ops.benchmark.suite import BenchmarkSuite as BenchmarkSuite
