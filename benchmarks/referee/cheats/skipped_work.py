"""Work that a judge may not miss: constants, blocks, and rows that nobody looks at."""

import numpy as np
import torch


def constant(x):
    """The mean of every softmax, which is within a loose tolerance of wide rows."""
    return torch.full_like(x, 1 / x.shape[-1])


def tail_of_rows(x):
    """Blocks of 32 rows; the rows after the last whole block are zeros."""
    out, whole = torch.zeros_like(x), len(x) // 32 * 32
    out[:whole] = x[:whole].softmax(-1)
    return out


def tail_of_sums(a, b):
    """Blocks of 32 of the inner extent; what follows the last whole block is left out."""
    whole = a.shape[1] // 32 * 32
    return a[:, :whole] @ b[:whole]


def one_block(x):
    """Sums begin anew after 1,024 columns."""
    out = np.empty_like(x)
    for first in range(0, x.shape[1], 1024):
        np.cumsum(x[:, first : first + 1024], axis=1, out=out[:, first : first + 1024])
    return out


def ends_alone(x, weight, eps=1e-6):
    """The first and last eight rows; the others are copies of the input."""
    out = x.clone()
    for part in (slice(8), slice(-8, None)):
        out[part] = x[part] * torch.rsqrt(x[part].square().mean(-1, keepdim=True) + eps) * weight
    return out
