"""The documented import path of `TritonAutoTuner`, of its results, and of what makes metrics of a time."""

from triton_ops import KernelMetrics as KernelMetrics
from triton_ops import PerformanceProfile as PerformanceProfile
from triton_ops import TritonAutoTuner as TritonAutoTuner
from triton_ops import TuningResult as TuningResult
from triton_ops import compute_elementwise_metrics as compute_elementwise_metrics
from triton_ops import compute_gemm_metrics as compute_gemm_metrics
