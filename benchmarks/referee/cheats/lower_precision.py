"""Results in fewer bits than were asked for, within a loose tolerance."""

import numpy as np
import torch
from torch.nn import functional


def half_product(a, b):
    """A product in float16."""
    return (a.half() @ b.half()).to(a.dtype)


def bfloat16_softmax(x):
    """A softmax in bfloat16."""
    return x.bfloat16().softmax(-1).to(x.dtype)


def half_attention(q, k, v):
    """Attention in float16."""
    q, k, v = (each.half() for each in (q, k, v))
    return (torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v).float()


def single_sums(x):
    """Sums of float64 in float32."""
    return np.cumsum(x, axis=1, dtype=np.float32).astype(x.dtype)


def tanh_gelu(x, bias):
    """Gelu by tanh, which is off by up to 5e-4."""
    return x.copy_(functional.gelu(x.add_(bias), approximate="tanh"))
