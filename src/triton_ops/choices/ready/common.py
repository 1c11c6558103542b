"""What the predicates of the ready-made choosers have in common, and where kernels of this package are found."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from triton_ops._optional import require
from triton_ops.exceptions import MissingDependencyError

WIDE, NARROW = ("torch.float32", "torch.float16", "torch.bfloat16"), ("torch.float16", "torch.bfloat16")


def kernel_module(name: str) -> Any:
    """The module of a shipped kernel; None without Triton."""
    try:
        return importlib.import_module(f"triton_ops.kernels.{name}")
    except MissingDependencyError:
        return None


def torch_() -> Any:
    """Torch."""
    return require("torch", "a chooser of its operations")


def on_gpu(tensor: Any) -> str | None:
    """Why the kernels of this package do not take a tensor where it is; None if they do."""
    interpreted = kernel_module("jit")
    if tensor.is_cuda or (interpreted is not None and interpreted.INTERPRETED):
        return None
    return f"the tensors are on {tensor.device}, and the kernel runs on a GPU"


def first_reason(reasons: Iterable[str | None]) -> str | bool:
    """What a predicate returns: the first reason, or True if there is none."""
    return next((reason for reason in reasons if reason), True)


def of_dtype(tensor: Any, allowed: Iterable[str]) -> str | None:
    """Why a dtype is not taken; None if it is."""
    listed = tuple(allowed)
    return None if str(tensor.dtype) in listed else f"it is {tensor.dtype}, not {' or '.join(listed)}"
