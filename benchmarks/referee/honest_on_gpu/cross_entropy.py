"""Honest candidates of `cross_entropy` that need a GPU."""

import functools

import torch
import triton
import triton.language as tl
from torch.nn import functional


@triton.jit
def _losses_kernel(logits, targets, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    logits += row * columns
    highest = tl.full((BLOCK,), -1e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        values = tl.load(logits + start + at, mask=start + at < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, values)
        total = total * tl.exp(highest - higher) + tl.exp(values - higher)
        highest = higher
    top = tl.max(highest, 0)
    loss = tl.log(tl.sum(total * tl.exp(highest - top), 0)) + top - tl.load(logits + tl.load(targets + row))
    tl.store(out + row, loss)


_autotuned_kernel = triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 2048)], key=["columns"]
)(_losses_kernel)


def _launched(kernel, logits, targets, **options):
    logits, targets = logits.contiguous(), targets.contiguous()
    out = logits.new_empty(len(logits))
    kernel[(len(logits),)](logits, targets, out, logits.shape[1], **options)
    return out


def blocks_of_rows(logits, targets):
    """A kernel of Triton that goes through a row in blocks."""
    return _launched(_losses_kernel, logits, targets, BLOCK=1024, num_warps=4)


def autotuned(logits, targets):
    """The same, tuned by `triton.autotune` for each count of classes."""
    return _launched(_autotuned_kernel, logits, targets)


@functools.cache
def _compiled():
    def losses(logits, targets):
        return functional.cross_entropy(logits.float(), targets, reduction="none").to(logits.dtype)

    return torch.compile(losses, dynamic=True)


def compiled_for_any_shape(logits, targets):
    """Compiled by torch once, for shapes of all sizes."""
    return _compiled()(logits, targets)
