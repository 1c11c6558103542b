"""The documented import path of `TritonAutoTuner`, of its result and its metrics."""

from triton_ops.benchmark import PerformanceProfile as PerformanceProfile
from triton_ops.benchmark import TritonAutoTuner as TritonAutoTuner
from triton_ops.benchmark import compute_elementwise_metrics as compute_elementwise_metrics
from triton_ops.benchmark import compute_gemm_metrics as compute_gemm_metrics
from triton_ops.values import KernelMetrics as KernelMetrics
from triton_ops.values import TuningResult as TuningResult
