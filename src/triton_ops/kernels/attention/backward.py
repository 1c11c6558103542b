"""The gradient of attention: the operation `attention_backward`, which autograd launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import triton_ops.kernels.attention.problems as problems
from triton_ops.backend import LauncherKernel
from triton_ops.base import require
from triton_ops.kernels import call
from triton_ops.kernels.attention.kernel import LOG2_E, dkv_kernel, dq_kernel, inner_kernel
from triton_ops.kernels.tiles import padded

_ROWS = 32  # rows of a program that multiplies the result with its gradient


def launch(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    grad: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    scale: float,
    CAUSAL: bool,
    PRECISION: str,
    Q_ROWS: int,
    Q_KEYS: int,
    K_KEYS: int,
    K_ROWS: int,
    num_warps: int,
    num_stages: int,
) -> None:
    """Write dq, dk and dv, contiguous, in three launches.

    `lse` is contiguous; other inputs have neighbours along their last axis. A program makes Q_ROWS rows of dq in steps
    of Q_KEYS keys, or K_KEYS keys of dk and dv in steps of K_ROWS rows; num_stages are the steps in flight, and one.
    """
    torch = require("torch", "the gradient of attention")
    (batch, heads, queries, head_dim), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    group, rows = heads // kv_heads, batch * heads * queries
    inner = q.new_empty((batch, heads, queries), dtype=torch.promote_types(q.dtype, torch.float32))
    sizes = {"VALUE_DIM": value_dim, "BLOCK_V": padded(value_dim, 16)}
    inner_kernel[(-(-rows // _ROWS),)](
        out, grad, inner, rows, heads, queries, *out.stride()[:3], *grad.stride()[:3], **sizes, ROWS=_ROWS
    )
    strides = [step for each in (q, k, v, grad) for step in each.stride()[:3]]
    known = {
        "CAUSAL": CAUSAL, "PRECISION": PRECISION, "GROUP": group, "HEAD_DIM": head_dim,
        "BLOCK_D": padded(head_dim, 16), **sizes, "num_warps": num_warps, "num_stages": num_stages,
    }  # fmt: skip
    shape = kv_heads, queries, keys
    dq_kernel[(-(-queries * group // Q_ROWS) * batch * kv_heads,)](
        q, k, v, grad, lse, inner, dq, *shape, *strides, scale, scale * LOG2_E,
        RAGGED=keys % Q_KEYS != 0, BLOCK_M=Q_ROWS, BLOCK_N=Q_KEYS, **known,
    )  # fmt: skip
    dkv_kernel[(-(-keys // K_KEYS) * batch * kv_heads,)](
        q, k, v, grad, lse, inner, dk, dv, *shape, *strides, scale, scale * LOG2_E,
        RAGGED=queries * group % K_ROWS != 0, BLOCK_M=K_ROWS, BLOCK_N=K_KEYS, **known,
    )  # fmt: skip


_GRADIENT = call.ShippedKernel.of(
    "attention_backward", LauncherKernel(launch, outputs=("dq", "dk", "dv")), problems, part="gradient"
)
operation = _GRADIENT.operation


def gradient(
    tensors: Sequence[Any], grad: Any, needs: Sequence[bool], causal: bool, scale: float | None
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v, None for one that is not needed.

    `tensors` are q, k, v, the result and the logarithms of its sums.
    """
    q, k, v, out, lse = tensors
    gradients = dict(zip(("dq", "dk", "dv"), (each.new_zeros(each.shape) for each in (q, k, v)), strict=True))
    if call.launches(out) and k.shape[2]:
        values = {
            "q": q, "k": k, "v": v, "out": out, "lse": lse,
            "grad": grad if grad.stride(3) == 1 else grad.contiguous(), **gradients,
            "scale": scale or 1 / math.sqrt(q.shape[3]), "CAUSAL": causal, "PRECISION": call.precision_of(q),
        }  # fmt: skip
        _GRADIENT.run(values, q.device)
    return tuple(each if need else None for each, need in zip(gradients.values(), needs, strict=True))  # type: ignore[return-value]
