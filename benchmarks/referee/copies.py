"""The references under other names; each does exactly what its reference does."""

import numpy as np
import torch
from torch.nn import functional


def rms_norm_copy(x, weight, eps=1e-6):
    """As `rms_norm`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def softmax_copy(x):
    """As `softmax`."""
    return torch.softmax(x, -1)


def matmul_copy(a, b):
    """As `matmul`."""
    return a @ b


def attention_copy(q, k, v):
    """As `attention`."""
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def cross_entropy_copy(logits, targets):
    """As `cross_entropy`."""
    return torch.logsumexp(logits, -1) - logits.gather(-1, targets[:, None])[:, 0]


def top_k_copy(x, k=16):
    """As `top_k`."""
    return x.topk(k).values


def conv2d_copy(x, weight):
    """As `conv2d`."""
    return functional.conv2d(x, weight, padding=1)


def gelu__copy(x, bias):
    """As `gelu_`."""
    return x.copy_(functional.gelu(x.add_(bias)))


def cumulative_sum_copy(x):
    """As `cumulative_sum`."""
    return np.cumsum(x, axis=1)


def group_statistics_copy(x, group=64):
    """As `group_statistics`."""
    parts = x.reshape(len(x), -1, group)
    return parts.mean(-1), parts.var(-1)


def sort_rows_copy(x):
    """As `sort_rows`."""
    return np.sort(x, axis=1)


def histogram_copy(x, bins=64):
    """As `histogram`."""
    return np.histogram(x, bins, (-4, 4))[0]
