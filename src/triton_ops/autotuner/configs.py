"""The documented import path of the spaces of configs of `TritonAutoTuner`, and of its cache."""

from triton_ops.benchmark import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
from triton_ops.benchmark import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
from triton_ops.benchmark import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
from triton_ops.benchmark import ConfigCache as ConfigCache
from triton_ops.benchmark import filter_valid_configs as filter_valid_configs
from triton_ops.benchmark import generate_configs as generate_configs
from triton_ops.benchmark import get_default_config as get_default_config
