"""References that close over their tensors and round between their steps, as tests of kernels often do.

Each is made from the arguments of a kernel, and takes no notice of those that it is called with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

Reference = Callable[..., torch.Tensor]


def gated_mlp(arguments: Mapping[str, Any]) -> Reference:
    """Both products are rounded before they are joined."""
    x, gate, up = arguments["x"], arguments["gate_weight"], arguments["up_weight"]
    return lambda **_: functional.silu(x @ gate.mT) * (x @ up.mT)


def attention_rounded(arguments: Mapping[str, Any]) -> Reference:
    """As `attention_with_casts`, with scores that are rounded too."""
    return _attention(arguments, lambda each: each)


def attention_with_casts(arguments: Mapping[str, Any]) -> Reference:
    """Causal; scores in float32, probabilities rounded to the dtype of the values; heads may share keys."""
    return _attention(arguments, lambda each: each.float())


def _attention(arguments: Mapping[str, Any], before_scores: Callable[[torch.Tensor], torch.Tensor]) -> Reference:
    q, k, v, scale = arguments["q"], arguments["k"], arguments["v"], arguments["scale"]
    group, hidden = q.shape[1] // k.shape[1], torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    hidden = hidden.triu(1 + k.shape[2] - q.shape[2])

    def reference(**_: Any) -> torch.Tensor:
        keys, values = (each.repeat_interleave(group, 1) for each in (k, v))
        scores = (before_scores(q) @ before_scores(keys).mT).float() * scale
        return scores.masked_fill(hidden, -math.inf).softmax(-1).to(v.dtype) @ values

    return reference


def layer_norm(arguments: Mapping[str, Any]) -> Reference:
    """The normal rows are rounded before they are scaled and shifted."""
    x, weight, bias, eps = arguments["x"], arguments["weight"], arguments["bias"], arguments["eps"]

    def reference(**_: Any) -> torch.Tensor:
        wide = x.float()
        apart = wide - wide.mean(-1, keepdim=True)
        normal = (apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
        return normal * weight + bias

    return reference


def softmax(arguments: Mapping[str, Any]) -> Reference:
    """Every step is rounded."""
    x = arguments["x"]

    def reference(**_: Any) -> torch.Tensor:
        weights = torch.exp(x - x.amax(-1, keepdim=True))
        return weights / weights.sum(-1, keepdim=True)

    return reference


def grouped_matmul(arguments: Mapping[str, Any]) -> Reference:
    """A product for each group, written into a tensor that is closed over too."""
    x, weight, ends = arguments["x"], arguments["weight"], arguments["ends"]
    result = torch.zeros_like(arguments["out"])

    def reference(**_: Any) -> torch.Tensor:
        start = 0
        for group, end in enumerate(ends.tolist()):
            result[start:end] = x[start:end] @ weight[group]
            start = end
        return result

    return reference


def products(arguments: Mapping[str, Any]) -> Reference:
    """One product."""
    a, b = arguments["a"], arguments["b"]
    return lambda **_: a @ b


CLOSED: tuple[tuple[str, tuple[int, ...], str, Callable[[Mapping[str, Any]], Reference]], ...] = (
    ("gated_mlp", (512, 2048, 2048), "bfloat16", gated_mlp),
    ("attention", (1, 8, 2, 1024, 1024, 128, 128, 2), "bfloat16", attention_rounded),
    ("attention", (1, 8, 2, 1024, 1024, 128, 128, 2), "float16", attention_with_casts),
    ("layer_norm", (1024, 4096), "bfloat16", layer_norm),
    ("layer_norm", (1024, 4096), "float16", layer_norm),
    ("softmax", (2048, 4096), "bfloat16", softmax),
    ("softmax", (2048, 4096), "float16", softmax),
    ("grouped_matmul", (1024, 8, 1024, 2048, 2), "float16", grouped_matmul),
)
"""Name of a shipped kernel, shape, dtype, and what makes the reference."""
