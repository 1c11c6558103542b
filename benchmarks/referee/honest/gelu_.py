"""Honest candidates of `gelu_`, which write over `x` as their reference does."""

import math
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional


def in_float64(x, bias):
    """In float64, rounded once."""
    return x.copy_(functional.gelu(x.double() + bias.double()))


def in_float32(x, bias):
    """In float32, rounded once."""
    return x.copy_(functional.gelu(x.float() + bias.float()))


def by_erf(x, bias):
    """Written out by the error function."""
    wide = x.float() + bias.float()
    return x.copy_(0.5 * wide * (1 + torch.erf(wide * math.sqrt(0.5))))


def by_erfc(x, bias):
    """Written out by the complement of the error function."""
    wide = x.float() + bias.float()
    return x.copy_(0.5 * wide * torch.erfc(-wide * math.sqrt(0.5)))


def by_normal(x, bias):
    """Written out by the distribution of normal numbers."""
    wide = x.float() + bias.float()
    return x.copy_(wide * torch.special.ndtr(wide))


def in_chunks(x, bias):
    """A few rows at a time."""
    for part in x.split(48):
        part.copy_(functional.gelu(part.float() + bias.float()))
    return x


def in_threads(x, bias):
    """Two threads, both joined before the return."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda part: in_float32(part, bias), x.chunk(2)))
    return x


def own_buffer(x, bias):
    """In a buffer made in this call, which is then copied."""
    buffer = torch.add(x, bias, out=torch.empty_like(x))
    return x.copy_(functional.gelu(buffer))
