"""Parts of the predicates of ready-made choosers."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from triton_ops.dispatch import Implementation
from triton_ops.exceptions import MissingDependencyError

_log = logging.getLogger("triton_ops")
DTYPES = ("bfloat16", "float16", "float32")
WIDE, NARROW = ("torch.float32", "torch.float16", "torch.bfloat16"), ("torch.float16", "torch.bfloat16")


def kernel_module(name: str) -> Any:
    """The module of a shipped kernel; None without Triton. Torch traces this code, and no import."""
    full = f"triton_ops_kernels.{name}"
    if full in sys.modules:
        return sys.modules[full]
    try:
        return importlib.import_module(full)
    except MissingDependencyError as error:
        _log.info("the kernel %s is no choice here: %s", name, error)
        return None


def by_kernel(
    name: str, function: Callable[..., Any], applies: Callable[..., Any], values: Callable[..., Mapping[str, Any]],
    *, gradient: bool = True,
) -> dict[str, Implementation]:  # fmt: skip
    """The implementation by a shipped kernel, called `triton`; none without Triton."""
    if (kernels := kernel_module(name)) is None:
        return {}
    own = Implementation(function, applies=applies, operation=kernels.operation, values=values, gradient=gradient)
    return {"triton": own}


def outside_of_graphs(function: Any) -> Any:
    """The function, marked as `torch.compiler.disable` marks what is left out of graphs, and no slower to call.

    It is for what changes a setting of the process while it runs, which no graph can hold.
    """
    function._torchdynamo_disable = True
    return function


def on_gpu(tensor: Tensor) -> str | None:
    """The reason why the kernels of this package do not take a tensor where it is; None if they do."""
    interpreted = kernel_module("jit")
    if tensor.is_cuda or (interpreted is not None and interpreted.INTERPRETED):
        return None
    return f"the tensors are on {tensor.device}, and the kernel runs on a GPU"


def first_reason(reasons: Iterable[str | None]) -> str | bool:
    """The answer of a predicate: the first reason, or True if there is none."""
    return next((reason for reason in reasons if reason), True)


def of_dtype(tensor: Tensor, allowed: Iterable[str]) -> str | None:
    """The reason why a dtype is not taken; None if it is."""
    listed = tuple(allowed)
    return None if str(tensor.dtype) in listed else f"it is {tensor.dtype}, not {' or '.join(listed)}"
