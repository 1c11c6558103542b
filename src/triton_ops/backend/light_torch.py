"""Results of some torch functions on tensors without memory, by their shapes alone.

A function that launches kernels often adds up what they have left. On a tensor without memory torch computes the shape
of such a sum with its reference implementations, whose first use imports 485 modules, SymPy among them: a third of a
second with bytecode, one or two seconds without, in every process. The shape of a reduction needs none of it.

Facts used, of torch 2.6 to 2.13: reductions along axes and `…_like` take the import, `new_empty`, views and copies do
not; a reduction of a contiguous tensor is contiguous, and a sum of whole numbers or booleans is int64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

NEEDS_MORE = frozenset({
    "abs", "add", "addmm", "amin", "arange", "argmax", "baddbmm", "bmm", "cat", "clamp", "clamp_min", "concat",
    "cumsum", "div", "einsum", "exp", "linear", "log", "log_softmax", "logsumexp", "matmul", "maximum", "mean",
    "minimum", "mm", "mul", "neg", "norm", "pow", "prod", "rsqrt", "sigmoid", "softmax", "sqrt", "square", "stack",
    "std", "sub", "tanh", "tril", "triu", "var", "where",
})  # fmt: skip
"""Names of torch functions whose shapes are left to torch's reference implementations."""
REFERENCES = "torch.fx.experimental.symbolic_shapes"
"""The module that these import first, which takes most of the time."""

_REDUCTIONS = ("sum", "amax")
_LIKE = ("empty_like", "zeros_like", "ones_like")


def light(torch: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What `func` gives for a contiguous tensor without memory; `NotImplemented` where torch itself is to be asked.

    Args:
        torch: The package.
        func: What was called, as a function mode is told.
        args: Its positional arguments.
        kwargs: Its named arguments.
    """
    name = getattr(func, "__name__", "")
    if name not in (*_REDUCTIONS, *_LIKE) or func not in (getattr(torch, name), getattr(torch.Tensor, name, None)):
        return NotImplemented
    if not args or type(args[0]) is not torch.Tensor or not _is_plain(torch, args[0]):
        return NotImplemented
    make: Callable[..., Any] = _like if name in _LIKE else _reduced
    return make(torch, name, args[0], args[1:], dict(kwargs))


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether a tensor has no memory and no gradient, and strides as a new tensor of its shape has them."""
    if not tensor.is_meta or tensor.requires_grad or not tensor.is_contiguous():
        return False
    return bool(tensor.stride() == torch.Tensor.new_empty(tensor, tensor.shape).stride())


def _like(torch: Any, _name: str, tensor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    dtype = kwargs.pop("dtype", None)
    return NotImplemented if args or kwargs else torch.Tensor.new_empty(tensor, tensor.shape, dtype=dtype)


def _reduced(torch: Any, name: str, tensor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    given = dict(zip(("dim", "keepdim"), args, strict=False))
    if len(args) > len(given) or given.keys() & kwargs.keys():
        return NotImplemented
    given |= kwargs
    axis, keep, dtype = given.pop("dim", None), given.pop("keepdim", False), given.pop("dtype", None)
    named = dtype is not None and name != "sum"
    if given or named or type(axis) is not int or type(keep) is not bool or not -tensor.ndim <= axis < tensor.ndim:
        return NotImplemented
    at, extents = axis % tensor.ndim, list(tensor.shape)
    if name == "amax" and extents[at] == 0:
        return NotImplemented  # torch refuses it
    extents[at : at + 1] = [1] if keep else []
    if name == "sum" and dtype is None and not tensor.dtype.is_floating_point:
        if tensor.dtype not in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
            return NotImplemented
        dtype = torch.int64
    return torch.Tensor.new_empty(tensor, extents, dtype=dtype)
