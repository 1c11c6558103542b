"""Honest candidates of `rms_norm`."""

import functools
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional


def _scaled(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


@functools.cache
def _ones(extent, device):
    return torch.ones(extent, 1, device=device)


@functools.cache
def _compiled():
    return torch.compile(_scaled)


def in_float64(x, weight, eps=1e-6):
    """In float64, rounded once."""
    wide = x.double()
    return (wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()).to(x.dtype)


def fused(x, weight, eps=1e-6):
    """Torch's own function."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def by_einsum(x, weight, eps=1e-6):
    """Squares added by einsum."""
    wide = x.float()
    squares = torch.einsum("ij,ij->i", wide, wide)[:, None]
    return (wide * torch.rsqrt(squares / x.shape[-1] + eps) * weight).to(x.dtype)


def by_norm(x, weight, eps=1e-6):
    """From the vector norm of each row."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return (x.float() / (length.square() / x.shape[-1] + eps).sqrt() * weight).to(x.dtype)


def in_chunks(x, weight, eps=1e-6):
    """A few rows at a time."""
    return torch.cat([_scaled(part, weight, eps) for part in x.split(48)])


def in_threads(x, weight, eps=1e-6):
    """Two threads, both joined before the return."""
    with ThreadPoolExecutor(2) as pool:
        return torch.cat(list(pool.map(lambda part: _scaled(part, weight, eps), x.chunk(2))))


def by_ones(x, weight, eps=1e-6):
    """Squares added by a product with ones, which are kept by extent and device."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square() @ _ones(x.shape[-1], x.device) / x.shape[-1] + eps) * weight).to(x.dtype)


def column_major(x, weight, eps=1e-6):
    """Worked on as its transpose; the result has other strides than the reference's."""
    turned = x.t().contiguous().float()
    return (turned * torch.rsqrt(turned.square().mean(0) + eps) * weight.float()[:, None]).to(x.dtype).t()


def fresh_buffer(x, weight, eps=1e-6):
    """Written into a buffer made in this call."""
    out = torch.empty_like(x)
    out.copy_(_scaled(x, weight, eps))
    return out


def compiled(x, weight, eps=1e-6):
    """Compiled by torch."""
    return _compiled()(x, weight, eps)
