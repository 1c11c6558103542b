"""The chooser of the softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from triton_ops.dispatch import Chooser, Implementation
from triton_ops.values import TensorSpec
from triton_ops_kernels.choosers.common import DTYPES, WIDE, by_kernel, first_reason, kernel_module, of_dtype, on_gpu


def softmax_chooser() -> Chooser:
    """The softmax of x over one axis, the last if none is named."""
    implementations = {
        "aten": Implementation(_softmax),
        "exponentials": Implementation(_by_hand),
        **by_kernel("softmax", _kernel, _kernel_takes, _kernel_values),
    }
    return Chooser(
        implementations, name="choose_softmax",
        schema="(Tensor x, int dim=-1) -> Tensor", arguments=_arguments, dtypes=DTYPES,
    )  # fmt: skip


def _arguments(rows: int = 4096, columns: int = 4096, dtype: str = "bfloat16") -> dict[str, object]:
    return {"x": TensorSpec((rows, columns), dtype), "dim": -1}


def _softmax(x: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(x, dim)


def _by_hand(x: Tensor, dim: int = -1) -> Tensor:
    """By its definition, in float32."""
    wide = x.double() if x.dtype == torch.float64 else x.float()
    powers = (wide - wide.amax(dim, keepdim=True)).exp_()
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)


def _kernel(x: Tensor, dim: int = -1, *, config: Any = None) -> Any:
    return kernel_module("softmax").softmax(x, config=config)


def _kernel_takes(x: Tensor, dim: int = -1) -> str | bool:
    return first_reason([
        on_gpu(x), of_dtype(x, WIDE),
        None if dim in (-1, x.ndim - 1) else f"the axis is {dim}, not the last one",
        None if x.ndim and x.is_contiguous() else "x has gaps, or no axis",
    ])  # fmt: skip


def _kernel_values(x: Tensor, dim: int = -1) -> dict[str, object]:
    flat = x.view(x.numel() // max(x.shape[-1], 1), x.shape[-1])
    values: dict[str, object] = kernel_module("softmax.problems").launch_values(flat, flat.new_empty(flat.shape))
    return values
