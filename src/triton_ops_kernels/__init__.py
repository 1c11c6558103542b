"""The shipped kernels: one folder per kernel, imported when it is asked for.

Every folder has the same files: `kernel` (Triton code and grid), `problems` (arguments, work, named shapes, config
spaces, and the reference in plain PyTorch), and `__init__` with the public function, the checks of its arguments and
the `operation` for tuners. Where a kernel has a gradient, `backward` has it, an operation of its own. The import of
this package imports neither torch nor Triton.

The folder `winners` holds the winners that come with the package: a lockfile for each device. They are of kernels of
the same names and content, wherever a part of a kernel lies.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from triton_ops._faces import lazy_face
from triton_ops.exceptions import TargetError
from triton_ops.records import share_lockfile

with lazy_face(__name__):
    from triton_ops_kernels.attention import flash_attention as flash_attention
    from triton_ops_kernels.attention import flash_attention_with_lse as flash_attention_with_lse
    from triton_ops_kernels.call import validate_eps as validate_eps
    from triton_ops_kernels.call import validate_head_dim as validate_head_dim
    from triton_ops_kernels.call import validate_positive_dimensions as validate_positive_dimensions
    from triton_ops_kernels.choosers import chooser as chooser
    from triton_ops_kernels.command_kernels import bench_kernels as bench_kernels
    from triton_ops_kernels.composed import FormsKernel as FormsKernel
    from triton_ops_kernels.composed import StagedKernel as StagedKernel
    from triton_ops_kernels.fp8_format import FP8Format as FP8Format
    from triton_ops_kernels.fp8_quantize import dequantize_fp8 as dequantize_fp8
    from triton_ops_kernels.fp8_quantize import quantize_fp8 as quantize_fp8
    from triton_ops_kernels.fp8_quantize import (
        quantize_fp8_with_overflow_handling as quantize_fp8_with_overflow_handling,
    )
    from triton_ops_kernels.gated_mlp import fused_gated_mlp as fused_gated_mlp
    from triton_ops_kernels.modules import FP8Linear as FP8Linear
    from triton_ops_kernels.modules import FusedGatedMLP as FusedGatedMLP
    from triton_ops_kernels.modules import FusedRMSNormRoPE as FusedRMSNormRoPE
    from triton_ops_kernels.rivals import documented_case as documented_case
    from triton_ops_kernels.rmsnorm_rope import fused_rmsnorm_rope as fused_rmsnorm_rope

_WITH_GRADIENT = ("attention", "gated_mlp", "layer_norm", "rmsnorm_rope", "softmax")
_SHIPPED = dict(sorted({
    **{name: (name, "operation") for name in (*_WITH_GRADIENT, "fp8_gemm", "fp8_quantize", "grouped_matmul", "matmul")},
    **{f"{name}_backward": (name, "gradient_operation") for name in _WITH_GRADIENT},
    "fp8_dequantize": ("fp8_quantize", "dequantize_operation"),
}.items()))  # fmt: skip
"""For each kernel the module in this folder, and its operation's name there."""
KNOWN_BY_CONTENT = True  # `Home` of `backend` asks for it
WINNERS = Path(__file__).parent / "winners"
for _path in sorted(WINNERS.glob("*.lock.json")):
    share_lockfile(_path)


def names() -> tuple[str, ...]:
    """The names of the kernels that `load` knows."""
    return tuple(_SHIPPED)


def load(name: str, part: str = "") -> Any:
    """The operation of the kernel called `name`, or another `part` of its module; the first call imports Triton.

    Raises:
        TargetError: No shipped kernel has this name.
        MissingDependencyError: Triton is not installed.
    """
    if name not in _SHIPPED:
        choices = ", ".join(_SHIPPED)
        raise TargetError(f"no shipped kernel is called {name!r}; there are {choices}", hint="use one of these names")
    module, operation = _SHIPPED[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), part or operation)
