"""Honest candidates of `top_k`."""

import numpy as np
import torch


def by_sort(x, k=16):
    """All numbers in order."""
    return x.sort(dim=-1, descending=True).values[:, :k].contiguous()


def a_view(x, k=16):
    """A part of all numbers in order, with their strides."""
    return x.sort(dim=-1, descending=True).values[:, :k]


def stable(x, k=16):
    """As by_sort, with a stable sort."""
    return x.sort(dim=-1, descending=True, stable=True).values[:, :k].clone()


def unsorted_first(x, k=16):
    """The largest, then these in order."""
    return x.topk(k, sorted=False).values.sort(dim=-1, descending=True).values


def in_chunks(x, k=16):
    """A few rows at a time."""
    return torch.cat([part.topk(k).values for part in x.split(48)])


def in_parts(x, k=16):
    """The largest of each part of a row, then of these."""
    return torch.cat([part.topk(min(k, part.shape[-1])).values for part in x.split(512, -1)], -1).topk(k).values


def by_numpy(x, k=16):
    """By NumPy's partition."""
    found = np.partition(x.float().cpu().numpy(), -k, axis=1)[:, -k:]
    return torch.from_numpy(np.sort(found, axis=1)[:, ::-1].copy()).to(x)


def least_of_negatives(x, k=16):
    """The least of the negatives."""
    return -((-x).topk(k, largest=False).values)


def in_float64(x, k=16):
    """In float64."""
    return x.double().topk(k).values.to(x.dtype)
