"""Honest candidates of `group_statistics`, whose two results come as a tuple or a list."""

import numpy as np


def _parts(x, group):
    return x.reshape(len(x), -1, group)


def in_float64(x, group=64):
    """In float64, rounded once."""
    parts = _parts(x, group)
    return parts.mean(-1, dtype=np.float64).astype(x.dtype), parts.var(-1, dtype=np.float64).astype(x.dtype)


def as_a_list(x, group=64):
    """The results in a list."""
    return [_parts(x, group).mean(-1), _parts(x, group).var(-1)]


def two_passes(x, group=64):
    """Means first, then squares of what differs from them."""
    parts = _parts(x, group)
    mean = parts.mean(-1, keepdims=True)
    return mean[..., 0], np.square(parts - mean).mean(-1)


def one_pass(x, group=64):
    """Sums of numbers and of squares at once, in float64."""
    parts = _parts(x, group).astype(np.float64)
    mean = parts.mean(-1)
    return mean.astype(x.dtype), (np.square(parts).mean(-1) - mean**2).astype(x.dtype)


def welford(x, group=64):
    """Welford's update, one number of each group at a time."""
    parts = _parts(x, group)
    mean, squares = np.zeros(parts.shape[:2]), np.zeros(parts.shape[:2])
    for i in range(group):
        step = parts[..., i] - mean
        mean += step / (i + 1)
        squares += step * (parts[..., i] - mean)
    return mean.astype(x.dtype), (squares / group).astype(x.dtype)


def by_einsum(x, group=64):
    """Squares added by einsum."""
    parts = _parts(x, group)
    mean = parts.mean(-1)
    less = parts - mean[..., None]
    return mean, np.einsum("rgi,rgi->rg", less, less) / x.dtype.type(group)


def by_product(x, group=64):
    """Sums by a product with a constant row."""
    parts = _parts(x, group)
    share = np.full(group, 1 / group, x.dtype)
    mean = parts @ share
    return mean, np.square(parts - mean[..., None]) @ share


def joined_halves(x, group=64):
    """Both halves of a group, then joined."""
    left, right = np.split(_parts(x, group).astype(np.float64), 2, -1)
    step = left.mean(-1) - right.mean(-1)
    mean, spread = (left.mean(-1) + right.mean(-1)) / 2, (left.var(-1) + right.var(-1)) / 2
    return mean.astype(x.dtype), (spread + step**2 / 4).astype(x.dtype)


def in_chunks(x, group=64):
    """A few rows at a time, into buffers made in this call."""
    means, spreads = np.empty((2, len(x), x.shape[1] // group), x.dtype)
    for first in range(0, len(x), 48):
        means[first : first + 48], spreads[first : first + 48] = two_passes(x[first : first + 48], group)
    return means, spreads
