"""The documented import path of `TritonAutoTuner` with its cache, its spaces of configs and its metrics.

The page of the API divides it into `triton_ops.autotuner.tuner` and `triton_ops.autotuner.configs`.
"""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.autotuner.configs import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
    from triton_ops.autotuner.configs import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
    from triton_ops.autotuner.configs import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
    from triton_ops.autotuner.configs import ConfigCache as ConfigCache
    from triton_ops.autotuner.configs import filter_valid_configs as filter_valid_configs
    from triton_ops.autotuner.configs import generate_configs as generate_configs
    from triton_ops.autotuner.configs import get_default_config as get_default_config
    from triton_ops.autotuner.tuner import KernelMetrics as KernelMetrics
    from triton_ops.autotuner.tuner import PerformanceProfile as PerformanceProfile
    from triton_ops.autotuner.tuner import TritonAutoTuner as TritonAutoTuner
    from triton_ops.autotuner.tuner import TuningResult as TuningResult
    from triton_ops.autotuner.tuner import compute_elementwise_metrics as compute_elementwise_metrics
    from triton_ops.autotuner.tuner import compute_gemm_metrics as compute_gemm_metrics
