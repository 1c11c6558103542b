"""The documented import path of the checks that the shipped kernels make of their arguments.

Each raises a typed error before any work, in one order: placement, one device, dtypes, layout, then names of
activations, ranks and shapes. The names are imported when they are first used: the contracts need Triton.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from triton_ops.kernels import validate_eps as validate_eps
from triton_ops.kernels import validate_head_dim as validate_head_dim
from triton_ops.kernels import validate_positive_dimensions as validate_positive_dimensions

_CONTRACTS = {
    "validate_attention_inputs": "attention",
    "validate_fp8_gemm_inputs": "fp8_gemm",
    "validate_fp8_quantize_inputs": "fp8_quantize",
    "validate_gated_mlp_inputs": "gated_mlp",
    "validate_grouped_matmul_inputs": "grouped_matmul",
    "validate_rmsnorm_rope_inputs": "rmsnorm_rope",
}

__all__ = ["validate_eps", "validate_head_dim", "validate_positive_dimensions", *_CONTRACTS]


def __getattr__(name: str) -> Any:
    if name not in _CONTRACTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"triton_ops.kernels.{_CONTRACTS[name]}"), name)
