"""The documented import path of the checks that the shipped kernels make of their arguments.

Each raises a typed error before any work, in one order: placement, one device, dtypes, layout, then names of
activations, ranks and shapes. The names are imported when they are first used: the contracts need Triton.
"""

from __future__ import annotations

from typing import Any

from triton_ops_kernels import load
from triton_ops_kernels import validate_eps as validate_eps
from triton_ops_kernels import validate_head_dim as validate_head_dim
from triton_ops_kernels import validate_positive_dimensions as validate_positive_dimensions

_CHECKED = ("attention", "fp8_gemm", "fp8_quantize", "gated_mlp", "grouped_matmul", "rmsnorm_rope")
_CHECKS = {f"validate_{name}_inputs": name for name in _CHECKED}

__all__ = ["validate_eps", "validate_head_dim", "validate_positive_dimensions", *_CHECKS]


def __getattr__(name: str) -> Any:
    if name not in _CHECKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(_CHECKS[name], part=name)
