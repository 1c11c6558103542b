"""The shipped kernels: one folder per kernel, imported when it is asked for.

Every folder has the same files: `kernel` (Triton code and grid), `space` (tunables, constraints and default config),
`reference` (plain PyTorch), `problems` (arguments, work and named shapes), and `__init__` with the public function and
the `operation` for tuners. Where a kernel has a gradient, `backward` has it, an operation of its own; where it has an
`nn.Module`, `module` has that. The import of this package imports neither torch nor Triton.

The folder `winners` holds the winners that come with the package: a lockfile for each device.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import cast

from triton_ops.backend import Operation
from triton_ops.cache import share_lockfile
from triton_ops.exceptions import TargetError

_MODULES = {
    "attention": "attention",
    "attention_backward": "attention.backward",
    "fp8_dequantize": "fp8_quantize.dequantize",
    "fp8_gemm": "fp8_gemm",
    "fp8_quantize": "fp8_quantize",
    "gated_mlp": "gated_mlp",
    "gated_mlp_backward": "gated_mlp.backward",
    "grouped_matmul": "grouped_matmul",
    "layer_norm": "layer_norm",
    "layer_norm_backward": "layer_norm.backward",
    "matmul": "matmul",
    "rmsnorm_rope": "rmsnorm_rope",
    "rmsnorm_rope_backward": "rmsnorm_rope.backward",
    "softmax": "softmax",
    "softmax_backward": "softmax.backward",
}
WINNERS = Path(__file__).parent / "winners"
for _path in sorted(WINNERS.glob("*.lock.json")):
    share_lockfile(_path)


def names() -> tuple[str, ...]:
    """The names of the kernels that `load` knows."""
    return tuple(_MODULES)


def load(name: str) -> Operation:
    """The operation of the kernel called `name`; the first call imports torch and Triton.

    Raises:
        TargetError: No shipped kernel has this name.
        MissingDependencyError: Triton is not installed.
    """
    if name not in _MODULES:
        known = ", ".join(_MODULES)
        raise TargetError(f"no shipped kernel is called {name!r}; there are {known}", hint="use one of these names")
    return cast("Operation", importlib.import_module(f"{__name__}.{_MODULES[name]}").operation)
