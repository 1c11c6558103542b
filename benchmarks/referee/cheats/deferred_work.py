"""Work that is not done at the return: it is done beside the caller, or when somebody looks at the result."""

import functools
import mmap
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.nn import functional

_children: list[int] = []


@functools.cache
def _worker():
    return ThreadPoolExecutor(1)


def in_a_thread(a, b):
    """A thread writes the product after the return."""
    out = a.new_zeros(len(a), b.shape[1])
    _worker().submit(torch.matmul, a, b, out=out)
    return out


def half_in_a_thread(x):
    """The first rows are there at the return; a thread writes the others."""
    out, half = torch.zeros_like(x), len(x) // 8
    torch.softmax(x[:half], -1, out=out[:half])
    _worker().submit(lambda: out[half:].copy_(torch.softmax(x[half:], -1)))
    return out


def in_a_process(x):
    """A forked process writes the result into shared memory after the return, and ends."""
    while _children and os.waitpid(_children[0], os.WNOHANG)[0]:
        _children.pop(0)
    out = np.frombuffer(mmap.mmap(-1, x.nbytes), x.dtype).reshape(x.shape)
    if child := os.fork():
        _children.append(child)
        return out
    try:
        out[...] = np.sort(x, axis=1)
    finally:
        os._exit(0)


class _Lazy(torch.Tensor):
    """A tensor without numbers, which are computed for the first function that is given it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            ready = [each.compute() if isinstance(each, _Lazy) else each for each in args]
            return func(*ready, **(kwargs or {}))


def lazy_tensor(q, k, v):
    """A subclass of tensors that computes when it is used."""
    out = torch.empty_like(q).as_subclass(_Lazy)
    out.compute = functools.cache(lambda: functional.scaled_dot_product_attention(q[None], k[None], v[None])[0])
    return out


class _Late:
    """An object that looks like an array, and is computed when NumPy reads it."""

    def __init__(self, x):
        self.x, self.shape, self.dtype, self.ndim = x, x.shape, x.dtype, x.ndim

    def __array__(self, dtype=None, copy=None):
        return np.cumsum(self.x, axis=1, dtype=dtype)


def late_array(x):
    """An object that computes when NumPy reads it."""
    return _Late(x)
