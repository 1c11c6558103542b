"""Honest candidates of `attention`."""

import torch
from torch.nn import functional


def in_float64(q, k, v):
    """In float64, rounded once."""
    scores = q.double() @ k.double().mT * q.shape[-1] ** -0.5
    return (torch.softmax(scores, -1) @ v.double()).to(q.dtype)


def fused(q, k, v):
    """Torch's own function.

    Of rows that do not begin at multiples of 16 bytes it is wrong on a GPU, or fails (torch 2.11).
    """
    q, k, v = (each.clone(memory_format=torch.contiguous_format) for each in (q, k, v))
    return functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def scaled_queries(q, k, v):
    """The scale goes to the queries."""
    scores = (q.float() * q.shape[-1] ** -0.5) @ k.float().mT
    return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)


def by_einsum(q, k, v):
    """Both products by einsum."""
    scores = torch.einsum("hid,hjd->hij", q.float(), k.float()) * q.shape[-1] ** -0.5
    return torch.einsum("hij,hjd->hid", scores.softmax(-1), v.float()).to(q.dtype)


def by_baddbmm(q, k, v):
    """The scale is a factor of the product."""
    scores = torch.baddbmm(
        q.new_zeros((), dtype=torch.float32), q.float(), k.float().mT, beta=0, alpha=q.shape[-1] ** -0.5
    )
    return torch.bmm(scores.softmax(-1), v.float()).to(q.dtype)


def head_by_head(q, k, v):
    """One head at a time."""
    parts = zip(q.float(), k.float(), v.float(), strict=True)
    return torch.stack([torch.softmax(a @ b.t() * a.shape[-1] ** -0.5, -1) @ c for a, b, c in parts]).to(q.dtype)


def in_chunks(q, k, v):
    """A few queries at a time."""
    return torch.cat([fused(part, k, v) for part in q.split(40, 1)], 1)


def divided_last(q, k, v):
    """Sums are divided after the second product."""
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (powers @ v.float() / powers.sum(-1, keepdim=True)).to(q.dtype)


def online(q, k, v):
    """One pass over blocks of keys, with sums rescaled when the maximum grows."""
    highest = torch.full((*q.shape[:2], 1), -torch.inf, device=q.device)
    total, weight = (torch.zeros(*q.shape[:2], extent, device=q.device) for extent in (q.shape[2], 1))
    for keys, values in zip(k.float().split(64, 1), v.float().split(64, 1), strict=True):
        scores = q.float() @ keys.mT * q.shape[-1] ** -0.5
        higher = torch.maximum(highest, scores.amax(-1, keepdim=True))
        powers, rescale = torch.exp(scores - higher), torch.exp(highest - higher)
        total, weight = total * rescale + powers @ values, weight * rescale + powers.sum(-1, keepdim=True)
        highest = higher
    return (total / weight).to(q.dtype)
