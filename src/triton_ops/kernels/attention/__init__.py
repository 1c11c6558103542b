"""Attention, softmax(scale * q @ k.T) @ v, with its gradient: the public functions with the operation for tuners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from triton_ops.backend import LauncherKernel, Operation
from triton_ops.base import require
from triton_ops.dispatch import Gradient, compilable
from triton_ops.kernels import call
from triton_ops.kernels.attention.backward import gradient
from triton_ops.kernels.attention.contract import AttentionExtents, check_own_config, validate_attention_inputs
from triton_ops.kernels.attention.float32_tiles import are_summed
from triton_ops.kernels.attention.kernel import launch
from triton_ops.kernels.attention.problems import DTYPES, PROBLEMS, arguments, work
from triton_ops.kernels.attention.reference import attention_reference
from triton_ops.kernels.attention.space import OWN, config_space, default_config
from triton_ops.kernels.choice import config_for
from triton_ops.kernels.gradient import differentiable
from triton_ops.values import dtype_name

if TYPE_CHECKING:
    import torch


__all__ = ["flash_attention", "flash_attention_with_lse", "operation"]

_KERNEL = LauncherKernel(launch, outputs=("out",))
operation = Operation(
    name="attention",
    kernel=_KERNEL,
    space=config_space,
    arguments=arguments,
    reference=attention_reference,
    work=work,
    dtypes=DTYPES,
    problems=PROBLEMS,
    device="cuda",
)


def _saved_values(inputs: Mapping[str, Any], results: Any) -> tuple[list[Any], dict[str, Any]]:
    """The values for the gradient, where torch traces: tensors, and others by name."""
    return [inputs[name] for name in "qkv"] + [*results], {name: inputs[name] for name in ("causal", "scale")}


@compilable(
    '(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, str config="", bool tune=False)'
    " -> (Tensor, Tensor)",
    gradient=Gradient(
        inputs=("q", "k", "v"), function=gradient, values="bool causal, float? scale", kept=_saved_values
    ),
)
def _attention_products(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the logarithms of the sums of exponentials, [batch, heads, queries]."""
    extents = validate_attention_inputs(q, k, v, scale, causal)

    def forward(_saving: bool) -> tuple[tuple[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
        plain = q.detach(), k.detach(), v.detach()
        results = _forward(plain, extents, causal, scale, True, config, tune)
        return results, [*plain, *results]

    return differentiable(  # type: ignore[no-any-return]
        (q, k, v), forward, partial(gradient, causal=causal, scale=scale)
    )


@compilable(
    '(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, str config="", bool tune=False) -> Tensor',
    training=_attention_products,
)
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> torch.Tensor:
    """Compute softmax(scale * q @ k.T) @ v for every head, without the matrix of scores in memory.

    Scores, sums and the result are computed in float32; the exponentials are rounded to the dtype of `v` for the second
    product, and the result once; equal calls give equal bits. The gradients are computed by kernels too, which compute
    the weights anew from one logarithm for each query. Products of float32 are computed in TF32 only where
    `torch.get_float32_matmul_precision()` allows it. Heads of `q` may share heads of `k` and `v`: head h takes head
    h // (heads / kv_heads).

    NaN and infinity reach every query that sees their key, as in PyTorch: in a value those that give its key a weight
    above 0. A hidden key is absent; but where a value is NaN or infinite, results of queries that do not see its key
    are not defined. A query that sees no key gets zeros, whatever the values hold. Of gradients those that PyTorch
    makes of 0 times NaN or infinity are not defined; there are no second derivatives.

    Args:
        q: [batch, heads, queries, head size], bfloat16 | float16 | float32, CUDA; a head of up to 256 elements that are
            neighbours, else any strides: pass [batch, queries, heads, head size] as `q.transpose(1, 2)`.
        k: [batch, kv heads, keys, head size], dtype and device of `q`, strides as of `q`.
        v: [batch, kv heads, keys, value size], dtype and device of `q`, strides as of `q`.
        causal: Whether the last query sees all keys, the one before it all but the last, and so on, as with a cache of
            earlier keys; a query that sees no key gets zeros. For as many queries as keys this is the usual mask.
        scale: What scores are multiplied with, above 0 and at most 2^126; None is 1 / sqrt(head size).
        config: A value for each of BLOCK_M, BLOCK_N, num_warps and num_stages, and if you like GROUP_HEADS, SPLITS,
            DESCRIPTORS and WARP_SPECIALIZE; None takes the winner of a record, else the default.
        tune: Whether to tune this problem first if it has no record, as inside `with triton_ops.tuning():`.

    Returns:
        [batch, heads, queries, value size], dtype of `q`, new storage; in memory heads are inside positions if they are
        in `q`.

    Raises:
        KernelTypeError: An argument is not a tensor, or one with torch's bit for negation.
        DeviceError: A tensor is not on a CUDA device, or the tensors are on different devices.
        UnsupportedDtypeError: `q` has another dtype, or `k` or `v` not that of `q`.
        ShapeMismatchError: A shape does not fit, a head is larger than 256, or its elements are no neighbours.
        SettingsError: The scale is none of these, or `causal` is no bool.
        UnknownTunableError: `config` lacks a tunable, or names another.
        ConfigValueError: `config` holds what the kernel does not take, or descriptors that these tensors cannot have.

    Cost: 2 · batch · heads · (head size + value size) operations for each pair of a query and a key that it sees; reads
    q, k and v and writes the result once where L2 holds the keys in flight; with SPLITS parts of the result in float32
    in between; no host sync. The first call of a config and dtype compiles: up to some seconds.
    Source: Dao, "FlashAttention-2", arXiv:2307.08691; running maximum by Milakov, Gimelshein, arXiv:1805.02867.
    """
    extents = validate_attention_inputs(q, k, v, scale, causal)
    plain = q.detach(), k.detach(), v.detach()

    def forward(saving: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        out, lse = _forward(plain, extents, causal, scale, saving, config, tune)
        return out, [*plain, out, lse]

    return differentiable(  # type: ignore[no-any-return]
        (q, k, v), forward, partial(gradient, causal=causal, scale=scale)
    )


def flash_attention_with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    tune: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `flash_attention`, with the natural logarithm of each query's sum of exp(score), to merge results by.

    Results over parts of the keys add up to that over all: with logarithms a and b of the parts, weigh the results by
    exp(a - m) and exp(b - m), with m the larger one, and divide by the sum of the weights.

    Args:
        q: As for `flash_attention`, as are all others.
        k: The keys.
        v: The values.
        causal: Whether a query sees no later key.
        scale: What scores are multiplied by; None takes 1 / sqrt(head size).
        config: The config; None takes that of a record, else the default.
        tune: Whether a problem without a winner is tuned first.

    Returns:
        The result, and the logarithms, [batch, heads, queries], float32, contiguous: minus infinity for a query that
        sees no key. They have no gradient.

    Raises:
        As `flash_attention`.
    """
    attended, logarithms = _attention_products(q, k, v, causal, scale, config=config, tune=tune)
    return attended, logarithms.detach()


def _forward(
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    extents: AttentionExtents,
    causal: bool,
    scale: float | None,
    saving: bool,
    config: Mapping[str, Any] | None,
    tune: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the logarithms if they are to be kept, else nothing in their place."""
    torch = require("torch", "attention")
    q, k, v = tensors
    out = _result(q, extents)
    wide = torch.promote_types(q.dtype, torch.float32)
    lse = q.new_empty((extents.batch, extents.heads, extents.queries) if saving else (0,), dtype=wide)
    if call.launches(out):
        values = {
            "q": q, "k": k, "v": v, "out": out, "lse": None, "scale": scale or 1 / math.sqrt(extents.head_dim),
            "CAUSAL": causal, "PRECISION": call.precision_of(q),
        }  # fmt: skip
        rows, many = extents.queries * (extents.heads // extents.kv_heads), extents.batch * extents.kv_heads
        dim = max(extents.head_dim, extents.value_dim)
        summed = are_summed(values)
        choice = config_for(
            operation, values, lambda: default_config(rows, extents.keys, many, dim, dtype_name(q.dtype), summed),
            config=config, own=OWN, tune=tune,
        )  # fmt: skip
        if config is not None:
            check_own_config(choice, q, k, v)
        call.launch_all(launch, choice, {**values, "lse": lse if saving else None}, q.device)
    return out, lse


def _result(q: torch.Tensor, extents: AttentionExtents) -> torch.Tensor:
    """Memory for the result, in which heads are inside positions if they are in `q`."""
    batch, heads, _, queries, _, _, size = extents
    if q.stride(1) < q.stride(2):
        return q.new_empty((batch, queries, heads, size)).transpose(1, 2)
    return q.new_empty((batch, heads, queries, size))
