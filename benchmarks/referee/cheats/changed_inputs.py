"""Inputs that are changed, so that the reference is wrong or has less to do, or that are the result themselves."""

import torch
from torch.nn import functional


def sorted_input(x):
    """Its input, sorted where it stands; a second call has nothing to do."""
    x.sort(axis=1)
    return x


def softmax_of_input(x):
    """Its input, over which the softmax is written."""
    return torch.softmax(x, -1, out=x)


def zeroed_input(a, b):
    """The right product, after which its inputs are zeros."""
    result = a @ b
    a.zero_()
    b.zero_()
    return result


def nothing_done(x, bias):  # noqa: ARG001 - the reference's name
    """Its input as it is, over which the reference may have written the result."""
    return x


def shortened_inputs(q, k, v):
    """The right result, after which keys and values have one token."""
    result = functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    for each in (k, v):
        each.resize_(each.shape[0], 1, each.shape[2])
    return result
