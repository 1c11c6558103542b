"""The contract of attention: what its arguments must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from triton_ops.exceptions import ConfigValueError, SettingsError, ShapeMismatchError
from triton_ops.kernels import call
from triton_ops.kernels.attention.problems import DTYPES
from triton_ops.kernels.attention.space import ROLES_NEED, WITH_ROLES
from triton_ops.kernels.jit import INTERPRETED
from triton_ops.kernels.tiles import check_loads, check_reach, describable
from triton_ops.values import TensorSpec, contiguous_stride, dtype_name

if TYPE_CHECKING:
    import torch


LARGEST_HEAD = 256
LARGEST_SCALE = 2.0**126  # log2(e) times it is a number of float32


class AttentionExtents(NamedTuple):
    """The extents of attention."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int


def validate_attention_inputs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None, causal: bool = False
) -> AttentionExtents:
    """Check all arguments of `flash_attention`: placement, dtypes, ranks, layout, shapes, then the scale and the mask.

    Raises:
        KernelTypeError, DeviceError, UnsupportedDtypeError, ShapeMismatchError, SettingsError: As `flash_attention`.
    """
    tensors = {"q": q, "k": k, "v": v}
    call.check_placement(tensors, on_cpu=INTERPRETED)
    call.check_dtypes({"q": q}, DTYPES)
    call.check_dtypes({"k": k, "v": v}, (dtype_name(q.dtype),))
    for name, tensor in tensors.items():
        call.check_rank(name, tensor.shape, "[batch, heads, length, head size]")
        _check_layout(name, tensor)
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys, value_dim = k.shape[1], k.shape[2], v.shape[3]
    call.check_shape("k", k.shape, (batch, kv_heads, keys, head_dim), "q has this batch size and head size")
    call.check_shape("v", v.shape, (batch, kv_heads, keys, value_dim), "k has these heads and keys")
    _check_heads(heads, kv_heads)
    _check_sizes(q=head_dim, v=value_dim)
    check_scale(scale)
    check_causal(causal)
    return AttentionExtents(batch, heads, kv_heads, queries, keys, head_dim, value_dim)


def check_causal(causal: Any) -> None:
    """Check that the mask is asked for by a bool: a tensor would make the host wait, and a text is always true.

    Raises:
        SettingsError: It is not.
    """
    if not isinstance(causal, bool):
        raise SettingsError(f"causal is {causal!r}; it must be True or False")


def check_own_config(config: Mapping[str, Any], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Check that a config of the caller's own asks for descriptors and roles of warps only where results are right.

    Raises:
        ConfigValueError: It does.
    """
    check_loads(config, lambda: describable(TensorSpec.of(k), TensorSpec.of(v)))
    if not config.get("WARP_SPECIALIZE", False):
        return
    form = {"SPLITS": 1, "DESCRIPTORS": False, **config}
    names = ("BLOCK_M", "SPLITS", "DESCRIPTORS", "num_warps", "num_stages")
    if tuple(form[name] for name in names) != WITH_ROLES or not describable(TensorSpec.of(q)):
        raise ConfigValueError(f"WARP_SPECIALIZE is {config['WARP_SPECIALIZE']!r}: {ROLES_NEED}")


def check_scale(scale: float | None) -> None:
    """Check that scores are multiplied with a number above 0 of float32, or that the scale is left out.

    Raises:
        SettingsError: It is not.
    """
    if scale is None:
        return
    number: Any = scale
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number <= LARGEST_SCALE:
        raise SettingsError(
            f"scale is {scale!r}; it must be above 0 and at most 2^126", hint="negate q where a scale is negative"
        )


def _check_layout(name: str, tensor: torch.Tensor) -> None:
    if tensor.shape[3] > 1 and tensor.stride(3) != 1:
        raise ShapeMismatchError(
            f"{name} has the strides {tuple(tensor.stride())}: the elements of a head are no neighbours",
            contiguous_stride(tensor.shape),
            tuple(tensor.stride()),
            name,
            hint=f"pass {name}.contiguous(); an exchange of heads and positions is no obstacle",
        )
    check_reach(name, tuple(tensor.shape[2:]), (tensor.stride(2), 1))


def _check_heads(heads: int, kv_heads: int) -> None:
    if kv_heads == 0 or heads % kv_heads:
        raise ShapeMismatchError(
            f"q has {heads} heads, and k {kv_heads}: each head of k must serve as many heads of q",
            f"a divisor of {heads}",
            kv_heads,
            "k",
        )


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if not 1 <= size <= LARGEST_HEAD:
            raise ShapeMismatchError(
                f"the heads of {name} have {size} elements; they must have 1 to {LARGEST_HEAD}",
                f"1 to {LARGEST_HEAD}",
                size,
                name,
            )
