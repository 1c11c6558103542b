"""The documented import path of `TritonAutoTuner` with its cache, its spaces of configs and its metrics.

The page of the API divides it into `triton_ops.autotuner.tuner` and `triton_ops.autotuner.configs`; both are this
module, so that code that is written as there finds its names.
"""

import sys

from triton_ops import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
from triton_ops import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
from triton_ops import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
from triton_ops import ConfigCache as ConfigCache
from triton_ops import KernelMetrics as KernelMetrics
from triton_ops import PerformanceProfile as PerformanceProfile
from triton_ops import TritonAutoTuner as TritonAutoTuner
from triton_ops import TuningResult as TuningResult
from triton_ops import compute_elementwise_metrics as compute_elementwise_metrics
from triton_ops import compute_gemm_metrics as compute_gemm_metrics
from triton_ops import filter_valid_configs as filter_valid_configs
from triton_ops import generate_configs as generate_configs
from triton_ops import get_default_config as get_default_config

configs = tuner = sys.modules[__name__]
sys.modules |= {f"{__name__}.configs": configs, f"{__name__}.tuner": tuner}
