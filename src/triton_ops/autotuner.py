"""The documented import path of `TritonAutoTuner` with its cache, its spaces of configs and its metrics."""

from __future__ import annotations

from triton_ops.benchmark import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
from triton_ops.benchmark import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
from triton_ops.benchmark import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
from triton_ops.benchmark import ConfigCache as ConfigCache
from triton_ops.benchmark import PerformanceProfile as PerformanceProfile
from triton_ops.benchmark import TritonAutoTuner as TritonAutoTuner
from triton_ops.benchmark import compute_elementwise_metrics as compute_elementwise_metrics
from triton_ops.benchmark import compute_gemm_metrics as compute_gemm_metrics
from triton_ops.benchmark import filter_valid_configs as filter_valid_configs
from triton_ops.benchmark import generate_configs as generate_configs
from triton_ops.benchmark import get_default_config as get_default_config
from triton_ops.values import KernelMetrics as KernelMetrics
from triton_ops.values import TuningResult as TuningResult
