"""Comparison of callables: which is faster, how long one takes, the documented benchmarks."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.benchmark.command_bench import bench_command as bench_command
    from triton_ops.benchmark.comparing import Comparison as Comparison
    from triton_ops.benchmark.comparing import compare as compare
    from triton_ops.benchmark.comparing import compare_contestants as compare_contestants
    from triton_ops.benchmark.comparing import duel_policy as duel_policy
    from triton_ops.benchmark.comparing import rounds_bar as rounds_bar
    from triton_ops.benchmark.contestant import Contestant as Contestant
    from triton_ops.benchmark.correctness import CorrectnessVerifier as CorrectnessVerifier
    from triton_ops.benchmark.correctness import verify_fp8_accuracy as verify_fp8_accuracy
    from triton_ops.benchmark.correctness import verify_nan_inf_propagation as verify_nan_inf_propagation
    from triton_ops.benchmark.inductor_table import beside_own as beside_own
    from triton_ops.benchmark.kernels import KernelRow as KernelRow
    from triton_ops.benchmark.kernels import KernelRun as KernelRun
    from triton_ops.benchmark.kernels import rows_of as rows_of
    from triton_ops.benchmark.suite import BenchmarkResult as BenchmarkResult
    from triton_ops.benchmark.suite import BenchmarkSuite as BenchmarkSuite
    from triton_ops.benchmark.suite import ComparisonResult as ComparisonResult
    from triton_ops.benchmark.suite import PerformanceReport as PerformanceReport
    from triton_ops.benchmark.timing import Times as Times
    from triton_ops.benchmark.timing import time_ms as time_ms
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
