"""The shipped kernels: a folder each, imported when it is asked for.

Every folder holds the same files: `kernel` (Triton code and grid), `space` (what may be tuned, and the default),
`reference` (plain PyTorch), `problems` (arguments, work and named shapes), and in its `__init__` the public function
and the `operation` for tuners. Importing this package imports neither torch nor Triton.
"""

from __future__ import annotations

import importlib
from typing import cast

from triton_ops.backend import Operation
from triton_ops.exceptions import TargetError

_FOLDERS = ("matmul", "rmsnorm_rope")


def names() -> tuple[str, ...]:
    """The kernels that `load` knows."""
    return _FOLDERS


def load(name: str) -> Operation:
    """The operation of the kernel called `name`; the first call imports torch and Triton.

    Raises:
        TargetError: No shipped kernel has this name.
        MissingDependencyError: Triton is not installed.
    """
    if name not in _FOLDERS:
        known = ", ".join(_FOLDERS)
        raise TargetError(f"no shipped kernel is called {name!r}; there are {known}", hint="use one of these names")
    return cast("Operation", importlib.import_module(f"{__name__}.{name}").operation)
