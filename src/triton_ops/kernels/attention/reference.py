"""The reference of attention in plain PyTorch."""

from __future__ import annotations

import math
from typing import Any

from triton_ops.base import require

_SCORES = 2**26  # scores that are held at once


def attention_reference(
    q: Any, k: Any, v: Any, out: Any, lse: Any, scale: float, CAUSAL: bool, **_given: Any
) -> Any:  # fmt: skip
    """softmax(scale * q @ k.T) @ v in float32 or wider, rounded to the dtype of `out`; with `lse` that too.

    The exponentials are rounded to the dtype of `v` before the second product, as every kernel rounds them that
    multiplies 16-bit floats: that rounding is part of what the precision allows, so that the reference's own error is a
    yardstick for such kernels. On inputs of float32 and wider nothing is rounded between the products. A query that
    sees no key, or minus infinity alone, gets zeros, whatever the values hold, and a logarithm of minus infinity.

    Cost: some tensors of 2^26 elements, and a loop over heads of keys and pieces of the queries.
    """
    torch = require("torch", "the reference of attention")
    wide = torch.promote_types(q.dtype, torch.float32)
    (batch, heads, queries, _), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    group = heads // kv_heads
    found = q.new_empty((batch, heads, queries, value_dim), dtype=out.dtype)
    logarithms = q.new_empty((batch, heads, queries), dtype=wide)
    piece = max(1, _SCORES // max(group * keys, 1))
    for b in range(batch):
        for h in range(kv_heads):
            shared = slice(h * group, (h + 1) * group)
            key, value = k[b, h].to(wide), v[b, h].to(wide)
            for first in range(0, queries, piece):
                some = slice(first, min(first + piece, queries))
                scores = (q[b, shared, some].to(wide) @ key.mT) * scale
                if CAUSAL:
                    last = torch.arange(some.start, some.stop, device=q.device) + keys - queries
                    scores = scores.masked_fill(torch.arange(keys, device=q.device) > last[:, None], -math.inf)
                highest = scores.amax(-1, keepdim=True) if keys else scores.new_full((*scores.shape[:-1], 1), -math.inf)
                blind = highest == -math.inf
                weights = torch.exp(scores - highest.masked_fill(blind, 0.0))
                weight = weights.sum(-1, keepdim=True)
                total = weights.to(v.dtype).to(wide) @ value
                found[b, shared, some] = (total / weight).masked_fill(blind, 0.0).to(out.dtype)
                logarithms[b, shared, some] = (highest + weight.log())[..., 0]
    return found if lse is None else (found, logarithms.to(lse.dtype))


def attention_backward_reference(
    q: Any, k: Any, v: Any, out: Any, lse: Any, grad: Any, dq: Any, dk: Any, dv: Any, scale: float, CAUSAL: bool,
    **_given: Any,
) -> Any:  # fmt: skip
    """The gradients of q, k and v from the result and its logarithms, in float32 or wider, rounded once.

    Weights and the gradients of scores are rounded to the dtype of `q` before they are multiplied, as
    `attention_reference` does it, and for the same reason.

    Cost: some tensors of the size of one group's scores, and a loop over heads of keys.
    """
    torch = require("torch", "the reference of attention")
    wide = torch.promote_types(q.dtype, torch.float32)
    (queries, keys), group = (q.shape[2], k.shape[2]), q.shape[1] // k.shape[1]
    made = [torch.empty_like(each) for each in (dq, dk, dv)]
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if CAUSAL:
        hidden = torch.ones_like(hidden).triu(keys - queries + 1)
    for b in range(q.shape[0]):
        for h in range(k.shape[1]):
            shared = slice(h * group, (h + 1) * group)
            own = [each[b, shared].to(wide) for each in (q, out, grad)]
            logarithm = lse[b, shared].to(wide)
            key, value = k[b, h].to(wide), v[b, h].to(wide)
            blind = ((logarithm == -math.inf) | hidden.all(-1))[..., None]
            lowered = own[0] @ key.mT * scale - logarithm[..., None].masked_fill(blind, math.inf)
            p = torch.exp(lowered).masked_fill(hidden, 0.0)
            ds = p * (own[2] @ value.mT - (own[1] * own[2]).sum(-1, keepdim=True))
            p, ds = p.to(q.dtype).to(wide), ds.to(q.dtype).to(wide)
            made[0][b, shared] = (ds @ key * scale).masked_fill(blind, 0.0).to(dq.dtype)
            made[1][b, h] = ((ds.mT @ own[0]).sum(0) * scale).to(dk.dtype)
            made[2][b, h] = (p.mT @ own[2]).sum(0).to(dv.dtype)
    return tuple(made)
