"""Gradients of the shipped kernels: one `torch.autograd.Function` for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

from triton_ops.base import require

Forward: TypeAlias = Callable[[bool], tuple[Any, Sequence[Any]]]
"""Runs the kernel; told whether a gradient will be asked for. Returns the result, and the tensors to keep for it.

Of several results, in a tuple, the first one has a gradient.
"""
Backward: TypeAlias = Callable[[Sequence[Any], Any, Sequence[bool]], Sequence[Any]]
"""From the tensors that were kept, the gradient of the result, and which inputs need theirs, to theirs in order."""


def differentiable(tensors: Sequence[Any], forward: Forward, backward: Backward) -> Any:
    """The result of a kernel, with a gradient if one of `tensors` needs it.

    Args:
        tensors: The inputs that have a gradient, in order; None for an input that was left out.
        forward: Runs the kernel.
        backward: Computes the gradients. It runs under `torch.no_grad`, so that there are no second derivatives.
    """
    torch = require("torch", "running a kernel")
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        return _function().apply(forward, backward, *tensors)
    return forward(False)[0]


@cache
def _function() -> Any:
    torch = require("torch", "gradients of kernels")

    class Differentiable(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """A kernel's forward and backward pass."""

        @staticmethod
        def forward(ctx: Any, kernel: Forward, gradient: Backward, *_tensors: Any) -> Any:
            results, tensors = kernel(True)
            if isinstance(results, tuple):
                ctx.mark_non_differentiable(*results[1:])
            ctx.gradient = gradient
            ctx.save_for_backward(*tensors)
            return results

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, grad: Any, *_others: Any) -> Any:
            return (None, None, *ctx.gradient(ctx.saved_tensors, grad, ctx.needs_input_grad[2:]))

    return Differentiable
