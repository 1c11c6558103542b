"""Choosers of functions of `torch.nn.functional`: `softmax`, `conv2d` in two dimensions, and `sdpa`.

Of attention torch's backends stand one by one beside the kernel of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from triton_ops.dispatch import Chooser, Implementation, choose
from triton_ops.kernels.choosers.common import (
    DTYPES,
    NARROW,
    WIDE,
    by_kernel,
    first_reason,
    kernel_module,
    of_dtype,
    on_gpu,
    outside_of_graphs,
    torch_,
)
from triton_ops.values import TensorSpec


def softmax_chooser() -> Chooser:
    """The softmax of x over one axis, the last if none is named."""
    implementations = {
        "aten": Implementation(_softmax),
        "exponentials": Implementation(_by_hand),
        **by_kernel("softmax", _softmax_by_kernel, _softmax_fits_kernel, _softmax_values),
    }
    return choose(  # type: ignore[no-any-return]
        implementations, name="choose_softmax",
        schema="(Tensor x, int dim=-1) -> Tensor", arguments=_rows, dtypes=DTYPES,
    )  # fmt: skip


def _rows(rows: int = 4096, columns: int = 4096, dtype: str = "bfloat16") -> dict[str, Any]:
    return {"x": TensorSpec((rows, columns), dtype), "dim": -1}


def _softmax(x: Any, dim: int = -1) -> Any:
    return torch_().softmax(x, dim)


def _by_hand(x: Any, dim: int = -1) -> Any:
    """By its definition, in float32."""
    wide = x.double() if x.dtype == torch_().float64 else x.float()
    powers = (wide - wide.amax(dim, keepdim=True)).exp_()
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)


def _softmax_by_kernel(x: Any, dim: int = -1, *, config: Any = None) -> Any:
    return kernel_module("softmax").softmax(x, config=config)


def _softmax_fits_kernel(x: Any, dim: int = -1) -> str | bool:
    return first_reason([
        on_gpu(x), of_dtype(x, WIDE),
        None if dim in (-1, x.ndim - 1) else f"the axis is {dim}, not the last one",
        None if x.ndim and x.is_contiguous() else "x has gaps, or no axis",
    ])  # fmt: skip


def _softmax_values(x: Any, dim: int = -1) -> Any:
    columns = x.shape[-1]
    rows = x.numel() // max(columns, 1)
    return kernel_module("softmax.problems").launch_values(x.view(rows, columns), x.new_empty((rows, columns)))


def conv2d_chooser() -> Chooser:
    """As `torch.nn.functional.conv2d`, with the arguments by its names; results are row-major whoever computes them."""
    implementations = {
        "aten": Implementation(_conv2d),
        "channels_last": Implementation(_channels_last, applies=_many_channels),
        "cudnn_benchmark": Implementation(_benchmarked, applies=_has_cudnn),
        "product": Implementation(_product, applies=_is_product),
        "unfolded": Implementation(_unfolded, applies=_one_group),
    }
    return choose(implementations, name="choose_conv2d", arguments=_images, dtypes=DTYPES)  # type: ignore[no-any-return]


def _images(
    batch: int = 8, channels: int = 64, height: int = 56, width: int = 56, filters: int = 64, size: int = 3,
    dtype: str = "bfloat16",
) -> dict[str, Any]:  # fmt: skip
    x = TensorSpec((batch, channels, height, width), dtype)
    weight = TensorSpec((filters, channels, size, size), dtype)
    return {"x": x, "weight": weight, "bias": None, "stride": 1, "padding": size // 2, "dilation": 1, "groups": 1}


def _conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    return torch_().nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups).contiguous()


def _channels_last(x: Any, weight: Any, *others: Any, **named: Any) -> Any:
    """With channels as neighbours in memory, as tensor cores want them; the changes of layout are part of the time."""
    last = torch_().channels_last
    return _conv2d(x.to(memory_format=last), weight.to(memory_format=last), *others, **named)


def _many_channels(x: Any, *_others: Any, **_named: Any) -> str | bool:
    return x.shape[1] > 1 or "there is one channel, whose layouts are the same"


@outside_of_graphs
def _benchmarked(*args: Any, **named: Any) -> Any:
    """With the algorithm that cuDNN itself has found fastest for the shape."""
    cudnn = torch_().backends.cudnn
    with cudnn.flags(enabled=True, benchmark=True, deterministic=cudnn.deterministic, allow_tf32=cudnn.allow_tf32):
        return _conv2d(*args, **named)


def _has_cudnn(x: Any, *_others: Any, **_named: Any) -> str | bool:
    if not x.is_cuda:
        return f"the tensors are on {x.device}, and cuDNN runs on a GPU"
    return bool(torch_().backends.cudnn.is_available()) or "cuDNN is not there"


def _is_product(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> str | bool:
    if tuple(weight.shape[2:]) != (1, 1):
        return f"the filter is {weight.shape[2]} by {weight.shape[3]}, not 1 by 1"
    if _pair(stride) != (1, 1) or _pair(padding) != (0, 0) or groups != 1:
        return "it has strides, padding or groups"
    return x.is_contiguous() or "x has gaps"


def _product(x: Any, weight: Any, bias: Any = None, *_others: Any, **_named: Any) -> Any:
    """A filter of one pixel is a product of matrices."""
    batch, channels, height, width = x.shape
    flat, filters = x.view(batch, channels, height * width), weight.view(1, -1, channels).expand(batch, -1, -1)
    torch = torch_()
    found = torch.bmm(filters, flat) if bias is None else torch.baddbmm(bias.view(1, -1, 1), filters, flat)
    return found.view(batch, -1, height, width)


def _one_group(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> str | bool:
    if isinstance(padding, str):
        return "the padding is given as a word"
    return groups == 1 or f"there are {groups} groups"


def _unfolded(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """All patches as columns of a matrix, and one product."""
    torch, (filters, _, rows, columns) = torch_(), weight.shape
    patches = torch.nn.functional.unfold(x, (rows, columns), dilation, padding, stride)
    found = weight.view(filters, -1) @ patches
    found = found if bias is None else found + bias.view(-1, 1)
    (down, right), (up, left), (over, across) = _pair(stride), _pair(padding), _pair(dilation)
    height = (x.shape[2] + 2 * up - over * (rows - 1) - 1) // down + 1
    width = (x.shape[3] + 2 * left - across * (columns - 1) - 1) // right + 1
    return found.view(x.shape[0], filters, height, width)


def _pair(value: Any) -> tuple[Any, Any]:
    return (value, value) if isinstance(value, (int, str)) else (value[0], value[-1])


_LARGEST_HEAD = 256


def sdpa_chooser() -> Chooser:
    """softmax(scale * q @ k.T) @ v for q [batch, heads, queries, size], k and v [batch, kv heads, keys, size].

    `causal` hides the keys after a query; scale None is 1 / sqrt(size). Heads of q may share heads of k and v.
    """
    implementations = {
        "aten": Implementation(_attention),
        "flash": Implementation(partial(_backend, "FLASH_ATTENTION"), applies=_flash_takes),
        "efficient": Implementation(partial(_backend, "EFFICIENT_ATTENTION"), applies=_efficient_takes),
        "cudnn": Implementation(partial(_backend, "CUDNN_ATTENTION"), applies=_flash_takes),
        "math": Implementation(partial(_backend, "MATH"), applies=_math_takes),
        **by_kernel("attention", _by_kernel, _fits_kernel, _kernel_values),
    }
    return choose(  # type: ignore[no-any-return]
        implementations, name="choose_sdpa",
        schema="(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None) -> Tensor",
        parameters=("q", "k", "v", "causal", "scale"), arguments=_heads, dtypes=DTYPES,
    )  # fmt: skip


def _heads(
    batch: int = 4, heads: int = 16, length: int = 1024, size: int = 64, dtype: str = "bfloat16"
) -> dict[str, Any]:
    spec = TensorSpec((batch, heads, length, size), dtype)
    return {"q": spec, "k": spec, "v": spec, "causal": True, "scale": None}


def _attention(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> Any:
    attend: Callable[..., Any] = torch_().nn.functional.scaled_dot_product_attention
    shared = bool(q.shape[1] != k.shape[1])  # extents may be symbols, and torch takes none of these here
    return attend(q, k, v, is_causal=causal, scale=scale, enable_gqa=shared)


def _backend(name: str, q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> Any:
    attention = torch_().nn.attention
    with attention.sdpa_kernel(getattr(attention.SDPBackend, name)):
        return _attention(q, k, v, causal, scale)


def _flash_takes(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> str | bool:
    return first_reason([_on_cuda(q), of_dtype(q, NARROW), _head(q), _head(v)])


def _efficient_takes(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> str | bool:
    shared = None if q.shape[1] == k.shape[1] else "heads of q share heads of k"
    return first_reason([_on_cuda(q), of_dtype(q, WIDE), shared])


def _math_takes(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> str | bool:
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * 4
    return scores <= 1 << 32 or f"the matrix of scores would take {scores / 2**30:.0f} GiB"


def _fits_kernel(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> str | bool:
    alike = not causal or q.shape[2] == k.shape[2]
    return first_reason([
        on_gpu(q), of_dtype(q, WIDE), _head(q), _head(v),
        None if alike else "it counts hidden keys from the last query, torch from the first",
        None if q.stride(3) == k.stride(3) == v.stride(3) == 1 else "the elements of a head are no neighbours",
    ])  # fmt: skip


def _on_cuda(q: Any) -> str | None:
    return None if q.is_cuda else f"the tensors are on {q.device}, and this backend runs on a GPU"


def _head(tensor: Any) -> str | None:
    size = tensor.shape[-1]
    return None if size <= _LARGEST_HEAD else f"a head has {size} elements, more than {_LARGEST_HEAD}"


def _by_kernel(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None, *, config: Any = None) -> Any:
    return kernel_module("attention").flash_attention(q, k, v, causal, scale, config=config)


def _kernel_values(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> dict[str, Any]:
    own = kernel_module("attention")
    return own.problems.launch_values(q, k, v, own.result_of(q, v.shape[3]), bool(causal), scale)  # type: ignore[no-any-return]
