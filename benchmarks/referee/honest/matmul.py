"""Honest candidates of `matmul`."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional


def in_float64(a, b):
    """In float64, rounded once."""
    return (a.double() @ b.double()).to(a.dtype)


def by_einsum(a, b):
    """By einsum."""
    return torch.einsum("ik,kj->ij", a, b)


def as_linear(a, b):
    """As a linear layer."""
    return functional.linear(a, b.t())


def batched(a, b):
    """As a batch of one."""
    return torch.bmm(a[None], b[None])[0]


def added(a, b):
    """Added to zeros."""
    return torch.addmm(a.new_zeros(()), a, b, beta=0)


def transposed(a, b):
    """The product of the transposes; the result has other strides than the reference's."""
    return (b.t() @ a.t()).t()


def in_rows(a, b):
    """A few rows at a time."""
    return torch.cat([part @ b for part in a.split(80)])


def in_columns(a, b):
    """Blocks of columns, written into a buffer made in this call."""
    out = a.new_empty(len(a), b.shape[1])
    for first in range(0, b.shape[1], 96):
        out[:, first : first + 96] = a @ b[:, first : first + 96]
    return out


def in_threads(a, b):
    """Two threads, both joined before the return."""
    with ThreadPoolExecutor(2) as pool:
        return torch.cat(list(pool.map(lambda part: part @ b, a.chunk(2))))


def split_inner(a, b):
    """Partial products over blocks of the inner extent, added in float32."""
    total = torch.zeros(len(a), b.shape[1], device=a.device)
    for left, right in zip(a.split(128, 1), b.split(128), strict=True):
        total += left.float() @ right.float()
    return total.to(a.dtype)
