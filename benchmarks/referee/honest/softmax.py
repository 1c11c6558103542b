"""Honest candidates of `softmax`."""

import functools
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional


@functools.cache
def _compiled():
    return torch.compile(in_float32)


def in_float64(x):
    """In float64, rounded once."""
    return torch.softmax(x.double(), -1).to(x.dtype)


def in_float32(x):
    """Written out in float32."""
    wide = x.float()
    powers = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def by_log(x):
    """From the logarithm of the sum."""
    wide = x.float()
    return torch.exp(wide - torch.logsumexp(wide, -1, keepdim=True)).to(x.dtype)


def by_log_softmax(x):
    """From torch's log softmax."""
    return functional.log_softmax(x.float(), -1).exp().to(x.dtype)


def base_two(x):
    """Powers of two."""
    wide = x.float() * 1.4426950408889634
    powers = torch.exp2(wide - wide.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def in_chunks(x):
    """A few rows at a time."""
    return torch.cat([torch.softmax(part, -1) for part in x.split(48)])


def online(x):
    """One pass over blocks of columns, with sums rescaled when the maximum grows."""
    highest = torch.full((len(x), 1), -torch.inf, device=x.device)
    total = torch.zeros(len(x), 1, device=x.device)
    for part in x.float().split(256, -1):
        higher = torch.maximum(highest, part.amax(-1, keepdim=True))
        total = total * torch.exp(highest - higher) + torch.exp(part - higher).sum(-1, keepdim=True)
        highest = higher
    return (torch.exp(x.float() - highest) / total).to(x.dtype)


def in_threads(x):
    """Two threads, both joined before the return."""
    with ThreadPoolExecutor(2) as pool:
        return torch.cat(list(pool.map(lambda part: torch.softmax(part, -1), x.chunk(2))))


def column_major(x):
    """Worked on as its transpose; the result has other strides than the reference's."""
    return torch.softmax(x.t().contiguous(), 0).t()


def compiled(x):
    """Compiled by torch."""
    return _compiled()(x)
