"""Right for the values that are usually drawn, and wrong for others that the reference takes."""

import numpy as np
from torch.nn import functional


def without_maximum(x):
    """A softmax that overflows above 88, since no maximum is subtracted."""
    powers = x.exp()
    return powers / powers.sum(-1, keepdim=True)


def one_maximum(logits, targets):
    """One maximum for all rows, so that the sums of rows far below it vanish."""
    less = logits - logits.max()
    return less.exp().sum(-1).log() - less.gather(-1, targets[:, None])[:, 0]


def no_nan(x, weight, eps=1e-6):
    """Numbers that are not numbers become zeros."""
    return functional.rms_norm(x.nan_to_num(), weight.shape, weight, eps)


def unit_variance(x, weight, eps=1e-6):  # noqa: ARG001 - the reference's name
    """The mean square of a row is taken to be one, as that of many normal numbers is."""
    return x * weight


def all_inside(x, bins=64):
    """Numbers outside the ends are counted in the first or the last bin."""
    places = np.clip((x + 4) * (bins / 8), 0, bins - 1).astype(np.int64)
    return np.bincount(places, minlength=bins)
