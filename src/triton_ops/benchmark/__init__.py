"""Which of two callables is faster, operations beside rivals, the documented benchmarks and the documented tuner."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.benchmark.auto_tuner import PerformanceProfile as PerformanceProfile
    from triton_ops.benchmark.auto_tuner import TritonAutoTuner as TritonAutoTuner
    from triton_ops.benchmark.auto_tuner import compute_elementwise_metrics as compute_elementwise_metrics
    from triton_ops.benchmark.auto_tuner import compute_gemm_metrics as compute_gemm_metrics
    from triton_ops.benchmark.call_profile import Advice as Advice
    from triton_ops.benchmark.call_profile import profile_of as profile_of
    from triton_ops.benchmark.checking import Check as Check
    from triton_ops.benchmark.checking import check as check
    from triton_ops.benchmark.command_bench import bench_command as bench_command
    from triton_ops.benchmark.command_check import check_command as check_command
    from triton_ops.benchmark.comparing import Comparison as Comparison
    from triton_ops.benchmark.comparing import compare as compare
    from triton_ops.benchmark.correctness import CorrectnessVerifier as CorrectnessVerifier
    from triton_ops.benchmark.correctness import verify_fp8_accuracy as verify_fp8_accuracy
    from triton_ops.benchmark.correctness import verify_nan_inf_propagation as verify_nan_inf_propagation
    from triton_ops.benchmark.plain_configs import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
    from triton_ops.benchmark.plain_configs import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
    from triton_ops.benchmark.plain_configs import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
    from triton_ops.benchmark.plain_configs import ConfigCache as ConfigCache
    from triton_ops.benchmark.plain_configs import filter_valid_configs as filter_valid_configs
    from triton_ops.benchmark.plain_configs import generate_configs as generate_configs
    from triton_ops.benchmark.plain_configs import get_default_config as get_default_config
    from triton_ops.benchmark.rivals import RivalRow as RivalRow
    from triton_ops.benchmark.rivals import RivalRun as RivalRun
    from triton_ops.benchmark.rivals import check_result as check_result
    from triton_ops.benchmark.rivals import fastest_right as fastest_right
    from triton_ops.benchmark.suite import BenchmarkResult as BenchmarkResult
    from triton_ops.benchmark.suite import BenchmarkSuite as BenchmarkSuite
    from triton_ops.benchmark.suite import ComparisonResult as ComparisonResult
    from triton_ops.benchmark.suite import PerformanceReport as PerformanceReport
    from triton_ops.benchmark.timing import Times as Times
    from triton_ops.benchmark.timing import time_ms as time_ms
