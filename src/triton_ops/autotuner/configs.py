"""The documented import path of the spaces of configs, and of what makes, filters and chooses configs of them."""

from triton_ops import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
from triton_ops import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
from triton_ops import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
from triton_ops import filter_valid_configs as filter_valid_configs
from triton_ops import generate_configs as generate_configs
from triton_ops import get_default_config as get_default_config
