"""The chooser of two-dimensional convolutions, `conv2d`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from triton_ops.dispatch import Chooser, Implementation
from triton_ops.values import TensorSpec
from triton_ops_kernels.choosers.common import DTYPES, outside_of_graphs


def conv2d_chooser() -> Chooser:
    """As `torch.nn.functional.conv2d`, with the arguments by its names; results are row-major whoever computes them."""
    implementations = {
        "aten": Implementation(_conv2d),
        "channels_last": Implementation(_channels_last, applies=_many_channels),
        "cudnn_benchmark": Implementation(_benchmarked, applies=_has_cudnn),
        "product": Implementation(_product, applies=_is_product),
        "unfolded": Implementation(_unfolded, applies=_one_group),
    }
    return Chooser(implementations, name="choose_conv2d", arguments=_arguments, dtypes=DTYPES)


def _arguments(
    batch: int = 8, channels: int = 64, height: int = 56, width: int = 56, filters: int = 64, size: int = 3,
    dtype: str = "bfloat16",
) -> dict[str, object]:  # fmt: skip
    x = TensorSpec((batch, channels, height, width), dtype)
    weight = TensorSpec((filters, channels, size, size), dtype)
    return {"x": x, "weight": weight, "bias": None, "stride": 1, "padding": size // 2, "dilation": 1, "groups": 1}


def _conv2d(
    x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    return torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups).contiguous()


def _channels_last(x: Tensor, weight: Tensor, *others: Any, **named: Any) -> Tensor:
    """With channels as neighbours in memory, as tensor cores want them; the changes of layout are part of the time."""
    last = torch.channels_last
    return _conv2d(x.to(memory_format=last), weight.to(memory_format=last), *others, **named)


def _many_channels(x: Tensor, *_others: object, **_named: object) -> str | bool:
    return x.shape[1] > 1 or "there is one channel, whose layouts are the same"


@outside_of_graphs
def _benchmarked(*args: Any, **named: Any) -> Tensor:
    """With the algorithm that cuDNN itself has found fastest for the shape."""
    cudnn = torch.backends.cudnn
    # `flags` gives settings that are not named its own defaults (torch 2.11 to 2.15).
    with cudnn.flags(enabled=True, benchmark=True, deterministic=cudnn.deterministic, allow_tf32=cudnn.allow_tf32):
        return _conv2d(*args, **named)


def _has_cudnn(x: Tensor, *_others: object, **_named: object) -> str | bool:
    if not x.is_cuda:
        return f"the tensors are on {x.device}, and cuDNN runs on a GPU"
    cudnn: Any = torch.backends.cudnn
    return bool(cudnn.is_available()) or "cuDNN is not there"


def _is_product(
    x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> str | bool:
    if tuple(weight.shape[2:]) != (1, 1):
        return f"the filter is {weight.shape[2]} by {weight.shape[3]}, not 1 by 1"
    if _pair(stride) != (1, 1) or _pair(padding) != (0, 0) or groups != 1:
        return "it has strides, padding or groups"
    return x.is_contiguous() or "x has gaps"


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, *_others: object, **_named: object) -> Tensor:
    """A filter of one pixel is a product of matrices."""
    batch, channels, height, width = x.shape
    flat, filters = x.view(batch, channels, height * width), weight.view(1, -1, channels).expand(batch, -1, -1)
    found = torch.bmm(filters, flat) if bias is None else torch.baddbmm(bias.view(1, -1, 1), filters, flat)
    return found.view(batch, -1, height, width)


def _one_group(
    x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> str | bool:
    if isinstance(padding, str):
        return "the padding is given as a word"
    return groups == 1 or f"there are {groups} groups"


def _unfolded(
    x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """All patches as columns of a matrix, and one product."""
    (filters, _, rows, columns) = weight.shape
    patches = torch.nn.functional.unfold(x, (rows, columns), dilation, padding, stride)
    found = weight.view(filters, -1) @ patches
    found = found if bias is None else found + bias.view(-1, 1)
    (down, right), (up, left), (over, across) = _pair(stride), _pair(padding), _pair(dilation)
    height = (x.shape[2] + 2 * up - over * (rows - 1) - 1) // down + 1
    width = (x.shape[3] + 2 * left - across * (columns - 1) - 1) // right + 1
    return found.view(x.shape[0], filters, height, width)


def _pair(value: Any) -> tuple[Any, Any]:
    return (value, value) if isinstance(value, (int, str)) else (value[0], value[-1])
