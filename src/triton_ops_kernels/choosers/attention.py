"""The chooser of attention, `sdpa`: torch's backends one by one, beside the kernel of this package."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from triton_ops.dispatch import Chooser, Implementation
from triton_ops.values import TensorSpec
from triton_ops_kernels.choosers.common import (
    DTYPES,
    NARROW,
    WIDE,
    by_kernel,
    first_reason,
    kernel_module,
    of_dtype,
    on_gpu,
)

_LARGEST_HEAD = 256


def sdpa_chooser() -> Chooser:
    """softmax(scale * q @ k.T) @ v for q [batch, heads, queries, size], k and v [batch, kv heads, keys, size].

    `causal` hides the keys after a query; scale None is 1 / sqrt(size). Heads of q may share heads of k and v.
    """
    implementations = {
        "aten": Implementation(_attention),
        "flash": Implementation(partial(_backend, "FLASH_ATTENTION"), applies=_flash_takes),
        "efficient": Implementation(partial(_backend, "EFFICIENT_ATTENTION"), applies=_efficient_takes),
        "cudnn": Implementation(partial(_backend, "CUDNN_ATTENTION"), applies=_flash_takes),
        "math": Implementation(partial(_backend, "MATH"), applies=_math_takes),
        **by_kernel("attention", _by_kernel, _kernel_takes, _kernel_values),
    }
    return Chooser(
        implementations, name="choose_sdpa",
        schema="(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None) -> Tensor",
        parameters=("q", "k", "v", "causal", "scale"), arguments=_arguments, dtypes=DTYPES,
    )  # fmt: skip


def _arguments(
    batch: int = 4, heads: int = 16, length: int = 1024, size: int = 64, dtype: str = "bfloat16"
) -> dict[str, object]:
    spec = TensorSpec((batch, heads, length, size), dtype)
    return {"q": spec, "k": spec, "v": spec, "causal": True, "scale": None}


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
    shared = bool(q.shape[1] != k.shape[1])  # extents may be symbols, and torch takes none of these here
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=shared)


def _backend(name: str, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
    with sdpa_kernel(getattr(SDPBackend, name)):
        return _attention(q, k, v, causal, scale)


def _flash_takes(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> str | bool:
    return first_reason([_on_cuda(q), of_dtype(q, NARROW), _head(q), _head(v)])


def _efficient_takes(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> str | bool:
    shared = None if q.shape[1] == k.shape[1] else "heads of q share heads of k"
    return first_reason([_on_cuda(q), of_dtype(q, WIDE), shared])


def _math_takes(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> str | bool:
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * 4
    return scores <= 1 << 32 or f"the matrix of scores would take {scores / 2**30:.0f} GiB"


def _kernel_takes(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> str | bool:
    alike = not causal or q.shape[2] == k.shape[2]
    return first_reason([
        on_gpu(q), of_dtype(q, WIDE), _head(q), _head(v),
        None if alike else "it counts hidden keys from the last query, torch from the first",
        None if q.stride(3) == k.stride(3) == v.stride(3) == 1 else "the elements of a head are no neighbours",
    ])  # fmt: skip


def _on_cuda(q: Tensor) -> str | None:
    return None if q.is_cuda else f"the tensors are on {q.device}, and this backend runs on a GPU"


def _head(tensor: Tensor) -> str | None:
    size = tensor.shape[-1]
    return None if size <= _LARGEST_HEAD else f"a head has {size} elements, more than {_LARGEST_HEAD}"


def _by_kernel(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None, *, config: Any = None) -> Any:
    return kernel_module("attention").flash_attention(q, k, v, causal, scale, config=config)


def _kernel_values(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> dict[str, object]:
    own = kernel_module("attention")
    return own.problems.launch_values(q, k, v, own.result_of(q, v.shape[3]), bool(causal), scale)  # type: ignore[no-any-return]
