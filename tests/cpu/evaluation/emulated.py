"""Kernels emulated in plain torch as tensor cores compute them, with faults planted; shared by tests of verdicts."""

from __future__ import annotations

import math

import torch

ATTENTION_FAULTS = (
    "last block dropped", "last key dropped", "causal off by one", "no rescale", "stale probabilities", "scale 1 % off",
    "probabilities in float8", "bfloat16 accumulator", "values flipped",
)  # fmt: skip
MATMUL_FAULTS = ("mask off by one", "last block dropped", "bfloat16 accumulator")


def attention_inputs(kind: str, seed: int, length: int = 512, depth: int = 64) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values, [2, length, depth], bfloat16.

    `kind` is `normal`; `outlier`, where one value in a thousand is ten times as large; or `sink`, where the first key
    draws most of the attention.
    """
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, length, depth, generator=generator) for _ in range(3))
    if kind == "outlier":
        for tensor in (q, k, v):
            tensor[torch.rand(tensor.shape, generator=generator) < 1e-3] *= 10
    elif kind == "sink":
        k[:, 0] = q.mean(1) * 4 + k[:, 0]
        q += k[:, :1] * 0.5
    return q.bfloat16(), k.bfloat16(), v.bfloat16()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention in the precision of the inputs, probability by probability: a golden result if they are wide."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return scores.softmax(-1) @ v


def flash(q, k, v, tile: int = 64, fault: str = "") -> torch.Tensor:
    """Flash attention over tiles of keys: float32 accumulators, probabilities rounded to bfloat16 before P @ V."""
    length, depth = q.shape[-2:]
    scale = (1.01 if fault == "scale 1 % off" else 1.0) / math.sqrt(depth)
    rows = torch.arange(length)[:, None]
    highest = torch.full((*q.shape[:-1], 1), -math.inf)
    weight, total, before = torch.zeros_like(highest), torch.zeros(q.shape), None
    for start in range(0, length - (tile if fault == "last block dropped" else 0), tile):
        keys, values = k[:, start : start + tile].float(), v[:, start : start + tile].float()
        columns = start + torch.arange(tile)[None, :]
        seen = (columns <= rows - int(fault == "causal off by one")) | (columns == 0)
        if fault == "last key dropped":
            seen &= columns != length - 1
        scores = (q.float() @ keys.mT * scale).masked_fill(~seen, -math.inf)
        new = torch.maximum(highest, scores.amax(-1, keepdim=True))
        rescale = torch.exp(highest - new).nan_to_num(0.0)
        p = torch.exp(scores - new).nan_to_num(0.0)
        weight = weight * rescale + p.sum(-1, keepdim=True)
        p = p.to(torch.float8_e4m3fn).float() if fault == "probabilities in float8" else p.bfloat16().float()
        if fault == "stale probabilities" and before is not None and start == tile * 2:
            p[:, :, :16] = before[:, :, :16]
        if fault == "values flipped":
            values = values.flip(1) if start == tile else values
        total = total * (1.0 if fault == "no rescale" else rescale) + p @ values
        total = total.bfloat16().float() if fault == "bfloat16 accumulator" else total
        before, highest = p, new
    return (total / weight).bfloat16()


def matmul(a: torch.Tensor, b: torch.Tensor, step: int = 32, fault: str = "") -> torch.Tensor:
    """C = A @ B in steps along K with a float32 accumulator, rounded once."""
    total = torch.zeros(a.shape[0], b.shape[1])
    inner = a.shape[1] - (step if fault == "last block dropped" else 0)
    for start in range(0, inner, step):
        stop = min(start + step, inner - int(fault == "mask off by one"))
        total = total + a[:, start:stop].float() @ b[start:stop].float()
        total = total.bfloat16().float() if fault == "bfloat16 accumulator" else total
    return total.to(a.dtype)
